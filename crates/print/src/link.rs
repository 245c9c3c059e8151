//! Ethernet and what stands between it and the packet.

use crate::names;
use crate::read::{part, u16_at};
use crate::text::{Text, put};
use crate::walk::Walk;
use linerate_wire::llc::Header;
use linerate_wire::{Layer, Layers, Number, Protocol, Stop, ethernet, llc, mpls, pppoe, sll, sll2, vlan};

/// The access point of spanning trees.
const STP: u8 = 0x42;

/// Its unit that says nothing more (IEEE 802.1D, 9.3.2), and flags of the others; the port's role (two bits) has no name.
const TOPOLOGY_CHANGE: u8 = 0x80;
const STP_FLAGS: [(u8, &str); 6] = [
    (0x01, "Topology change"),
    (0x02, "Proposal"),
    (0x10, "Learn"),
    (0x20, "Forward"),
    (0x40, "Agreement"),
    (0x80, "Topology change ACK"),
];
const STP_FLAG_BITS: u8 = 0xf3;

/// Access points (IEEE).
const SAPS: [(u8, &str); 9] = [
    (0x00, "Null"),
    (0x06, "IP"),
    (0x42, "STP"),
    (0x4e, "EIA-RS511"),
    (0xaa, "SNAP"),
    (0xe0, "IPX"),
    (0xf0, "NetBeui"),
    (0xfe, "OSI"),
    (0xff, "Global"),
];

/// Where the link header of a frame ends, its tags with it.
pub(crate) fn end(layers: &Layers) -> usize {
    use Protocol::{Chdlc, Ethernet, Llc, Null, Ppp, Sll, Sll2, Vlan};
    let is_link = |layer: &&Layer| matches!(layer.protocol, Ethernet | Vlan | Llc | Null | Ppp | Chdlc | Sll | Sll2);
    // Another one follows in a tunnel, behind headers of others.
    layers.as_slice().iter().take_while(is_link).last().map_or(0, |layer| layer.end() as usize)
}

pub(crate) fn ethernet(walk: &mut Walk<'_, '_>, index: usize, layer: &Layer) {
    let Ok(view) = ethernet::View::parse(walk.from(layer)) else { return };
    if walk.options.link || is_last(walk.layers, index) {
        header(walk, layer, &view);
    }
    bound(walk, layer, view.ether_type());
}

/// A type field that is a length says where the packet ends; padding is behind that.
fn bound(walk: &mut Walk<'_, '_>, layer: &Layer, type_field: u16) {
    if type_field <= ethernet::MAX_LENGTH {
        walk.end = walk.end.min(layer.end() as usize + usize::from(type_field));
    }
}

fn header(walk: &mut Walk<'_, '_>, layer: &Layer, view: &ethernet::View<'_>) {
    walk.text.mac(&view.source().0);
    walk.text.str(" > ");
    walk.text.mac(&view.destination().0);
    kind(&mut walk.text, view.ether_type());
    walk.text.str(", length ");
    walk.text.dec(walk.end.saturating_sub(layer.offset as usize) as u64);
    walk.text.gap(": ");
}

/// Whether nothing that can be named is behind this link header and its tags.
fn is_last(layers: &Layers, index: usize) -> bool {
    let mut behind = layers.as_slice().iter().skip(index + 1);
    let is_named = match layers.stop() {
        Stop::Unknown(Number::Sap(sap)) => sap == STP,
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

pub(crate) fn vlan(walk: &mut Walk<'_, '_>, layer: &Layer) {
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

pub(crate) fn llc(walk: &mut Walk<'_, '_>, layer: &Layer) {
    if !walk.options.link {
        return;
    }
    let Ok(view) = llc::View::parse(walk.from(layer)) else { return };
    match view.header() {
        Header::Snap(snap) => {
            let [a, b, c] = snap.organization;
            put!(walk.text, "LLC, SNAP, oui {a:02x}:{b:02x}:{c:02x}, pid {:#06x}", snap.protocol);
        }
        Header::Plain(plain) => {
            put!(walk.text, "LLC, dsap {} ", sap(plain.destination_sap));
            put!(walk.text, "({:#04x}), ssap ({:#04x})", plain.destination_sap, plain.source_sap);
        }
    }
    walk.text.gap(": ");
}

fn sap(number: u8) -> &'static str {
    SAPS.iter().find(|row| row.0 == number & 0xfe || row.0 == number).map_or("Unknown", |row| row.1)
}

/// What has no number but that of its access point.
pub(crate) fn behind_llc(walk: &mut Walk<'_, '_>) {
    let last = walk.layers.as_slice().last().map(|layer| walk.from(layer)).unwrap_or_default();
    let point = last.first().copied().unwrap_or_default();
    let body = walk.remaining();
    if point == STP {
        return stp(walk, body);
    }
    // The address header says the rest.
    put!(walk.text, "LLC, dsap {} ({point:#04x}), length {}", sap(point), walk.length());
}

/// A bridge protocol data unit (IEEE 802.1D, 802.1Q).
fn stp(walk: &mut Walk<'_, '_>, unit: &[u8]) {
    let name = match unit.get(2) {
        Some(0) => "802.1d",
        Some(2) => "802.1w",
        Some(3) => "802.1s",
        Some(4) => "802.1aq",
        _ => "version unknown",
    };
    let kind = match unit.get(3) {
        Some(0) => "Config",
        Some(2) => "Rapid STP",
        Some(&TOPOLOGY_CHANGE) => "Topology Change",
        _ => "type unknown",
    };
    put!(walk.text, "STP {name}, {kind}");
    if unit.get(3) == Some(&TOPOLOGY_CHANGE) {
        // It has four bytes.
        return;
    }
    if let Some([flags]) = part(unit, 4) {
        let set = STP_FLAGS.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name);
        let mut separator = ", Flags [";
        for name in set.chain((flags & STP_FLAG_BITS == 0).then_some("none")) {
            put!(walk.text, "{separator}{name}");
            separator = ", ";
        }
        walk.text.str("]");
    }
    if let (Some(priority), Some(mac), Some(port)) = (u16_at(unit, 17), part::<6>(unit, 19), u16_at(unit, 25)) {
        put!(walk.text, ", bridge-id {priority:04x}.");
        walk.text.mac(&mac);
        put!(walk.text, ".{port:04x}");
    }
    put!(walk.text, ", length {}", walk.length());
}

pub(crate) fn mpls(walk: &mut Walk<'_, '_>, layer: &Layer) {
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

pub(crate) fn pppoe(walk: &mut Walk<'_, '_>, layer: &Layer) {
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

/// The header that Linux makes up for interfaces of any kind.
pub(crate) fn cooked(walk: &mut Walk<'_, '_>, layer: &Layer) {
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

#[cfg(test)]
mod tests {
    use crate::{Frame, Options, Printer, Time};

    fn line(link: bool, bytes: &[u8]) -> String {
        let mut out = Vec::new();
        let frame = Frame { time: 0, interface: "", link: 1, bytes, wire: bytes.len() as u32 };
        Printer::new(Options { link, time: Time::None, ..Options::default() }).line(&frame, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn padding_behind_an_802_3_length_is_no_payload() {
        let padded = |tag: &[u8], unit: &[u8]| {
            let length = (unit.len() as u16).to_be_bytes();
            let mut frame = [&[2; 12], tag, &length[..], unit].concat();
            frame.resize(60, 0);
            frame
        };
        let config = [&[0x42, 0x42, 3, 0, 0, 0, 0, 0x31, 0x80][..], &[0; 30]].concat();
        let expected = "Flags [Topology change, Learn, Forward], bridge-id 0000.00:00:00:00:00:00.0000, length 36\n";
        let config = config.iter().enumerate().map(|(at, byte)| if at == 6 { 2 } else { *byte }).collect::<Vec<_>>();
        for tag in [&[][..], &[0x81, 0, 0, 7]] {
            assert_eq!(line(false, &padded(tag, &config)), format!("STP 802.1d, Rapid STP, {expected}"));
            let change = padded(tag, &[0x42, 0x42, 3, 0, 0, 0, 0x80]);
            assert_eq!(line(false, &change), "STP 802.1d, Topology Change\n");
            // By access point, by SNAP: CDP.
            let other = line(true, &padded(tag, &[0xfe, 0xfe, 3, 0x83, 1, 2]));
            assert!(other.ends_with("LLC, dsap OSI (0xfe), length 3\n"), "{other}");
            let snap = line(false, &padded(tag, &[0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0, 1, 2, 3]));
            assert!(snap.ends_with(", length 3\n"), "{snap}");
        }
    }
}
