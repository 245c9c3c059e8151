//! Sending into a veth pair at top speed, to an XDP program on the other side that counts and drops, beside
//! trafgen. The limit is a program of the kernel that sends one frame again and again and does nothing else.
//!
//! Rates are of frames that arrived.

use super::Effort;
use super::measure::{Rounds, Row};
use anyhow::{Context, bail};
use linerate_engine::{Progress, Source, Stop, Transmit};
use linerate_generate::stream::{
    Change, Checksum, ChecksumKind, Map, Mark, Next, Order, Pick, Selector, Shape, Stream, StreamSet, Variant,
};
use linerate_generate::trailer::{self, Key};
use linerate_generate::{Pacing, Rate, UdpTemplate};
use linerate_lab::{Plan, TemporaryLab};
use linerate_port::backends::xdp_live::send_unchanged;
use linerate_port::counting::{Counting, Then};
use linerate_port::{Spec, TxOptions, open_tx};
use linerate_wire::MacAddr;
use std::process::Command;
use std::time::{Duration, Instant};

/// Frames a round sends; slow ways send a part of them.
const FRAMES: usize = 2_000_000;
const SLOW: u64 = 4;
/// Where the IPv4 header begins, and the UDP header.
const IP: usize = 14;
const UDP: usize = 34;

/// Sends so many frames of this size with FCS; how long that took, without opening and closing.
type Send = fn(&Lab, u64, usize) -> anyhow::Result<Duration>;

/// A way to send; one row of the table.
struct Way {
    case: &'static str,
    send: Send,
    is_slow: bool,
    rounds: Rounds,
    lost: u64,
}

struct Lab {
    lab: TemporaryLab,
    tx: String,
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("bench send: SKIPPED: test hosts need root");
        return Ok(Vec::new());
    }
    let has_trafgen = Command::new("trafgen").arg("--version").output().is_ok();
    if !has_trafgen {
        eprintln!("bench send: trafgen is not installed: no peer beside us");
    }
    let mut rows = Vec::new();
    for size in [64, 1518] {
        rows.extend(measure(effort, size, has_trafgen)?);
    }
    Ok(rows)
}

fn measure(effort: Effort, size: usize, has_trafgen: bool) -> anyhow::Result<Vec<Row>> {
    let lab = TemporaryLab::up(&Plan::from_links("bench", vec!["tx:eth0,rx:eth0".parse()?])?)?;
    let lab = Lab { tx: lab.plan().namespace("tx"), lab };
    let counting = Counting::attach(Some(&lab.lab.plan().namespace("rx")), "eth0", Then::Drop)?;
    let way = |case, send: Send, is_slow| Way { case, send, is_slow, rounds: Rounds::default(), lost: 0 };
    let mut limit = way("limit", unchanged, false);
    let mut peer = way("trafgen", trafgen, true);
    let mut ways = [
        way("xdp-live, one frame", one_frame, false),
        way("xdp-live, four fields", four_fields, false),
        way("xdp-live, four fields, trailer", with_trailer, false),
        way("xdp-live, any frames", any_frames, false),
        way("xdp", xdp, true),
        way("packet", packet, true),
    ];
    for _ in 0..effort.rounds.min(5) {
        let peers = has_trafgen.then_some(&mut peer);
        for way in std::iter::once(&mut limit).chain(&mut ways).chain(peers) {
            way.round(&lab, &counting, effort.of(FRAMES) as u64, size)?;
        }
    }
    let row = |way: &Way| {
        let mut row = way.rounds.row("send", format!("{}, veth", way.case), (size - 4) as f64).sized(size);
        row = row.limited("redirect alone", &limit.rounds);
        if has_trafgen {
            row = row.beside("trafgen", &peer.rounds);
        }
        row.remark = format!("{:.0} % of the limit", 100.0 * way.rounds.median() / limit.rounds.median());
        if way.lost > 0 {
            row.remark += &format!("; {} did not arrive", way.lost);
        }
        row
    };
    Ok(ways.iter().map(row).collect())
}

impl Way {
    fn round(&mut self, lab: &Lab, counting: &Counting, frames: u64, size: usize) -> anyhow::Result<()> {
        let frames = if self.is_slow { frames.div_ceil(SLOW) } else { frames };
        let before = counting.frames();
        let span = (self.send)(lab, frames, size).with_context(|| format!("bench send: {}", self.case))?;
        let arrived = counting.frames() - before;
        self.rounds.add(arrived, span.as_secs_f64());
        self.lost += frames.saturating_sub(arrived);
        Ok(())
    }
}

fn template(size: usize) -> anyhow::Result<UdpTemplate> {
    let macs = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
    Ok(UdpTemplate::new(macs, ([198, 18, 0, 1].into(), [198, 18, 0, 2].into()), (49152, 9), size)?)
}

fn spec(lab: &Lab, scheme: &str) -> anyhow::Result<Spec> {
    Ok(Spec::parse(&format!("{scheme}:eth0?netns={}", lab.tx))?)
}

fn unchanged(lab: &Lab, frames: u64, size: usize) -> anyhow::Result<Duration> {
    Ok(send_unchanged(&spec(lab, "xdp-live")?, template(size)?.frame(), u32::try_from(frames)?)?)
}

fn one_frame(lab: &Lab, frames: u64, size: usize) -> anyhow::Result<Duration> {
    send_live(lab, frames, Variant { frame: template(size)?.frame().to_vec(), ..Variant::default() })
}

fn four_fields(lab: &Lab, frames: u64, size: usize) -> anyhow::Result<Duration> {
    send_live(lab, frames, changing(size)?)
}

fn with_trailer(lab: &Lab, frames: u64, size: usize) -> anyhow::Result<Duration> {
    let variant = changing(size)?;
    send_live(lab, frames, Variant { trailer: Some(variant.frame.len() - trailer::LEN), ..variant })
}

/// Addresses and ports change, two by chance and two in turn, and both checksums with them.
fn changing(size: usize) -> anyhow::Result<Variant> {
    let frame = template(size)?.frame().to_vec();
    let length = (frame.len() - UDP) as u16;
    let change = |offset, width, selector, start| Change {
        offset,
        width,
        mask: (1 << (8 * width)) - 1,
        selector,
        map: Map::counting(start),
    };
    let checksum = |offset, plus, no_zero, parts: &[(usize, usize)]| Checksum {
        offset,
        kind: ChecksumKind::Internet { plus, no_zero },
        parts: parts.to_vec(),
    };
    Ok(Variant {
        changes: vec![
            change(IP + 12, 4, 0, 0xc612_0000),
            change(IP + 16, 4, 1, 0xc613_0000),
            change(UDP, 2, 2, 1024),
            change(UDP + 2, 2, 3, 1024),
        ],
        checksums: vec![
            checksum(IP + 10, 0, false, &[(IP, UDP)]),
            checksum(UDP + 6, 17 + length, true, &[(IP + 12, frame.len())]),
        ],
        frame,
        ..Variant::default()
    })
}

fn send_live(lab: &Lab, frames: u64, variant: Variant) -> anyhow::Result<Duration> {
    let mut port = open_tx(&spec(lab, "xdp-live")?, &TxOptions::default())?;
    let pick = |count, pick| Selector { count, pick };
    let stream = Stream {
        name: "bench".into(),
        id: 1,
        variants: vec![variant],
        size: Selector::ONE,
        selectors: vec![
            pick(0xffff, Pick::Random { seed: 1 }),
            pick(50_000, Pick::InTurn { every: 1 }),
            pick(60_000, Pick::Random { seed: 2 }),
            pick(1000, Pick::InTurn { every: 1 }),
        ],
        rate: Rate::Top,
        shape: Shape::Even,
        count: Some(frames),
        next: Next::Stop,
        mark: Mark::None,
    };
    let set = StreamSet { streams: vec![stream], order: Order::Sequential, rate: None, key: Key::default() };
    let source = Source::live(&mut port, &set)?.context("the port makes no frames itself")?;
    transmit(source, port)
}

fn any_frames(lab: &Lab, frames: u64, size: usize) -> anyhow::Result<Duration> {
    let port = open_tx(&spec(lab, "xdp-live")?, &TxOptions::default())?;
    transmit(Source::template(&template(size)?, frames), port)
}

fn xdp(lab: &Lab, frames: u64, size: usize) -> anyhow::Result<Duration> {
    let port = open_tx(&spec(lab, "xdp")?, &TxOptions::default())?;
    transmit(Source::template(&template(size)?, frames), port)
}

fn packet(lab: &Lab, frames: u64, size: usize) -> anyhow::Result<Duration> {
    let port = open_tx(&spec(lab, "packet")?, &TxOptions::default())?;
    transmit(Source::template(&template(size)?, frames), port)
}

fn transmit(source: Source, port: linerate_port::TxPort) -> anyhow::Result<Duration> {
    let (stop, progress) = (Stop::new(), Progress::new());
    let pacing = Pacing::Fixed(Rate::Top);
    let report = Transmit { source, port, pacing, duration: None, stop, progress }.run();
    report.failure.map_or(Ok(report.elapsed), |failure| Err(failure.into()))
}

fn trafgen(lab: &Lab, frames: u64, size: usize) -> anyhow::Result<Duration> {
    let bytes: Vec<String> = template(size)?.frame().iter().map(|byte| format!("0x{byte:02x}")).collect();
    let file = std::env::temp_dir().join(format!("linerate-bench-{}.trafgen", std::process::id()));
    std::fs::write(&file, format!("{{ {} }}\n", bytes.join(", ")))?;
    let mut command = lab.lab.exec("tx", "trafgen")?;
    // One process; it goes past the queueing discipline by itself.
    command.args(["--dev", "eth0", "--cpus", "1", "--num", &frames.to_string(), "--conf"]).arg(&file);
    let started = Instant::now();
    let output = command.output();
    let span = started.elapsed();
    let _ = std::fs::remove_file(&file);
    let output = output?;
    if !output.status.success() {
        bail!("trafgen: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(span)
}
