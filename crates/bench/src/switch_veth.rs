//! A switch between two veth pairs, compared with the Linux bridge: the highest rate without loss, by binary search.

use super::Effort;
use super::harness::{Case, Ours, Prepare, Sample, case};
use super::machine::{accept_live, arrived, counting, crossing, during, has_hosts, make_bridge, middle, port_in};
use super::switch::LENGTH;
use super::traffic::{self, ONE};
use linerate_backends::faulty::Faults;
use linerate_backends::open_tx;
use linerate_backends::xdp_counter::FrameCounter;
use linerate_cli::verbs::{receive_whole, send_as};
use linerate_engine::streams::StreamRun;
use linerate_engine::switching::SwitchConsumer;
use linerate_engine::{Progress, Streams, WaitStrategy};
use linerate_generate::Rate;
use linerate_generate::stream::Mark;
use linerate_port::{Spec, TxOptions};

/// Packets per second that no sender here reaches, and the steps of the search.
const MOST: f64 = 12e6;
const STEPS: u32 = 8;

pub(super) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    if !has_hosts("switch") {
        return Ok(Vec::new());
    }
    let side = move |port: Option<&'static str>| move || Ok(Sample::new(lossless(port, effort)?, 1.0));
    Ok(vec![case(move || {
        let mut all = Case::sized(LENGTH + 4).peer("Linux bridge", side(None));
        for (name, port) in [("xdp", "xdp:IF?mode=ring"), ("packet", "packet:IF")] {
            all.ours.push(Ours::new(format!("veth to veth, {name}, nothing lost"), side(Some(port))));
        }
        Ok(all)
    })])
}

/// The highest rate, in packets per second, at which every packet arrives; by a switch of these ports, or by the Linux bridge.
fn lossless(port: Option<&str>, effort: Effort) -> anyhow::Result<u64> {
    let lab = middle()?;
    let counting = counting(&lab)?;
    let sender = port_in(&lab, "xdp-live:IF", "tx", "eth0")?;
    let search = || {
        let (mut low, mut high) = (0.0, MOST);
        for _ in 0..if effort.quick { 3 } else { STEPS } {
            let rate = (low + high) / 2.0;
            if all_arrive(&sender, &counting, rate, effort)? { low = rate } else { high = rate }
        }
        // If even the lowest rate has losses, half of the last step.
        anyhow::Ok(if low > 0.0 { low } else { high / 2.0 } as u64)
    };
    let Some(port) = port else {
        make_bridge(&lab)?;
        accept_live(&lab, "mid", "in")?;
        return search();
    };
    if !port.starts_with("xdp") {
        accept_live(&lab, "mid", "in")?;
    }
    let specs = [port_in(&lab, port, "mid", "in")?, port_in(&lab, port, "mid", "out")?];
    let plain = Faults::parse("seed=1").map_err(anyhow::Error::msg)?;
    // Both receive before one sends: the socket of an xdp: queue that receives also sends.
    let from = vec![receive_whole(&specs[0], &plain, true)?, receive_whole(&specs[1], &plain, true)?];
    let to = vec![send_as(&specs[0], &specs[0])?, send_as(&specs[1], &specs[1])?];
    let mut switching = SwitchConsumer::new(crossing(&[])?, to, vec![1, 2], false, Progress::new());
    Ok(during(from, &mut switching, (WaitStrategy::default(), None), |_| search())?.0)
}

/// Returns true if all packets of a trial at this rate arrive, sent at that rate.
fn all_arrive(sender: &Spec, counting: &FrameCounter, rate: f64, effort: Effort) -> anyhow::Result<bool> {
    let span = if effort.quick { 0.02 } else { 0.5 };
    let frames = (rate * span) as u64;
    let mut set = traffic::streams(ONE, LENGTH + 4, frames, Mark::None)?;
    set.streams[0].rate = Rate::Frames(rate);
    let before = counting.frames();
    let port = open_tx(sender, &TxOptions::default())?;
    let sent = Streams::new(&set, port)?.run(&StreamRun::default());
    if let Some(failure) = sent.failure {
        return Err(failure.into());
    }
    let in_time = sent.elapsed.as_secs_f64() < 1.05 * span + 0.01;
    Ok(arrived(counting, before, frames) >= frames && in_time)
}
