//! Several meters at the same time, each in a thread with flows of its own, as a symmetric hash spreads them over queues.

use super::traffic::{Pattern, Traffic};
use super::{config, name};
use crate::Effort;
use crate::harness::{Case, Ours, Sample};
use linerate_burst::Block;
use linerate_cli::view::rates::counted;
use linerate_headers::Link;
use linerate_meter::{Flow, Level, Meter};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Packets of 64 bytes that each thread meters in a round, from memory that no cache holds; of longer ones as many bytes.
const FRAMES: usize = 1 << 20;

/// A meter with its flows.
struct Worker {
    meter: Meter,
    traffic: Traffic,
    block: Block,
}

/// One thread, and doubled up to the number of processors.
pub(super) fn of(effort: Effort, level: Level, flows: usize, size: usize) -> Case {
    let most = thread::available_parallelism().map_or(1, usize::from);
    let mut all = Case::sized(size);
    for cores in std::iter::successors(Some(1), |cores| Some(cores * 2)).take_while(|cores| *cores <= most) {
        let mut workers: Vec<Worker> = Vec::new();
        let round = move || {
            let (own, frames) = (flows / cores, effort.of(FRAMES / size.div_ceil(64)));
            if workers.is_empty() {
                workers = (0..cores).map(|_| Worker::new(level, own, size, frames)).collect();
                together(&mut workers, |traffic, block| traffic.open(block, own));
            }
            let span = together(&mut workers, |traffic, block| traffic.continue_any(block, frames));
            Ok(Sample::new((frames * cores) as u64, span.as_secs_f64()))
        };
        let ours = Ours::new(format!("{}, {flows} flows over {}", name(level), counted(cores as u64, "thread")), round);
        let ours = ours.with(|row| (row.cores, row.flows) = (cores, Some(flows)));
        all.ours.push(if cores == 1 {
            ours
        } else {
            ours.baseline(0).finish(|row| {
                let rate = row.of_baseline.unwrap_or_default();
                row.remark = format!("{rate:.2} times one thread; {}", threads_per_core());
            })
        });
    }
    all
}

impl Worker {
    fn new(level: Level, flows: usize, size: usize, frames: usize) -> Self {
        let most = frames.max(flows);
        let (meter, traffic) = (Meter::new(&config(level, flows)), Traffic::new(Pattern::Random, flows, size));
        Worker { meter, traffic, block: Block::new(most * (size + 64), most) }
    }
}

/// Has all workers make packets, then meter them together; returns the time of the slowest.
fn together(workers: &mut [Worker], make: impl Fn(&mut Traffic, &mut Block) + Sync) -> Duration {
    let (start, make) = (&Barrier::new(workers.len()), &make);
    thread::scope(|scope| {
        let work = |worker: &mut Worker| {
            worker.block.clear();
            make(&mut worker.traffic, &mut worker.block);
            start.wait();
            let started = Instant::now();
            worker.meter.take(worker.block.burst(), &[Some(Link::Ethernet)], &mut |_: &Flow| {});
            started.elapsed()
        };
        let threads: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(move || work(worker))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a worker does not panic")).max().unwrap_or_default()
    })
}

/// Describes whether processors share cores, by the kernel.
fn threads_per_core() -> &'static str {
    let siblings = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list");
    match siblings {
        Ok(list) if list.trim().contains([',', '-']) => "two threads per core",
        Ok(_) => "one thread per core, by the kernel",
        Err(_) => "threads per core unknown",
    }
}
