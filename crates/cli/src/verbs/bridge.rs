//! `linerate bridge`: two ports, with emulated loss, damage and delay.

use super::inputs::notes_of;
use super::port_pair::{JoinArgs, ends, receive_whole, send_as};
use crate::exit::{Exit, usage};
use crate::signals::stop_on_signals;
use crate::view::ledger::RunJson;
use crate::view::live::{Live, answer};
use crate::view::rates::{Rates, totals};
use crate::view::terminal::{print_stderr, shown};
use linerate_backends::faulty::Faults;
use linerate_burst::{Kind, Stage};
use linerate_engine::{Forward, Progress, Receive, RunReport};
use linerate_port::{PortError, RxPort, Spec, TxPort};
use serde::Serialize;
use std::thread;

/// Options of `linerate bridge`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # both directions
  linerate bridge veth1 veth2
  # with loss and delay in both directions
  linerate bridge veth1 veth2 --faults 'drop=1%&delay=20ms'
  # with loss from veth1 to veth2 only
  linerate bridge veth1 veth2 --faults drop=1% --faults-reverse ''
  # with a slow link
  linerate bridge 'packet:p0?netns=mid' 'packet:p1?netns=mid' \\
    --faults 'rate=100mbps&queue=50' --seed 7
Faults, joined by & (quote them); each packet is counted:
  drop=0.1%             drop packets at random; a probability is 0.1%, 1/1000 or
                        250ppm
  burst=0.01%x20        start a burst of 20 lost packets with this probability
  repeat=1%             duplicate packets
  reorder=1%x5          send packets after the next 5, or after hold=10ms
  corrupt=0.1%x3@14-33  flip 3 random bits within bytes 14 to 33, with a correct
                        FCS; default: 1 bit anywhere
  truncate=1%x60        truncate packets to 60 bytes; default: a random length
  pad=1%x8              append 8 bytes; default: 1 to 64
  delay=20ms+-5ms       delay every packet; the order stays
  rate=100mbps          limit the rate, with a queue of queue=1000 packets;
                        rates are those of generate --rate
  seed=7                seed of all random choices
Any port can have faults: 'faulty:packet:eth0?drop=0.1%&seed=7' in capture and
generate. The hosts at both ends must send packets that fit the link: turn off
offloads there (ethtool -K eth0 tso off gso off gro off; in a lab offloads=off).
Checksums left to hardware are filled in.")]
#[command(mut_arg("json", |arg| arg.help("Print one JSON document at the end (schema linerate/bridge/1)")))]
pub struct Args {
    /// First port
    #[arg(value_name = "PORT")]
    one: String,
    /// Second port
    #[arg(value_name = "PORT")]
    other: String,
    /// Faults of both directions
    #[arg(long, value_name = "FAULTS", default_value = "", hide_default_value = true)]
    faults: String,
    /// Faults from the second port to the first instead
    #[arg(long, value_name = "FAULTS")]
    faults_reverse: Option<String>,
    /// Seed of all random choices; the reverse direction has the next number
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    join: JoinArgs,
}

/// One direction.
struct Direction {
    from: Spec,
    to: Spec,
    faults: Faults,
    /// As the user wrote them.
    text: String,
}

/// Result of one direction, and the frames sent.
type BridgeResult = (RunReport, linerate_port::Sent);

/// Runs `linerate bridge`.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let ways = args.ways()?;
    let duration = args.join.duration()?;
    let identity = args.join.identity(ways.iter().map(|way| &way.from))?;
    // Both ports receive before one sends: an xdp: queue sends through the socket that receives from it.
    let receiving = ways.iter().map(Direction::open_rx).collect::<Result<Vec<_>, _>>()?;
    let sending = ways.iter().map(Direction::open_tx).collect::<Result<Vec<_>, _>>()?;
    let port_notes: Vec<String> = receiving.iter().flat_map(notes_of).collect();
    let progress = Progress::new();
    let join = |(mut from, to): (RxPort, TxPort)| (Forward::new(&mut from, to, progress.clone()), from);
    let joined: Vec<_> = receiving.into_iter().zip(sending).map(join).collect();
    let session = identity.assume()?.confine(&[]);
    let stop = stop_on_signals(&session)?;
    let notes = port_notes.into_iter().chain(session.notes().to_vec());
    if args.join.prints_notes() {
        for (way, (forward, _)) in ways.iter().zip(&joined) {
            let copies = if forward.is_in_place() { ", without copying" } else { "" };
            print_stderr(format_args!("{}\n", shown(&format!("{} -> {}  {}{copies}", way.from, way.to, way.shown()))));
        }
        for note in notes {
            print_stderr(format_args!("  {}\n", shown(&note)));
        }
    }
    let news = args.join.show.news(args.join.json);
    let live = Live::start(&progress, "forwarded", args.join.show.interval(args.join.json)?);
    let answers = answer(&progress, "forwarded", String::new)?;
    let waiting = args.join.waiting();
    // One thread per direction: neither waits for a burst of the other.
    let reports = thread::scope(|scope| {
        let start = |(mut forward, mut from): (Forward, RxPort)| {
            let stop = stop.clone();
            scope.spawn(move || {
                from.queues.iter_mut().for_each(|queue| queue.start());
                let run = Receive { ports: vec![from], waiting, duration, stop: stop.clone() }.run(&mut [&mut forward]);
                // End the other direction too.
                stop.request();
                (run, forward.sent())
            })
        };
        let running: Vec<_> = joined.into_iter().map(start).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, BridgeResult>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        running.into_iter().map(join).collect::<Vec<BridgeResult>>()
    });
    drop((live, answers, news));
    args.conclude(&ways, reports)
}

impl Args {
    fn ways(&self) -> anyhow::Result<[Direction; 2]> {
        let [one, other] = ends(&self.one, &self.other, self.join.yes)?;
        let faults = |option: &str, text: &str, seed: u64| {
            Faults::parse(&format!("seed={seed}&{text}")).map_err(|error| usage(format!("{option}: {error}")))
        };
        let back = self.faults_reverse.as_deref().unwrap_or(&self.faults);
        Ok([
            Direction {
                from: one.clone(),
                to: other.clone(),
                faults: faults("--faults", &self.faults, self.seed)?,
                text: self.faults.clone(),
            },
            Direction {
                from: other,
                to: one,
                faults: faults("--faults-reverse", back, self.seed.wrapping_add(1))?,
                text: back.to_owned(),
            },
        ])
    }

    fn conclude(&self, ways: &[Direction; 2], mut reports: Vec<BridgeResult>) -> anyhow::Result<Exit> {
        let mut both = RunReport { quiesced: true, ..RunReport::default() };
        for (run, _) in &mut reports {
            both.ledger.add_all(&run.ledger);
            both.quiesced &= run.quiesced;
            both.elapsed = both.elapsed.max(run.elapsed);
            both.events.append(&mut run.events);
            both.failure = both.failure.or(run.failure.take());
        }
        self.join.conclude(&both, || summary(ways, &reports), || BridgeJson::new(ways, &reports, &both))
    }
}

impl Direction {
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

fn summary(ways: &[Direction; 2], reports: &[BridgeResult]) -> String {
    let mut text = String::new();
    for (way, report) in ways.iter().zip(reports) {
        let linerate_port::Sent { frames, bytes } = report.1;
        let totals = totals("forwarded", frames, bytes, bytes, report.0.elapsed.as_secs_f64());
        text += &format!("{} -> {}: {totals}\n", way.from, way.to);
    }
    text
}

/// `linerate/bridge/1`.
#[derive(Serialize)]
struct BridgeJson {
    schema: &'static str,
    ports: Vec<String>,
    directions: Vec<DirectionJson>,
    frames: u64,
    bytes: u64,
    seconds: f64,
    #[serde(flatten)]
    run: RunJson,
}

#[derive(Serialize)]
struct DirectionJson {
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

impl BridgeJson {
    fn new(ways: &[Direction; 2], reports: &[BridgeResult], both: &RunReport) -> Self {
        let seconds = |report: &BridgeResult| report.0.elapsed.as_secs_f64();
        let one = |(way, report): (&Direction, &BridgeResult)| DirectionJson {
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
        BridgeJson {
            schema: "linerate/bridge/1",
            ports: ways.iter().map(|way| way.from.to_string()).collect(),
            directions: ways.iter().zip(reports).map(one).collect(),
            frames: reports.iter().map(|report| report.1.frames).sum(),
            bytes: reports.iter().map(|report| report.1.bytes).sum(),
            seconds: both.elapsed.as_secs_f64(),
            run: RunJson::new(both),
        }
    }
}
