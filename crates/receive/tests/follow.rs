//! Streams of captured traffic: against naive models, and case by case.

#[path = "follow/cases.rs"]
mod cases;
#[path = "follow/cut.rs"]
mod cut;
#[path = "follow/forged.rs"]
mod forged;
#[path = "follow/hostile.rs"]
mod hostile;
#[path = "follow/hosts.rs"]
mod hosts;
#[path = "follow/model.rs"]
mod model;
#[path = "follow/pauses.rs"]
mod pauses;
#[path = "follow/replaced.rs"]
mod replaced;
