//! The meters of a run, made before its ports open: taking memory for millions of flows takes seconds, in which a port
//! would lose frames.

use linerate_meter::{Config, Meter, Spread};
use std::thread;

/// Blocks and records that go to and from a thread, and its stack.
const WORKER_BYTES: usize = 4 << 20;

/// A meter for each worker.
pub struct Meters {
    pub(super) config: Config,
    pub(super) meters: Vec<Meter>,
}

impl Meters {
    /// So many, from 1 to [`Spread::MOST`]; the most flows of `config` are divided among them.
    pub fn new(config: &Config, workers: usize) -> Self {
        let workers = workers.clamp(1, Spread::MOST);
        let own = |worker: usize| own(config, worker, workers);
        // Each in a thread of its own: pages are made by all processors at once.
        let meters = thread::scope(|scope| {
            let made: Vec<_> = (0..workers).map(|worker| scope.spawn(move || Meter::new(&own(worker)))).collect();
            made.into_iter().map(|meter| meter.join().expect("making a meter does not panic")).collect()
        });
        Meters { config: config.clone(), meters }
    }

    /// The most bytes of memory that so many meters take, with what they are handed frames in.
    pub fn most_bytes_of(config: &Config, workers: usize) -> usize {
        let workers = workers.clamp(1, Spread::MOST);
        let beside = if workers > 1 { WORKER_BYTES } else { 0 };
        (0..workers).map(|worker| own(config, worker, workers).most_bytes() + beside).sum()
    }

    /// The most bytes of memory that these take.
    pub fn most_bytes(&self) -> usize {
        Meters::most_bytes_of(&self.config, self.meters.len())
    }
}

/// Part of the flows.
fn own(config: &Config, worker: usize, workers: usize) -> Config {
    Config { max_flows: (config.max_flows + workers - 1 - worker) / workers, ..config.clone() }
}
