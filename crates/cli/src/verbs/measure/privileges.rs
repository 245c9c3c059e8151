//! Privileges of a measurement, which reopens its ports for each trial.

use super::options::Args;
use super::trial::Direction;
use crate::privileges::{Identity, OPENING, READING, Session};
use crate::view::terminal::{print_stderr, shown};
use linerate_backends::REGISTRY;
use linerate_port::Spec;
use rustix::thread::CapabilitySet;

/// Drops all privileges except those needed to reopen the ports.
pub(super) fn drop_rights(args: &Args, identity: &Identity, directions: &[Direction]) -> anyhow::Result<Session> {
    let specs = directions.iter().flat_map(|direction| [&direction.from, &direction.to]);
    let ports: Vec<_> = specs.filter_map(|spec| REGISTRY.innermost(spec).ok()).collect();
    let say = |note: &str| {
        if !args.end.is_silent() {
            print_stderr(format_args!("{}\n", shown(note)));
        }
    };
    if ports.iter().any(|(_, spec)| spec.scheme == "dpdk") {
        say("privileges are kept: DPDK reopens its devices for each trial");
        return Ok(Session::keeping("EAL opens devices and hugepages as root for each trial"));
    }
    let kept = ports.iter().fold(OPENING, |kept, (_, spec)| kept.union(beyond(spec)));
    let session = identity.assume_keeping(kept)?.unconfined("ports are reopened for each trial");
    session.notes().iter().for_each(|note| say(note));
    Ok(session)
}

/// Returns the capabilities that a port needs beyond [`OPENING`]: to enter a network namespace, to send frames from the
/// kernel by a program (bpf(2), live frames), to open the clock of a NIC.
fn beyond(spec: &Spec) -> CapabilitySet {
    let enters = spec.option("netns").is_some() || spec.scheme == "xdp-live";
    let stamps = spec.option("stamp") == Some("hardware");
    [(enters, CapabilitySet::SYS_ADMIN), (stamps, READING)]
        .into_iter()
        .filter_map(|(is_needed, kept)| is_needed.then_some(kept))
        .collect()
}
