//! The meters of a run, made before its ports open: taking memory for millions of flows takes seconds, in which a port
//! would lose frames.

use linerate_meter::{Config, Meter, Spread};
use std::thread;

/// A meter for each worker.
pub struct Meters {
    pub(super) config: Config,
    pub(super) meters: Vec<Meter>,
}

impl Meters {
    /// So many, from 1 to [`Spread::MOST`]; the most flows of `config` are divided among them.
    pub fn new(config: &Config, workers: usize) -> Self {
        let workers = workers.clamp(1, Spread::MOST);
        let flows = |worker: usize| (config.max_flows + workers - 1 - worker) / workers;
        let own = |worker: usize| Config { max_flows: flows(worker), ..config.clone() };
        // Each in a thread of its own: pages are made by all processors at once.
        let meters = thread::scope(|scope| {
            let made: Vec<_> = (0..workers).map(|worker| scope.spawn(move || Meter::new(&own(worker)))).collect();
            made.into_iter().map(|meter| meter.join().expect("making a meter does not panic")).collect()
        });
        Meters { config: config.clone(), meters }
    }
}
