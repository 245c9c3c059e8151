//! A capture file written again, metered and counted in one pass, compared with a pass for each.

use super::Effort;
use super::flows::files::write;
use super::folder::Folder;
use super::harness::{Case, Ours, Prepare, Sample, case};
use anyhow::ensure;
use linerate_backends::open_rx;
use linerate_engine::{Capture, Consumer, CountConsumer, MeterConsumer, Meters, Receive, Selection};
use linerate_meter::{Config, Flow, Level, Records};
use linerate_pcap::{Format, Output, Writer};
use linerate_port::{RxOptions, Spec};
use std::path::Path;
use std::rc::Rc;

const FRAMES: usize = 2_000_000;
const FLOWS: usize = 65_536;

/// Discards records.
struct NullRecords;

impl Records for NullRecords {
    fn take(&mut self, _: &Flow) {}
}

pub(super) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    Ok(vec![case(move || {
        let folder = Rc::new(Folder::new("several")?);
        let (frames, flows) = (effort.of(FRAMES), effort.of(FLOWS));
        write(&folder.file("input.pcap"), frames, flows)?;
        let side = |passes: &'static [[bool; 3]]| {
            let folder = Rc::clone(&folder);
            move || {
                let (input, output) = (folder.file("input.pcap"), folder.file("output.pcap"));
                Sample::timed(|| {
                    passes.iter().try_for_each(|wanted| pass(&input, &output, frames, flows, *wanted))?;
                    Ok(frames as u64)
                })
            }
        };
        let ours = Ours::new("write, meter and count", side(&[[true; 3]])).with(|row| row.flows = Some(flows));
        let apart = side(&[[true, false, false], [false, true, false], [false, false, true]]);
        Ok(Case::sized(64).ours(ours).peer("a pass for each", apart))
    })])
}

/// One pass over the file for the wanted ones of writing, metering, counting.
fn pass(input: &Path, output: &Path, frames: usize, flows: usize, wanted: [bool; 3]) -> anyhow::Result<()> {
    let writer = Writer::new(Output::open(&output.to_string_lossy())?, Format::Pcap);
    let mut capture = Capture::new(Selection::default(), vec![Box::new(writer)]);
    let config = Config { level: Level::Tcp, max_flows: flows + 1, ..Config::default() };
    let mut metering = MeterConsumer::new(Meters::new(&config, 1), Selection::default(), NullRecords);
    let mut counting = CountConsumer::new(Selection::default(), false);
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
    ensure!(is_whole, "{done:?} of {frames} packets were taken");
    Ok(())
}
