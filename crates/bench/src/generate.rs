//! Sending into a veth pair at top speed, to an XDP program on the other side that counts and drops, beside trafgen and
//! tcpreplay. The limit is a program of the kernel that sends one frame again and again and does nothing else.
//!
//! Rates are of frames that arrived. A path that cannot send a size has no row for it.

use super::Effort;
use super::folder::Folder;
use super::measure::{Rounds, Row};
use super::traffic::{self, FOUR, ONE};
use anyhow::{Context, bail};
use linerate_backends::counting::{Counting, Then};
use linerate_backends::xdp_live::send_unchanged;
use linerate_cli::view::terminal::tell;
use linerate_generate::stream::Mark;
use linerate_lab::{Plan, TemporaryLab};
use linerate_port::Spec;
use std::process::Command;
use std::time::{Duration, Instant};

/// Frames a round sends: by the kernel itself, by system calls, and by peers, whose start is in the time.
const FAST: usize = 1_000_000;
const SLOW: usize = 200_000;
const PEERS: usize = 500_000;
/// Sizes with FCS, of which the longer ones need a link with an MTU of their own.
const SIZES: [usize; 8] = [64, 128, 256, 512, 1024, 1518, 4096, 9018];
/// The longest frame on a link with the usual MTU, with FCS.
const USUAL: usize = 1518;
const LONG_MTU: usize = 9000;

/// Sends so many frames of this size with FCS; how long that took, without opening and closing.
type Send = fn(&Lab, u64, usize) -> anyhow::Result<Duration>;

/// A way to send; one row of the table.
struct Way {
    case: &'static str,
    send: Send,
    frames: usize,
    /// The longest frame it sends.
    longest: usize,
    rounds: Rounds,
    lost: u64,
}

struct Lab {
    lab: TemporaryLab,
    tx: String,
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    if !rustix::process::geteuid().is_root() {
        tell("bench generate: SKIPPED: test hosts need root\n");
        return Ok(Vec::new());
    }
    let peers: Vec<&str> = ["trafgen", "tcpreplay"].into_iter().filter(|peer| is_installed(peer)).collect();
    for (missing, package) in [("trafgen", "netsniff-ng"), ("tcpreplay", "tcpreplay")] {
        if !peers.contains(&missing) {
            tell(format_args!("bench generate: no comparison with {missing}: not installed (apt install {package})\n"));
        }
    }
    let mut rows = Vec::new();
    for size in SIZES.into_iter().filter(|size| effort.size.is_none_or(|only| only == *size)) {
        rows.extend(measure(effort, size, &peers)?);
    }
    Ok(rows)
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

fn way(case: &'static str, send: Send, frames: usize, longest: usize) -> Way {
    Way { case, send, frames, longest, rounds: Rounds::default(), lost: 0 }
}

fn measure(effort: Effort, size: usize, peers: &[&str]) -> anyhow::Result<Vec<Row>> {
    let mtu = if size > USUAL { format!(",mtu={LONG_MTU}") } else { String::new() };
    let lab = TemporaryLab::up(&Plan::from_links("bench", vec![format!("tx:eth0,rx:eth0{mtu}").parse()?])?)?;
    let lab = Lab { tx: lab.plan().namespace("tx"), lab };
    let counting = Counting::attach(Some(&lab.lab.plan().namespace("rx")), "eth0", Then::Drop)?;
    let any = usize::MAX;
    let mut limit = way("limit", unchanged, FAST, USUAL);
    let mut ways: Vec<Way> = [
        way("xdp-live, one frame", live_one, FAST, USUAL),
        way("xdp-live, four fields", live_four, FAST, USUAL),
        way("xdp-live, four fields, trailer", live_marked, FAST, USUAL),
        way("xdp-live, any frames", live_any, FAST, USUAL),
        way("xdp, four fields", xdp, SLOW, 4096),
        way("packet, four fields", packet, SLOW, any),
    ]
    .into_iter()
    .chain(peers.iter().map(|peer| match *peer {
        "trafgen" => way("trafgen", trafgen, PEERS, USUAL),
        _ => way("tcpreplay", tcpreplay, PEERS, any),
    }))
    .filter(|way| way.longest >= size)
    .collect();
    for _ in 0..effort.rounds.min(5) {
        for way in std::iter::once(&mut limit).filter(|limit| limit.longest >= size).chain(&mut ways) {
            way.round(&lab, &counting, effort.of(way.frames) as u64, size)?;
        }
    }
    let is_peer = |way: &&Way| way.frames == PEERS;
    let peer = ways.iter().find(is_peer).map(|way| (way.case, way.rounds.clone()));
    Ok(ways.iter().map(|way| way.row(size, &limit, peer.as_ref())).collect())
}

impl Way {
    fn round(&mut self, lab: &Lab, counting: &Counting, frames: u64, size: usize) -> anyhow::Result<()> {
        let before = counting.frames();
        let span = (self.send)(lab, frames, size).with_context(|| format!("bench generate: {}, {size}", self.case))?;
        let arrived = counting.frames() - before;
        self.rounds.add(arrived, span.as_secs_f64());
        self.lost += frames.saturating_sub(arrived);
        Ok(())
    }

    fn row(&self, size: usize, limit: &Way, peer: Option<&(&str, Rounds)>) -> Row {
        let mut row = self.rounds.row("generate", self.case, (size - 4) as f64).sized(size);
        if limit.longest >= size {
            row = row.limited("redirect alone", &limit.rounds);
            row.remark = format!("{:.0} % of the limit", 100.0 * self.rounds.median() / limit.rounds.median());
        }
        if let Some((name, peer)) = peer.filter(|_| self.frames != PEERS) {
            row = row.beside(*name, peer);
        }
        if self.lost > 0 {
            row.remark += &format!("; {} did not arrive", self.lost);
        }
        row
    }
}

fn send(lab: &Lab, scheme: &str, packet: &str, (frames, size): (u64, usize), mark: Mark) -> anyhow::Result<Duration> {
    let spec = Spec::parse(&format!("{scheme}:eth0?netns={}", lab.tx))?;
    Ok(traffic::send(&spec, &traffic::streams(packet, size, frames, mark)?, false)?.1)
}

fn unchanged(lab: &Lab, frames: u64, size: usize) -> anyhow::Result<Duration> {
    let spec = Spec::parse(&format!("xdp-live:eth0?netns={}", lab.tx))?;
    Ok(send_unchanged(&spec, &frame(size)?, u32::try_from(frames)?)?)
}

fn live_one(lab: &Lab, frames: u64, size: usize) -> anyhow::Result<Duration> {
    send(lab, "xdp-live", ONE, (frames, size), Mark::None)
}

fn live_four(lab: &Lab, frames: u64, size: usize) -> anyhow::Result<Duration> {
    send(lab, "xdp-live", FOUR, (frames, size), Mark::None)
}

fn live_marked(lab: &Lab, frames: u64, size: usize) -> anyhow::Result<Duration> {
    send(lab, "xdp-live", FOUR, (frames, size), Mark::Trailer)
}

/// Frames that this process made, as a replay sends them.
fn live_any(lab: &Lab, frames: u64, size: usize) -> anyhow::Result<Duration> {
    let spec = Spec::parse(&format!("xdp-live:eth0?netns={}", lab.tx))?;
    Ok(traffic::send(&spec, &traffic::streams(FOUR, size, frames, Mark::None)?, true)?.1)
}

fn xdp(lab: &Lab, frames: u64, size: usize) -> anyhow::Result<Duration> {
    send(lab, "xdp", FOUR, (frames, size), Mark::None)
}

fn packet(lab: &Lab, frames: u64, size: usize) -> anyhow::Result<Duration> {
    send(lab, "packet", FOUR, (frames, size), Mark::None)
}

/// The frame that peers send.
fn frame(size: usize) -> anyhow::Result<Vec<u8>> {
    let set = traffic::streams(ONE, size, 1, Mark::None)?;
    Ok(set.streams[0].frame(0, 0, &set.key))
}

fn trafgen(lab: &Lab, frames: u64, size: usize) -> anyhow::Result<Duration> {
    let bytes: Vec<String> = frame(size)?.iter().map(|byte| format!("0x{byte:02x}")).collect();
    let folder = Folder::new("trafgen")?;
    let file = folder.file("trafgen");
    std::fs::write(&file, format!("{{ {} }}\n", bytes.join(", ")))?;
    let mut command = lab.lab.exec("tx", "trafgen")?;
    // One process; it goes past the queueing discipline by itself.
    command.args(["--dev", "eth0", "--cpus", "1", "--num", &frames.to_string(), "--conf"]).arg(&file);
    timed(&mut command)
}

fn tcpreplay(lab: &Lab, frames: u64, size: usize) -> anyhow::Result<Duration> {
    // A file of many frames, so that looping costs nothing.
    const HELD: u64 = 1000;
    let folder = Folder::new("tcpreplay")?;
    let file = folder.file("pcap");
    let spec = Spec::file(&file.to_string_lossy());
    traffic::send(&spec, &traffic::streams(ONE, size, HELD, Mark::None)?, false)?;
    let mut command = lab.lab.exec("tx", "tcpreplay")?;
    command.args(["--topspeed", "--preload-pcap", "--quiet", "--intf1", "eth0"]);
    command.args(["--loop", &frames.div_ceil(HELD).to_string(), "--limit", &frames.to_string()]).arg(&file);
    timed(&mut command)
}

/// Runs a peer to its end.
fn timed(command: &mut Command) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let output = command.output()?;
    let span = started.elapsed();
    if !output.status.success() {
        bail!("{:?}: {}", command.get_program(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(span)
}
