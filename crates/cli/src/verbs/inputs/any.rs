//! `any`, every interface that is up, and the direction of the packets that are taken at interfaces.

use crate::exit::usage;
use linerate_backends::REGISTRY;
use linerate_backends::inventory::{interfaces, is_here};
use linerate_backends::netns::within;
use linerate_port::Spec;
use std::io;

/// Every interface that is up, as tcpdump calls them.
const ANY: &str = "any";

/// Whether a port stands for every interface that is up.
pub(super) fn is_meant(spec: &Spec) -> bool {
    (spec.scheme.as_str(), spec.target.as_str()) == ("packet", ANY) && !is_here(ANY)
}

/// The ports of all interfaces that are up, with the options that `any` was given; those of them that cannot be received from go to
/// `left_out`.
pub(super) fn all_up(any: &Spec, left_out: &mut Vec<String>) -> anyhow::Result<Vec<Spec>> {
    let netns = any.option("netns");
    let found = within(netns, || {
        let up = interfaces(None)?.into_iter().filter(|one| one.up);
        Ok(up.map(|one| (REGISTRY.on_interface(&one), one.name)).collect::<Vec<_>>())
    });
    let mut specs = Vec::new();
    for (judged, name) in found.map_err(|error: io::Error| usage(format!("{any}: {error}")))? {
        match judged.into_iter().find(|(scheme, _)| *scheme == any.scheme) {
            Some((_, Err(reason))) => left_out.push(format!("{name} is left out: {reason}")),
            _ => specs.push(Spec { target: name, ..any.clone() }),
        }
    }
    if specs.is_empty() { Err(usage("no interface is up: linerate ports lists them")) } else { Ok(specs) }
}

/// Gives the ports that are interfaces this direction.
pub(super) fn set_direction(specs: &mut [Spec], direction: &str) -> anyhow::Result<()> {
    let mut interfaces = specs.iter_mut().filter(|spec| REGISTRY.interface(spec).is_some()).peekable();
    if interfaces.peek().is_none() {
        return Err(usage("--direction means nothing here: no interface is received from"));
    }
    for spec in interfaces {
        if spec.option("direction").is_some_and(|other| other != direction) {
            return Err(usage(format!("{spec}: --direction {direction} contradicts it; give one of them")));
        }
        spec.options.push(("direction".to_owned(), direction.to_owned()));
    }
    Ok(())
}
