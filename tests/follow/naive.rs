//! Naive model of stream reassembly: a map of all bytes, without regard to memory or speed.

use super::Pair;
use linerate_tests::support::records::Record;
use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr};

/// A TCP segment in Ethernet, VLAN tags, and IPv4 or IPv6.
pub(super) struct Segment<'a> {
    pub pair: Pair,
    pub sequence: u32,
    pub acknowledgement: u32,
    pub flags: u8,
    pub payload: &'a [u8],
    /// Bytes of the packet that were not captured.
    pub cut: usize,
    /// End of the packet in the frame, without padding.
    pub end: usize,
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(*bytes.get(at)?) << 8 | usize::from(*bytes.get(at + 1)?))
}

/// Parses a segment; `None` for fragments, tunnels and malformed packets.
pub(super) fn segment(record: &Record) -> Option<Segment<'_>> {
    let frame = &record.bytes[..];
    let mut at = 12;
    while matches!(word(frame, at)?, 0x8100 | 0x88a8 | 0x9100) {
        at += 4;
    }
    let kind = word(frame, at)?;
    let ip = at + 2;
    let (tcp, stated_end, ends) = match (kind, frame.get(ip)? >> 4) {
        (0x0800, 4) => {
            let header = usize::from(frame[ip] & 15) * 4;
            if header < 20 || frame.get(ip + 9)? != &6 || word(frame, ip + 6)? & 0x3fff != 0 {
                return None;
            }
            let address =
                |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(frame.get(at..at + 4)?).ok()?).to_string());
            let total = word(frame, ip + 2)?;
            let stated_end = if total == 0 { frame.len() } else { ip + total };
            (ip + header, stated_end, [address(ip + 12)?, address(ip + 16)?])
        }
        (0x86dd, 6) => {
            let address =
                |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(frame.get(at..at + 16)?).ok()?).to_string());
            let ends = [address(ip + 8)?, address(ip + 24)?];
            if frame[ip + 6] != 6 {
                return None;
            }
            (ip + 40, ip + 40 + word(frame, ip + 4)?, ends)
        }
        _ => return None,
    };
    let head = frame.get(tcp..tcp + 20)?;
    let start = tcp + usize::from(head[12] >> 4) * 4;
    if start < tcp + 20 || start > stated_end {
        return None;
    }
    let end = stated_end.min(frame.len());
    let long = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
    let [src, dst] = ends;
    Some(Segment {
        pair: (src, word(head, 0)? as u16, dst, word(head, 2)? as u16),
        sequence: long(4),
        acknowledgement: long(8),
        flags: head[13],
        payload: frame.get(start..end)?,
        cut: stated_end.min(record.wire as usize).max(end) - end,
        end,
    })
}

#[derive(Default)]
struct Side {
    base: Option<u32>,
    bytes: BTreeMap<i64, u8>,
    highest: i64,
    /// Highest end of the truncated segments, including bytes not captured.
    cut: i64,
    fin: Option<i64>,
}

impl Side {
    fn at(&self, sequence: u32) -> i64 {
        let expected = self.base.unwrap().wrapping_add(self.highest as u32);
        self.highest + i64::from(sequence.wrapping_sub(expected) as i32)
    }
}

/// Streams by direction, with zeros for missing bytes; empty streams are omitted.
pub(super) fn streams(records: &[Record]) -> BTreeMap<Pair, Vec<Vec<u8>>> {
    let mut open: HashMap<Pair, [Side; 2]> = HashMap::new();
    let mut done: BTreeMap<Pair, Vec<Vec<u8>>> = BTreeMap::new();
    for record in records {
        let Some(segment) = segment(record) else { continue };
        let back = (segment.pair.2.clone(), segment.pair.3, segment.pair.0.clone(), segment.pair.1);
        let key = segment.pair.clone().min(back.clone());
        let side = usize::from(key != segment.pair);
        let is_syn = segment.flags & SYN != 0;
        let first = segment.sequence.wrapping_add(u32::from(is_syn));
        if is_syn && open.get(&key).is_some_and(|sides| sides[side].base.is_some_and(|base| base != first)) {
            let sides = open.remove(&key).unwrap();
            end(&key, sides, &mut done);
        }
        if segment.flags & RST != 0 && !open.contains_key(&key) {
            continue;
        }
        let sides = open.entry(key).or_default();
        if is_syn {
            sides[side].base = Some(first);
            if segment.flags & ACK != 0 {
                sides[1 - side].base.get_or_insert(segment.acknowledgement);
            }
        }
        if segment.flags & RST != 0 {
            continue;
        }
        let one = &mut sides[side];
        let length = segment.payload.len() + segment.cut;
        if length > 0 || segment.flags & FIN != 0 {
            one.base.get_or_insert(first);
            let at = one.at(first);
            for (place, byte) in (at..).zip(segment.payload) {
                if place >= 0 && one.fin.is_none_or(|fin| place < fin) {
                    one.bytes.entry(place).or_insert(*byte);
                }
            }
            one.highest = one.highest.max(at + length as i64);
            if segment.cut > 0 {
                one.cut = one.cut.max(at + length as i64);
            }
            if segment.flags & FIN != 0 {
                one.fin.get_or_insert(at + length as i64);
            }
        }
    }
    for (key, sides) in open {
        end(&key, sides, &mut done);
    }
    done
}

fn end(key: &Pair, sides: [Side; 2], done: &mut BTreeMap<Pair, Vec<Vec<u8>>>) {
    let back = (key.2.clone(), key.3, key.0.clone(), key.1);
    for (pair, side) in [key.clone(), back].into_iter().zip(sides) {
        let Some((last, _)) = side.bytes.last_key_value() else { continue };
        let mut bytes = vec![0; (*last + 1).max(side.cut) as usize];
        side.bytes.iter().for_each(|(at, byte)| bytes[*at as usize] = *byte);
        done.entry(pair).or_default().push(bytes);
    }
}
