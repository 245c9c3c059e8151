//! Search and analysis of device tests: which trial to run next, and the result of trials. No frame is sent here, and
//! no clock is read: the input is trials, the output the next trial to run.
//!
//! - [`trial`]: offered load and loss; [`goal`]: search goals, RFC 2544, NDR, PDR and others by name;
//! - [`classify`]: class of a load for a goal, and the conditional throughput;
//! - [`grid`]: the loads; [`chain`]: intermediate targets of a goal;
//! - [`search`]: one search for several goals; [`outcome`]: its results;
//! - [`estimate`](mod@estimate): its duration, by simulated devices;
//! - methods without a search for a rate: [`rate`], [`burst`], [`recovery`], [`service`], [`soak`]; [`statistics`] of
//!   repeated values.
//!
//! # The search
//!
//! The classification of loads and the conditional throughput are those of MLRsearch (RFC 9971): a load is an upper
//! bound for a goal once the missing trials could not make it a lower one, and vice versa. A few bad trials among many
//! good ones do not make an upper bound if the goal allows them: so results are repeatable on a machine that
//! occasionally loses a frame itself.
//!
//! Loads are on a grid of equal ratios, of which each goal's width is an integer number of steps: halving and widening
//! hits the same loads again, and trials for one goal count for the others. Each goal is approached by targets that are
//! wider and shorter ([`chain`]). The lowest load requested by a goal is tried first, since an upper bound found there
//! makes higher loads irrelevant.
//!
//! It always terminates. A load is tried only while it is undecided for the target that requests it, and each such
//! trial adds to the duration after which it is decided: [`search::Search::most_trials`] is the maximum number.
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
pub mod statistics;
pub mod trial;

pub use classify::{Class, Rule, conditional_throughput};
pub use estimate::{Estimate, estimate};
pub use goal::Goal;
pub use grid::Limits;
pub use outcome::{GoalResult, Verdict};
pub use search::Search;
pub use trial::{Trial, TrialRequest};
