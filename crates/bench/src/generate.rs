//! Sending into a veth pair at the maximum rate, to an XDP program that counts and drops, compared with trafgen and tcpreplay. The limit
//! is a program of the kernel that sends one packet again and again and does nothing else.
//!
//! Rates count packets that arrived. A path that cannot send a size has no row for it.

use super::Effort;
use super::folder::Folder;
use super::harness::{Case, Ours, Prepare, Sample, case};
use super::machine::{counting, has_hosts, lab, port_in};
use super::peers::{self, Job, TCPREPLAY, TRAFGEN};
use super::traffic::{self, FOUR, ONE};
use anyhow::Context;
use linerate_backends::xdp_counter::FrameCounter;
use linerate_backends::xdp_live::send_unchanged;
use linerate_generate::stream::Mark;
use linerate_lab::TemporaryLab;
use linerate_port::Spec;
use std::rc::Rc;

/// Packets of a round: sent by the kernel itself, by system calls, and by peers, whose start is part of the time.
const FAST: usize = 1_000_000;
const SLOW: usize = 200_000;
const PEERS: usize = 500_000;
/// Packets of the file that tcpreplay repeats.
const HELD: u64 = 1000;
/// Sizes with FCS. The longer ones need a link with an MTU of its own.
const SIZES: [usize; 8] = [64, 128, 256, 512, 1024, 1518, 4096, 9018];
/// The longest packet on a link with the usual MTU, with FCS.
const USUAL: usize = 1518;
const LONG_MTU: usize = 9000;

/// A path of ours.
struct SendPath {
    name: &'static str,
    port: &'static str,
    packet: &'static str,
    mark: Mark,
    /// Packets are prebuilt by this process, as a replay sends them.
    keep: bool,
    frames: usize,
    /// The longest packet.
    longest: usize,
}

const fn way(name: &'static str, port: &'static str, packet: &'static str) -> SendPath {
    SendPath { name, port, packet, mark: Mark::None, keep: false, frames: FAST, longest: USUAL }
}

const WAYS: [SendPath; 6] = [
    way("xdp-live, one frame", "xdp-live:IF", ONE),
    way("xdp-live, four fields", "xdp-live:IF", FOUR),
    SendPath { mark: Mark::Trailer, ..way("xdp-live, four fields, trailer", "xdp-live:IF", FOUR) },
    SendPath { keep: true, ..way("xdp-live, any frames", "xdp-live:IF", FOUR) },
    SendPath { frames: SLOW, longest: 4096, ..way("xdp, four fields", "xdp:IF", FOUR) },
    SendPath { frames: SLOW, longest: usize::MAX, ..way("packet, four fields", "packet:IF", FOUR) },
];

/// Hosts, and the program that counts packets that arrive.
struct Link {
    lab: TemporaryLab,
    counting: FrameCounter,
}

impl Link {
    /// Counts packets that arrive of those that `send` sends in the returned time.
    fn sample(&self, frames: u64, send: impl FnOnce() -> anyhow::Result<f64>) -> anyhow::Result<Sample> {
        let before = self.counting.frames();
        let seconds = send()?;
        let arrived = self.counting.frames() - before;
        Ok(Sample { lost: Some(frames.saturating_sub(arrived)), ..Sample::new(arrived, seconds) })
    }
}

pub(super) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    if !has_hosts("generate") {
        return Ok(Vec::new());
    }
    Ok(effort.sizes(&SIZES).into_iter().map(|size| case(move || of(effort, size))).collect())
}

fn of(effort: Effort, size: usize) -> anyhow::Result<Case> {
    let mtu = if size > USUAL { format!(",mtu={LONG_MTU}") } else { String::new() };
    let lab = lab(&[&format!("tx:eth0,rx:eth0{mtu}")])?;
    let counting = counting(&lab)?;
    let link = Rc::new(Link { lab, counting });
    let mut all = Case::sized(size);
    for way in WAYS.into_iter().filter(|way| way.longest >= size) {
        let (link, frames) = (Rc::clone(&link), effort.of(way.frames) as u64);
        let round = move || {
            let spec = port_in(&link.lab, way.port, "tx", "eth0")?;
            let set = traffic::streams(way.packet, size, frames, way.mark)?;
            link.sample(frames, || Ok(traffic::send(&spec, &set, way.keep)?.1))
        };
        all = all.ours(Ours::new(way.name, round));
    }
    let frames = effort.of(PEERS) as u64;
    for peer in [&TRAFGEN, &TCPREPLAY] {
        let is_too_long = peer.program == "trafgen" && size > USUAL;
        if is_too_long || !peer.is_installed() {
            continue;
        }
        let (link, folder) = (Rc::clone(&link), Folder::new(peer.program)?);
        let input = folder.file("input");
        if peer.program == "trafgen" {
            let bytes: Vec<String> = traffic::frame(size)?.iter().map(|byte| format!("0x{byte:02x}")).collect();
            std::fs::write(&input, format!("{{ {} }}\n", bytes.join(", ")))?;
        } else {
            let set = traffic::streams(ONE, size, HELD, Mark::None)?;
            traffic::send(&Spec::file(&input.to_string_lossy()), &set, false)?;
        }
        all = all.peer(peer.program, move || {
            let job = Job { inputs: vec![folder.file("input")], frames, held: HELD, ..Job::default() };
            let mut command = peer.command(Some((&link.lab, "tx")), &job)?;
            link.sample(frames, || peers::run(&mut command)?.context("it took too long"))
        });
    }
    if size > USUAL {
        return Ok(all);
    }
    let frames = effort.of(FAST) as u64;
    Ok(all.limit("redirect only", move || {
        let spec = port_in(&link.lab, "xdp-live:IF", "tx", "eth0")?;
        let frame = traffic::frame(size)?;
        link.sample(frames, || Ok(send_unchanged(&spec, &frame, u32::try_from(frames)?)?.as_secs_f64()))
    }))
}
