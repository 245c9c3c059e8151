//! LLC: service access points, control field, spanning tree.

use crate::read::{part, u16_at};
use crate::text::put;
use crate::walk::LinePrinter;
use linerate_headers::llc::{Control, Header, Plain};
use linerate_headers::{Layer, Protocol, ethernet, llc};

/// Access point of spanning tree, and others that are sufficient to identify the payload.
const STP: u8 = 0x42;
const IPX: u8 = 0xe0;
const OSI: u8 = 0xfe;

/// BPDU types (IEEE 802.1D, 9.3), of which the last one has no content, and flags of the others; the two bits of the
/// port role are not named.
const CONFIG: u8 = 0;
const RAPID: u8 = 2;
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

/// Bytes of BPDUs: common head, configuration, rapid and multiple spanning tree (IEEE 802.1D, 9.3; 802.1Q, 14.3).
const STP_HEAD: usize = 4;
const STP_CONFIG: usize = 35;
const STP_RAPID: usize = 36;
const STP_MULTIPLE: usize = 102;

/// Access points (IEEE), without the group or response bit.
const SAPS: [(u8, &str); 13] = [
    (0x00, "Null"),
    (0x02, "802.1B I"),
    (0x04, "SNA"),
    (0x06, "IP"),
    (0x0e, "ProWay NM"),
    (STP, "STP"),
    (0x4e, "RS511"),
    (0x7e, "ISO8208"),
    (0x8e, "ProWay"),
    (0xaa, "SNAP"),
    (IPX, "IPX"),
    (0xf0, "NetBeui"),
    (OSI, "OSI"),
];
/// Group bit of a destination, response bit of a source.
const GROUP_OR_RESPONSE: u8 = 1;

/// Unnumbered commands and responses without the poll/final bit (IEEE 802.2, 5.3.3), and supervisory ones (5.3.2).
const UNNUMBERED: [(u8, &str); 8] = [
    (0x03, "ui"),
    (0x0f, "dm"),
    (0x43, "disc"),
    (0x63, "ua"),
    (0x6f, "sabme"),
    (0x87, "frmr"),
    (XID, "xid"),
    (0xe3, "test"),
];
const UI: u8 = 0x03;
const XID: u8 = 0xaf;
const POLL: u8 = 0x10;
const SUPERVISED: [&str; 4] = ["Receiver Ready", "Receiver not Ready", "Reject", "?"];
/// Format identifier of XID information.
const XID_FORMAT: u8 = 0x81;

pub(crate) fn header(walk: &mut LinePrinter<'_, '_>, layer: &Layer) {
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
            for (name, point, kinds) in [
                ("LLC, dsap", plain.destination_sap, ["Individual", "Group"]),
                (", ssap", plain.source_sap, ["Command", "Response"]),
            ] {
                let (number, kind) = (point & !GROUP_OR_RESPONSE, kinds[usize::from(point & GROUP_OR_RESPONSE)]);
                put!(walk.text, "{name} {} ({number:#04x}) {kind}", sap(point).unwrap_or("Unknown"));
            }
            match plain.control {
                Control::Unnumbered(control) => put!(walk.text, ", ctrl {control:#04x}"),
                Control::Numbered(control) => put!(walk.text, ", ctrl {:#06x}", u16::from_le_bytes(control)),
            }
        }
    }
    walk.text.gap(": ");
}

fn sap(number: u8) -> Option<&'static str> {
    SAPS.iter().find(|row| row.0 == number & !GROUP_OR_RESPONSE).map(|row| row.1)
}

/// Returns whether the payload of this access point is printed by name, together with its addresses.
pub(crate) fn has_name(walk: &LinePrinter<'_, '_>, point: u8) -> bool {
    point & !GROUP_OR_RESPONSE == STP || controlled(walk).is_some()
}

/// Returns the LLC header if it is the last one and its payload has no name.
fn controlled(walk: &LinePrinter<'_, '_>) -> Option<Plain> {
    let last = walk.layers.as_slice().last().filter(|layer| layer.protocol == Protocol::Llc)?;
    let Header::Plain(plain) = llc::View::parse(walk.from(last)).ok()?.header() else { return None };
    let has_name = [STP, IPX, OSI].contains(&(plain.destination_sap & !GROUP_OR_RESPONSE));
    (plain.control != Control::Unnumbered(UI) || !has_name).then_some(plain)
}

/// Writes payload that is only identified by its access point.
pub(crate) fn rest(walk: &mut LinePrinter<'_, '_>) {
    let last = walk.layers.as_slice().last().map(|layer| walk.from(layer)).unwrap_or_default();
    let point = last.first().copied().unwrap_or_default();
    let body = walk.remaining();
    if let Some(plain) = controlled(walk) {
        return control(walk, plain, body);
    }
    if point & !GROUP_OR_RESPONSE == STP {
        return stp(walk, body);
    }
    // The link header has the addresses.
    put!(walk.text, "LLC, dsap {} ({point:#04x}), length {}", sap(point).unwrap_or("Unknown"), walk.length());
}

/// Writes an LLC header (IEEE 802.2, 5.2), with addresses unless the link header is printed.
fn control(walk: &mut LinePrinter<'_, '_>, plain: Plain, body: &[u8]) {
    if !walk.options.link {
        speakers(walk, plain);
    }
    let flags = |is_poll: bool| match (is_poll, plain.source_sap & GROUP_OR_RESPONSE != 0) {
        (false, false) => "Command",
        (false, true) => "Response",
        (true, false) => "Poll",
        (true, true) => "Final",
    };
    let length = walk.length();
    match plain.control {
        Control::Unnumbered(control) => {
            let command = control & !POLL;
            walk.text.str("Unnumbered, ");
            match UNNUMBERED.iter().find(|row| row.0 == command) {
                Some((_, name)) => walk.text.str(name),
                None => put!(walk.text, "{command:02x}"),
            }
            put!(walk.text, ", Flags [{}], length {}", flags(control & POLL != 0), length + llc::LEN);
            if let (XID, Some([XID_FORMAT, kinds, window])) = (command, part(body, 0)) {
                put!(walk.text, ": {kinds:02x} {window:02x}");
            }
        }
        Control::Numbered([first, second]) => {
            match first & 1 {
                0 => put!(walk.text, "Information, send seq {}", first >> 1),
                _ => put!(walk.text, "Supervisory, {}", SUPERVISED[usize::from(first >> 2 & 3)]),
            }
            let flags = flags(second & 1 != 0);
            put!(walk.text, ", rcv seq {}, Flags [{flags}], length {}", second >> 1, length + llc::LEN + 1);
        }
    }
}

/// Writes the addresses of an Ethernet frame with its access points: one name if both are equal.
fn speakers(walk: &mut LinePrinter<'_, '_>, plain: Plain) {
    let points = [plain.source_sap, plain.destination_sap].map(|point| point & !GROUP_OR_RESPONSE);
    let first = walk.layers.as_slice().first().filter(|layer| layer.protocol == Protocol::Ethernet);
    let macs = first.and_then(|layer| ethernet::View::parse(walk.from(layer)).ok());
    let macs = macs.map(|view| [view.source(), view.destination()]);
    for (at, kind) in ["SSAP", "DSAP"].into_iter().enumerate() {
        walk.text.str(if at == 1 && (macs.is_some() || points[0] != points[1]) { "> " } else { "" });
        if let Some(macs) = macs {
            walk.text.mac(&macs[at].0);
            walk.text.str(" ");
        }
        if at == 0 && points[0] == points[1] {
            continue;
        }
        match sap(points[at]) {
            Some(name) => walk.text.str(name),
            None => put!(walk.text, "Unknown {kind} {:#04x}", points[at]),
        }
        walk.text.str(" ");
    }
}

/// Writes a bridge protocol data unit (IEEE 802.1D, 802.1Q).
fn stp(walk: &mut LinePrinter<'_, '_>, unit: &[u8]) {
    let length = walk.length();
    let Some([high, low, version, kind]) = part::<STP_HEAD>(unit, 0).filter(|_| length >= STP_HEAD) else {
        return walk.text.str(if length < STP_HEAD { "STP (invalid)" } else { "STP [|stp]" });
    };
    if [high, low] != [0; 2] {
        return put!(walk.text, "unknown STP version, length {length}");
    }
    let Some(name) =
        ["802.1d", "", "802.1w", "802.1s", "802.1aq"].get(usize::from(version)).filter(|name| !name.is_empty())
    else {
        return put!(walk.text, "STP Unknown STP protocol ({version:#04x})");
    };
    put!(walk.text, "STP {name}, ");
    let least = match (kind, version) {
        (CONFIG, _) => STP_CONFIG,
        (RAPID, 0) => return walk.text.str("Rapid STP"),
        (RAPID, 2) => STP_RAPID,
        (RAPID, _) => STP_MULTIPLE,
        // A topology change has four bytes.
        (TOPOLOGY_CHANGE, _) => return walk.text.str("Topology Change"),
        _ => return put!(walk.text, "Unknown BPDU Type ({kind:#04x})"),
    };
    walk.text.str(if kind == CONFIG { "Config" } else { "Rapid STP" });
    let is_multiple = least == STP_MULTIPLE;
    // Multiple spanning tree units must have an empty version 1 part.
    if length < least || is_multiple && unit.get(STP_CONFIG).is_some_and(|version_1| *version_1 != 0) {
        return walk.text.str(" (invalid)");
    }
    if let Some([flags]) = part(unit, 4) {
        let set = STP_FLAGS.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name);
        let mut separator = if is_multiple { ", CIST Flags [" } else { ", Flags [" };
        for name in set.chain((flags & STP_FLAG_BITS == 0).then_some("none")) {
            put!(walk.text, "{separator}{name}");
            separator = ", ";
        }
        walk.text.str("]");
    }
    if let (Some(priority), Some(mac), Some(port)) = (u16_at(unit, 17), part::<6>(unit, 19), u16_at(unit, 25))
        && !is_multiple
    {
        put!(walk.text, ", bridge-id {priority:04x}.");
        walk.text.mac(&mac);
        put!(walk.text, ".{port:04x}");
    }
    put!(walk.text, ", length {length}");
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

    /// Lines of tcpdump 4.99.
    #[test]
    fn llc_headers_and_short_units_are_printed() {
        let macs = "02:02:02:02:02:02 > 02:02:02:02:02:02";
        for (content, expected) in [
            (&[0xf0, 0xf1, 0x73][..], format!("{macs} NetBeui Unnumbered, ua, Flags [Final], length 3")),
            (&[4, 4, 0xaf, 0x81, 1, 2], format!("{macs} SNA Unnumbered, xid, Flags [Command], length 6: 01 02")),
            (&[4, 4, 2, 4, 9], format!("{macs} SNA Information, send seq 1, rcv seq 2, Flags [Command], length 5")),
            (
                &[0x42, 0x42, 5, 9],
                format!("{macs} STP Supervisory, Receiver not Ready, rcv seq 4, Flags [Poll], length 4"),
            ),
            (&[0x42, 0x42, 3, 0, 0, 2, 2, 0], "STP 802.1w, Rapid STP (invalid)".to_owned()),
            (&[0x42, 0x42, 3, 0, 0, 0, 5], "STP 802.1d, Unknown BPDU Type (0x05)".to_owned()),
        ] {
            let mut frame = [&[2; 12], &(content.len() as u16).to_be_bytes()[..], content].concat();
            frame.resize(60, 0);
            assert_eq!(line(false, &frame), expected + "\n");
        }
    }

    #[test]
    fn padding_after_an_802_3_length_is_not_payload() {
        let padded = |tag: &[u8], unit: &[u8]| {
            let length = (unit.len() as u16).to_be_bytes();
            let mut frame = [&[2; 12], tag, &length[..], unit].concat();
            frame.resize(60, 0);
            frame
        };
        let config = [&[0x42, 0x42, 3, 0, 0, 2, 2, 0x31, 0x80][..], &[0; 30]].concat();
        let expected = "Flags [Topology change, Learn, Forward], bridge-id 0000.00:00:00:00:00:00.0000, length 36\n";
        for tag in [&[][..], &[0x81, 0, 0, 7]] {
            assert_eq!(line(false, &padded(tag, &config)), format!("STP 802.1w, Rapid STP, {expected}"));
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
