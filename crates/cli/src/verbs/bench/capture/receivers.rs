//! Who receives, and how the kernel hands frames over to it.

use anyhow::{Context, bail};
use linerate_lab::TemporaryLab;
use std::process::Command;

/// Starts and asks a receiver.
#[derive(Clone, Copy)]
pub struct Receiver {
    pub name: &'static str,
    pub handing: Handing,
    /// The command that receives from `rx:eth0` until it is interrupted.
    pub start: fn(&TemporaryLab) -> anyhow::Result<Command>,
    /// How many frames it had, of what it printed.
    pub count: fn(&str) -> Option<u64>,
}

/// How the kernel hands frames over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Handing {
    /// In the softirq that they raise.
    Softirq,
    /// In a thread of the interface's own (`/sys/class/net/.../threaded`).
    Thread,
    /// In calls of the reader (`SO_PREFER_BUSY_POLL`).
    Calls,
}

/// Ours.
pub const RECEIVERS: [Receiver; 8] = [
    Receiver { name: "packet", handing: Handing::Softirq, start: |lab| capture(lab, "packet", ""), count: frames },
    Receiver {
        name: "packet, threaded NAPI",
        handing: Handing::Thread,
        start: |lab| capture(lab, "packet", ""),
        count: frames,
    },
    Receiver { name: "packet count", handing: Handing::Softirq, start: |lab| count(lab, "packet"), count: frames },
    Receiver { name: "xdp", handing: Handing::Softirq, start: |lab| capture(lab, "xdp", ""), count: frames },
    Receiver {
        name: "xdp, threaded NAPI",
        handing: Handing::Thread,
        start: |lab| capture(lab, "xdp", ""),
        count: frames,
    },
    Receiver { name: "xdp count", handing: Handing::Softirq, start: |lab| count(lab, "xdp"), count: frames },
    Receiver {
        name: "xdp by AF_XDP",
        handing: Handing::Softirq,
        start: |lab| capture(lab, "xdp", "&mode=af_xdp"),
        count: frames,
    },
    Receiver {
        name: "xdp by AF_XDP, busy polling",
        handing: Handing::Calls,
        start: |lab| capture(lab, "xdp", "&mode=af_xdp&busy-poll=64"),
        count: frames,
    },
];

/// Those beside us, the one that ratios are taken to first.
pub const PEERS: [Receiver; 2] = [
    Receiver {
        name: "tcpdump",
        handing: Handing::Softirq,
        start: tcpdump,
        count: |text| number(text, " packets captured"),
    },
    Receiver { name: "dumpcap", handing: Handing::Softirq, start: dumpcap, count: dumped },
];

impl Receiver {
    /// Whether it is one for a sender that nobody has to hurry for.
    pub fn is_plain(&self) -> bool {
        self.name == "packet"
    }
}

impl Handing {
    /// Makes the receiving interface hand frames over so, or as ever.
    pub fn prepare(self, lab: &TemporaryLab, is_wanted: bool) -> anyhow::Result<()> {
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

fn capture(lab: &TemporaryLab, scheme: &str, options: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([
        "capture",
        &port(lab, scheme, options),
        "-w",
        "/dev/null",
        "--format",
        "pcap",
        "--json",
        "--lossless",
    ]);
    Ok(command)
}

fn count(lab: &TemporaryLab, scheme: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["count", &port(lab, scheme, ""), "--json", "--interval", "0", "--lossless"]);
    Ok(command)
}

fn tcpdump(lab: &TemporaryLab) -> anyhow::Result<Command> {
    let mut command = lab.exec("rx", "tcpdump")?;
    // The same ring memory as ours, in KiB. As another user than root, tcpdump would give /dev/null to that
    // user.
    command.args(["-Z", "root", "-i", "eth0", "-n", "-B", "131072", "-w", "/dev/null"]);
    Ok(command)
}

fn dumpcap(lab: &TemporaryLab) -> anyhow::Result<Command> {
    let mut command = lab.exec("rx", "dumpcap")?;
    // In MiB.
    command.args(["-q", "-i", "eth0", "-B", "128", "-w", "/dev/null"]);
    Ok(command)
}

/// Of the JSON document that captures and counts end with; behind it stands what was said on standard error.
fn frames(text: &str) -> Option<u64> {
    let mut documents = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
    documents.next()?.ok()?["frames"].as_u64()
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
