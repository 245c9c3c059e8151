//! Several meters at once, each in a thread of its own with flows of its own, as ports whose queues are spread by a symmetric hash feed
//! them.

use super::traffic::{Pattern, Traffic};
use super::{config, name};
use crate::Effort;
use crate::measure::{Rounds, Row};
use linerate_burst::Block;
use linerate_meter::{Flow, Level, Meter};
use linerate_wire::Link;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Frames of 64 bytes that each thread meters in a round, from memory that no cache holds; of longer ones as many bytes.
const FRAMES: usize = 1 << 20;

/// With one thread, and doubled up to as many as there are processors.
pub(super) fn run(effort: Effort, level: Level, flows: usize, size: usize) -> Vec<Row> {
    let most = thread::available_parallelism().map_or(1, usize::from);
    let mut rows: Vec<Row> = Vec::new();
    let mut cores = 1;
    while cores <= most {
        let rounds = measure(effort, level, flows / cores, cores, size);
        let case = format!("{}, {flows} flows over {cores} threads", name(level));
        let mut row = rounds.row("flows", case, size as f64 - 4.0).sized(size);
        (row.cores, row.flows) = (cores, Some(flows));
        if let Some(one) = rows.first() {
            row.remark = format!("{:.2} times one thread; {}", row.mpps / one.mpps, threads_per_core());
        }
        rows.push(row);
        cores *= 2;
    }
    rows
}

fn measure(effort: Effort, level: Level, flows: usize, cores: usize, size: usize) -> Rounds {
    let frames = effort.of(FRAMES / size.div_ceil(64));
    let together = Barrier::new(cores);
    let work = || {
        let mut meter = Meter::new(&config(level, flows));
        let mut traffic = Traffic::new(Pattern::Random, flows, size);
        let mut block = Block::new(frames.max(flows) * (size + 64), frames.max(flows));
        let mut meter_block = |make: &mut dyn FnMut(&mut Block)| {
            block.clear();
            make(&mut block);
            together.wait();
            let started = Instant::now();
            meter.take(block.burst(), &[Some(Link::Ethernet)], &mut |_: &Flow| {});
            let elapsed = started.elapsed();
            together.wait();
            elapsed
        };
        meter_block(&mut |block| traffic.begin(block, flows));
        let round = |_| meter_block(&mut |block| traffic.go_on(block, frames));
        (0..effort.rounds).map(round).collect::<Vec<Duration>>()
    };
    let times: Vec<Vec<Duration>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread that measures does not panic")).collect()
    });
    let mut rounds = Rounds::default();
    for round in 0..effort.rounds {
        let slowest = times.iter().map(|times| times[round]).max().unwrap_or_default();
        rounds.add((frames * cores) as u64, slowest.as_secs_f64());
    }
    rounds
}

/// Whether processors share cores here, as the kernel says.
fn threads_per_core() -> &'static str {
    let siblings = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list");
    match siblings {
        Ok(list) if list.trim().contains([',', '-']) => "two threads a core",
        Ok(_) => "a thread a core, as the kernel sees it",
        Err(_) => "threads a core not known",
    }
}
