//! Who receives, and how the kernel hands frames over to it.

use anyhow::{Context, bail};
use linerate_lab::TemporaryLab;
use std::path::Path;
use std::process::Command;

/// Starts and asks a receiver.
#[derive(Clone, Copy)]
pub(super) struct Receiver {
    pub name: &'static str,
    pub job: Job,
    pub handing: Handing,
    /// The command that receives from `rx:eth0` until it is interrupted, and where it keeps frames if that is its job.
    pub start: fn(&TemporaryLab, &Path) -> anyhow::Result<Command>,
    /// How many frames it had, of what it printed.
    pub count: fn(&str) -> Option<u64>,
}

/// What a receiver does with frames: those of one job stand beside each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Job {
    /// Captures into nothing, or counts.
    Take,
    /// Captures into a file in memory.
    Keep,
    /// Makes flow records of them.
    Meter,
    /// Accounts for each by its trailer.
    Check,
}

/// How the kernel hands frames over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Handing {
    /// In the softirq that they raise.
    Softirq,
    /// In a thread of the interface's own (`/sys/class/net/.../threaded`).
    Thread,
    /// In calls of the reader (`SO_PREFER_BUSY_POLL`).
    Calls,
}

/// Ours.
pub(super) const RECEIVERS: [Receiver; 11] = [
    taking("packet", Handing::Softirq, |lab, _| capture(lab, "packet", "", Path::new(NOTHING))),
    taking("packet, threaded NAPI", Handing::Thread, |lab, _| capture(lab, "packet", "", Path::new(NOTHING))),
    taking("packet count", Handing::Softirq, |lab, _| count(lab, "packet", &[])),
    taking("xdp", Handing::Softirq, |lab, _| capture(lab, "xdp", "", Path::new(NOTHING))),
    taking("xdp, threaded NAPI", Handing::Thread, |lab, _| capture(lab, "xdp", "", Path::new(NOTHING))),
    taking("xdp count", Handing::Softirq, |lab, _| count(lab, "xdp", &[])),
    taking("xdp by AF_XDP", Handing::Softirq, |lab, _| capture(lab, "xdp", "&mode=af_xdp", Path::new(NOTHING))),
    taking("xdp by AF_XDP, busy polling", Handing::Calls, |lab, _| {
        capture(lab, "xdp", "&mode=af_xdp&busy-poll=64", Path::new(NOTHING))
    }),
    Receiver { job: Job::Keep, ..taking("xdp to a file", Handing::Softirq, |lab, file| capture(lab, "xdp", "", file)) },
    Receiver { job: Job::Meter, ..taking("xdp to flows", Handing::Softirq, |lab, _| flows(lab, "xdp")) },
    Receiver {
        job: Job::Check,
        count: checked,
        ..taking("xdp checked", Handing::Softirq, |lab, _| count(lab, "xdp", &["--check"]))
    },
];

/// Those beside us, of each job the one that ratios are taken to first.
pub(super) const PEERS: [Receiver; 3] = [
    Receiver {
        count: |text| number(text, " packets captured"),
        ..taking("tcpdump", Handing::Softirq, |lab, _| tcpdump(lab))
    },
    Receiver { count: dumped, ..taking("dumpcap", Handing::Softirq, |lab, _| dumpcap(lab, Path::new(NOTHING))) },
    Receiver { job: Job::Keep, count: dumped, ..taking("dumpcap", Handing::Softirq, dumpcap) },
];

/// Where frames go that nobody wants.
const NOTHING: &str = "/dev/null";

/// One that takes frames and says how many in a JSON document.
const fn taking(
    name: &'static str,
    handing: Handing,
    start: fn(&TemporaryLab, &Path) -> anyhow::Result<Command>,
) -> Receiver {
    Receiver { name, job: Job::Take, handing, start, count: frames }
}

impl Receiver {
    /// Whether it is one for an interface of several queues.
    pub(super) fn is_of_queues(&self) -> bool {
        ["packet", "xdp", "xdp count", "xdp by AF_XDP"].contains(&self.name)
    }

    /// Whether it is one for a sender that nobody has to hurry for.
    pub(super) fn is_plain(&self) -> bool {
        self.name == "packet"
    }
}

impl Handing {
    /// Makes the receiving interface hand frames over so, or as ever.
    pub(super) fn prepare(self, lab: &TemporaryLab, is_wanted: bool) -> anyhow::Result<()> {
        if self != Handing::Thread {
            return Ok(());
        }
        // The files of an interface are to be seen in its namespace alone.
        let text = format!("echo {} > /sys/class/net/eth0/threaded", u8::from(is_wanted));
        let ended = Command::new("ip")
            .args(["netns", "exec", &lab.plan().namespace("rx"), "sh", "-c", &text])
            .output()
            .context("ip")?;
        if !ended.status.success() {
            bail!("threaded NAPI: {}", String::from_utf8_lossy(&ended.stderr).trim());
        }
        Ok(())
    }
}

fn port(lab: &TemporaryLab, scheme: &str, options: &str) -> String {
    format!("{scheme}:eth0?netns={}{options}", lab.plan().namespace("rx"))
}

fn capture(lab: &TemporaryLab, scheme: &str, options: &str, file: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(crate::linerate()?);
    // The folder of the files is that of this user alone.
    command.args(["capture", &port(lab, scheme, options), "--format", "pcap", "--json", "--lossless"]);
    command.args(["-Z", "root", "-w"]).arg(file);
    Ok(command)
}

fn count(lab: &TemporaryLab, scheme: &str, more: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(crate::linerate()?);
    command.args(["count", &port(lab, scheme, ""), "--json", "--interval", "0", "--lossless"]).args(more);
    Ok(command)
}

fn flows(lab: &TemporaryLab, scheme: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(crate::linerate()?);
    command.args(["flows", &port(lab, scheme, ""), "--write", "null", "--json", "--lossless"]);
    Ok(command)
}

fn tcpdump(lab: &TemporaryLab) -> anyhow::Result<Command> {
    let mut command = lab.exec("rx", "tcpdump")?;
    // The same ring memory as ours, in KiB. As another user than root, tcpdump would give /dev/null to that
    // user.
    command.args(["-Z", "root", "-i", "eth0", "-n", "-B", "131072", "-w", NOTHING]);
    Ok(command)
}

fn dumpcap(lab: &TemporaryLab, file: &Path) -> anyhow::Result<Command> {
    let mut command = lab.exec("rx", "dumpcap")?;
    // In MiB. pcap, as ours.
    command.args(["-q", "-P", "-i", "eth0", "-B", "128", "-w"]).arg(file);
    Ok(command)
}

/// Of the JSON document that captures and counts end with; behind it stands what was said on standard error.
fn frames(text: &str) -> Option<u64> {
    let mut documents = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
    documents.next()?.ok()?["frames"].as_u64()
}

/// Of the last of the documents that a check ends with.
fn checked(text: &str) -> Option<u64> {
    let documents = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
    let summary = documents.map_while(Result::ok).find(|document| document["record"] == "summary")?;
    summary["received"].as_u64()
}

/// Its last line: `Packets received/dropped on interface 'eth0': 8000000/0 (...)`.
fn dumped(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("Packets received/dropped"))?;
    line.rsplit_once(": ")?.1.split('/').next()?.parse().ok()
}

/// The number that stands in front of some text.
fn number(text: &str, what: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_suffix(what)?.trim().parse().ok())
}
