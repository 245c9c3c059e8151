//! `xdp-live:interface`: sending by the kernel itself.
//!
//! An XDP program is run on live frames (`BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES`,
//! Documentation/bpf/bpf_prog_run.rst): it writes a frame and redirects it to the interface, and no packet of the
//! kernel's is ever made of it. Frames are copied from memory, or made in place by a program that was made from a
//! [set of streams](linerate_port::live). What the driver took is counted where the kernel hands frames to it.
//!
//! From the [plan](linerate_generate::plan) of streams to instructions:
//! - `program`: whose turn it is and when; `write`: a frame; `index`: which index its fields have;
//! - `emit`: what all programs have.
//!
//! Running them:
//! - `ring`: frames copied from memory; `prepared`: streams that run; `send`: the queue;
//! - `machine`: a program with what it needs to be run; `words`: what it shares with this process;
//! - `told`: what is written there when streams are told something.

pub(crate) mod emit;
mod index;
pub(crate) mod interface;
pub(crate) mod machine;
mod prepared;
mod program;
pub(crate) mod ring;
mod send;
#[cfg(test)]
mod tests;
mod told;
pub(crate) mod words;
mod write;

use self::interface::Interface;
use self::machine::Machine;
use self::send::XdpLiveTx;
use self::words::State;
use crate::inventory::{ETHERNET_HARDWARE, bring_up, find};
use crate::native::{check_kernel, in_its_namespace, no_sending, too_old};
use crate::netns::within;
use crate::nic::NicMonitor;
use crate::sys::bpf::{Map, MapKind};
use linerate_port::{Backend, Found, PortError, Registry, RxOptions, RxPort, Spec, Target, TxOptions, TxPort};
use rustix::thread::{CapabilitySet, capabilities};
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

const OPTIONS: &[&str] = &["netns"];

/// The row of this backend.
pub const BACKEND: Backend = Backend {
    scheme: "xdp-live",
    placeholder: "interface",
    sentence: "sending by the kernel itself: frames made or copied by an XDP program; the fastest way out",
    target: Target::Interface { works: on_interface, takes_away: false, only_sends: true },
    rx_options: OPTIONS,
    tx_options: OPTIONS,
    open_rx,
    open_tx,
    leaves_when_sent: |_, _| true,
};

/// The first kernel whose BPF_PROG_TEST_RUN sends frames.
const LEAST_KERNEL: (u32, u32) = (5, 18);

/// Whether the kernel can send into an interface. What its driver takes shows when it is tried.
fn on_interface(found: &Found) -> Result<String, String> {
    if !ETHERNET_HARDWARE.contains(&found.hardware) {
        return Err(format!("its frames have no Ethernet header (ARPHRD type {})", found.hardware));
    }
    if let Some(reason) = too_old(LEAST_KERNEL) {
        return Err(reason);
    }
    let lacking = lacking();
    if !lacking.is_empty() {
        return Err(format!("needs {} (run as root)", lacking.join(", ")));
    }
    match Map::new(MapKind::Devmap, 4, 1) {
        Err(error) => Err(error.to_string()),
        Ok(_) if found.name == "lo" => Err("lo has no driver that takes XDP frames".into()),
        Ok(_) if !found.up => Err(format!("is down: {}", bring_up(&found.name, None))),
        Ok(_) => in_its_namespace(found, |found| no_sending(found).map_or(Ok(String::new()), Err)),
    }
}

/// Refuses: this backend only sends.
fn open_rx(spec: &Spec, _: &RxOptions, _: &Registry) -> Result<RxPort, PortError> {
    let reason = format!("xdp-live only sends; receive with xdp:{0} or packet:{0}", spec.target);
    Err(PortError::wrong(spec.to_string(), reason))
}

/// Opens an interface to send to.
fn open_tx(spec: &Spec, _: &TxOptions, _: &Registry) -> Result<TxPort, PortError> {
    if spec.queues.is_some() {
        let reason = "the kernel sends from the processor that the thread runs on; leave the @ out";
        return Err(PortError::wrong(spec.to_string(), reason));
    }
    let opened = within(spec.option("netns"), || {
        check_kernel(LEAST_KERNEL)?;
        let found = find(&spec.target)?;
        let interface = Interface::new(subject(spec), &spec.target, &found.driver)?;
        let devmap = machine::devmap(found.index)?;
        Ok((interface, devmap, NicMonitor::new(&spec.to_string(), &spec.target, found.index, true)?))
    });
    let (interface, devmap, monitor) = opened.map_err(|error| explain(spec, &error))?;
    let queue = XdpLiveTx::new(interface, devmap).map_err(|error| explain(spec, &error))?;
    Ok(TxPort { name: spec.to_string(), queues: vec![Box::new(queue)], monitor: Some(Box::new(monitor)) })
}

/// Has the kernel send one frame many times by a program that only redirects it, and counts nothing: what this machine
/// can do at most, for benchmarks to compare with. Returns how long the sending alone took.
pub fn send_unchanged(spec: &Spec, frame: &[u8], times: u32) -> Result<Duration, PortError> {
    let run = || {
        let devmap = within(spec.option("netns"), || machine::devmap(find(&spec.target)?.index))?;
        let program = emit::only_redirect(devmap.raw()).map_err(io::Error::other)?;
        let machine = Machine::unwatched(&program, &State::new(0)?)?;
        let started = Instant::now();
        machine.run(frame, times, false).map(|()| started.elapsed())
    };
    run().map_err(|error| explain(spec, &error))
}

/// Whose counters those of the queue are; interfaces of one name in two namespaces are two.
fn subject(spec: &Spec) -> String {
    let netns = spec.option("netns").map(|netns| format!("?netns={netns}")).unwrap_or_default();
    format!("xdp-live:{}{netns}", spec.target)
}

fn explain(spec: &Spec, error: &io::Error) -> PortError {
    // The kernel refuses this or that call, or its verifier an instruction.
    let is_refused = matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::InvalidInput);
    let reason = match lacking() {
        lacking if is_refused && !lacking.is_empty() => {
            format!("sending by the kernel needs {} too: run as root or with sudo", lacking.join(", "))
        }
        _ if error.kind() == ErrorKind::PermissionDenied => {
            format!("{error}; sending by the kernel needs the rights of the machine's root, not of a container's")
        }
        _ => error.to_string(),
    };
    PortError::broken(spec.to_string(), reason)
}

/// What this process would need, and has not; CAP_SYS_ADMIN stands for the first two too (capabilities(7)).
fn lacking() -> Vec<&'static str> {
    let held = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let is_held = |set| held.contains(set);
    let of_admin = is_held(CapabilitySet::SYS_ADMIN);
    let needed = [
        ("CAP_BPF", of_admin || is_held(CapabilitySet::BPF)),
        ("CAP_PERFMON", of_admin || is_held(CapabilitySet::PERFMON)),
        ("CAP_NET_ADMIN", is_held(CapabilitySet::NET_ADMIN)),
        ("CAP_SYS_ADMIN", of_admin),
    ];
    needed.into_iter().filter(|(_, is_held)| !is_held).map(|(name, _)| name).collect()
}
