//! Rights of a measurement: its ports are opened again for each trial.

use super::options::Args;
use super::trial::Direction;
use crate::privileges::{Identity, OPENING, READING, keep};
use crate::view::terminal::{shown, tell};
use linerate_backends::REGISTRY;
use linerate_port::Spec;
use rustix::thread::CapabilitySet;

/// Drops all rights but those that open the ports again.
pub(super) fn drop_rights(args: &Args, identity: &Identity, directions: &[Direction]) -> anyhow::Result<()> {
    let specs = directions.iter().flat_map(|direction| [&direction.from, &direction.to]);
    let ports: Vec<_> = specs.filter_map(|spec| REGISTRY.innermost(spec).ok()).collect();
    let notes = if ports.iter().any(|(_, spec)| spec.scheme == "dpdk") {
        keep("EAL opens devices and hugepages as root, again for each trial");
        vec!["keeps the rights of its start: DPDK opens its devices again for each trial".to_owned()]
    } else {
        let kept = ports.iter().fold(OPENING, |kept, (_, spec)| kept.union(beyond(spec)));
        identity.assume_keeping(kept)?.unconfined("ports are opened again for each trial")
    };
    for note in notes.iter().filter(|_| !args.end.is_silent()) {
        tell(format_args!("{}\n", shown(note)));
    }
    Ok(())
}

/// Capabilities beyond [`OPENING`] that a port needs: to enter a network namespace, to have the kernel send frames by a program
/// (bpf(2), live frames), to open the clock of a card.
fn beyond(spec: &Spec) -> CapabilitySet {
    let enters = spec.option("netns").is_some() || spec.scheme == "xdp-live";
    let stamps = spec.option("stamp") == Some("hardware");
    [(enters, CapabilitySet::SYS_ADMIN), (stamps, READING)]
        .into_iter()
        .filter_map(|(is_needed, kept)| is_needed.then_some(kept))
        .collect()
}
