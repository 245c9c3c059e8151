//! Capturing from a veth pair at the sender's top speed, beside tcpdump.
//!
//! Sender and receiver share the cores of this machine, so besides the rate the processor time that the
//! receiver takes for a frame is compared.

use super::Effort;
use super::measure::{Rounds, Row};
use super::traffic;
use crate::view::terminal::tell;
use anyhow::{Context, bail};
use linerate_generate::stream::Mark;
use linerate_lab::{Plan, TemporaryLab};
use linerate_port::Spec;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Frames a round sends; the fast sender sends several times as many.
const FRAMES: usize = 1_000_000;
const FAST: u64 = 8;
/// With this status a receiver says that frames were lost, which is counted here.
const LOSS: i32 = 3;
/// How long a receiver gets to open its port, and to take what is left.
const SETTLE: Duration = Duration::from_millis(700);

/// A sender, by its scheme, with the receivers it is measured against.
const MATCHES: [(&str, &[&str]); 2] = [("packet", &["packet"]), ("xdp-live", &["xdp", "packet"])];

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    if !rustix::process::geteuid().is_root() {
        tell("bench capture: SKIPPED: test hosts need root\n");
        return Ok(Vec::new());
    }
    let has_tcpdump = Command::new("tcpdump").arg("--version").output().is_ok();
    if !has_tcpdump {
        tell("bench capture: tcpdump is not installed: no peer beside us\n");
    }
    let mut rows = Vec::new();
    for (sender, receivers) in MATCHES {
        for size in [64, 1518] {
            rows.extend(measure(effort, (sender, receivers), size, has_tcpdump)?);
        }
    }
    Ok(rows)
}

fn measure(
    effort: Effort,
    (sender, receivers): (&str, &[&'static str]),
    size: usize,
    has_tcpdump: bool,
) -> anyhow::Result<Vec<Row>> {
    let lab = TemporaryLab::up(&Plan::from_links("bench", vec!["tx:eth0,rx:eth0".parse()?])?)?;
    if sender == "xdp-live" {
        // Else the veth would take live frames only where an XDP program receives.
        lab.exec("rx", "ethtool")?.args(["-K", "eth0", "gro", "on"]).status().context("ethtool")?;
    }
    let frames = effort.of(FRAMES) as u64 * if sender == "xdp-live" { FAST } else { 1 };
    let mut ours: Vec<(&str, Side)> = receivers.iter().map(|scheme| (*scheme, Side::default())).collect();
    let mut theirs = Side::default();
    for _ in 0..effort.rounds.min(5) {
        for (scheme, side) in &mut ours {
            side.round(&lab, (sender, frames, size), &mut linerate(&lab, scheme)?, count_of_linerate)?;
        }
        if has_tcpdump {
            theirs.round(&lab, (sender, frames, size), &mut tcpdump(&lab)?, count_of_tcpdump)?;
        }
    }
    let row = |(scheme, side): &(&str, Side)| {
        let mut row = side.rounds.row("capture", format!("{scheme}, sender {sender}"), (size - 4) as f64).sized(size);
        row.cores = 2;
        row.remark = format!("lost {}, {:.0} ns CPU a frame", side.lost, side.cpu_nanos());
        if has_tcpdump {
            row = row.beside("tcpdump", &theirs.rounds);
            row.remark += &format!("; tcpdump lost {}, {:.0} ns", theirs.lost, theirs.cpu_nanos());
        }
        row
    };
    Ok(ours.iter().map(row).collect())
}

/// The rounds of one receiver.
#[derive(Default)]
struct Side {
    rounds: Rounds,
    lost: u64,
    captured: u64,
    cpu: Duration,
}

impl Side {
    fn cpu_nanos(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.captured.max(1) as f64
    }

    /// Starts a receiver, sends, ends the receiver, and counts.
    fn round(
        &mut self,
        lab: &TemporaryLab,
        (scheme, frames, size): (&str, u64, usize),
        receiver: &mut Command,
        count: fn(&str) -> Option<u64>,
    ) -> anyhow::Result<()> {
        let child = receiver.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("cannot start {:?}", receiver.get_program()))?;
        std::thread::sleep(SETTLE);
        let before = cpu_time(&child);
        let sent = send(lab, scheme, frames, size);
        std::thread::sleep(SETTLE);
        let cpu = cpu_time(&child).saturating_sub(before);
        let text = end(&mut child)?;
        let (sent, seconds) = sent?;
        let captured = count(&text).with_context(|| format!("a receiver did not say what it captured: {text}"))?;
        self.rounds.add(captured, seconds);
        self.lost += sent.saturating_sub(captured);
        self.captured += captured;
        self.cpu += cpu;
        Ok(())
    }
}

fn send(lab: &TemporaryLab, scheme: &str, frames: u64, size: usize) -> anyhow::Result<(u64, f64)> {
    let spec = Spec::parse(&format!("{scheme}:eth0?netns={}", lab.plan().namespace("tx")))?;
    let (frames, span) = traffic::send(&spec, &traffic::streams(traffic::ONE, size, frames, Mark::None)?, false)?;
    Ok((frames, span.as_secs_f64()))
}

fn linerate(lab: &TemporaryLab, scheme: &str) -> anyhow::Result<Command> {
    let port = format!("{scheme}:eth0?netns={}", lab.plan().namespace("rx"));
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["capture", &port, "-w", "/dev/null", "--format", "pcap", "--json", "--lossless"]);
    Ok(command)
}

fn tcpdump(lab: &TemporaryLab) -> anyhow::Result<Command> {
    let mut command = lab.exec("rx", "tcpdump")?;
    // The same ring memory as ours, in KiB. As another user than root, tcpdump would give /dev/null to that
    // user.
    command.args(["-Z", "root", "-i", "eth0", "-n", "-B", "131072", "-w", "/dev/null"]);
    Ok(command)
}

fn count_of_linerate(text: &str) -> Option<u64> {
    let document: serde_json::Value = serde_json::from_str(text).ok()?;
    document["frames"].as_u64()
}

fn count_of_tcpdump(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_suffix(" packets captured")?.trim().parse().ok())
}

/// Processor time that the first thread of a running process has used, from `/proc/PID/schedstat`
/// (Documentation/scheduler/sched-stats.rst: nanoseconds on a processor come first).
fn cpu_time(child: &Child) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{}/schedstat", child.id())).unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|number| number.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

/// Asks a receiver to end, and returns all it printed.
fn end(child: &mut Child) -> anyhow::Result<String> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("the receiver has no process id")?;
    kill_process(pid, Signal::INT).context("the receiver has ended early")?;
    let mut text = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut text)?;
    }
    if let Some(mut err) = child.stderr.take() {
        err.read_to_string(&mut text)?;
    }
    let status = child.wait()?;
    if !status.success() && status.code() != Some(LOSS) {
        bail!("a receiver failed ({status}): {text}");
    }
    Ok(text)
}
