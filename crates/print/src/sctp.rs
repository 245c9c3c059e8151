//! SCTP and its chunks.

use crate::ip;
use crate::read::{part, u16_at, u32_at};
use crate::text::{Text, put};
use crate::walk::LinePrinter;
use linerate_headers::{Layer, sctp};

/// Chunk types (RFC 9260, 3758, 4895, 5061), from 0.
const KINDS: [&str; 16] = [
    "DATA",
    "INIT",
    "INIT ACK",
    "SACK",
    "HB REQ",
    "HB ACK",
    "ABORT",
    "SHUTDOWN",
    "SHUTDOWN ACK",
    "OP ERR",
    "COOKIE ECHO",
    "COOKIE ACK",
    "ECN ECHO",
    "CWR",
    "SHUTDOWN COMPLETE",
    "AUTH",
];
const OTHERS: [(u8, &str); 5] =
    [(0x40, "I-DATA"), (0x80, "ASCONF-ACK"), (0x82, "RE-CONFIG"), (0xc0, "FORWARD TSN"), (0xc1, "ASCONF")];

pub(crate) fn write(walk: &mut LinePrinter<'_, '_>, layer: &Layer) {
    let Ok(view) = sctp::View::parse(walk.from(layer)) else { return };
    ip::late_ports(walk, view.source_port(), view.destination_port());
    walk.text.str("sctp");
    if walk.options.verifies() && walk.is_whole(layer.offset as usize) && !view.is_checksum_right() {
        walk.text.str(" [bad cksum]");
    }
    for (place, chunk) in view.chunks().enumerate() {
        if walk.text.is_full() {
            return;
        }
        walk.text.str(if place > 0 { ", (" } else { " (" });
        walk.text.dec(place as u64 + 1);
        walk.text.str(") [");
        let Ok(one) = chunk else {
            walk.text.str("|chunk]");
            return;
        };
        let other = || OTHERS.iter().find(|row| row.0 == one.kind).map(|row| row.1);
        match KINDS.get(usize::from(one.kind)).copied().or_else(other) {
            Some(name) => walk.text.str(name),
            None => put!(walk.text, "chunk {}", one.kind),
        }
        walk.text.str("]");
        if !walk.options.brief {
            fields(&mut walk.text, one);
        }
    }
}

fn fields(text: &mut Text<'_>, chunk: sctp::Chunk<'_>) -> Option<()> {
    let value = chunk.value;
    match chunk.kind {
        sctp::DATA => {
            let [unordered, begin, end] = [4, 2, 1].map(|flag| chunk.flags & flag != 0);
            text.str(if unordered || begin || end { " " } else { "" });
            text.str(if unordered { "(U)" } else { "" });
            text.str(if begin { "(B)" } else { "" });
            text.str(if end { "(E)" } else { "" });
            put!(text, " [TSN: {}] [SID: {}] ", u32_at(value, 0)?, u16_at(value, 4)?);
            put!(text, "[SSEQ {}] [PPID {:#x}]", u16_at(value, 6)?, u32_at(value, 8)?);
        }
        sctp::INIT | 2 => {
            put!(text, " [init tag: {}] [rwnd: {}]", u32_at(value, 0)?, u32_at(value, 4)?);
            put!(text, " [OS: {}] [MIS: {}]", u16_at(value, 8)?, u16_at(value, 10)?);
            put!(text, " [init TSN: {}]", u32_at(value, 12)?);
        }
        3 => {
            put!(text, " [cum ack {}] [a_rwnd {}]", u32_at(value, 0)?, u32_at(value, 4)?);
            put!(text, " [#gap acks {}] [#dup tsns {}]", u16_at(value, 8)?, u16_at(value, 10)?);
        }
        7 => put!(text, " [cum ack {}]", part(value, 0).map(u32::from_be_bytes)?),
        _ => {}
    }
    Some(())
}
