//! Meters of a run, allocated before its ports open: allocating memory for millions of flows takes seconds, in which a
//! port would lose frames.

use linerate_meter::{Config, FlowDistributor, Meter};
use std::thread;

/// Bytes for blocks and records exchanged with a thread, and its stack.
const WORKER_BYTES: usize = 4 << 20;

/// One meter per worker.
pub struct Meters {
    pub(super) config: Config,
    pub(super) meters: Vec<Meter>,
}

impl Meters {
    /// Creates `workers` meters, from 1 to [`FlowDistributor::MOST`]; the maximum number of flows of `config` is divided among
    /// them.
    pub fn new(config: &Config, workers: usize) -> Self {
        let workers = workers.clamp(1, FlowDistributor::MOST);
        let own = |worker: usize| own(config, worker, workers);
        // In parallel threads: pages are faulted in by all processors at once.
        let meters = thread::scope(|scope| {
            let made: Vec<_> = (0..workers).map(|worker| scope.spawn(move || Meter::new(&own(worker)))).collect();
            made.into_iter().map(|meter| meter.join().expect("making a meter does not panic")).collect()
        });
        Meters { config: config.clone(), meters }
    }

    /// Returns the upper bound of the memory of `workers` meters with their blocks, in bytes.
    pub fn most_bytes_of(config: &Config, workers: usize) -> usize {
        let workers = workers.clamp(1, FlowDistributor::MOST);
        let buffers = if workers > 1 { WORKER_BYTES } else { 0 };
        (0..workers).map(|worker| own(config, worker, workers).most_bytes() + buffers).sum()
    }

    /// Returns the upper bound of the memory of these meters, in bytes.
    pub fn most_bytes(&self) -> usize {
        Meters::most_bytes_of(&self.config, self.meters.len())
    }
}

/// Returns a worker's part of the configuration.
fn own(config: &Config, worker: usize, workers: usize) -> Config {
    Config { max_flows: (config.max_flows + workers - 1 - worker) / workers, ..config.clone() }
}
