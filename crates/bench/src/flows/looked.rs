//! A meter that somebody looks at while it works, as `linerate top` does: beside itself when nobody does.

use super::traffic::{Pattern, Traffic};
use super::{CHUNK, config};
use crate::Effort;
use crate::measure::{Rounds, Row};
use linerate_burst::Block;
use linerate_cli::verbs::snapshot::{Ask, Gatherer, Sort};
use linerate_engine::flows::watch::Watch;
use linerate_meter::{Flow, Level, Meter};
use linerate_wire::Link;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

/// Looks in a second of metering: as `linerate top` has them, and twice as many.
const LOOKS: [f64; 2] = [1.0, 2.0];
/// Seconds of metering in a round.
const ROUND: f64 = 3.0;

/// So many active flows of level `counters`, all of which have packets between two looks.
pub(super) fn run(effort: Effort, flows: usize) -> Vec<Row> {
    let (mut alone, mut looked) = (Rounds::default(), [Rounds::default(), Rounds::default()]);
    let gatherer = Gatherer::new("bench", None);
    thread::scope(|scope| {
        // Whoever looks is asked to by the time that was metered; a look that was not over is not asked for twice.
        let (ask, asked) = sync_channel::<()>(1);
        scope.spawn(move || {
            let question = Ask { by: None, sort: Sort::Bits, filter: String::new(), top: 20 };
            asked.iter().for_each(|()| drop(gatherer.snapshot(&question)));
        });
        let mut metering = Metering::new(flows);
        for _ in 0..effort.rounds {
            metering.round(effort, None, &mut alone);
            for (looks, rounds) in LOOKS.into_iter().zip(&mut looked) {
                metering.round(effort, Some((&ask, looks)), rounds);
            }
        }
    });
    let row = |rounds: &Rounds, case: &str| {
        let row = rounds.row("flows", format!("counters, {flows} flows, {case}"), 60.0).sized(64);
        Row { flows: Some(flows), ..row }
    };
    let looked = looked.iter().zip(["looked at each second", "looked at twice a second"]).map(|(rounds, case)| Row {
        remark: format!("{:.3} of when nobody looks", rounds.beside(&alone)),
        ..row(rounds, case)
    });
    std::iter::once(row(&alone, "nobody looks")).chain(looked).collect()
}

struct Metering {
    meter: Meter,
    watch: Watch,
    traffic: Traffic,
    block: Block,
}

impl Metering {
    fn new(flows: usize) -> Self {
        let chunk = CHUNK / 128;
        let mut metering = Metering {
            meter: Meter::new(&config(Level::Counters, flows)),
            watch: Watch::new(),
            traffic: Traffic::new(Pattern::Random, flows, 64),
            block: Block::new(CHUNK, chunk),
        };
        let mut left = flows;
        while left > 0 {
            let frames = left.min(chunk);
            left -= frames;
            metering.take(|traffic, block| traffic.begin(block, frames));
        }
        metering
    }

    fn round(&mut self, effort: Effort, ask: Option<(&SyncSender<()>, f64)>, rounds: &mut Rounds) {
        let (mut seconds, mut frames, mut looks) = (0.0, 0, 0.0);
        let end = if effort.quick { ROUND / 100.0 } else { ROUND };
        while seconds < end {
            if let Some((ask, often)) = ask
                && seconds * often >= looks
            {
                looks += 1.0;
                // Full: it is asked already.
                let _ = ask.try_send(());
            }
            seconds += self.take(|traffic, block| traffic.go_on(block, CHUNK / 128));
            frames += self.block.len() as u64;
        }
        rounds.add(frames, seconds);
    }

    /// Meters frames that `make` puts into the block, as a worker does; in so many seconds.
    fn take(&mut self, make: impl FnOnce(&mut Traffic, &mut Block)) -> f64 {
        self.block.clear();
        make(&mut self.traffic, &mut self.block);
        let (meter, burst, started) = (&mut self.meter, self.block.burst(), Instant::now());
        self.watch.note(|records| meter.take(burst, &[Some(Link::Ethernet)], records), &mut |_: &Flow| {});
        self.watch.show(meter, started);
        started.elapsed().as_secs_f64()
    }
}
