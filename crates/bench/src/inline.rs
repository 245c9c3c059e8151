//! From one port to another while somebody decides about each frame: how many pass in a second, and how much later they come than
//! with nothing in between, beside the Linux bridge. Between memory ports each frame is accounted for, from the sender to the receiver. Nobody decides (the policy lets all pass), or an engine that reads the shared
//! ring in a thread of its own, or such an engine behind a switch, which sends on what comes back, or one in the thread that forwards,
//! which looks at frames where they lie; beside a wire of the same ports, where nothing is in between.

mod between;

use self::between::{Between, Ends};
use super::Effort;
use super::measure::{Rounds, Row};
use super::traffic::{self, ONE};
use super::wire::make_bridge;
use anyhow::{Context, ensure};
use linerate_backends::open_tx;
use linerate_cli::verbs::generate::sending::{check, open_check};
use linerate_cli::view::terminal::tell;
use linerate_engine::check::{Checker, Checking};
use linerate_engine::streams::Run;
use linerate_engine::{Receive, Selection, Stop, Streams};
use linerate_generate::Rate;
use linerate_generate::stream::Mark;
use linerate_lab::{Plan, TemporaryLab};
use linerate_port::{Spec, TxOptions};
use std::time::Duration;

/// Frames of a round at top speed, and of one that looks at delays, with their rate.
const FRAMES: usize = 1_000_000;
const PACED: (usize, f64) = (20_000, 10_000.0);
const SIZES: [usize; 2] = [64, 1518];
/// Nothing came for so long: nothing more will; and how long that is waited for.
const QUIET: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(5);

/// What frames come by and go by.
#[derive(Clone, Copy)]
enum Ports {
    /// Two veth pairs, with this port in the middle.
    Pairs(&'static str),
    /// Memory, with these options.
    Memory(&'static str),
}

struct Case {
    name: &'static str,
    ports: Ports,
    between: Between,
    rounds: Rounds,
    /// Half of the frames, and 99 in 100, took no longer, in nanoseconds: of each round.
    delays: [Vec<i64>; 2],
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for size in SIZES.into_iter().filter(|size| effort.size.is_none_or(|only| only == *size)) {
        rows.extend(memory(effort, size)?);
        if rustix::process::geteuid().is_root() {
            rows.extend(pairs(effort, size)?);
        } else {
            tell("bench inline: SKIPPED: test hosts need root\n");
        }
    }
    Ok(rows)
}

fn memory(effort: Effort, size: usize) -> anyhow::Result<Vec<Row>> {
    let case = |name, options, between| Case::new(name, Ports::Memory(options), between);
    let mut direct = case("direct", "", Between::Nothing);
    let mut wire = case("memory, a wire", "", Between::Wire);
    let mut cases = [
        case("memory, no engine", "", Between::Ring { engine: false }),
        case("memory, an engine at the ring", "", Between::Ring { engine: true }),
        case("memory, a switch and an engine at its ring", "", Between::Switch),
        // Frames in chunks have no other time than that of their sender, and so no delay.
        case("memory, scattered, a switch and an engine at its ring", "?chunk=2048", Between::Switch),
        case("memory, scattered, an engine in place", "?chunk=2048", Between::InPlace),
    ];
    for _ in 0..effort.rounds.min(3) {
        for case in [&mut direct, &mut wire].into_iter().chain(&mut cases) {
            case.round(effort, size)?;
        }
    }
    let row = |case: &Case| case.row(size, &direct).of_wire(&case.rounds, &wire.rounds);
    Ok(std::iter::once(wire.row(size, &direct)).chain(cases.iter().map(row)).collect())
}

fn pairs(effort: Effort, size: usize) -> anyhow::Result<Vec<Row>> {
    let case = |name, port, between| Case::new(name, Ports::Pairs(port), between);
    let (mut direct, mut bridge) = (case("direct", "", Between::Nothing), case("Linux bridge", "", Between::Bridge));
    let mut wires = ["packet", "xdp"].map(|port| match port {
        "packet" => case("packet, a wire", "packet:IF", Between::Wire),
        _ => case("xdp, a wire", "xdp:IF", Between::Wire),
    });
    let mut cases = [
        case("packet, no engine", "packet:IF", Between::Ring { engine: false }),
        case("packet, an engine at the ring", "packet:IF", Between::Ring { engine: true }),
        case("xdp, no engine", "xdp:IF", Between::Ring { engine: false }),
        case("xdp, an engine at the ring", "xdp:IF", Between::Ring { engine: true }),
        case("xdp, a switch and an engine at its ring", "xdp:IF", Between::Switch),
        case("xdp, an engine in place", "xdp:IF?mode=ring", Between::InPlace),
    ];
    for _ in 0..effort.rounds.min(3) {
        for case in [&mut direct, &mut bridge].into_iter().chain(&mut wires).chain(&mut cases) {
            case.round(effort, size)?;
        }
    }
    let beside = |case: &Case| {
        let row = case.row(size, &direct).beside(bridge.name, &bridge.rounds);
        let remark = format!("{}; the bridge: {}", row.remark, bridge.added(&direct));
        Row { remark, ..row }
    };
    let of_wire = |case: &Case| {
        let wire = if case.name.starts_with("xdp") { &wires[1] } else { &wires[0] };
        beside(case).of_wire(&case.rounds, &wire.rounds)
    };
    Ok(wires.iter().map(beside).chain(cases.iter().map(of_wire)).collect())
}

impl Case {
    fn new(name: &'static str, ports: Ports, between: Between) -> Self {
        Case { name, ports, between, rounds: Rounds::default(), delays: Default::default() }
    }

    /// At top speed, then slowly.
    fn round(&mut self, effort: Effort, size: usize) -> anyhow::Result<()> {
        let named = || format!("bench inline: {}", self.name);
        let (frames, seconds, _) = self.trial(size, effort.of(FRAMES), Rate::Top).with_context(named)?;
        let (_, _, delays) = self.trial(size, effort.of(PACED.0), Rate::Frames(PACED.1)).with_context(named)?;
        self.rounds.add(frames, seconds);
        let known = delays.into_iter().zip(&mut self.delays);
        known.for_each(|(delay, all)| all.extend(delay));
        Ok(())
    }

    /// How many frames came, how long they were sent, and their delays.
    fn trial(&self, size: usize, frames: usize, rate: Rate) -> anyhow::Result<(u64, f64, [Option<i64>; 2])> {
        match self.ports {
            Ports::Memory(options) => {
                let spec = |name: &str| Spec::parse(&format!("mem:inline-{}-{name}{options}", std::process::id()));
                // What leaves the middle has the time at which it does; nothing comes the other way.
                let timed = |name| {
                    let mut spec = spec(name)?;
                    spec.options.extend(options.is_empty().then(|| ("stamp".to_owned(), "now".to_owned())));
                    anyhow::Ok(spec)
                };
                let middle = [(spec("in")?, timed("out")?), (spec("back")?, timed("gone")?)];
                let sender = if self.between == Between::Nothing { spec("out")? } else { spec("in")? };
                self.send(&Ends { sender, receiver: spec("out")?, middle }, size, frames, rate)
            }
            Ports::Pairs(port) => {
                let links = match self.between {
                    Between::Nothing => vec!["tx:eth0,rx:eth0".parse()?],
                    _ => vec!["tx:eth0,mid:in".parse()?, "mid:out,rx:eth0".parse()?],
                };
                let lab = TemporaryLab::up(&Plan::from_links("bench", links)?)?;
                if self.between == Between::Bridge {
                    make_bridge(&lab)?;
                }
                let spec = |port: &str, host: &str, interface: &str| {
                    let joint = if port.contains('?') { '&' } else { '?' };
                    let port = port.replace("IF", interface);
                    Spec::parse(&format!("{port}{joint}netns={}", lab.plan().namespace(host)))
                };
                let end = |host| spec("packet:IF", host, "eth0");
                let port = if port.is_empty() { "packet:IF" } else { port };
                let [one, other] = [spec(port, "mid", "in")?, spec(port, "mid", "out")?];
                let middle = [(one.clone(), other.clone()), (other, one)];
                self.send(&Ends { sender: end("tx")?, receiver: end("rx")?, middle }, size, frames, rate)
            }
        }
    }

    fn send(
        &self,
        ends: &Ends,
        size: usize,
        frames: usize,
        rate: Rate,
    ) -> anyhow::Result<(u64, f64, [Option<i64>; 2])> {
        let mut set = traffic::streams(ONE, size, frames as u64, Mark::Trailer)?;
        set.streams[0].rate = rate;
        let checking = Checking::new(check(&set, 0), Selection::default());
        let checker = Checker::start(checking, Receive::all(vec![open_check(&ends.receiver, false)?]))?;
        let ((sent, came), ledger) = self.between.beside(ends, || {
            let port = open_tx(&ends.sender, &TxOptions { stamped: true, ..TxOptions::default() })?;
            let sent = Streams::new(&set, port)?.run(&Run::default());
            let came = checker.finish(Some(sent.sent.frames), QUIET, PATIENCE, &Stop::new());
            Ok((sent, came))
        })?;
        let failures = [sent.failure.map(|failure| failure.to_string()), came.run.failure.map(|one| one.to_string())];
        if let Some(failure) = failures.into_iter().flatten().next() {
            anyhow::bail!("{failure}");
        }
        let summary = came.check.report(Some(&sent.per_stream)).summary();
        let received = summary.counts.received;
        ensure!(received > 0, "none of {} frames came, lost are {:?}", sent.sent.frames, ledger.losses());
        // Of what the kernel drops between its interfaces nobody knows; of memory all is known.
        let lost = ledger.lost() + came.run.ledger.lost();
        let is_known = !matches!((self.ports, self.between), (Ports::Pairs(_), _) | (_, Between::Nothing));
        ensure!(
            !is_known || sent.sent.frames == received + lost,
            "{received} of {} frames came, {lost} are lost by name",
            sent.sent.frames
        );
        let delay = summary.delay;
        let delays = [delay.latency_p50_ns, delay.latency_p99_ns];
        let is_timed = !matches!(self.ports, Ports::Memory(options) if !options.is_empty());
        Ok((received, sent.elapsed.as_secs_f64(), delays.map(|delay| delay.filter(|_| is_timed))))
    }

    fn row(&self, size: usize, direct: &Case) -> Row {
        let mut row = self.rounds.row("inline", self.name, (size - 4) as f64).sized(size);
        let [p50, p99] = self.beyond(direct);
        (row.p50_us, row.p99_us) = (p50, p99);
        row.remark = self.added(direct);
        row.limited("direct", &direct.rounds)
    }

    /// How many microseconds longer than there frames took: half of them, and 99 in 100, at the most.
    fn beyond(&self, direct: &Case) -> [Option<f64>; 2] {
        [0, 1].map(|part| {
            let (here, there) = (median(&self.delays[part])?, median(&direct.delays[part])?);
            Some((here - there) as f64 / 1e3)
        })
    }

    fn added(&self, direct: &Case) -> String {
        match self.beyond(direct) {
            [Some(p50), Some(p99)] => format!("{p50:.1} us later, p99 {p99:.1} us"),
            _ => "delay not known".to_owned(),
        }
    }
}

fn median(all: &[i64]) -> Option<i64> {
    let mut sorted = all.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}
