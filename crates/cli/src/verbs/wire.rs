//! `linerate wire`: two ports joined as a wire would, with faults by plan.

use super::inputs::notes_of;
use super::joined::{JoinArgs, ends, receive_whole, send_as};
use crate::exit::{Exit, usage};
use crate::signals::stop_on_signals;
use crate::view::ledger::RunJson;
use crate::view::live::{Live, answer};
use crate::view::rates::{Rates, totals};
use crate::view::terminal::{shown, tell};
use linerate_backends::faulty::Faults;
use linerate_burst::{Kind, Stage};
use linerate_engine::{Forward, Progress, Receive, Received, Stop};
use linerate_port::{PortError, RxPort, Spec, TxPort};
use serde::Serialize;
use std::thread;

/// Options of `linerate wire`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # a wire, both ways
  linerate wire veth1 veth2
  # one that loses and delays, both ways
  linerate wire veth1 veth2 --faults 'drop=1%&delay=20ms'
  # one that loses from veth1 to veth2
  linerate wire veth1 veth2 --faults drop=1% --faults-back ''
  # a slow one
  linerate wire 'packet:p0?netns=mid' 'packet:p1?netns=mid' \\
    --faults 'rate=100mbps&queue=50' --seed 7
Faults, joined by & (quote them), and counted exactly:
  drop=0.1%             frames are dropped one by one; a chance is 0.1%, 1/1000
                        or 250ppm
  burst=0.01%x20        with this chance a burst begins: 20 frames are dropped
  repeat=1%             frames come twice
  reorder=1%x5          frames leave behind the next 5, or after hold=10ms
  corrupt=0.1%x3@14-33  3 bits of bytes 14 to 33 turn over, the FCS is right; 1
                        of all unless given
  truncate=1%x60        frames are cut to 60 bytes; if not given, by the seed
  pad=1%x8              puts 8 bytes behind frames; 1 to 64 unless given
  delay=20ms+-5ms       every frame comes later; frames keep their order
  rate=100mbps          frames leave one after the other, queue=1000 may wait;
                        rates are those of generate --rate
  seed=7                all of it is drawn from this and the frame's number
Any port may have them too: 'faulty:packet:eth0?drop=0.1%&seed=7', in capture
and in generate. The hosts at both ends must make frames that fit a wire: there,
ethtool -K eth0 tso off gso off gro off; in a lab, offloads=off on the links.
Checksums that they leave to hardware are filled in.")]
#[command(mut_arg("json", |arg| arg.help("Print one JSON document at the end (schema linerate/wire/1)")))]
pub struct Args {
    /// One end
    #[arg(value_name = "PORT")]
    one: String,
    /// The other end
    #[arg(value_name = "PORT")]
    other: String,
    /// What happens to frames, both ways
    #[arg(long, value_name = "FAULTS", default_value = "", hide_default_value = true)]
    faults: String,
    /// What happens to frames from the second port to the first instead
    #[arg(long, value_name = "FAULTS")]
    faults_back: Option<String>,
    /// What faults are drawn from; the way back has the next number
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    join: JoinArgs,
}

/// One way of the wire, as asked for.
struct Way {
    from: Spec,
    to: Spec,
    faults: Faults,
    /// As the user wrote them.
    text: String,
}

/// What came of one way, and what was sent.
type Sent = (Received, linerate_port::Sent);

/// Joins.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let ways = args.ways()?;
    let duration = args.join.duration()?;
    let identity = args.join.identity(ways.iter().map(|way| &way.from))?;
    // Both ends receive before one sends: an xdp: queue is sent into by the socket that receives from it.
    let receiving = ways.iter().map(Way::open_rx).collect::<Result<Vec<_>, _>>()?;
    let sending = ways.iter().map(Way::open_tx).collect::<Result<Vec<_>, _>>()?;
    let said: Vec<String> = receiving.iter().flat_map(notes_of).collect();
    let progress = Progress::new();
    let join = |(mut from, to): (RxPort, TxPort)| (Forward::new(&mut from, to, progress.clone()), from);
    let joined: Vec<_> = receiving.into_iter().zip(sending).map(join).collect();
    let notes = said.into_iter().chain(identity.assume()?.confine(&[]));
    let stop = Stop::new();
    stop_on_signals(&stop)?;
    if args.join.is_told() {
        for (way, (forward, _)) in ways.iter().zip(&joined) {
            let copies = if forward.is_in_place() { ", from where they lie" } else { "" };
            tell(format_args!("{}\n", shown(&format!("{} -> {}  {}{copies}", way.from, way.to, way.shown()))));
        }
        for note in notes {
            tell(format_args!("  {}\n", shown(&note)));
        }
    }
    let news = args.join.show.news(args.join.json);
    let live = Live::start(&progress, "forwarded", args.join.show.interval(args.join.json)?);
    let answers = answer(&progress, "sent on", String::new)?;
    let waiting = args.join.waiting();
    // A thread each way: neither waits for the other's burst.
    let reports = thread::scope(|scope| {
        let start = |(mut forward, mut from): (Forward, RxPort)| {
            let stop = stop.clone();
            scope.spawn(move || {
                from.queues.iter_mut().for_each(|queue| queue.start());
                let run = Receive { ports: vec![from], waiting, duration, stop: stop.clone() }.run(&mut [&mut forward]);
                // The other way ends too.
                stop.request();
                (run, forward.sent())
            })
        };
        let running: Vec<_> = joined.into_iter().map(start).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Sent>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        running.into_iter().map(join).collect::<Vec<Sent>>()
    });
    drop((live, answers, news));
    args.conclude(&ways, reports)
}

impl Args {
    fn ways(&self) -> anyhow::Result<[Way; 2]> {
        let [one, other] = ends(&self.one, &self.other, self.join.yes)?;
        let faults = |option: &str, text: &str, seed: u64| {
            Faults::parse(&format!("seed={seed}&{text}")).map_err(|error| usage(format!("{option}: {error}")))
        };
        let back = self.faults_back.as_deref().unwrap_or(&self.faults);
        Ok([
            Way {
                from: one.clone(),
                to: other.clone(),
                faults: faults("--faults", &self.faults, self.seed)?,
                text: self.faults.clone(),
            },
            Way {
                from: other,
                to: one,
                faults: faults("--faults-back", back, self.seed.wrapping_add(1))?,
                text: back.to_owned(),
            },
        ])
    }

    fn conclude(&self, ways: &[Way; 2], mut reports: Vec<Sent>) -> anyhow::Result<Exit> {
        let mut both = Received { quiesced: true, ..Received::default() };
        for (run, _) in &mut reports {
            both.ledger.add_all(&run.ledger);
            both.quiesced &= run.quiesced;
            both.elapsed = both.elapsed.max(run.elapsed);
            both.events.append(&mut run.events);
            both.failure = both.failure.or(run.failure.take());
        }
        self.join.conclude(&both, || summary(ways, &reports), || WireJson::new(ways, &reports, &both))
    }
}

impl Way {
    fn open_rx(&self) -> Result<RxPort, PortError> {
        receive_whole(&self.from, &self.faults, self.text.is_empty())
    }

    fn open_tx(&self) -> Result<TxPort, PortError> {
        send_as(&self.to, &self.from)
    }

    fn shown(&self) -> &str {
        if self.text.is_empty() { "without faults" } else { &self.text }
    }
}

fn summary(ways: &[Way; 2], reports: &[Sent]) -> String {
    let mut text = String::new();
    for (way, report) in ways.iter().zip(reports) {
        let linerate_port::Sent { frames, bytes } = report.1;
        let totals = totals("sent on", frames, bytes, bytes, report.0.elapsed.as_secs_f64());
        text += &format!("{} -> {}: {totals}\n", way.from, way.to);
    }
    text
}

/// `linerate/wire/1`.
#[derive(Serialize)]
struct WireJson {
    schema: &'static str,
    ports: Vec<String>,
    ways: Vec<WayJson>,
    frames: u64,
    bytes: u64,
    seconds: f64,
    #[serde(flatten)]
    run: RunJson,
}

#[derive(Serialize)]
struct WayJson {
    from: String,
    to: String,
    faults: String,
    seed: u64,
    received: u64,
    delivered: u64,
    frames: u64,
    bytes: u64,
    seconds: f64,
    #[serde(flatten)]
    rates: Rates,
}

impl WireJson {
    fn new(ways: &[Way; 2], reports: &[Sent], both: &Received) -> Self {
        let seconds = |report: &Sent| report.0.elapsed.as_secs_f64();
        let one = |(way, report): (&Way, &Sent)| WayJson {
            from: way.from.to_string(),
            to: way.to.to_string(),
            faults: way.text.clone(),
            seed: way.faults.seed,
            received: report.0.ledger.sum(Stage::Receive, Kind::Received),
            delivered: report.1.frames,
            frames: report.1.frames,
            bytes: report.1.bytes,
            seconds: seconds(report),
            rates: Rates::new(report.1.frames, report.1.bytes, seconds(report)),
        };
        WireJson {
            schema: "linerate/wire/1",
            ports: ways.iter().map(|way| way.from.to_string()).collect(),
            ways: ways.iter().zip(reports).map(one).collect(),
            frames: reports.iter().map(|report| report.1.frames).sum(),
            bytes: reports.iter().map(|report| report.1.bytes).sum(),
            seconds: both.elapsed.as_secs_f64(),
            run: RunJson::new(both),
        }
    }
}
