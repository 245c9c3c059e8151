//! Whether another host has an address already: two that answer for one take streams from each other.

use crate::exit::usage;
use crate::verbs::generate::answer::answering;
use crate::verbs::inputs::link;
use linerate_backends::REGISTRY;
use linerate_burst::LinkType;
use linerate_generate::answer::{ANSWERS_PER_SECOND, Hop, Own};
use linerate_port::Spec;

/// Refuses addresses that another host answers for. On a link without addresses of stations nobody can be asked.
pub(super) fn check_free(spec: &Spec, own: &[Own]) -> anyhow::Result<()> {
    if link(spec) != LinkType::ETHERNET || REGISTRY.interface(spec).is_none() {
        return Ok(());
    }
    let hops = own.iter().map(|own| Hop::probe(own.first, own.mac)).collect::<Result<Vec<_>, _>>().map_err(usage)?;
    match answering(spec, Vec::new(), ANSWERS_PER_SECOND)?.probe(&hops)? {
        Some((ip, mac)) => Err(usage(format!(
            "{ip}: another host has that address, at {mac} ({spec}): name one of your network that no host has"
        ))),
        None => Ok(()),
    }
}
