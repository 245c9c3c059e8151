//! The known state at a position of a program: the fields in the registers, and the fields compared before.

use crate::entry::Query;
use crate::layout::SetKind;
use crate::link::{ARP_TYPES, IPV4, IPV6, Link, MOST_TAGS, VLAN_TYPES, WITH_PORTS};
use linerate_filter::interpret::{Jump, Op, Test};

/// A position in a program, with the known state. Equal states continue identically.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub at: u16,
    pub a: Value,
    x: Value,
    frame: KnownFields,
}

/// Contents of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Value {
    /// Anything.
    Any,
    /// This number.
    Known(u32),
    /// These bits of a field, with a value in a range.
    Field { field: Field, mask: u32, least: u32, greatest: u32 },
    /// Length of the IPv4 header at that offset.
    HeaderLength(usize),
}

/// A field of a frame that an index has a set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Field {
    /// After this many VLAN tags.
    EtherType(usize),
    /// VLAN tag: its upper bits are not in a set.
    Tag,
    /// The first byte of an IP packet without a link header.
    Version,
    Protocol,
    Port,
    Ipv4,
    /// Word of the source (0) or destination (1) address.
    Ipv6(usize, usize),
}

/// Known fields of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct KnownFields {
    link: Link,
    /// EtherTypes, as far as they are known.
    ethertypes: [Option<u16>; MOST_TAGS + 1],
    has_ports: bool,
    ipv6: [[Option<u32>; 4]; 2],
}

impl State {
    /// Returns the state before a program.
    pub(super) fn new(link: Link) -> Self {
        let frame = KnownFields { link, ethertypes: [None; MOST_TAGS + 1], has_ports: false, ipv6: [[None; 4]; 2] };
        // Registers start at 0.
        State { at: 0, a: Value::Known(0), x: Value::Known(0), frame }
    }

    /// Executes an instruction without a branch.
    pub(super) fn step(&mut self, op: Op) {
        let frame = &self.frame;
        match op {
            Op::LdWord(k) => self.a = frame.word(k as usize),
            Op::LdHalf(k) => self.a = frame.half(k as usize),
            Op::LdByte(k) => self.a = frame.byte(k as usize),
            Op::LdHalfInd(k) => self.a = frame.half_after(self.x, k as usize),
            Op::LdImm(k) => self.a = Value::Known(k),
            Op::LdxImm(k) => self.x = Value::Known(k),
            Op::LdxMsh(k) => self.x = Value::HeaderLength(k as usize),
            Op::LdxLen | Op::LdxMem(_) => self.x = Value::Any,
            Op::Tax => self.x = self.a,
            Op::Txa => self.a = self.x,
            Op::St(_) | Op::Stx(_) => {}
            Op::AndK(k) => self.a = self.a.masked(k),
            // Loads of fields without a set, and arithmetic.
            _ => self.a = Value::Any,
        }
    }

    /// Returns the continuations of a comparison, with the condition on a frame for each.
    pub(super) fn ways(&self, op: Op, jump: Jump) -> Vec<(Option<Query>, State)> {
        let to = |at: u16| State { at, ..self.clone() };
        let (Op::JumpK(test, k, _), Value::Field { field, mask, least, greatest }) = (op, self.a) else {
            return vec![(None, to(jump.yes)), (None, to(jump.no))];
        };
        let (yes, no) = match test {
            Test::Equal => {
                // Only a range of one number can exclude that number.
                let others = if least == greatest && least == k { None } else { Some((least, greatest)) };
                (Some((least.max(k), greatest.min(k))), others)
            }
            Test::Greater => (k.checked_add(1).map(|k| (least.max(k), greatest)), Some((least, greatest.min(k)))),
            Test::GreaterEqual => (Some((least.max(k), greatest)), k.checked_sub(1).map(|k| (least, greatest.min(k)))),
            Test::AnyBit => (Some((least, greatest)), Some((least, greatest))),
        };
        let ways = [(yes, jump.yes), (no, jump.no)].into_iter();
        ways.filter_map(|(range, at)| range.filter(|(least, greatest)| least <= greatest).map(|range| (range, at)))
            .map(|((least, greatest), at)| {
                let mut next = to(at);
                next.a = Value::Field { field, mask, least, greatest };
                let is_new = next.a != self.a;
                let query = if is_new { next.frame.learn(field, mask, least, greatest) } else { None };
                (query, next)
            })
            .collect()
    }
}

impl Value {
    /// Returns all of a field.
    fn of(field: Field) -> Self {
        let mask = field.mask();
        Value::Field { field, mask, least: 0, greatest: mask }
    }

    /// Returns some bits of it.
    fn masked(self, bits: u32) -> Self {
        match self {
            Value::Known(value) => Value::Known(value & bits),
            Value::Field { field, mask, least: 0, greatest } if greatest == mask => {
                Value::Field { field, mask: mask & bits, least: 0, greatest: mask & bits }
            }
            _ => Value::Any,
        }
    }
}

impl Field {
    /// Returns its bits.
    fn mask(self) -> u32 {
        match self {
            Field::Version | Field::Protocol => 0xff,
            Field::EtherType(_) | Field::Tag | Field::Port => 0xffff,
            Field::Ipv4 | Field::Ipv6(..) => u32::MAX,
        }
    }
}

impl KnownFields {
    /// Returns the packet that the frame is known to hold: its EtherType, and its offset.
    fn packet(&self) -> Option<(u16, usize)> {
        let first = match self.link {
            Link::Ip => return self.ethertypes[0].map(|ethertype| (ethertype, 0)),
            Link::EtherType(at) => at,
        };
        for (tags, ethertype) in self.ethertypes.iter().enumerate() {
            let ethertype = (*ethertype)?;
            if !VLAN_TYPES.contains(&ethertype) {
                return Some((ethertype, first + 4 * tags + 2));
            }
        }
        None
    }

    fn half(&self, at: usize) -> Value {
        if let Link::EtherType(first) = self.link {
            for tags in 0..=MOST_TAGS {
                if at == first + 4 * tags {
                    return Value::of(Field::EtherType(tags));
                }
                // The layout after it is known only for a tag.
                if !self.ethertypes[tags].is_some_and(|ethertype| VLAN_TYPES.contains(&ethertype)) {
                    break;
                }
                if at == first + 4 * tags + 2 {
                    return Value::of(Field::Tag);
                }
            }
        }
        match self.packet() {
            Some((IPV6, start)) if self.has_ports && (at == start + 40 || at == start + 42) => Value::of(Field::Port),
            _ => Value::Any,
        }
    }

    fn byte(&self, at: usize) -> Value {
        match self.packet() {
            Some((IPV4, start)) if at == start + 9 => Value::of(Field::Protocol),
            Some((IPV6, start)) if at == start + 6 => Value::of(Field::Protocol),
            _ if self.link == Link::Ip && at == 0 => Value::of(Field::Version),
            _ => Value::Any,
        }
    }

    fn word(&self, at: usize) -> Value {
        match self.packet() {
            Some((IPV4, start)) if at == start + 12 || at == start + 16 => Value::of(Field::Ipv4),
            Some((ethertype, start)) if ARP_TYPES.contains(&ethertype) && (at == start + 14 || at == start + 24) => {
                Value::of(Field::Ipv4)
            }
            Some((IPV6, start)) if (start + 8..start + 40).contains(&at) && (at - start).is_multiple_of(4) => {
                let word = (at - start - 8) / 4;
                Value::of(Field::Ipv6(word / 4, word % 4))
            }
            _ => Value::Any,
        }
    }

    /// Returns two bytes after an IPv4 header.
    fn half_after(&self, x: Value, k: usize) -> Value {
        match (self.packet(), x) {
            (Some((IPV4, start)), Value::HeaderLength(of))
                if self.has_ports && of == start && (k == start || k == start + 2) =>
            {
                Value::of(Field::Port)
            }
            _ => Value::Any,
        }
    }

    /// Records the value of a field; returns the query for an index.
    fn learn(&mut self, field: Field, mask: u32, least: u32, greatest: u32) -> Option<Query> {
        let is_known = mask == field.mask() && least == greatest;
        let query = |kind| Some(Query::Value { kind, mask, least, greatest });
        match field {
            Field::EtherType(tags) => {
                if is_known {
                    self.ethertypes[tags] = u16::try_from(least).ok();
                }
                query(SetKind::EtherTypes)
            }
            Field::Tag => query(SetKind::Vlans).filter(|_| mask & !0xfff == 0),
            Field::Version => {
                let ethertype = match (mask, least, greatest) {
                    (0xf0, 0x40, 0x40) => IPV4,
                    (0xf0, 0x60, 0x60) => IPV6,
                    _ => return None,
                };
                self.ethertypes[0] = Some(ethertype);
                let ethertype = u32::from(ethertype);
                Some(Query::Value { kind: SetKind::EtherTypes, mask: 0xffff, least: ethertype, greatest: ethertype })
            }
            Field::Protocol => {
                self.has_ports |= is_known && WITH_PORTS.iter().any(|protocol| u32::from(*protocol) == least);
                query(SetKind::Protocols)
            }
            Field::Port => query(SetKind::Ports),
            Field::Ipv4 => query(SetKind::Ipv4),
            Field::Ipv6(side, word) if is_known => {
                self.ipv6[side][word] = Some(least);
                Some(Query::Ipv6(self.ipv6[side]))
            }
            Field::Ipv6(..) => None,
        }
    }
}
