//! Kinds of ports: interfaces, files, tunnels.

use linerate_backends::REGISTRY;
use linerate_backends::inventory::is_here;
use linerate_burst::LinkType;
use linerate_port::{Spec, Target};

/// Returns whether a word is a port, not part of a filter: it starts with a backend's scheme or is an interface of this
/// host.
pub(super) fn is_port(word: &str) -> bool {
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

/// Returns the link type of a port.
pub(in crate::verbs) fn link(spec: &Spec) -> LinkType {
    let is_tunnel = REGISTRY
        .innermost(spec)
        .is_ok_and(|(backend, at)| matches!(backend.target, Target::Tunnel) && at.option("mode") != Some("tap"));
    if is_tunnel { LinkType::RAW } else { LinkType::ETHERNET }
}
