//! A meter whose flows are listed while it works, as `linerate top` does, compared with the same meter without that.

use super::traffic::Pattern;
use super::{CHUNK, MeterRun, config};
use crate::Effort;
use crate::harness::{Case, Ours, Sample};
use linerate_cli::verbs::snapshot::{FlowQuery, Gatherer, Sort};
use linerate_engine::flows::watch::FlowWatch;
use linerate_headers::Link;
use linerate_meter::{Flow, Level};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

/// Snapshots per second of metering: none, as `linerate top`, and twice as many.
const SNAPSHOTS: [(&str, f64); 3] =
    [("no snapshots", 0.0), ("a snapshot each second", 1.0), ("a snapshot twice a second", 2.0)];
/// Seconds of metering in a round.
const ROUND: f64 = 3.0;

struct WatchedMeter {
    metering: MeterRun,
    watch: FlowWatch,
    ask: SyncSender<()>,
}

/// Active flows of level `counters`, all of which have packets between two snapshots.
pub(super) fn of(effort: Effort, flows: usize) -> Case {
    // Snapshots follow the time of metering; one that is not finished is not requested twice.
    let (ask, asked) = sync_channel::<()>(1);
    let gatherer = Gatherer::new("bench", None);
    thread::spawn(move || {
        let question = FlowQuery { by: None, sort: Sort::Bits, filter: String::new(), top: 20 };
        asked.iter().for_each(|()| drop(gatherer.snapshot(&question)));
    });
    let metering = MeterRun::new(&config(Level::Counters, flows), flows, Pattern::Random, 64).0;
    let watched = Rc::new(RefCell::new(WatchedMeter { metering, watch: FlowWatch::new(), ask }));
    let mut all = Case::sized(64);
    for (number, (name, often)) in SNAPSHOTS.into_iter().enumerate() {
        let watched = Rc::clone(&watched);
        let round = move || Ok(watched.borrow_mut().round(effort, often));
        let ours = Ours::new(format!("counters, {flows} flows, {name}"), round).with(|row| row.flows = Some(flows));
        all.ours.push(if number == 0 {
            ours
        } else {
            ours.baseline(0).finish(|row| {
                let rate = row.of_baseline.map(|rate| format!("{rate:.3} of the rate without snapshots"));
                row.remark = rate.unwrap_or_default();
            })
        });
    }
    all
}

impl WatchedMeter {
    fn round(&mut self, effort: Effort, often: f64) -> Sample {
        let (mut seconds, mut frames, mut requested) = (0.0, 0, 0.0);
        let end = if effort.quick { ROUND / 100.0 } else { ROUND };
        while seconds < end {
            if often > 0.0 && seconds * often >= requested {
                requested += 1.0;
                // A full channel has a request.
                let _ = self.ask.try_send(());
            }
            seconds += self.take();
            frames += self.metering.block.len() as u64;
        }
        Sample::new(frames, seconds)
    }

    /// Meters a block of packets as a worker does; returns its seconds.
    fn take(&mut self) -> f64 {
        let MeterRun { meter, traffic, block, .. } = &mut self.metering;
        block.clear();
        traffic.continue_any(block, CHUNK / 128);
        let (burst, started) = (block.burst(), Instant::now());
        self.watch.note(|records| meter.take(burst, &[Some(Link::Ethernet)], records), &mut |_: &Flow| {});
        self.watch.show(meter, started);
        started.elapsed().as_secs_f64()
    }
}
