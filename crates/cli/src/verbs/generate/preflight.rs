//! Checks before anything is sent.

use crate::exit::usage;
use crate::view::rates::grouped;
use linerate_backends::REGISTRY;
use linerate_backends::inventory::{interfaces, is_default_route};
use linerate_burst::text::quoted;
use linerate_generate::Rate;
use linerate_generate::packet::SMALLEST;
use linerate_generate::rate::{FCS, RequestedRate};
use linerate_headers::Link;
use linerate_port::{InterfaceInfo, Spec};

/// Ethernet header with one VLAN tag: a frame may exceed the MTU by this.
const LINK_OVERHEAD: usize = 18;

/// Returns the interface that a port sends through, if it is one of this host.
pub(crate) fn interface(spec: &Spec) -> Option<InterfaceInfo> {
    let at = REGISTRY.interface(spec)?;
    interfaces(at.option("netns")).ok()?.into_iter().find(|found| found.name == at.target)
}

/// Refuses to send into the interface of the default route without `--yes`.
pub(crate) fn check_route(spec: &Spec, yes: bool) -> anyhow::Result<()> {
    let Some(at) = REGISTRY.interface(spec) else { return Ok(()) };
    let target = &at.target;
    if at.option("netns").is_none() && !yes && is_default_route(target) {
        return Err(usage(format!("{target} carries the default route of this host; use --yes to send there anyway")));
    }
    Ok(())
}

/// Refuses frames that the interface cannot send; `longest` excludes the FCS.
pub(crate) fn check_length(found: Option<&InterfaceInfo>, longest: usize) -> anyhow::Result<()> {
    let Some(found) = found.filter(|found| found.mtu > 0) else { return Ok(()) };
    let mtu = found.mtu as usize;
    if longest > mtu + LINK_OVERHEAD {
        let need = longest - 14;
        return Err(usage(format!(
            "frames of {} bytes (with FCS) do not fit {} (MTU {}); send shorter ones, or run ip link set {} mtu {need}",
            grouped(longest as u64 + 4),
            found.name,
            grouped(mtu as u64),
            quoted(&found.name),
        )));
    }
    Ok(())
}

/// Returns a note about Ethernet frames below the minimum size; `shortest` excludes the FCS.
pub(crate) fn note_runts(link: Link, shortest: usize) -> Option<String> {
    let size = shortest + FCS as usize;
    (link == Link::Ethernet && size < SMALLEST).then(|| {
        format!(
            "runts: frames of {size} bytes with FCS are below the Ethernet minimum of {SMALLEST}; a NIC may pad or drop them"
        )
    })
}

/// Returns the requested rate; percentages refer to `line`, or else to the link speed of the interface.
pub(crate) fn rate_on(asked: RequestedRate, line: Option<f64>, found: Option<&InterfaceInfo>) -> anyhow::Result<Rate> {
    if line.is_some() && asked.on_line(None).is_some() {
        return Err(usage("--line needs --rate in percent, such as --rate 50%"));
    }
    asked.on_line(line.or(line_of(found))).ok_or_else(|| {
        usage(
            "--rate in percent needs the line rate, which this port does not report; use --line, such as --line 10gbps",
        )
    })
}

/// Returns the line rate of an interface in bits per second, if its driver reports it.
pub(crate) fn line_of(found: Option<&InterfaceInfo>) -> Option<f64> {
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
