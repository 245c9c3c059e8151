//! Ethernet, and the headers between it and the packet.

use crate::text::{Text, put};
use crate::walk::LinePrinter;
use crate::{llc, names};
use linerate_headers::{Layer, Layers, Number, Protocol, Stop, ethernet, mpls, pppoe, sll, sll2, vlan};

/// Returns the end of the link header, including tags.
pub(crate) fn end(layers: &Layers) -> usize {
    use Protocol::{Chdlc, Ethernet, Llc, Null, Ppp, Sll, Sll2, Vlan};
    let is_link = |layer: &&Layer| matches!(layer.protocol, Ethernet | Vlan | Llc | Null | Ppp | Chdlc | Sll | Sll2);
    // Tunnels contain further link headers, after other headers.
    layers.as_slice().iter().take_while(is_link).last().map_or(0, |layer| layer.end() as usize)
}

pub(crate) fn ethernet(walk: &mut LinePrinter<'_, '_>, index: usize, layer: &Layer) {
    let Ok(view) = ethernet::View::parse(walk.from(layer)) else { return };
    if walk.options.link || is_last(walk, index) {
        header(walk, layer, &view);
    }
    bound(walk, layer, view.ether_type());
}

/// Limits the packet to a length in the type field; padding follows it.
fn bound(walk: &mut LinePrinter<'_, '_>, layer: &Layer, type_field: u16) {
    if type_field <= ethernet::MAX_LENGTH {
        walk.end = walk.end.min(layer.end() as usize + usize::from(type_field));
    }
}

fn header(walk: &mut LinePrinter<'_, '_>, layer: &Layer, view: &ethernet::View<'_>) {
    walk.text.mac(&view.source().0);
    walk.text.str(" > ");
    walk.text.mac(&view.destination().0);
    kind(&mut walk.text, view.ether_type());
    walk.text.str(", length ");
    let said = Some(usize::from(view.ether_type())).filter(|said| *said <= usize::from(ethernet::MAX_LENGTH));
    walk.text.dec(said.unwrap_or(walk.end.saturating_sub(layer.offset as usize)) as u64);
    walk.text.gap(": ");
}

/// Returns whether no known protocol follows this link header and its tags.
fn is_last(walk: &LinePrinter<'_, '_>, index: usize) -> bool {
    let layers = walk.layers;
    let mut behind = layers.as_slice().iter().skip(index + 1);
    let is_named = match layers.stop() {
        // The LLC line includes the addresses.
        Stop::Unknown(Number::Sap(sap)) => llc::has_name(walk, sap),
        Stop::Unknown(number) => names::of(number).is_some(),
        _ => false,
    };
    behind.all(|layer| matches!(layer.protocol, Protocol::Vlan | Protocol::Llc)) && !is_named
}

fn kind(text: &mut Text<'_>, ether_type: u16) {
    if ether_type <= ethernet::MAX_LENGTH {
        text.str(", 802.3");
        return;
    }
    put!(text, ", ethertype {} ({ether_type:#06x})", names::ether_type(ether_type).unwrap_or("Unknown"));
}

pub(crate) fn vlan(walk: &mut LinePrinter<'_, '_>, layer: &Layer) {
    let Ok(view) = vlan::View::parse(walk.from(layer)) else { return };
    bound(walk, layer, view.ether_type());
    if !walk.options.link {
        return;
    }
    put!(walk.text, "vlan {}, p {}", view.id(), view.priority());
    if view.drop_eligible() {
        walk.text.str(", DEI");
    }
    kind(&mut walk.text, view.ether_type());
    walk.text.gap(", ");
}

pub(crate) fn mpls(walk: &mut LinePrinter<'_, '_>, layer: &Layer) {
    let Ok(view) = mpls::View::parse(walk.from(layer)) else { return };
    let entries = view.entries();
    let last = entries.len().saturating_sub(1);
    walk.text.str("MPLS ");
    for (at, entry) in entries.enumerate() {
        if walk.text.is_full() {
            return;
        }
        let end = if at == last { ", [S]" } else { "" };
        let separator = if at > 0 { ", " } else { "" };
        put!(walk.text, "{separator}(label {}, tc {}{end}, ttl {})", entry.label, entry.traffic_class, entry.ttl);
    }
    walk.text.gap(" ");
}

pub(crate) fn pppoe(walk: &mut LinePrinter<'_, '_>, layer: &Layer) {
    let Ok(view) = pppoe::View::parse(walk.from(layer)) else { return };
    let kind = match view.code() {
        pppoe::SESSION_DATA => "",
        0x07 => " PADO",
        0x09 => " PADI",
        0x19 => " PADR",
        0x65 => " PADS",
        0xa7 => " PADT",
        _ => " unknown",
    };
    walk.text.str("PPPoE");
    walk.text.str(kind);
    if view.session() != 0 {
        put!(walk.text, " [ses {:#x}]", view.session());
    }
    walk.text.gap(" ");
}

/// Writes the Linux cooked header, for any kind of interface.
pub(crate) fn cooked(walk: &mut LinePrinter<'_, '_>, layer: &Layer) {
    if !walk.options.link {
        return;
    }
    let bytes = walk.from(layer);
    let (direction, address, protocol) = if layer.protocol == Protocol::Sll {
        let Ok(view) = sll::View::parse(bytes) else { return };
        (view.packet_type(), view.address(), view.protocol())
    } else {
        let Ok(view) = sll2::View::parse(bytes) else { return };
        put!(walk.text, "ifindex {} ", view.interface());
        (view.packet_type().into(), view.address(), view.protocol())
    };
    walk.text.str(["In", "B", "M", "P", "Out"].get(usize::from(direction)).unwrap_or(&"?"));
    if !address.is_empty() {
        walk.text.str(" ");
        walk.text.mac(address);
    }
    kind(&mut walk.text, protocol);
    put!(walk.text, ", length {}", walk.end);
    walk.text.gap(": ");
}
