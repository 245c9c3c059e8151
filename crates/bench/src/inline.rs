//! From one port to another while an engine decides about each packet: packets per second, and added delay, compared with a wire of the
//! same ports and with the Linux bridge.
//!
//! Without an engine the policy passes all packets. An engine reads the shared ring in a thread of its own, or follows a switch that
//! sends what it passes, or looks at packets in the thread that forwards. With memory ports each packet is accounted for.

mod middlebox;

use self::middlebox::{Ends, MiddleBox};
use super::Effort;
use super::harness::{Case, Ours, Prepare, Sample, case, median};
use super::machine::{SETTLED, has_hosts, lab, make_bridge, middle, port_in};
use super::traffic::{self, ONE};
use anyhow::ensure;
use linerate_backends::open_tx;
use linerate_cli::verbs::generate::stream_run::open_check;
use linerate_engine::check::{CheckConsumer, CheckThread};
use linerate_engine::streams::StreamRun;
use linerate_engine::{Receive, Selection, Stop, Streams};
use linerate_generate::Check;
use linerate_generate::Rate;
use linerate_generate::stream::Mark;
use linerate_port::{Spec, TxOptions};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Packets of a round at the maximum rate, and of one that measures delays, with its rate.
const FRAMES: usize = 1_000_000;
const PACED: (usize, f64) = (20_000, 10_000.0);
const SIZES: [usize; 2] = [64, 1518];
/// Maximum wait for the last packets.
const PATIENCE: Duration = Duration::from_secs(5);

/// Ports of a side.
#[derive(Clone, Copy)]
enum Ports {
    /// Two veth pairs, with this port in the middle.
    Pairs(&'static str),
    /// Memory, with these options.
    Memory(&'static str),
}

/// A side: its name, its ports, and the number of the wire that it is compared with.
type InlineCase = (&'static str, Ports, MiddleBox, Option<usize>);

const NO_ENGINE: MiddleBox = MiddleBox::Ring { engine: false };
const ENGINE: MiddleBox = MiddleBox::Ring { engine: true };

const MEMORY: [InlineCase; 6] = [
    ("memory, a wire", Ports::Memory(""), MiddleBox::Wire, None),
    ("memory, no engine", Ports::Memory(""), NO_ENGINE, Some(0)),
    ("memory, an engine at the ring", Ports::Memory(""), ENGINE, Some(0)),
    ("memory, a switch and an engine at its ring", Ports::Memory(""), MiddleBox::Switch, Some(0)),
    // Packets in chunks have only their sender's time, and so no delay.
    ("memory, scattered, a switch and an engine at its ring", Ports::Memory("?chunk=2048"), MiddleBox::Switch, Some(0)),
    ("memory, scattered, an engine in place", Ports::Memory("?chunk=2048"), MiddleBox::InPlace, Some(0)),
];

const PAIRS: [InlineCase; 8] = [
    ("packet, a wire", Ports::Pairs("packet:IF"), MiddleBox::Wire, None),
    ("xdp, a wire", Ports::Pairs("xdp:IF"), MiddleBox::Wire, None),
    ("packet, no engine", Ports::Pairs("packet:IF"), NO_ENGINE, Some(0)),
    ("packet, an engine at the ring", Ports::Pairs("packet:IF"), ENGINE, Some(0)),
    ("xdp, no engine", Ports::Pairs("xdp:IF"), NO_ENGINE, Some(1)),
    ("xdp, an engine at the ring", Ports::Pairs("xdp:IF"), ENGINE, Some(1)),
    ("xdp, a switch and an engine at its ring", Ports::Pairs("xdp:IF"), MiddleBox::Switch, Some(1)),
    ("xdp, an engine in place", Ports::Pairs("xdp:IF?mode=ring"), MiddleBox::InPlace, Some(1)),
];

pub(super) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    let (mut cases, has_hosts) = (Vec::new(), has_hosts("inline"));
    for size in effort.sizes(&SIZES) {
        cases.push(case(move || Ok(of(effort, size, &MEMORY, Ports::Memory("")))));
        if has_hosts {
            cases.push(case(move || {
                let all = of(effort, size, &PAIRS, Ports::Pairs("packet:IF"));
                Ok(all.peer(
                    "Linux bridge",
                    side(effort, size, Ports::Pairs("packet:IF"), MiddleBox::Bridge, &Rc::default()),
                ))
            }));
        }
    }
    Ok(cases)
}

/// Median and 99th percentile of the delay of all rounds, in nanoseconds.
type Delays = Rc<RefCell<[Vec<i64>; 2]>>;

fn of(effort: Effort, size: usize, ways: &'static [InlineCase], ports: Ports) -> Case {
    let direct = Delays::default();
    let mut all = Case::sized(size).limit("direct", side(effort, size, ports, MiddleBox::Nothing, &direct));
    for (name, ports, between, wire) in ways.iter().copied() {
        let (own, direct) = (Delays::default(), Rc::clone(&direct));
        let ours = Ours::new(name, side(effort, size, ports, between, &own)).finish(move |row| {
            let added = [0, 1].map(|part| {
                let middle = |delays: &Delays| median(delays.borrow()[part].iter().map(|delay| *delay as f64));
                Some((middle(&own)? - middle(&direct)?) / 1e3)
            });
            [row.p50_us, row.p99_us] = added;
            let has_delay = added[0].is_some();
            row.remark = if has_delay { "delays: more than direct" } else { "delay unknown" }.to_owned();
            row.of_wire = row.of_baseline;
            if let Some(share) = row.of_wire {
                row.remark += &format!("; {share:.2} of a wire");
            }
        });
        all.ours.push(match wire {
            Some(wire) => ours.baseline(wire),
            None => ours,
        });
    }
    all
}

/// Measures at the maximum rate, then delays at a low one.
fn side(
    effort: Effort,
    size: usize,
    ports: Ports,
    between: MiddleBox,
    delays: &Delays,
) -> impl FnMut() -> anyhow::Result<Sample> + 'static {
    let all = Rc::clone(delays);
    move || {
        let (frames, seconds, _) = trial(ports, between, size, effort.of(FRAMES), Rate::Top)?;
        let (_, _, delays) = trial(ports, between, size, effort.of(PACED.0), Rate::Frames(PACED.1))?;
        delays.into_iter().zip(&mut *all.borrow_mut()).for_each(|(delay, all)| all.extend(delay));
        Ok(Sample::new(frames, seconds))
    }
}

/// Packets received, seconds of sending, and delays.
type Trial = (u64, f64, [Option<i64>; 2]);

fn trial(ports: Ports, between: MiddleBox, size: usize, frames: usize, rate: Rate) -> anyhow::Result<Trial> {
    match ports {
        Ports::Memory(options) => {
            let spec = |name: &str| Spec::parse(&format!("mem:inline-{}-{name}{options}", std::process::id()));
            // Packets are stamped when they leave the middle; no packets are sent the other way.
            let timed = |name| {
                let mut spec = spec(name)?;
                spec.options.extend(options.is_empty().then(|| ("stamp".to_owned(), "now".to_owned())));
                anyhow::Ok(spec)
            };
            let middle = [(spec("in")?, timed("out")?), (spec("back")?, timed("gone")?)];
            let sender = if between == MiddleBox::Nothing { spec("out")? } else { spec("in")? };
            let ends = Ends { sender, receiver: spec("out")?, middle };
            send(&ends, between, size, frames, rate, options.is_empty(), between != MiddleBox::Nothing)
        }
        Ports::Pairs(port) => {
            let lab = if between == MiddleBox::Nothing { lab(&["tx:eth0,rx:eth0"])? } else { middle()? };
            if between == MiddleBox::Bridge {
                make_bridge(&lab)?;
            }
            let end = |host| port_in(&lab, "packet:IF", host, "eth0");
            let [one, other] = [port_in(&lab, port, "mid", "in")?, port_in(&lab, port, "mid", "out")?];
            let middle = [(one.clone(), other.clone()), (other, one)];
            let ends = Ends { sender: end("tx")?, receiver: end("rx")?, middle };
            send(&ends, between, size, frames, rate, true, false)
        }
    }
}

/// Sends through `between`. `is_timed`: packets have the time at which they arrive; `is_counted`: all losses have a counter, which those
/// of the kernel between its interfaces do not have.
fn send(
    ends: &Ends,
    between: MiddleBox,
    size: usize,
    frames: usize,
    rate: Rate,
    is_timed: bool,
    is_counted: bool,
) -> anyhow::Result<Trial> {
    let mut set = traffic::streams(ONE, size, frames as u64, Mark::Trailer)?;
    set.streams[0].rate = rate;
    let checking = CheckConsumer::new(Check::of(&set, 0), Selection::default());
    let checker = CheckThread::start(checking, Receive::all(vec![open_check(&ends.receiver, false)?]))?;
    let ((sent, checked), ledger) = between.during(ends, || {
        let port = open_tx(&ends.sender, &TxOptions { stamped: true, ..TxOptions::default() })?;
        let sent = Streams::new(&set, port)?.run(&StreamRun::default());
        let checked = checker.finish(Some(sent.sent.frames), SETTLED, PATIENCE, &Stop::new());
        Ok((sent, checked))
    })?;
    let failures = [sent.failure.map(|failure| failure.to_string()), checked.run.failure.map(|one| one.to_string())];
    if let Some(failure) = failures.into_iter().flatten().next() {
        anyhow::bail!("{failure}");
    }
    let summary = checked.check.report(Some(&sent.per_stream)).summary();
    let (sent_frames, received) = (sent.sent.frames, summary.counts.received);
    ensure!(received > 0, "none of {sent_frames} packets arrived; lost: {:?}", ledger.losses());
    let lost = ledger.lost() + checked.run.ledger.lost();
    let is_whole = !is_counted || sent_frames == received + lost;
    ensure!(is_whole, "{received} of {sent_frames} packets arrived, {lost} were counted as lost");
    let delays = [summary.delay.latency_p50_ns, summary.delay.latency_p99_ns];
    Ok((received, sent.elapsed.as_secs_f64(), delays.map(|delay| delay.filter(|_| is_timed))))
}
