//! `linerate count`: what is on these ports right now, by port and queue; nothing is kept.

mod check;
mod json;
mod rows;
mod screen;
mod text;

pub(super) use self::json::CountsJson;
pub(super) use self::rows::Subject;
pub(super) use self::text::summary;

use self::json::{SoFarJson, SummaryJson};
use super::inputs::{InputArgs, Inputs, Needs, ReceiveArgs};
use super::show::ShowArgs;
use crate::exit::{Exit, usage};
use crate::signals::{Answers, answer_requests, stop_on_signals};
use crate::view::ledger::{self, is_void};
use crate::view::live::Live;
use crate::view::terminal::{show, show_line, shown, tell};
use linerate_engine::{CheckWatch, Checking, Counting, Progress, Receive, Stop, Watch};
use linerate_generate::check::{Check, Options};
use linerate_generate::trailer::Key;
use std::time::Duration;

/// Options of `linerate count`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # what eth0 receives, now and in all
  linerate count eth0
  # two ports for ten seconds, some of their frames
  linerate count eth0 eth1 -t 10 udp port 53
  # at the limit of the driver: the kernel counts, and shows no frame
  linerate count xdp:eth1
  # bursts that a mean over a second does not show
  linerate count eth0 -t 60 --bursts
  # a file, at the rates of its own time
  linerate count -r trace.pcap --protocols
  # loss, order, damage and latency of what generate sends
  linerate count eth0 --check
  # a JSON line ten times a second, a last one in the end
  linerate count eth0 --json --interval 0.1
Arguments are ports as long as they are scheme:target or name an interface; the
rest is filter text. Sizes count the FCS (64 means 60 bytes in a capture file)
and fall into the buckets of RFC 2819. Rates of files are over the time from the
first frame counted to the last, others over the time of the run; the peak is
the most in one second of the clock, by the frames' own times.")]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    /// Look into the frames and count their protocols too
    #[arg(long)]
    protocols: bool,
    /// Find bursts too: the busiest 10 us, 100 us and 1 ms, of all ports together
    #[arg(long, conflicts_with = "check")]
    bursts: bool,
    /// Account for the frames of every stream by the trailers that generate puts into them
    #[arg(long, conflicts_with = "protocols")]
    check: bool,
    /// What the trailers are under, where the sender was given a key
    #[arg(long, value_name = "K")]
    key: Option<Key>,
    /// With --check, how many streams to show, those with most losses first; or all
    #[arg(long, value_name = "N", default_value = "10", value_parser = check::rows)]
    rows: check::Rows,
    /// What --rows was called.
    #[arg(long = "streams", hide = true)]
    old_rows: Option<String>,
    /// With --check, the most streams that are told apart, 2 KiB each: frames of others are counted alone. Anybody can send
    /// frames of any stream
    #[arg(long, value_name = "N", default_value_t = 65_536,
          value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    max_streams: u32,
    /// Print JSON lines (schema linerate/count/1): one an interval, and a summary
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    receive: ReceiveArgs,
}

/// Bytes of a frame that are asked for where nobody looks at them; lengths are told all the same.
const UNSEEN: u32 = 64;

/// Counts.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    if let Some(rows) = &args.old_rows {
        return Err(usage(format!(
            "--streams is the file of streams that generate sends: --rows {rows} shows so many"
        )));
    }
    let inputs = args.input.check()?;
    let interval = args.show.interval(false)?;
    let identity = args.receive.identity(&inputs)?;
    let looks = args.protocols || args.check || !inputs.filter.is_empty();
    let needs = Needs {
        snap: if looks { 0 } else { UNSEEN },
        tally: !looks && !args.bursts && inputs.frames.is_none(),
        tests: args.check,
        ..Needs::default()
    };
    let (ports, mut notes) = args.receive.open(&inputs, needs)?;
    notes.extend(identity.assume()?.confine(&[]));
    let stop = Stop::new();
    stop_on_signals(&stop)?;

    let subject = Subject::new(&inputs.specs);
    if !args.show.quiet && !args.json {
        announce(&subject, &notes);
    }
    let receive = args.receive.run(&inputs, ports, stop);
    if args.check { args.run_check(&inputs, interval, receive) } else { args.run_count(&inputs, interval, receive) }
}

impl Args {
    fn check_options(&self) -> Options {
        Options { streams: self.max_streams as usize, ..Options::default() }
    }

    fn run_check(&self, inputs: &Inputs, interval: Option<Duration>, receive: Receive) -> anyhow::Result<Exit> {
        if !self.show.quiet && !self.json {
            check::announce(&self.check_options());
        }
        let watch = CheckWatch::new();
        let live = check::start_live(self, interval, &watch, &receive.stop);
        let (answers, news) = (check::answer(self, &watch)?, self.show.news(self.json));
        let check = Check::new(self.key.unwrap_or_default(), self.check_options());
        let report = Checking::new(check, inputs.selection()).watch(watch).run(receive);
        drop((live, answers, news));
        check::conclude(self, &report)
    }

    fn run_count(&self, inputs: &Inputs, interval: Option<Duration>, receive: Receive) -> anyhow::Result<Exit> {
        let (subject, watch) = (Subject::new(&inputs.specs), Watch::new());
        let live = self.start_live(interval, &subject, &watch, &receive.stop);
        let (answers, news) = (self.answer(&subject, inputs, &watch)?, self.show.news(self.json));
        let progress = Progress::new();
        crate::view::live::watch(&progress, "counted");
        let counting = Counting::new(inputs.selection(), self.protocols).find_bursts(self.bursts);
        let mut counting = counting.watch(watch).progress(progress);
        let run = receive.run(&mut [&mut counting]);
        drop((live, answers, news));
        let counts = counting.done();
        if self.json {
            show_line(&SummaryJson::new(&subject, &inputs.filter, self.protocols, &counts, &run))?;
        } else if !is_void(&run.ledger, run.failure.as_ref()) {
            let body = summary(&subject, self.protocols, &counts);
            show(ledger::run(&run, &body, self.show.ledger));
        }
        Ok(self.receive.conclude(&run))
    }

    /// Says what was counted so far to whoever asks.
    fn answer(&self, subject: &Subject, inputs: &Inputs, watch: &Watch) -> anyhow::Result<Answers> {
        let (subject, watch, filter) = (subject.clone(), watch.clone(), inputs.filter.clone());
        let (json, protocols) = (self.json, self.protocols);
        answer_requests(move || {
            let mut counts = watch.counts();
            counts.sum_protocols();
            if json {
                // Numbers and names always have a JSON form.
                let _ = show_line(&SoFarJson::new(&subject, &filter, protocols, &counts));
            } else {
                tell(format_args!("so far\n{}", summary(&subject, protocols, &counts)));
            }
        })
    }

    fn start_live(&self, interval: Option<Duration>, subject: &Subject, watch: &Watch, stop: &Stop) -> Live {
        let (subject, watch, stop) = (subject.clone(), watch.clone(), stop.clone());
        match interval {
            None => Live::none(),
            Some(interval) if self.json => Live::every(interval, json::ticker(subject, watch, stop)),
            Some(interval) => Live::every(interval, screen::ticker(subject, watch)),
        }
    }
}

fn announce(subject: &Subject, notes: &[String]) {
    tell(format_args!("counting {}\n", shown(&subject.names.join(", "))));
    for note in notes {
        tell(format_args!("  {}\n", shown(note)));
    }
}
