//! Detects addresses in use: two hosts that answer for one address disturb each other's streams.

use crate::exit::usage;
use crate::verbs::generate::answer::answering;
use crate::verbs::inputs::link;
use linerate_backends::REGISTRY;
use linerate_burst::LinkType;
use linerate_generate::answer::{ANSWERS_PER_SECOND, AddressRange, Hop};
use linerate_port::Spec;

/// Refuses addresses that another host answers for. Links without MAC addresses cannot be probed.
pub(super) fn check_free(spec: &Spec, own: &[AddressRange]) -> anyhow::Result<()> {
    if link(spec) != LinkType::ETHERNET || REGISTRY.interface(spec).is_none() {
        return Ok(());
    }
    let hops = own.iter().map(|own| Hop::probe(own.first, own.mac)).collect::<Result<Vec<_>, _>>().map_err(usage)?;
    match answering(spec, Vec::new(), ANSWERS_PER_SECOND)?.probe(&hops)? {
        Some((ip, mac)) => {
            Err(usage(format!("{ip}: in use by another host, {mac} ({spec}); use an unused address of your network")))
        }
        None => Ok(()),
    }
}
