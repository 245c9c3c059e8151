//! A switch between two `memif:` ports: what a frame costs the thread that switches, CPU time, beside Open vSwitch with DPDK in the same run.
//!
//! One thread sends into the one port and takes what leaves by the other, as fast as that goes; another one switches, ours or the one of
//! Open vSwitch (`scripts/ovs`), on a processor of its own.

use super::Effort;
use super::folder::Folder;
use super::measure::{Rounds, Row};
use super::switch::{LENGTH, frame, parsed, rules};
use super::testpmd::{thread_time, two_cpus};
use anyhow::{Context, ensure};
use linerate_backends::REGISTRY;
use linerate_burst::{Block, Desc, Nanos};
use linerate_cli::view::terminal::tell;
use linerate_engine::switching::Switching;
use linerate_engine::{Progress, Receive, Stop, Waiting, clock};
use linerate_port::{RxOptions, RxPort, Spec, TxOptions, TxPort};
use linerate_switch::{Options, Switch};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Frames of a round, and the least that are on their way at a time.
const FRAMES: usize = 4_000_000;
const BURST: usize = 256;
/// Nothing came for so long: nothing will.
const PATIENCE: Duration = Duration::from_secs(20);

/// What rules there are, and how many flows.
struct Case {
    name: &'static str,
    rules: Vec<String>,
    flows: usize,
    /// Each flow comes once: no rule is known from a frame like it.
    is_new: bool,
}

/// The far ends of the two ports.
struct Ends {
    to: TxPort,
    from: RxPort,
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let many = if effort.quick { 4096 } else { 65_536 };
    let cases = [
        Case { name: "a port rule", rules: vec!["in_port=1,actions=output:2".to_owned()], flows: 1024, is_new: false },
        Case { name: "a rule a flow", rules: rules(1024), flows: 1024, is_new: false },
        Case { name: "a rule a flow", rules: rules(many), flows: many, is_new: false },
        Case { name: "each flow new", rules: rules(many), flows: many, is_new: true },
    ];
    let [cpu, other] = two_cpus();
    let all = sched_getaffinity(None).unwrap_or_default();
    let mut ovs = Ovs::start(cpu)?;
    stay(Some(other), &all);
    let rows = cases.iter().map(|case| {
        let (mut ours, mut peer) = (Rounds::default(), Rounds::default());
        for _ in 0..effort.rounds.min(5) {
            own(case, effort, (cpu, &all), &mut ours)?;
            if let Some(ovs) = &mut ovs {
                ovs.round(case, effort, &mut peer).with_context(|| format!("Open vSwitch, {}", case.name))?;
            }
        }
        let name = format!("memif to memif, {}", case.name);
        let row = ours.row("switch", name, LENGTH as f64).sized(LENGTH + 4);
        let row = if peer.len() > 0 { row.beside("Open vSwitch", &peer) } else { row };
        let ns = 1e3 / ours.median();
        anyhow::Ok(Row { ns: Some(ns), flows: Some(case.flows), remark: format!("{ns:.1} ns of CPU a frame"), ..row })
    });
    let rows = rows.collect();
    stay(None, &all);
    rows
}

/// This thread on a processor, or on all of these.
fn stay(cpu: Option<usize>, all: &CpuSet) {
    let mut one = CpuSet::new();
    cpu.into_iter().for_each(|cpu| one.set(cpu));
    // Elsewhere it measures as well, with more spread.
    let _ = sched_setaffinity(None, if cpu.is_some() { &one } else { all });
}

/// Our switch, in a thread of this process.
fn own(case: &Case, effort: Effort, (cpu, all): (usize, &CpuSet), rounds: &mut Rounds) -> anyhow::Result<()> {
    let folder = Folder::new("switch")?;
    let mut switch = Switch::new(Options::new(2));
    switch.add_all(parsed(&case.rules, 2)?, Nanos(1));
    let spec =
        |port: usize| Spec::parse(&format!("memif:{}?role=server", folder.file(&format!("m{port}.sock")).display()));
    let (mut from, mut to) = (Vec::new(), Vec::new());
    for port in 0..2 {
        from.push(REGISTRY.open_rx(&spec(port)?, &RxOptions::default())?);
        to.push(REGISTRY.open_tx(&spec(port)?, &TxOptions::default())?);
    }
    let stop = Stop::new();
    let mut switching = Switching::new(switch, to, vec![1, 2], false, Progress::new());
    let named = "bench-switching";
    std::thread::scope(|scope| {
        let run = Receive { ports: from, waiting: Waiting::Spin, duration: None, stop: stop.clone() };
        let switches = std::thread::Builder::new().name(named.into()).spawn_scoped(scope, move || {
            stay(Some(cpu), all);
            run.run(&mut [&mut switching]).failure.map(|failure| failure.to_string())
        })?;
        let measured = Ends::open(folder.path()).and_then(|mut ends| {
            let used = || thread_time(std::process::id(), named);
            ends.measure(case, effort, &used, rounds)
        });
        stop.request();
        let failure = switches.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ensure!(failure.is_none(), "{}", failure.unwrap_or_default());
        measured
    })
}

impl Ends {
    /// Connects to the servers in a folder.
    fn open(folder: &Path) -> anyhow::Result<Ends> {
        // Open vSwitch sends by its second ring, and takes from one.
        let spec = |port: usize| {
            let socket = folder.join(format!("m{port}.sock"));
            Spec::parse(&format!("memif:{}?role=client&rings-in=2&rings-out=1", socket.display()))
        };
        let to = REGISTRY.open_tx(&spec(0)?, &TxOptions::default())?;
        let from = REGISTRY.open_rx(&spec(1)?, &RxOptions::default())?;
        Ok(Ends { to, from })
    }

    /// How many frames left by the other port, in which time of the thread that switches.
    fn measure(
        &mut self,
        case: &Case,
        effort: Effort,
        used: &dyn Fn() -> Duration,
        rounds: &mut Rounds,
    ) -> anyhow::Result<()> {
        let mut block = Block::new(case.flows * (LENGTH + 16) + 64, case.flows);
        for flow in 0..case.flows as u32 {
            // Not in the order of the rules.
            let flow = flow.wrapping_mul(40_503) % case.flows as u32;
            ensure!(block.push(&Desc::new(Nanos(1), 0, LENGTH as u32), &frame(flow)), "no room");
        }
        // Until frames come the ends have not found each other; what was known of flows is known then.
        let warm = if case.is_new { BURST.min(case.flows) } else { case.flows };
        self.push(&block, warm)?;
        let frames = if case.is_new { case.flows - warm } else { effort.of(FRAMES).max(case.flows) };
        let before = used();
        let came = self.push(&block, frames)?;
        rounds.add(came, (used() - before).as_secs_f64());
        Ok(())
    }

    /// Sends so many frames, the last of the block first known, until as many have come, or what was lost has not.
    fn push(&mut self, block: &Block, frames: usize) -> anyhow::Result<u64> {
        let (mut sent, mut came, mut moved, mut tried) = (0, 0u64, Instant::now(), Instant::now());
        let mut at = block.len() - frames.min(block.len());
        while (came as usize) < frames {
            let now = clock::now();
            // No more on their way than rings hold, so that nothing is lost that is not slow.
            if sent < frames && sent.saturating_sub(came as usize) < 2 * BURST {
                let end = block.len().min(at + BURST).min(at + frames - sent);
                let took = self.to.queues[0].send(block.burst().slice(at..end))?;
                self.to.queues[0].flush(now)?;
                (sent, at) = (sent + took, (at + took) % block.len());
            }
            for queue in &mut self.from.queues {
                let shown = queue.fill(now)?.burst.len();
                queue.consume(shown);
                came += shown as u64;
                if shown > 0 {
                    (moved, tried) = (Instant::now(), Instant::now());
                }
            }
            if moved.elapsed() > PATIENCE {
                anyhow::bail!("{came} of {frames} frames came");
            }
            // What was lost while both ends found each other is sent again.
            if tried.elapsed() > Duration::from_millis(500) {
                (sent, tried) = (came as usize, Instant::now());
            }
        }
        Ok(came)
    }
}

/// Open vSwitch at work, and the ends of its ports, which stay while it runs: it may die when they go.
struct Ovs {
    folder: Folder,
    ends: Ends,
    pid: u32,
}

impl Ovs {
    /// Starts it; none, said aloud, where it is not there.
    fn start(cpu: usize) -> anyhow::Result<Option<Ovs>> {
        if !Path::new("target/ovs/done").exists() || !rustix::process::geteuid().is_root() {
            tell("bench switch: no Open vSwitch beside it: scripts/ovs unpack fetches it; it needs root\n");
            return Ok(None);
        }
        let folder = Folder::new("ovs")?;
        script(&["up", &folder.path().to_string_lossy()], cpu).inspect_err(|_| down(&folder))?;
        let started = std::fs::read_to_string(folder.file("v.pid")).map_err(anyhow::Error::from);
        let started = started.and_then(|pid| Ok((pid.trim().parse::<u32>()?, Ends::open(folder.path())?)));
        let (pid, ends) = started.inspect_err(|_| down(&folder))?;
        Ok(Some(Ovs { folder, ends, pid }))
    }

    fn round(&mut self, case: &Case, effort: Effort, rounds: &mut Rounds) -> anyhow::Result<()> {
        let file = self.folder.file("rules");
        std::fs::write(&file, case.rules.join("\n") + "\n")?;
        script(&["flows", &self.folder.path().to_string_lossy(), &file.to_string_lossy()], 0)?;
        let pid = self.pid;
        self.ends.measure(case, effort, &move || thread_time(pid, "pmd"), rounds)
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        down(&self.folder);
    }
}

fn down(folder: &Folder) {
    if let Err(error) = script(&["down", &folder.path().to_string_lossy()], 0) {
        tell(format_args!("bench switch: {error:#}\n"));
    }
}

/// Runs the script, on a processor that what it starts is to have.
fn script(words: &[&str], cpu: usize) -> anyhow::Result<()> {
    let mut command = Command::new("scripts/ovs");
    if words[0] == "up" {
        command = Command::new("taskset");
        command.args(["-c", &cpu.to_string(), "scripts/ovs"]);
    }
    let output = command.args(words).output().context("scripts/ovs")?;
    ensure!(output.status.success(), "scripts/ovs {}: {}", words[0], String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
