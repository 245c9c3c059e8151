//! Opening the ports that a verb receives from.

use crate::exit::usage;
use crate::verbs::capture_files::missing;
use linerate_backends::REGISTRY;
use linerate_backends::pcap::joined;
use linerate_burst::FrameIndex;
use linerate_port::{PortError, RxOptions, RxPort, Spec, Target};
use std::fs::metadata;

/// Opens ports. If there are more files than a merge has lanes, all files share one lane.
pub(super) fn open(specs: &[Spec], options: &RxOptions, is_merged: bool) -> anyhow::Result<Vec<RxPort>> {
    let is_joined = |spec: &Spec| {
        let is_plain = spec.scheme == "pcap" && spec.options.is_empty() && spec.target != "-";
        is_plain && metadata(&spec.target).is_ok_and(|data| data.is_file())
    };
    let (files, others): (Vec<Spec>, Vec<Spec>) = specs.iter().cloned().partition(is_joined);
    if !is_merged || specs.len() <= FrameIndex::MAX_LANES || files.is_empty() {
        return REGISTRY.open_all(specs, options).map_err(|error| {
            let missing = specs.iter().filter_map(|spec| missing(&REGISTRY.file(spec)?)).next();
            match missing.filter(|_| !matches!(error, PortError::Wrong { .. })) {
                Some(missing) => anyhow::Error::msg(missing),
                None => error.into(),
            }
        });
    }
    let mut ports = vec![joined(&files.iter().map(|spec| &*spec.target).collect::<Vec<_>>())?];
    ports.extend(REGISTRY.open_all(&others, options)?);
    Ok(ports)
}

/// Refuses `--take` if no port takes packets away from the host.
pub(in crate::verbs) fn check_take<'a>(take: bool, specs: impl IntoIterator<Item = &'a Spec>) -> anyhow::Result<()> {
    let mut ports = specs.into_iter().filter_map(|spec| REGISTRY.innermost(spec).ok());
    if take && !ports.any(|(backend, _)| matches!(backend.target, Target::Interface { takes_away: true, .. })) {
        return Err(usage("--take needs an xdp: port: other ports take no packets away"));
    }
    Ok(())
}
