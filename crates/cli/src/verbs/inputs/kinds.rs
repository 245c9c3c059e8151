//! Kinds of ports: interfaces, files, tunnels; their link types.

use crate::exit::usage;
use linerate_backends::REGISTRY;
use linerate_backends::inventory::is_here;
use linerate_burst::LinkType;
use linerate_filter::Filter;
use linerate_port::{Spec, Target};
use std::path::Path;

/// Returns whether a word is a port, not part of a filter: it starts with a backend's scheme or is an interface of this
/// host.
pub(in crate::verbs) fn is_port(word: &str) -> bool {
    let Ok(spec) = Spec::parse(word) else { return false };
    if word.starts_with(&format!("{}:", spec.scheme)) {
        return REGISTRY.backends().iter().any(|backend| backend.scheme == spec.scheme);
    }
    let Some(at) = REGISTRY.interface(&spec) else { return false };
    let is_name = !at.target.starts_with('.') && !at.target.contains('/');
    is_name && is_here(&at.target)
}

/// Returns whether a port is an interface of this host.
pub(in crate::verbs) fn are_live<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> bool {
    let is_tunnel = |spec| REGISTRY.innermost(spec).is_ok_and(|(backend, _)| matches!(backend.target, Target::Tunnel));
    specs.into_iter().any(|spec| REGISTRY.interface(spec).is_some() || is_tunnel(spec))
}

/// Returns whether a port is a capture file, also inside wrappers. Files to write are opened after privileges are
/// dropped.
pub(in crate::verbs) fn is_file(spec: &Spec) -> bool {
    REGISTRY.file(spec).is_some()
}

/// Refuses recorded files next to interfaces: their packets have no time in common, and the run would not end with the
/// files.
pub(super) fn check_mixed(specs: &[Spec]) -> anyhow::Result<()> {
    let is_recorded = |spec| REGISTRY.file(spec).is_some_and(|path| Path::new(&path).is_file());
    match specs.iter().find(|spec| is_recorded(spec)).filter(|_| are_live(specs)) {
        Some(file) => {
            Err(usage(format!("{file}: a capture file next to an interface; leave out the file or the port")))
        }
        None => Ok(()),
    }
}

/// Link types that filters differ on: Ethernet, IP without a link header, Linux cooked, 802.11. A filter invalid for
/// all of them is invalid for every file.
const LINK_TYPES: [LinkType; 4] = [LinkType::ETHERNET, LinkType::RAW, LinkType(113), LinkType(105)];

/// Finds mistakes in a filter before anything is opened; the link types of files are not known yet.
pub(in crate::verbs) fn check_filter(filter: &str, specs: &[Spec]) -> anyhow::Result<()> {
    let files_only = specs.iter().all(is_file);
    let links = if files_only { &LINK_TYPES[..] } else { &LINK_TYPES[..1] };
    let mut errors: Vec<_> = links.iter().filter_map(|link| Filter::compile(filter, link.0).err()).collect();
    if errors.len() < links.len() { Ok(()) } else { Err(usage(errors.swap_remove(0))) }
}

/// Returns the link type of a port.
pub(in crate::verbs) fn link(spec: &Spec) -> LinkType {
    let is_tunnel = REGISTRY
        .innermost(spec)
        .is_ok_and(|(backend, at)| matches!(backend.target, Target::Tunnel) && at.option("mode") != Some("tap"));
    if is_tunnel { LinkType::RAW } else { LinkType::ETHERNET }
}
