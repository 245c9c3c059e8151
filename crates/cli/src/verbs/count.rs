//! `linerate count`: rates, sizes and protocols by port and queue; no packets are kept.

mod json;
mod rows;
mod screen;
mod text;

pub(super) use self::json::CountsJson;
pub(super) use self::rows::CountedPorts;
pub(super) use self::text::summary;

use self::json::{SoFarJson, SummaryJson};
use super::inputs::{InputArgs, InputRequirements, Inputs, ReceiveArgs, listed};
use super::report_options::ShowArgs;
use crate::exit::Exit;
use crate::signals::{ProgressHandler, answer_requests, stop_on_signals};
use crate::view::ledger::{self, is_void};
use crate::view::live::Live;
use crate::view::terminal::{print_stderr, result_line, show, show_line, shown};
use linerate_engine::{CountConsumer, CountWatch, Progress, Receive, Stop};
use std::time::Duration;

/// Options of `linerate count`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # rates of eth0, live and in total
  linerate count eth0
  # two ports for ten seconds, only DNS
  linerate count eth0 eth1 -T 10 udp port 53
  # at the limit of the driver: an XDP program counts in the kernel
  linerate count xdp:eth1
  # bursts that a mean over a second hides
  linerate count eth0 -T 60 --bursts
  # a file, with the rates of its timestamps
  linerate count -r trace.pcap --protocols
  # a JSON line every 0.1 s, and a summary
  linerate count eth0 --json --interval 0.1
Leading arguments that name interfaces are ports; the rest is the filter. Sizes
include the FCS (64 means 60 bytes in a capture file); buckets as in RFC 2819.
Mean rates of files are over the time from the first packet to the last, of
other ports over the time of the run. The peak is the maximum within one second
of the clock, by timestamps.")]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    /// Count packets per protocol too
    #[arg(help_heading = "Counters", long)]
    protocols: bool,
    /// Report bursts: the busiest 10 us, 100 us and 1 ms of all ports together
    #[arg(help_heading = "Counters", long)]
    bursts: bool,
    /// Print JSON lines (schema linerate/count/1): one per interval, and a summary
    #[arg(help_heading = "Report", long)]
    json: bool,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    receive: ReceiveArgs,
}

/// Bytes requested of each packet if none are read; lengths are known anyway.
const UNSEEN: u32 = 64;

/// Runs the count.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let inputs = args.input.check()?;
    let interval = args.show.interval(false)?;
    let identity = args.receive.identity(&inputs)?;
    let looks = args.protocols || !inputs.filter.is_empty();
    let needs = InputRequirements {
        snap: if looks { 0 } else { UNSEEN },
        tally: !looks && !args.bursts && inputs.frames.is_none(),
        ..InputRequirements::default()
    };
    let (ports, mut notes) = args.receive.open(&inputs, needs)?;
    let session = identity.assume()?.confine(&[]);
    let stop = stop_on_signals(&session)?;
    notes.extend_from_slice(session.notes());

    let subject = CountedPorts::new(&inputs.specs);
    if !args.show.quiet && !args.json {
        announce("counting", &subject, &notes);
    }
    let receive = args.receive.run(&inputs, ports, stop);
    args.run_count(&inputs, interval, receive)
}

impl Args {
    fn run_count(&self, inputs: &Inputs, interval: Option<Duration>, receive: Receive) -> anyhow::Result<Exit> {
        let (subject, watch) = (CountedPorts::new(&inputs.specs), CountWatch::new());
        let live = self.start_live(interval, &subject, &watch, &receive.stop);
        let (answers, news) = (self.answer(&subject, inputs, &watch)?, self.show.news(self.json));
        let progress = Progress::new();
        crate::view::live::watch(&progress, "counted");
        let counting = CountConsumer::new(inputs.selection(), self.protocols).find_bursts(self.bursts);
        let mut counting = counting.watch(watch).progress(progress);
        let run = receive.run(&mut [&mut counting]);
        drop((live, answers, news));
        let counts = counting.done();
        if self.json {
            result_line(&SummaryJson::new(&subject, &inputs.filter, self.protocols, &counts, &run), false)?;
        } else if !is_void(&run.ledger, run.failure.as_ref()) {
            let body = summary(&subject, self.protocols, &counts);
            show(ledger::run(&run, &body, self.show.ledger));
        }
        Ok(self.receive.conclude(&run))
    }

    /// Prints the counts so far on request.
    fn answer(&self, subject: &CountedPorts, inputs: &Inputs, watch: &CountWatch) -> anyhow::Result<ProgressHandler> {
        let (subject, watch, filter) = (subject.clone(), watch.clone(), inputs.filter.clone());
        let (json, protocols) = (self.json, self.protocols);
        answer_requests(move || {
            let mut counts = watch.counts();
            counts.sum_protocols();
            if json {
                // Numbers and names always have a JSON form.
                let _ = show_line(&SoFarJson::new(&subject, &filter, protocols, &counts));
            } else {
                print_stderr(format_args!("so far\n{}", summary(&subject, protocols, &counts)));
            }
        })
    }

    fn start_live(&self, interval: Option<Duration>, subject: &CountedPorts, watch: &CountWatch, stop: &Stop) -> Live {
        let (subject, watch, stop) = (subject.clone(), watch.clone(), stop.clone());
        match interval {
            None => Live::none(),
            Some(interval) if self.json => Live::every(interval, json::ticker(subject, watch, stop)),
            Some(interval) => Live::every(interval, screen::ticker(subject, watch)),
        }
    }
}

/// Prints the ports and the notes on them.
pub(super) fn announce(verb: &str, subject: &CountedPorts, notes: &[String]) {
    print_stderr(format_args!("{verb} {}\n", shown(&listed(&subject.names))));
    for note in notes {
        print_stderr(format_args!("  {}\n", shown(note)));
    }
}
