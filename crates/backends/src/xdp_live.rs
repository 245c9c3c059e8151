//! `xdp-live:interface`: sending by an XDP program in the kernel.
//!
//! An XDP program is run on live frames (`BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES`,
//! Documentation/bpf/bpf_prog_run.rst): it writes a frame and redirects it to the interface, without an skb. Frames are
//! copied from memory, or generated in place by a program that was compiled from a [set of
//! streams](linerate_port::live). Tracepoints count the frames that the driver took.
//!
//! From the [plan](linerate_generate::plan) of streams to instructions:
//! - `program`: order and due times of frames; `write`: a frame; `index`: the indices of its fields;
//! - `emit`: the parts that all programs share.
//!
//! Execution:
//! - `ring`: frames copied from memory; `loaded_streams`: running streams; `send`: the queue;
//! - `loaded_program`: a loaded program and its resources; `shared_state`: the memory that it shares with this process;
//! - `commands`: commands that change running streams.

mod commands;
pub(crate) mod emit;
mod index;
pub(crate) mod interface;
pub(crate) mod loaded_program;
mod loaded_streams;
mod program;
pub(crate) mod ring;
mod send;
pub(crate) mod shared_state;
#[cfg(test)]
mod tests;
mod write;

use self::interface::Interface;
use self::loaded_program::LoadedProgram;
use self::send::XdpLiveTx;
use self::shared_state::State;
use crate::drivers::damages;
use crate::inventory::{ETHERNET_HARDWARE, bring_up, find};
use crate::netns::within;
use crate::nic::NicMonitor;
use crate::sys::bpf::{Map, MapKind};
use crate::xdp_features::{check_kernel, in_its_namespace, no_sending, too_old};
use crate::xdp_pass::PassProgram;
use linerate_burst::Ledger;
use linerate_port::{
    Backend, InterfaceInfo, Monitor, PortError, Registry, RxOptions, RxPort, Spec, Target, TxOptions, TxPort, events,
};
use rustix::thread::{CapabilitySet, capabilities};
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

const OPTIONS: &[&str] = &["netns"];

/// Describes this backend.
pub const BACKEND: Backend = Backend {
    scheme: "xdp-live",
    placeholder: "interface",
    sentence: "sending only: an XDP program in the kernel generates or copies frames; the fastest sender",
    target: Target::Interface { works: on_interface, takes_away: false, only_sends: true },
    rx_options: OPTIONS,
    tx_options: OPTIONS,
    open_rx,
    open_tx,
    leaves_when_sent: |_, _| true,
};

/// First kernel whose BPF_PROG_TEST_RUN sends frames.
const LEAST_KERNEL: (u32, u32) = (5, 18);

/// Returns whether the kernel can send to an interface. Whether its driver takes XDP frames shows on the first send.
fn on_interface(found: &InterfaceInfo) -> Result<String, String> {
    if !ETHERNET_HARDWARE.contains(&found.hardware) {
        return Err(format!("its frames have no Ethernet header (ARPHRD type {})", found.hardware));
    }
    if let Some(reason) = too_old(LEAST_KERNEL) {
        return Err(reason);
    }
    let missing_capabilities = missing_capabilities();
    if !missing_capabilities.is_empty() {
        return Err(format!("needs {} (run as root)", missing_capabilities.join(", ")));
    }
    match Map::new(MapKind::Devmap, 4, 1) {
        Err(error) => Err(error.to_string()),
        Ok(_) if found.name == "lo" => Err("lo does not support XDP frames".into()),
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
        let reason = "queues cannot be chosen: the kernel sends from the thread's processor; omit the @";
        return Err(PortError::wrong(spec.to_string(), reason));
    }
    let opened = within(spec.option("netns"), || {
        check_kernel(LEAST_KERNEL)?;
        let found = find(&spec.target)?;
        if let Some(reason) = damages(&found) {
            return Err(io::Error::new(ErrorKind::Unsupported, format!("{reason}; use packet:{}", found.name)));
        }
        let pass = PassProgram::attach_if_needed(&found).map(|(pass, note)| {
            events::report(format!("{spec}: {note}"));
            pass
        });
        let interface = Interface::new(subject(spec), &spec.target, &found.driver)?;
        let devmap = loaded_program::devmap(found.index)?;
        let nic = NicMonitor::new(&spec.to_string(), &spec.target, found.index, true)?;
        Ok((interface, devmap, LiveMonitor { nic, _pass: pass }))
    });
    let (interface, devmap, monitor) = opened.map_err(|error| explain(spec, &error))?;
    let queue = XdpLiveTx::new(interface, devmap).map_err(|error| explain(spec, &error))?;
    Ok(TxPort { name: spec.to_string(), queues: vec![Box::new(queue)], monitor: Some(Box::new(monitor)) })
}

/// Counters of the interface, and the program that it needs to send.
struct LiveMonitor {
    nic: NicMonitor,
    _pass: Option<PassProgram>,
}

impl Monitor for LiveMonitor {
    fn counters(&self, ledger: &mut Ledger) {
        self.nic.counters(ledger);
    }
}

/// Sends one frame many times by a program that only redirects it and counts nothing: the upper bound of this machine,
/// as a baseline for benchmarks. Returns the duration of the sending itself.
pub fn send_unchanged(spec: &Spec, frame: &[u8], times: u32) -> Result<Duration, PortError> {
    let run = || {
        let devmap = within(spec.option("netns"), || loaded_program::devmap(find(&spec.target)?.index))?;
        let program = emit::only_redirect(devmap.raw()).map_err(io::Error::other)?;
        let machine = LoadedProgram::unwatched(&program, &State::new(0)?)?;
        let started = Instant::now();
        machine.run(frame, times, false).map(|()| started.elapsed())
    };
    run().map_err(|error| explain(spec, &error))
}

/// Names the account of the queue; interfaces of one name in two namespaces are distinct.
fn subject(spec: &Spec) -> String {
    let netns = spec.option("netns").map(|netns| format!("?netns={netns}")).unwrap_or_default();
    format!("xdp-live:{}{netns}", spec.target)
}

fn explain(spec: &Spec, error: &io::Error) -> PortError {
    // The kernel refuses a system call, or its verifier an instruction.
    let is_refused = matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::InvalidInput);
    let reason = match missing_capabilities() {
        missing_capabilities if is_refused && !missing_capabilities.is_empty() => {
            format!("xdp-live also needs {}; run as root or with sudo", missing_capabilities.join(", "))
        }
        _ if error.kind() == ErrorKind::PermissionDenied => {
            format!("{error}; xdp-live needs the host's root, not a container's")
        }
        _ => error.to_string(),
    };
    PortError::broken(spec.to_string(), reason)
}

/// Returns the missing capabilities; CAP_SYS_ADMIN includes the first two (capabilities(7)).
fn missing_capabilities() -> Vec<&'static str> {
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
