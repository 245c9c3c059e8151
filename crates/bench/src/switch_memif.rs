//! A switch between two `memif:` ports: CPU time per packet of the switching thread, compared with Open vSwitch with DPDK.
//!
//! One thread sends into the first port and receives from the second as fast as it can; the other one switches, ours or that of Open
//! vSwitch (`scripts/ovs`), on a processor of its own.

use super::Effort;
use super::folder::Folder;
use super::harness::{Case, Ours, Prepare, Sample, case};
use super::machine::{FORWARDING, during, pin, task_cpu, two_cpus};
use super::peers::missing;
use super::switch::{LENGTH, by_packet, frames, parsed, rules};
use anyhow::{Context, ensure};
use linerate_backends::REGISTRY;
use linerate_burst::{Block, Nanos};
use linerate_cli::view::terminal::print_stderr;
use linerate_engine::switching::SwitchConsumer;
use linerate_engine::{Progress, WaitStrategy, clock};
use linerate_port::{RxOptions, RxPort, Spec, TxOptions, TxPort};
use linerate_switch::{Options, Switch};
use rustix::thread::{sched_getaffinity, sched_setaffinity};
use std::cell::RefCell;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Packets of a round, and the least number in flight.
const FRAMES: usize = 4_000_000;
const BURST: usize = 256;
/// Maximum wait for packets.
const PATIENCE: Duration = Duration::from_secs(20);

/// Makes the rules of a number of flows.
type Rules = fn(usize) -> Vec<String>;

/// Rules and packets of a case.
struct Load {
    rules: Vec<String>,
    block: Block,
    frames: usize,
    /// Each flow has one packet: its rule is in no cache.
    is_new: bool,
}

/// The far ends of the two ports.
struct Ends {
    to: TxPort,
    from: RxPort,
}

pub(super) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    let many = if effort.quick { 4096 } else { 65_536 };
    let port: Rules = |_| vec!["in_port=1,actions=output:2".to_owned()];
    let cases = [
        ("a port rule", port, 1024, false),
        ("a rule a flow", rules, 1024, false),
        ("a rule a flow", rules, many, false),
        ("each flow new", rules, many, true),
    ];
    // One daemon for all cases, started with the first one.
    let ovs: Rc<RefCell<Option<Ovs>>> = Rc::default();
    let has_ovs = Path::new("target/ovs/done").exists() && rustix::process::geteuid().is_root();
    if !has_ovs {
        missing("Open vSwitch", "openvswitch-switch-dpdk, by scripts/ovs unpack");
    }
    let of = |(name, rules, flows, is_new): (&'static str, Rules, usize, bool)| {
        let ovs = Rc::clone(&ovs);
        case(move || {
            let (block, [cpu, other]) = (frames(flows)?, two_cpus());
            let load = Rc::new(Load { rules: rules(flows), block, frames: effort.of(FRAMES).max(flows), is_new });
            let own = Rc::clone(&load);
            let ours = Ours::new(format!("memif to memif, {name}"), move || apart(other, || switched(&own, cpu)));
            let all = Case::sized(LENGTH + 4).ours(ours.with(|row| row.flows = Some(flows)).finish(by_packet));
            if !has_ovs {
                return Ok(all);
            }
            if ovs.borrow().is_none() {
                *ovs.borrow_mut() = Some(Ovs::start(cpu)?);
            }
            Ok(all.peer("Open vSwitch", move || {
                apart(other, || ovs.borrow_mut().as_mut().context("Open vSwitch is not running")?.round(&load))
            }))
        })
    };
    Ok(cases.map(of).into())
}

/// Runs `work` on this processor.
fn apart<T>(cpu: usize, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let all = sched_getaffinity(None)?;
    pin(cpu);
    let done = work();
    sched_setaffinity(None, &all)?;
    done
}

/// Measures our switch, in a thread of this process.
fn switched(load: &Load, cpu: usize) -> anyhow::Result<Sample> {
    let folder = Folder::new("switch")?;
    let mut switch = Switch::new(Options::new(2));
    switch.add_all(parsed(&load.rules, 2)?, Nanos(1));
    let spec =
        |port: usize| Spec::parse(&format!("memif:{}?role=server", folder.file(&format!("m{port}.sock")).display()));
    let (mut from, mut to) = (Vec::new(), Vec::new());
    for port in 0..2 {
        from.push(REGISTRY.open_rx(&spec(port)?, &RxOptions::default())?);
        to.push(REGISTRY.open_tx(&spec(port)?, &TxOptions::default())?);
    }
    let mut switching = SwitchConsumer::new(switch, to, vec![1, 2], false, Progress::new());
    let used = || task_cpu(std::process::id(), FORWARDING);
    let measured = during(from, &mut switching, (WaitStrategy::Spin, Some(cpu)), |_| {
        Ends::open(folder.path())?.measure(load, &used)
    })?;
    Ok(measured.0)
}

impl Ends {
    /// Connects to the servers in a folder.
    fn open(folder: &Path) -> anyhow::Result<Ends> {
        // Open vSwitch sends by its second ring, and receives from one.
        let spec = |port: usize| {
            let socket = folder.join(format!("m{port}.sock"));
            Spec::parse(&format!("memif:{}?role=client&rings-in=2&rings-out=1", socket.display()))
        };
        let to = REGISTRY.open_tx(&spec(0)?, &TxOptions::default())?;
        let from = REGISTRY.open_rx(&spec(1)?, &RxOptions::default())?;
        Ok(Ends { to, from })
    }

    /// Measures packets that leave by the other port, in the CPU time of the switching thread.
    fn measure(&mut self, load: &Load, used: &dyn Fn() -> Duration) -> anyhow::Result<Sample> {
        // The first packets connect the ends and fill the caches of flows.
        let flows = load.block.len();
        let warm = if load.is_new { BURST.min(flows) } else { flows };
        self.push(&load.block, warm)?;
        let before = used();
        let arrived = self.push(&load.block, if load.is_new { flows - warm } else { load.frames })?;
        Ok(Sample::cpu(arrived, used() - before))
    }

    /// Sends this number of packets, from the end of the block first, until as many have arrived; returns that number.
    fn push(&mut self, block: &Block, frames: usize) -> anyhow::Result<u64> {
        let (mut sent, mut arrived, mut moved, mut tried) = (0, 0u64, Instant::now(), Instant::now());
        let mut at = block.len() - frames.min(block.len());
        while (arrived as usize) < frames {
            let now = clock::now();
            // No more in flight than rings hold, so that only a slow switch loses packets.
            if sent < frames && sent.saturating_sub(arrived as usize) < 2 * BURST {
                let end = block.len().min(at + BURST).min(at + frames - sent);
                let took = self.to.queues[0].send(block.burst().slice(at..end))?;
                self.to.queues[0].flush(now)?;
                (sent, at) = (sent + took, (at + took) % block.len());
            }
            for queue in &mut self.from.queues {
                let shown = queue.fill(now)?.burst.len();
                queue.consume(shown);
                arrived += shown as u64;
                if shown > 0 {
                    (moved, tried) = (Instant::now(), Instant::now());
                }
            }
            ensure!(moved.elapsed() < PATIENCE, "{arrived} of {frames} packets arrived");
            // Packets that were lost while the ends connected are sent again.
            if tried.elapsed() > Duration::from_millis(500) {
                (sent, tried) = (arrived as usize, Instant::now());
            }
        }
        Ok(arrived)
    }
}

/// Open vSwitch at work, and the ends of its ports, which stay open: it may crash if they close.
struct Ovs {
    folder: Folder,
    ends: Ends,
    pid: u32,
}

impl Ovs {
    fn start(cpu: usize) -> anyhow::Result<Ovs> {
        let folder = Folder::new("ovs")?;
        script(&["up", &folder.path().to_string_lossy()], cpu).inspect_err(|_| down(&folder))?;
        let started = std::fs::read_to_string(folder.file("v.pid")).map_err(anyhow::Error::from);
        let started = started.and_then(|pid| Ok((pid.trim().parse::<u32>()?, Ends::open(folder.path())?)));
        let (pid, ends) = started.inspect_err(|_| down(&folder))?;
        Ok(Ovs { folder, ends, pid })
    }

    fn round(&mut self, load: &Load) -> anyhow::Result<Sample> {
        let file = self.folder.file("rules");
        std::fs::write(&file, load.rules.join("\n") + "\n")?;
        script(&["flows", &self.folder.path().to_string_lossy(), &file.to_string_lossy()], 0)?;
        let pid = self.pid;
        self.ends.measure(load, &move || task_cpu(pid, "pmd"))
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        down(&self.folder);
    }
}

fn down(folder: &Folder) {
    if let Err(error) = script(&["down", &folder.path().to_string_lossy()], 0) {
        print_stderr(format_args!("switch: {error:#}\n"));
    }
}

/// Runs the script, on a processor that the daemon is to have.
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
