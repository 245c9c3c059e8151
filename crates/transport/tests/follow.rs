//! Streams of captured traffic: compared with naive models, and case by case.

mod cases;
mod forged;
mod hostile;
mod hosts;
mod model;
mod pauses;
mod second_syn;
mod truncation;
