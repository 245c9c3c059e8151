//! A capture file written again, metered and counted: all in one pass, beside a pass for each of them.

use super::Effort;
use super::flows::peers;
use super::folder::Folder;
use super::measure::{Rounds, Row};
use anyhow::ensure;
use linerate_backends::open_rx;
use linerate_engine::{Capture, Consumer, Counting, Metering, Meters, Receive, Selection};
use linerate_meter::{Config, Flow, Level, Records};
use linerate_port::{RxOptions, Spec};
use linerate_record::{Format, Output, Writer};
use std::path::Path;

const FRAMES: usize = 2_000_000;
const FLOWS: usize = 65_536;
const SIZE: usize = 64;

/// Records that nobody wants.
struct Dropped;

impl Records for Dropped {
    fn take(&mut self, _: &Flow) {}
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let folder = Folder::new("several")?;
    let (input, output) = (folder.file("input.pcap"), folder.file("output.pcap"));
    let (frames, flows) = (effort.of(FRAMES), effort.of(FLOWS));
    peers::write(&input, frames, flows)?;
    let (mut together, mut apart) = (Rounds::default(), Rounds::default());
    for _ in 0..effort.rounds {
        let mut all = Ok(());
        together.time(|| {
            all = pass(&input, &output, frames, flows, [true; 3]);
            frames as u64
        });
        all?;
        let mut each = Ok(());
        apart.time(|| {
            let passes = [[true, false, false], [false, true, false], [false, false, true]];
            each = passes.into_iter().try_for_each(|wanted| pass(&input, &output, frames, flows, wanted));
            frames as u64
        });
        each?;
    }
    let row = together.row("several", "write, meter and count", (SIZE - 4) as f64).sized(SIZE);
    Ok(vec![Row { flows: Some(flows), ..row.beside("a pass for each", &apart) }])
}

/// One pass over the file for those that are wanted: writing, metering, counting.
fn pass(input: &Path, output: &Path, frames: usize, flows: usize, wanted: [bool; 3]) -> anyhow::Result<()> {
    let writer = Writer::new(Output::open(&output.to_string_lossy())?, Format::Pcap);
    let mut capture = Capture::new(Selection::default(), vec![Box::new(writer)]);
    let config = Config { level: Level::Tcp, max_flows: flows + 1, ..Config::default() };
    let mut metering = Metering::new(Meters::new(&config, 1), Selection::default(), Dropped);
    let mut counting = Counting::new(Selection::default(), false);
    let all: [&mut dyn Consumer; 3] = [&mut capture, &mut metering, &mut counting];
    let mut consumers: Vec<&mut dyn Consumer> =
        all.into_iter().zip(wanted).filter_map(|(consumer, is_wanted)| is_wanted.then_some(consumer)).collect();
    let port = open_rx(&Spec::file(&input.to_string_lossy()), &RxOptions::default())?;
    let run = Receive::all(vec![port]).run(&mut consumers);
    if let Some(failure) = run.failure {
        return Err(failure.into());
    }
    let done = [capture.done().frames, metering.done().0.counts.frames, counting.done().all.traffic.frames];
    let is_whole = done.iter().zip(wanted).all(|(done, is_wanted)| !is_wanted || *done == frames as u64);
    ensure!(is_whole, "{done:?} of {frames} frames were taken");
    Ok(())
}
