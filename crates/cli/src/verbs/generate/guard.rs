//! What is looked at before anything is sent.

use crate::exit::usage;
use crate::view::rates::grouped;
use linerate_backends::REGISTRY;
use linerate_backends::inventory::{interfaces, is_default_route};
use linerate_burst::text::quoted;
use linerate_generate::Rate;
use linerate_generate::packet::SMALLEST;
use linerate_generate::rate::{Asked, FCS};
use linerate_port::{Found, Spec};
use linerate_wire::Link;

/// An Ethernet header with one VLAN tag: what a frame may be longer than the MTU.
const LINK_OVERHEAD: usize = 18;

/// The interface that frames to a port leave through, if that is one of this machine.
pub(crate) fn interface(spec: &Spec) -> Option<Found> {
    let at = REGISTRY.interface(spec)?;
    interfaces(at.option("netns")).ok()?.into_iter().find(|found| found.name == at.target)
}

/// Refuses to send into the interface of the default route, unless that was said to be meant.
pub(crate) fn check_route(spec: &Spec, yes: bool) -> anyhow::Result<()> {
    let Some(at) = REGISTRY.interface(spec) else { return Ok(()) };
    let target = &at.target;
    if at.option("netns").is_none() && !yes && is_default_route(target) {
        return Err(usage(format!(
            "{target} carries the default route of this machine: give --yes if frames are really to be sent there"
        )));
    }
    Ok(())
}

/// Refuses frames that the interface cannot send; `longest` counts no FCS.
pub(crate) fn check_length(found: Option<&Found>, longest: usize) -> anyhow::Result<()> {
    let Some(found) = found.filter(|found| found.mtu > 0) else { return Ok(()) };
    let mtu = found.mtu as usize;
    if longest > mtu + LINK_OVERHEAD {
        let need = longest - 14;
        return Err(usage(format!(
            "frames of {} bytes (with FCS) do not fit {}, whose MTU is {}: shorter frames, or ip link set {} mtu {need}",
            grouped(longest as u64 + 4),
            found.name,
            grouped(mtu as u64),
            quoted(&found.name),
        )));
    }
    Ok(())
}

/// A note on Ethernet frames below the minimum; `shortest` counts no FCS.
pub(crate) fn note_runts(link: Link, shortest: usize) -> Option<String> {
    let size = shortest + FCS as usize;
    (link == Link::Ethernet && size < SMALLEST).then(|| {
        format!(
            "runts: frames of {size} bytes with FCS are shorter than the Ethernet minimum of {SMALLEST}; a card may pad or drop them"
        )
    })
}

/// The rate asked for, on the line given or that of the interface.
pub(crate) fn rate_on(asked: Asked, line: Option<f64>, found: Option<&Found>) -> anyhow::Result<Rate> {
    if line.is_some() && asked.on_line(None).is_some() {
        return Err(usage("--line means nothing here: the rate is no share of it, as 50% would be"));
    }
    asked.on_line(line.or(line_of(found))).ok_or_else(|| {
        usage("a share of the line needs its rate, which this port does not know: give --line, as in --line 10gbps")
    })
}

/// The line rate of an interface, in bits per second, where its driver knows it.
pub(crate) fn line_of(found: Option<&Found>) -> Option<f64> {
    found.and_then(|found| found.speed_mbps).map(|mbps| mbps as f64 * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runts_are_noted_on_ethernet() {
        assert!(note_runts(Link::Ethernet, 46).is_some_and(|note| note.contains("frames of 50 bytes")));
        assert_eq!([note_runts(Link::Ethernet, 60), note_runts(Link::RawIp, 46)], [None, None]);
    }
}
