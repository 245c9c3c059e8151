//! A switch between two veth pairs beside the Linux bridge: the rate at which nothing is lost, by search, in the same run.

use super::Effort;
use super::measure::{Rounds, Row};
use super::switch::LENGTH;
use super::traffic::{self, ONE};
use super::wire::{make_bridge, shell};
use anyhow::{Context, ensure};
use linerate_backends::counting::{Counting, Then};
use linerate_backends::faulty::Faults;
use linerate_backends::open_tx;
use linerate_burst::Nanos;
use linerate_cli::verbs::{receive_whole, send_as};
use linerate_cli::view::terminal::tell;
use linerate_engine::streams::Run;
use linerate_engine::switching::Switching;
use linerate_engine::{Progress, Receive, Stop, Streams};
use linerate_generate::Rate;
use linerate_generate::stream::Mark;
use linerate_lab::{Plan, TemporaryLab};
use linerate_port::{Spec, TxOptions};
use linerate_switch::text::{numbered, parse_rule};
use linerate_switch::{Options, Switch};
use std::thread;
use std::time::{Duration, Instant};

/// Frames a second that no sender here reaches, and how often the rest is halved.
const MOST: f64 = 12e6;
const STEPS: u32 = 8;
/// How long frames may be on their way when nothing more is sent.
const SETTLED: Duration = Duration::from_millis(200);

/// Who passes frames on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Between {
    Bridge,
    Switch(&'static str),
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    if !rustix::process::geteuid().is_root() {
        tell("bench switch: no Linux bridge beside it: test hosts need root\n");
        return Ok(Vec::new());
    }
    let ways = [("xdp", "xdp:IF?mode=ring"), ("packet", "packet:IF")];
    let mut rounds = [Rounds::default(), Rounds::default(), Rounds::default()];
    for _ in 0..effort.rounds.min(5) {
        let [bridge, own @ ..] = &mut rounds;
        bridge.add(lossless(Between::Bridge, effort).context("bench switch: Linux bridge")?, 1.0);
        for ((name, port), rounds) in ways.iter().zip(own) {
            let rate = lossless(Between::Switch(port), effort).with_context(|| format!("bench switch: {name}"))?;
            rounds.add(rate, 1.0);
        }
    }
    let [bridge, own @ ..] = &rounds;
    let row = |((name, _), rounds): (&(&str, &str), &Rounds)| {
        let row = rounds.row("switch", format!("veth to veth, {name}, nothing lost"), LENGTH as f64);
        let row = row.sized(LENGTH + 4).beside("Linux bridge", bridge);
        Row { remark: "the greatest rate at which all arrived, by search".to_owned(), ..row }
    };
    Ok(ways.iter().zip(own).map(row).collect())
}

/// The greatest rate, in frames a second, at which every frame arrives.
fn lossless(between: Between, effort: Effort) -> anyhow::Result<u64> {
    let links = ["tx:eth0,mid:in", "mid:out,rx:eth0"].map(str::parse);
    let lab = TemporaryLab::up(&Plan::from_links("bench", links.into_iter().collect::<Result<_, _>>()?)?)?;
    let name = |host: &str| lab.plan().namespace(host);
    let counting = Counting::attach(Some(&name("rx")), "eth0", Then::Drop)?;
    let sender = Spec::parse(&format!("xdp-live:eth0?netns={}", name("tx")))?;
    let search = || {
        let (mut low, mut high) = (0.0, MOST);
        for _ in 0..if effort.quick { 3 } else { STEPS } {
            let rate = (low + high) / 2.0;
            if all_arrive(&sender, &counting, rate, effort)? { low = rate } else { high = rate }
        }
        // Where not even the slowest one passes, that is what is told: half of the last step.
        anyhow::Ok(if low > 0.0 { low } else { high / 2.0 })
    };
    let Between::Switch(port) = between else {
        make_bridge(&lab)?;
        // The sender's frames become packets there.
        shell(&lab, "ethtool -K in gro on")?;
        return search().map(|rate| rate as u64);
    };
    if !port.starts_with("xdp") {
        shell(&lab, "ethtool -K in gro on")?;
    }
    let joint = if port.contains('?') { '&' } else { '?' };
    let spec = |end| Spec::parse(&format!("{}{joint}netns={}", port.replace("IF", end), name("mid")));
    let specs = [spec("in")?, spec("out")?];
    let plain = Faults::parse("seed=1").map_err(anyhow::Error::msg)?;
    // Both receive before one sends: an xdp: queue is sent into by the socket that receives from it.
    let mut from = vec![receive_whole(&specs[0], &plain, true)?, receive_whole(&specs[1], &plain, true)?];
    let to = vec![send_as(&specs[0], &specs[0])?, send_as(&specs[1], &specs[1])?];
    let mut switch = Switch::new(Options::new(2));
    for rule in ["in_port=1,actions=output:2", "in_port=2,actions=output:1"] {
        switch.add(parse_rule(rule, &numbered(2)).map_err(anyhow::Error::msg)?, Nanos(1));
    }
    from.iter_mut().flat_map(|port| &mut port.queues).for_each(|queue| queue.start());
    let mut switching = Switching::new(switch, to, vec![1, 2], false, Progress::new());
    let stop = Stop::new();
    thread::scope(|scope| {
        let run = Receive { stop: stop.clone(), ..Receive::all(from) };
        let switches = scope.spawn(move || run.run(&mut [&mut switching]).failure.map(|failure| failure.to_string()));
        let found = search();
        stop.request();
        let failure = switches.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ensure!(failure.is_none(), "{}", failure.unwrap_or_default());
        found.map(|rate| rate as u64)
    })
}

/// Whether all frames of a trial at this rate arrive. A sender that does not reach it has not shown that they do.
fn all_arrive(sender: &Spec, counting: &Counting, rate: f64, effort: Effort) -> anyhow::Result<bool> {
    let span = if effort.quick { 0.02 } else { 0.5 };
    let frames = (rate * span) as u64;
    let mut set = traffic::streams(ONE, LENGTH + 4, frames, Mark::None)?;
    set.streams[0].rate = Rate::Frames(rate);
    let before = counting.frames();
    let port = open_tx(sender, &TxOptions::default())?;
    let sent = Streams::new(&set, port)?.run(&Run::default());
    if let Some(failure) = sent.failure {
        return Err(failure.into());
    }
    let settled = Instant::now();
    while counting.frames() - before < frames && settled.elapsed() < SETTLED {
        thread::sleep(Duration::from_millis(1));
    }
    let in_time = sent.elapsed.as_secs_f64() < 1.05 * span + 0.01;
    Ok(in_time && counting.frames() - before >= frames)
}
