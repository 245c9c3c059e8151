//! What to try next, and what trials say of a device. No frame is sent here, and no clock is read: trials come in, the next one to
//! run goes out.
//!
//! - [`trial`]: what was offered and lost; [`goal`]: what is looked for, RFC 2544, NDR, PDR and others by their names;
//! - [`classify`]: what the trials of one load say of it for a goal, and the conditional throughput;
//! - [`grid`]: the loads that are tried; [`chain`]: a goal approached by shorter and wider ones;
//! - [`search`]: one search for several goals; [`outcome`]: what it found;
//! - [`estimate`](mod@estimate): how long that takes, by devices that are simulated;
//! - methods that search for no rate: [`rate`], [`burst`], [`recovery`], [`service`], [`soak`]; [`spread`] of what is repeated.
//!
//! # The search
//!
//! The classification of loads and the conditional throughput are those of MLRsearch (RFC 9971): a load is an upper
//! bound for a goal once the trials that are still missing could not make it a lower one, and the other way round. Few bad trials
//! among many good ones do not make an upper bound where the goal allows them: so a result repeats on a machine that now and then
//! loses a frame for reasons of its own.
//!
//! Loads lie on a grid of equal ratios, of which each goal's width is a whole number of steps: what is halved and widened hits the
//! same loads again, and what one goal has measured counts for the others. Each goal is approached by targets that are wider and
//! shorter ([`chain`]). Of the loads that goals ask for the lowest is tried first, since an upper bound found there makes what lies
//! above worthless.
//!
//! It always ends. A load is tried only while it is undecided for the target that asks for it, and each such trial adds to the
//! duration after which it is decided: [`search::Search::most_trials`] says after how many at the latest.
#![forbid(unsafe_code)]

pub mod burst;
pub mod chain;
pub mod classify;
pub mod estimate;
pub mod goal;
pub mod grid;
pub mod outcome;
pub mod rate;
pub mod recovery;
pub mod search;
pub mod service;
pub mod soak;
pub mod spread;
pub mod trial;

pub use classify::{Class, Rule, conditional_throughput};
pub use estimate::{Estimate, estimate};
pub use goal::Goal;
pub use grid::Limits;
pub use outcome::{Found, Verdict};
pub use search::Search;
pub use trial::{Ask, Trial};
