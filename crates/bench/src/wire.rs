//! From one veth pair to another at the maximum rate: packets that arrive, and CPU time per packet of this process, compared with the
//! Linux bridge. The limit is an XDP program that redirects, without any process.

use super::Effort;
use super::harness::{Case, Ours, Prepare, Sample, case};
use super::machine::{SETTLED, accept_live, arrived, counting, during, has_hosts, make_bridge, middle, port_in};
use super::traffic;
use linerate_backends::xdp_live::send_unchanged;
use linerate_backends::xdp_redirect::Redirector;
use linerate_backends::{open_rx, open_tx};
use linerate_engine::{Forward, Progress, WaitStrategy};
use linerate_port::{RxOptions, TxOptions};
use std::thread;

const FRAMES: usize = 3_000_000;
const SIZES: [usize; 2] = [64, 1518];

/// Connection of the two pairs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PairLink {
    Redirect,
    Bridge,
    /// A wire of these ports.
    Wire(&'static str),
}

const WIRES: [(&str, &str); 3] = [
    ("xdp, from where frames lie", "xdp:IF?mode=ring"),
    ("xdp, copied by AF_XDP", "xdp:IF?mode=native"),
    ("packet", "packet:IF"),
];

pub(super) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    if !has_hosts("wire") {
        return Ok(Vec::new());
    }
    let of = |size: usize| {
        let side = move |between| move || round(between, effort.of(FRAMES) as u32, size);
        case(move || {
            let wires = WIRES.into_iter();
            let ours =
                wires.map(|(name, port)| Ours::new(name, side(PairLink::Wire(port))).finish(|row| row.ns = row.cpu_ns));
            let all = Case { ours: ours.collect(), ..Case::sized(size) };
            Ok(all.peer("Linux bridge", side(PairLink::Bridge)).limit("redirect", side(PairLink::Redirect)))
        })
    };
    Ok(effort.sizes(&SIZES).into_iter().map(of).collect())
}

fn round(between: PairLink, frames: u32, size: usize) -> anyhow::Result<Sample> {
    let lab = middle()?;
    let counting = counting(&lab)?;
    let frame = traffic::frame(size)?;
    let sender = port_in(&lab, "xdp-live:IF", "tx", "eth0")?;
    let send = || send_unchanged(&sender, &frame, frames);
    let (span, cpu) = match between {
        PairLink::Redirect => {
            let _redirecting = Redirector::attach(Some(&lab.plan().namespace("mid")), "in", "out")?;
            (send()?, None)
        }
        PairLink::Bridge => {
            make_bridge(&lab)?;
            accept_live(&lab, "mid", "in")?;
            (send()?, None)
        }
        PairLink::Wire(port) => {
            let spec = |interface| port_in(&lab, port, "mid", interface);
            let options = RxOptions { promiscuous: true, lanes: 1, prompt: true, ..RxOptions::default() };
            // Both ends receive, as those of a wire: a veth accepts frames of XDP only if an XDP program receives.
            let (mut from, _back) = (open_rx(&spec("in")?, &options)?, open_rx(&spec("out")?, &options)?);
            if !port.starts_with("xdp") {
                accept_live(&lab, "mid", "in")?;
            }
            let mut forward = Forward::new(&mut from, open_tx(&spec("out")?, &TxOptions::default())?, Progress::new());
            let waits = (WaitStrategy::default(), None);
            let (span, _, cpu) = during(vec![from], &mut forward, waits, |_| {
                let span = send();
                thread::sleep(SETTLED);
                Ok(span?)
            })?;
            (span, Some(cpu.as_secs_f64()))
        }
    };
    let arrived = arrived(&counting, 0, frames.into());
    let lost = Some(u64::from(frames).saturating_sub(arrived));
    Ok(Sample { cpu, lost, ..Sample::new(arrived, span.as_secs_f64()) })
}
