//! `linerate wire`: two ports joined as a wire would, with faults by plan.

use super::inputs::{are_live, link};
use super::show::ShowArgs;
use crate::exit::{Exit, usage};
use crate::privileges::{Identity, confine};
use crate::signals::stop_on_signals;

use crate::view::ledger;
use crate::view::ledger::LedgerJson;
use crate::view::live::{Live, answer};
use crate::view::rates::{Rates, grouped, totals};
use crate::view::terminal::{fail, show, show_document, shown, tell};
use linerate_backends::faulty::{Faults, receive_through};
use linerate_backends::inventory::is_default_route;
use linerate_backends::{REGISTRY, open_rx, open_tx};
use linerate_burst::{Count, Kind, Ledger, LinkType, Stage};
use linerate_engine::{Forward, Progress, Receive, Received, Stop, Waiting};
use linerate_port::{Backend, PortError, RxOptions, RxPort, Spec, Target, TxOptions, TxPort};
use serde::Serialize;
use std::thread;
use std::time::Duration;

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
  drop=0.1%             drops frames one by one; a chance is 0.1%, 1/1000 or 250ppm
  burst=0.01%x20        with this chance a burst begins that drops 20 frames together
  repeat=1%             frames come twice
  reorder=1%x5          frames leave behind the next 5, or after hold=10ms
  corrupt=0.1%x3@14-33  turns 3 bits of bytes 14 to 33 over, the FCS is right; 1 of all unless given
  truncate=1%x60        cuts frames to 60 bytes; to a length from the seed unless given
  pad=1%x8              puts 8 bytes behind frames; 1 to 64 unless given
  delay=20ms+-5ms       every frame comes later; frames keep their order
  rate=100mbps          frames leave one after the other, queue=1000 may wait; as generate --rate
  seed=7                what all of it is drawn from, with the number of the frame
Any port may have them too: 'faulty:packet:eth0?drop=0.1%&seed=7', in capture and in generate.
The hosts at both ends must make frames that fit a wire: there, ethtool -K eth0 tso off gso off gro off;
in a lab, offloads=off on the links. Checksums that they leave to hardware are filled in.")]
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
    /// Stop after this many seconds
    #[arg(short = 't', long, alias = "seconds", value_name = "S")]
    duration: Option<f64>,
    /// Join an interface that carries the default route too
    #[arg(long)]
    yes: bool,
    /// End with status 3 if a frame was lost that no fault took
    #[arg(long)]
    lossless: bool,
    /// Print one JSON document at the end (schema linerate/wire/1)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    show: ShowArgs,
    /// Never sleep while waiting for frames: least delay, two whole cores
    #[arg(long)]
    spin: bool,
    /// Go on as this user once ports are open; files are written with its rights (default: whoever called sudo, doas or
    /// pkexec; of root at interfaces linerate, or nobody)
    #[arg(short = 'Z', long, value_name = "USER")]
    user: Option<String>,
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
    let duration = args
        .duration
        .map(|s| Duration::try_from_secs_f64(s).map_err(|_| usage(format!("--duration: {s} is no span of time"))))
        .transpose()?;
    let identity = Identity::choose(args.user.as_deref(), are_live(ways.iter().map(|way| &way.from)))?;
    // Both ends receive before one sends: an xdp: queue is sent into by the socket that receives from it.
    let receiving = ways.iter().map(Way::open_rx).collect::<Result<Vec<_>, _>>()?;
    let sending = ways.iter().map(Way::open_tx).collect::<Result<Vec<_>, _>>()?;
    let progress = Progress::new();
    let join = |(mut from, to): (RxPort, TxPort)| (Forward::new(&mut from, to, progress.clone()), from);
    let joined: Vec<_> = receiving.into_iter().zip(sending).map(join).collect();
    identity.assume()?;
    let notes = identity.note().into_iter().chain(confine(&[]));
    let stop = Stop::new();
    stop_on_signals(&stop)?;
    if !args.show.quiet && !args.json {
        for (way, (forward, _)) in ways.iter().zip(&joined) {
            let copies = if forward.is_in_place() { ", from where they lie" } else { "" };
            tell(format_args!("{}\n", shown(&format!("{} -> {}  {}{copies}", way.from, way.to, way.shown()))));
        }
        for note in notes {
            tell(format_args!("  {}\n", shown(&note)));
        }
    }
    let news = args.show.news(args.json);
    let live = Live::start(&progress, "forwarded", args.show.interval(args.json)?);
    let answers = answer(&progress, "sent on", String::new)?;
    let waiting = if args.spin { Waiting::Spin } else { Waiting::Adaptive };
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
    args.conclude(&ways, &reports)
}

impl Args {
    fn ways(&self) -> anyhow::Result<[Way; 2]> {
        let [one, other] = ends(&self.one, &self.other, self.yes)?;
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

    fn conclude(&self, ways: &[Way; 2], reports: &[Sent]) -> anyhow::Result<Exit> {
        let mut ledger = Ledger::new();
        reports.iter().for_each(|report| ledger.add_all(&report.0.ledger));
        let quiesced = reports.iter().all(|report| report.0.quiesced);
        if self.json {
            show_document(&WireJson::new(ways, reports, &ledger, quiesced))?;
        } else if !self.show.quiet {
            show(summary(ways, reports) + &ledger::print(&ledger, quiesced, self.show.ledger));
        }
        if let Some(hint) = hint(&ledger) {
            fail(hint);
        }
        if let Some(failure) = reports.iter().find_map(|report| report.0.failure.as_ref()) {
            fail(failure);
            return Ok(Exit::Failed);
        }
        let proven = quiesced && ledger.lost() == 0 && ledger.imbalances().is_empty();
        Ok(if self.lossless && !proven { Exit::Lost } else { Exit::Done })
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

/// Opens an end to receive from: frames come out at the other one as they were on the wire.
pub(super) fn receive_whole(from: &Spec, faults: &Faults, no_faults: bool) -> Result<RxPort, PortError> {
    // One lane keeps the order of frames, and gives each a number that the faults can go by.
    let options = RxOptions { promiscuous: true, lanes: 1, paused: true, ..RxOptions::default() };
    let mut from = from.clone();
    if link(&from) == LinkType::RAW && from.option("offloads").is_none() {
        // What comes out at the other end needs its checksums, and fits a wire.
        from.options.push(("offloads".to_owned(), "no".to_owned()));
    }
    let mut port = open_rx(&from, &options)?;
    // Whose frames can be held, they can be sent on from where they lie; a line in between would copy them. What it does
    // without faults is to fill in checksums, and only ports whose frames cannot be held tell where these are missing.
    let is_plain = no_faults && port.queues.iter_mut().all(|queue| queue.holding().is_some());
    Ok(if is_plain { port } else { receive_through(port, faults, from.to_string()) })
}

/// Opens an end to send to what comes at the other one.
pub(super) fn send_as(to: &Spec, from: &Spec) -> Result<TxPort, PortError> {
    open_tx(&REGISTRY.for_sending(to)?, &TxOptions { link: link(from), ..TxOptions::default() })
}

/// The two ends of what joins two ports, if they can be; `yes`: also where one carries the default route.
pub(super) fn ends(one: &str, other: &str, yes: bool) -> anyhow::Result<[Spec; 2]> {
    let (one, other) = (Spec::parse(one).map_err(usage)?, Spec::parse(other).map_err(usage)?);
    for spec in [&one, &other] {
        let (backend, at) = REGISTRY.innermost(spec)?;
        let target = &at.target;
        let on_host = match backend.target {
            Target::Interface { .. } => at.option("netns").is_none(),
            Target::Device | Target::Tunnel => false,
            _ => return Err(usage(format!("{spec}: a wire joins interfaces; use capture or generate for files"))),
        };
        if on_host && !yes && is_default_route(target) {
            return Err(usage(format!(
                "{target} carries the default route of this machine: give --yes if it is really to be joined"
            )));
        }
    }
    let end = |(_, at): (&Backend, Spec)| (at.option("netns").map(str::to_owned), at.scheme, at.target);
    if REGISTRY.innermost(&one).map(end)? == REGISTRY.innermost(&other).map(end)? {
        return Err(usage(format!("{one} is given as both ends: a wire has two")));
    }
    if let Some(refusal) = differ(&one, &other) {
        return Err(usage(refusal));
    }
    Ok([one, other])
}

/// Why no wire joins these two: what one sends the other cannot read.
fn differ(one: &Spec, other: &Spec) -> Option<String> {
    let (packets, frames) = match (link(one), link(other)) {
        (LinkType::RAW, LinkType::ETHERNET) => (one, other),
        (LinkType::ETHERNET, LinkType::RAW) => (other, one),
        _ => return None,
    };
    Some(format!(
        "{packets} has IP packets and {frames} Ethernet frames, and a wire changes neither: with mode=tap it has frames too"
    ))
}

/// What to do about frames that no wire carries.
pub(super) fn hint(ledger: &Ledger) -> Option<String> {
    let (long, made) = (ledger.total(Count::TooLong), ledger.total(Count::SuperFrames));
    (long > 0 && made > 0).then(|| {
        format!(
            "{} frames were too long to send on: a host at one end makes super-frames; on that host run \
             ethtool -K INTERFACE tso off gso off gro off (in a lab: offloads=off on the links)",
            grouped(long)
        )
    })
}

fn summary(ways: &[Way; 2], reports: &[Sent]) -> String {
    let mut text = String::new();
    for (way, report) in ways.iter().zip(reports) {
        for event in &report.0.events {
            text += &format!("  {event}\n");
        }
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
    quiesced: bool,
    events: Vec<String>,
    failure: Option<String>,
    #[serde(flatten)]
    ledger: LedgerJson,
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
    fn new(ways: &[Way; 2], reports: &[Sent], ledger: &Ledger, quiesced: bool) -> Self {
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
            seconds: reports.iter().map(seconds).fold(0.0, f64::max),
            quiesced,
            events: reports.iter().flat_map(|report| report.0.events.iter().cloned()).collect(),
            failure: reports.iter().find_map(|report| report.0.failure.as_ref()).map(ToString::to_string),
            ledger: LedgerJson::new(ledger),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wire_joins_what_has_the_same_frames() {
        let differ = |one: &str, other: &str| differ(&Spec::parse(one).unwrap(), &Spec::parse(other).unwrap());
        for (one, other) in [("tun:a", "tun:b"), ("tun:a?mode=tap", "eth0"), ("eth0", "eth1")] {
            assert_eq!(differ(one, other), None, "{one} {other}");
        }
        for (one, other) in [("tun:a", "eth0"), ("eth0", "tun:a"), ("faulty:tun:a?drop=1%", "tun:b?mode=tap")] {
            assert!(differ(one, other).unwrap().contains("with mode=tap it has frames too"), "{one} {other}");
        }
    }

    #[test]
    fn what_is_sent_has_the_link_type_of_where_it_comes_from() {
        assert_eq!(link(&Spec::parse("tun:a").unwrap()), LinkType::RAW);
        assert_eq!(link(&Spec::parse("tun:a?mode=tap").unwrap()), LinkType::ETHERNET);
    }
}
