//! The port `any` (every interface that is up) and the direction of captured packets.

use crate::exit::usage;
use linerate_backends::REGISTRY;
use linerate_backends::inventory::{interfaces, is_here};
use linerate_backends::netns::within;
use linerate_port::Spec;
use std::io;

/// Name of all interfaces that are up, as in tcpdump.
const ANY: &str = "any";

/// Returns whether a port stands for every interface that is up.
pub(super) fn is_any_interface(spec: &Spec) -> bool {
    (spec.scheme.as_str(), spec.target.as_str()) == ("packet", ANY) && !is_here(ANY)
}

/// Returns the ports of all interfaces that are up, with the options of `any`. Interfaces that cannot be opened are
/// added to `left_out`.
pub(super) fn all_up(any: &Spec, left_out: &mut Vec<String>) -> anyhow::Result<Vec<Spec>> {
    let netns = any.option("netns");
    let found = within(netns, || {
        let up = interfaces(None)?.into_iter().filter(|one| one.up);
        Ok(up.map(|one| (REGISTRY.on_interface(&one), one.name)).collect::<Vec<_>>())
    });
    let mut specs = Vec::new();
    for (judged, name) in found.map_err(|error: io::Error| usage(format!("{any}: {error}")))? {
        match judged.into_iter().find(|(scheme, _)| *scheme == any.scheme) {
            Some((_, Err(reason))) => left_out.push(format!("{name}: skipped: {reason}")),
            _ => specs.push(Spec { target: name, ..any.clone() }),
        }
    }
    if specs.is_empty() { Err(usage("any: no interface is up (see linerate ports)")) } else { Ok(specs) }
}

/// Sets the direction of all ports that are interfaces.
pub(super) fn set_direction(specs: &mut [Spec], direction: &str) -> anyhow::Result<()> {
    let mut interfaces = specs.iter_mut().filter(|spec| REGISTRY.interface(spec).is_some()).peekable();
    if interfaces.peek().is_none() {
        return Err(usage("--direction needs an interface: other ports have no direction"));
    }
    for spec in interfaces {
        if spec.option("direction").is_some_and(|other| other != direction) {
            return Err(usage(format!("{spec}: conflicts with --direction {direction}; leave one out")));
        }
        spec.options.push(("direction".to_owned(), direction.to_owned()));
    }
    Ok(())
}
