//! MPLS label stacks (RFC 3032): one header for any number of labels.

use crate::error::count;
use crate::registry::{NO_NEXT_HEADER, Next, Step};
use crate::{EmitError, Flaw, Malformed, Number, Protocol, ethernet, ipv4, ipv6, lookup, pseudowire};

/// Bytes of one entry of a stack.
pub const ENTRY_LEN: usize = 4;

/// EtherType of a unicast packet, and since RFC 5332 of any packet.
pub const UNICAST: u16 = 0x8847;
/// EtherType of a packet whose label the upstream router assigned (RFC 5332).
pub const MULTICAST: u16 = 0x8848;

/// The largest label.
pub const MAX_LABEL: u32 = 0xf_ffff;

/// The bit that marks the last entry.
pub(crate) const BOTTOM: u8 = 1;

/// A label stack and what it carries.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    stack: &'a [[u8; ENTRY_LEN]],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a stack, which must be complete down to its bottom.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        const SHORT: Malformed = Malformed { protocol: Protocol::Mpls, flaw: Flaw::Short };
        let (entries, _) = bytes.as_chunks::<ENTRY_LEN>();
        let bottom = entries.iter().position(|entry| entry[2] & BOTTOM != 0);
        count(bottom.unwrap_or(entries.len()));
        let bottom = bottom.ok_or(SHORT)?;
        let stack = entries.get(..=bottom).ok_or(SHORT)?;
        let payload = bytes.get(stack.as_flattened().len()..).ok_or(SHORT)?;
        Ok(View { stack, payload })
    }

    /// Returns the length of the stack in bytes.
    pub fn header_len(&self) -> usize {
        self.stack.as_flattened().len()
    }

    /// Returns the entries, outermost first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry> + use<'a> {
        self.stack.iter().map(|[a, b, c, ttl]| Entry {
            label: u32::from_be_bytes([0, *a, *b, *c]) >> 4,
            traffic_class: c >> 1 & 7,
            ttl: *ttl,
        })
    }

    /// Returns the payload after the bottom of the stack.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// One entry of a stack; the bottom-of-stack bit is set when the stack is emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The label, at most [`MAX_LABEL`].
    pub label: u32,
    /// Traffic class (RFC 5462), at most 7.
    pub traffic_class: u8,
    /// Time to live, in hops.
    pub ttl: u8,
}

/// Writes a stack, outermost entry first, to the front of `out`; returns its length.
///
/// ```
/// use linerate_headers::mpls::{self, Entry};
/// let stack = [Entry { label: 16, traffic_class: 0, ttl: 64 }, Entry { label: 17, traffic_class: 5, ttl: 1 }];
/// let mut out = [0; 9];
/// assert_eq!(mpls::emit(&stack, &mut out)?, 8);
/// assert_eq!(out, [0, 1, 0, 64, 0, 1, 0x1b, 1, 0]);
/// assert!(mpls::View::parse(&out)?.entries().eq(stack));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn emit(stack: &[Entry], out: &mut [u8]) -> Result<usize, EmitError> {
    let need = stack.len() * ENTRY_LEN;
    let (places, _) = out.get_mut(..need).ok_or(EmitError::NoRoom { need })?.as_chunks_mut::<ENTRY_LEN>();
    let last = stack.len().checked_sub(1).ok_or(EmitError::Field("a label stack has an entry"))?;
    for (index, (entry, place)) in stack.iter().zip(places).enumerate() {
        if entry.label > MAX_LABEL || entry.traffic_class > 7 {
            return Err(EmitError::Field("a label has 20 bits, a traffic class 3"));
        }
        let bottom = if index == last { BOTTOM } else { 0 };
        let [_, a, b, c] = (entry.label << 4).to_be_bytes();
        *place = [a, b, c | entry.traffic_class << 1 | bottom, entry.ttl];
    }
    Ok(need)
}

/// Returns the protocol after the stack. It is not in the stack: the first four bits select it (RFC 4928, RFC 4385).
/// Ethernet without a control word may begin with those of IP (RFC 8469 section 1), so the header of a packet must be
/// plausible.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    let next = match view.payload.first().map(|byte| byte >> 4) {
        None => Next::End,
        Some(version @ (4 | 6)) => match (is_certain(view.payload), ethernet::is_likely(view.payload)) {
            (Some(true), _) => Next::Number(Number::IpVersion(version)),
            (_, true) => Next::Protocol(Protocol::Ethernet),
            (None, false) => Next::Number(Number::IpVersion(version)),
            (Some(false), false) => Next::End,
        },
        Some(0 | 1) if !pseudowire::is_plain_ethernet(view.payload) => Next::Protocol(Protocol::Pseudowire),
        Some(_) => Next::Protocol(Protocol::Ethernet),
    };
    Ok(Step::new(view.header_len(), view.payload.len(), next))
}

/// Returns whether bytes that begin like an IP packet are one; `None` if undecidable.
fn is_certain(packet: &[u8]) -> Option<bool> {
    if packet[0] >> 4 == 4 {
        let header = packet.get(..ipv4::LEN.max(usize::from(packet[0] & 15) * 4))?;
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        // The header checksum may be left to the interface, the length to segmentation offload.
        let fits = length == 0 || (header.len()..=packet.len()).contains(&length);
        return match ipv4::View::parse(packet).is_ok_and(|view| view.is_checksum_right()) {
            true => Some(true),
            false => {
                if fits && packet[0] & 15 >= 5 {
                    None
                } else {
                    Some(false)
                }
            }
        };
    }
    let view = ipv6::View::parse(packet).ok()?;
    let fits = ipv6::LEN + usize::from(view.payload_len()) <= packet.len();
    let number = view.next_header();
    let is_known = number == NO_NEXT_HEADER || lookup::protocol(Number::IpProtocol(number)).is_some();
    if fits == is_known { Some(fits) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bottom_ends_the_stack() {
        // Labels 3 (implicit null), 100 with traffic class 5, then IPv4.
        let bytes = [0, 0, 0x30, 255, 0, 6, 0x4b, 64, 0x45];
        let view = View::parse(&bytes).unwrap();
        let entries: Vec<_> = view.entries().collect();
        assert_eq!(entries[0], Entry { label: 3, traffic_class: 0, ttl: 255 });
        assert_eq!(entries[1], Entry { label: 100, traffic_class: 5, ttl: 64 });
        assert_eq!((view.header_len(), view.payload()), (8, &[0x45][..]));
        assert_eq!(View::parse(&bytes[..7]).unwrap_err().flaw, Flaw::Short);
    }

    #[test]
    fn first_four_bits_determine_the_payload() {
        let next = |payload: &[u8]| step(&[&[0, 1, 1, 1], payload].concat()).unwrap().next;
        assert_eq!(next(&[]), Next::End);
        assert_eq!(next(&[0x45]), Next::Number(Number::IpVersion(4)));
        assert_eq!(next(&[0x60]), Next::Number(Number::IpVersion(6)));
        assert_eq!(next(&[0x00; 30]), Next::Protocol(Protocol::Pseudowire));
        assert_eq!(next(&[0x10, 0, 0, 0x21]), Next::Protocol(Protocol::Pseudowire));
        assert_eq!(next(&[0xfe; 14]), Next::Protocol(Protocol::Ethernet));
    }

    #[test]
    fn ethernet_resembling_ip_is_distinguished_by_consistency() {
        let next = |payload: &[u8]| step(&[&[0, 1, 1, 1], payload].concat()).unwrap().next;
        let ip = |version| Next::Number(Number::IpVersion(version));
        let mut v4 = vec![0; ipv4::LEN + 30];
        ipv4::Header { source: [10, 0, 8, 0].into(), ..ipv4::Header::new(17) }.emit(30, &mut v4).unwrap();
        let mut v6 = vec![0; ipv6::LEN + 30];
        // Its source has a known EtherType where a frame has it.
        let source = "2001:db8:0:800::1".parse().unwrap();
        ipv6::Header { source, ..ipv6::Header::new(17) }.emit(30, &mut v6).unwrap();
        v6[12..14].copy_from_slice(&[8, 0]);
        assert_eq!((next(&v4), next(&v6)), (ip(4), ip(6)));
        // Cut by the capture, or its checksum left to the interface.
        v6[12..14].fill(0);
        assert_eq!((next(&v4[..24]), next(&v4[..12]), next(&v6[..39])), (ip(4), ip(4), ip(6)));
        v4[10..12].fill(0);
        assert_eq!(next(&v4), ip(4));
        for first in [0x45, 0x46, 0x40, 0x4f, 0x60, 0x6c] {
            let frame = |ether_type: u16| {
                [&[first, 0, 0, 0x26, 0xab, 1, 8, 0, 0x45, 0, 2, 1][..], &ether_type.to_be_bytes(), &v4].concat()
            };
            for known in [0x0800, 0x86dd, 0x0806, 0x8100, v4.len() as u16] {
                let found = next(&frame(known));
                // 38 bytes of IPv6 payload would fit.
                assert!(found == Next::Protocol(Protocol::Ethernet), "{first:#x} {known:#x}: {found:?}");
            }
        }
        // Neither: no record of addresses that there are not.
        let neither = [&[0x45, 0, 0xff, 0xff][..], &[0x99; 40]].concat();
        assert_eq!(next(&neither), Next::End);
        assert_eq!(next(&[&[0x60, 0, 0, 0, 0xff, 0xff, 0xfd][..], &[0x99; 60]].concat()), Next::End);
    }

    #[test]
    fn values_beyond_the_stack_are_rejected() {
        let entry = Entry { label: 1, traffic_class: 0, ttl: 1 };
        assert!(matches!(emit(&[], &mut [0; 4]), Err(EmitError::Field(_))));
        assert!(matches!(emit(&[Entry { label: 1 << 20, ..entry }], &mut [0; 4]), Err(EmitError::Field(_))));
        assert!(matches!(emit(&[Entry { traffic_class: 8, ..entry }], &mut [0; 4]), Err(EmitError::Field(_))));
        assert_eq!(emit(&[entry], &mut [0; 3]), Err(EmitError::NoRoom { need: 4 }));
    }
}
