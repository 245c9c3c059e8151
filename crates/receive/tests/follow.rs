//! Streams of captured traffic: against naive models, and case by case.

mod cases;
mod cut;
mod forged;
mod hostile;
mod hosts;
mod model;
mod pauses;
mod replaced;
