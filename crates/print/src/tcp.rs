//! TCP.

use crate::connections::{End, Origin};
use crate::read::part;
use crate::text::{Text, put};
use crate::walk::{LinePrinter, Packet};
use crate::{http, ip, tls};
use linerate_headers::tcp::{Flags, View};
use linerate_headers::tcp_option::{Iter, TcpOption};
use linerate_headers::{Layer, Pseudo, options, tcp};

/// Flags in output order.
const FLAGS: [(Flags, &str); 9] = [
    (Flags::FIN, "F"),
    (Flags::SYN, "S"),
    (Flags::RST, "R"),
    (Flags::PSH, "P"),
    (Flags::ACK, "."),
    (Flags::URG, "U"),
    (Flags::ECE, "E"),
    (Flags::CWR, "W"),
    (Flags::AE, "e"),
];

const NO_OPERATION: u8 = 1;
const MD5: u8 = 19;
const USER_TIMEOUT: u8 = 28;
const AUTHENTICATION: u8 = 29;
const MULTIPATH: u8 = 30;
const FAST_OPEN: u8 = 34;

pub(crate) fn write(walk: &mut LinePrinter<'_, '_>, layer: &Layer) {
    let bytes = walk.from(layer);
    let Ok(view) = View::parse(bytes) else { return };
    ip::late_ports(walk, view.source_port(), view.destination_port());
    let length = walk.length_after(layer);
    if walk.options.brief {
        walk.text.str("tcp ");
        walk.text.dec(length as u64);
        return;
    }
    walk.text.str("Flags [");
    flags(&mut walk.text, view.flags());
    walk.text.str("]");
    if walk.options.verifies()
        && walk.is_whole(layer.offset as usize)
        && let Some(packet) = walk.packet
    {
        let (sum, pseudo) = (view.checksum(), pseudo(&packet));
        match view.is_checksum_right(&pseudo) {
            true => put!(walk.text, ", cksum {sum:#06x} (correct)"),
            false => put!(walk.text, ", cksum {sum:#06x} (incorrect -> {:#06x})", view.correct_checksum(&pseudo)),
        }
    }
    let origin = numbers(walk, &view, length as u32);
    walk.text.str(", win ");
    walk.text.dec(view.window());
    if view.flags().contains(Flags::URG) {
        walk.text.str(", urg ");
        walk.text.dec(view.urgent());
    }
    if view.header_len() > tcp::LEN {
        walk.text.str(", options [");
        options(&mut walk.text, bytes.get(tcp::LEN..view.header_len()).unwrap_or_default(), origin.blocks);
        walk.text.str("]");
    }
    walk.text.str(", length ");
    walk.text.dec(length as u64);
    if length > 0 && !walk.is_quoted {
        let payload = walk.behind(layer);
        if !tls::write(&mut walk.text, payload) {
            http::write(&mut walk.text, payload);
        }
    }
}

/// Returns the pseudo header for the checksum of a packet.
pub(crate) fn pseudo(packet: &Packet) -> Pseudo {
    let short = |address: [u8; 16]| part::<4>(&address, 12).unwrap_or_default().into();
    if packet.is_v6 {
        Pseudo::V6 { source: packet.source.into(), destination: packet.last_destination.into() }
    } else {
        Pseudo::V4 { source: short(packet.source), destination: short(packet.destination) }
    }
}

fn flags(text: &mut Text<'_>, flags: Flags) {
    if flags == Flags::PSH | Flags::ACK {
        return text.str("P.");
    }
    let before = text.length();
    for (flag, letter) in FLAGS {
        if flags.contains(flag) {
            text.str(letter);
        }
    }
    if text.length() == before {
        text.str("none");
    }
}

/// Writes sequence and acknowledgement number, and returns their offsets.
fn numbers(walk: &mut LinePrinter<'_, '_>, view: &View<'_>, length: u32) -> Origin {
    let flags = view.flags();
    let is_first = flags.contains(Flags::SYN);
    let origin = match walk.packet {
        Some(packet) if flags.contains(Flags::ACK) => {
            let from = End { address: packet.source, port: view.source_port() };
            let to = End { address: packet.destination, port: view.destination_port() };
            walk.connections.origin(from, to, is_first, view.sequence(), view.acknowledgement())
        }
        _ => Origin::default(),
    };
    let has_number = length > 0 || is_first || flags.contains(Flags::FIN) || flags.contains(Flags::RST);
    if has_number || walk.options.verbose {
        let sequence = view.sequence().wrapping_sub(origin.sequence);
        walk.text.str(", seq ");
        walk.text.dec(sequence);
        if length > 0 {
            walk.text.str(":");
            walk.text.dec(sequence.wrapping_add(length));
        }
    }
    if flags.contains(Flags::ACK) {
        walk.text.str(", ack ");
        walk.text.dec(view.acknowledgement().wrapping_sub(origin.acknowledgement));
    }
    origin
}

/// Writes all options, including padding; SACK blocks are relative to `first`.
fn options(text: &mut Text<'_>, mut bytes: &[u8], first: u32) {
    let mut separator = "";
    while let Some(&kind) = bytes.first() {
        text.str(separator);
        separator = ",";
        if kind <= NO_OPERATION {
            text.str(if kind == NO_OPERATION { "nop" } else { "eol" });
            bytes = &bytes[1..];
            if kind < NO_OPERATION {
                return;
            }
            continue;
        }
        let length = bytes.get(1).copied().map_or(0, usize::from);
        let Some(one) = bytes.get(..length).filter(|_| length >= 2) else { return text.str("bad opt") };
        bytes = &bytes[length..];
        match Iter::over(options::Iter::over(one)).next() {
            Some(Ok(option)) => write_option(text, option, first),
            _ => text.str("bad opt"),
        }
    }
}

fn write_option(text: &mut Text<'_>, option: TcpOption<'_>, first: u32) {
    match option {
        TcpOption::MaximumSegmentSize(size) => {
            text.str("mss ");
            text.dec(size);
        }
        TcpOption::WindowScale(shift) => {
            text.str("wscale ");
            text.dec(shift);
        }
        TcpOption::SackPermitted => text.str("sackOK"),
        TcpOption::Sack(blocks) => {
            text.str("sack ");
            text.dec(blocks.iter().len() as u64);
            text.str(" ");
            for (from, to) in blocks.iter() {
                text.str("{");
                text.dec(from.wrapping_sub(first));
                text.str(":");
                text.dec(to.wrapping_sub(first));
                text.str("}");
            }
        }
        TcpOption::Timestamps { value, echo } => {
            text.str("TS val ");
            text.dec(value);
            text.str(" ecr ");
            text.dec(echo);
        }
        TcpOption::Unknown { kind, data } => {
            match kind {
                MD5 => text.str("md5 "),
                USER_TIMEOUT => text.str("uto "),
                AUTHENTICATION => text.str("tcp-ao "),
                MULTIPATH => text.str("mptcp "),
                FAST_OPEN => text.str("tfo "),
                _ => put!(text, "unknown-{kind} "),
            }
            text.str("0x");
            text.hex(data);
        }
    }
}
