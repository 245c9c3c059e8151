//! MPLS label stacks (RFC 3032): one header, however many labels.

use crate::error::count;
use crate::registry::{Next, Step};
use crate::{Flaw, Malformed, Number, Protocol, Unfit, pseudowire};

/// Bytes of one entry of a stack.
pub const ENTRY_LEN: usize = 4;

/// EtherType of a packet to one receiver, and since RFC 5332 of any packet.
pub const UNICAST: u16 = 0x8847;
/// EtherType of a packet whose label the sender upstream assigned (RFC 5332).
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
    /// Looks at a stack, which must be there down to its bottom.
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

    /// Bytes of the stack.
    pub fn header_len(&self) -> usize {
        self.stack.as_flattened().len()
    }

    /// The entries, outermost first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry> + use<'a> {
        self.stack.iter().map(|[a, b, c, ttl]| Entry {
            label: u32::from_be_bytes([0, *a, *b, *c]) >> 4,
            traffic_class: c >> 1 & 7,
            ttl: *ttl,
        })
    }

    /// Everything behind the bottom of the stack.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// One entry of a stack; the mark of the last one is made when the stack is emitted.
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
/// use linerate_wire::mpls::{self, Entry};
/// let stack = [Entry { label: 16, traffic_class: 0, ttl: 64 }, Entry { label: 17, traffic_class: 5, ttl: 1 }];
/// let mut out = [0; 9];
/// assert_eq!(mpls::emit(&stack, &mut out)?, 8);
/// assert_eq!(out, [0, 1, 0, 64, 0, 1, 0x1b, 1, 0]);
/// assert!(mpls::View::parse(&out)?.entries().eq(stack));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn emit(stack: &[Entry], out: &mut [u8]) -> Result<usize, Unfit> {
    let need = stack.len() * ENTRY_LEN;
    let (places, _) = out.get_mut(..need).ok_or(Unfit::NoRoom { need })?.as_chunks_mut::<ENTRY_LEN>();
    let last = stack.len().checked_sub(1).ok_or(Unfit::Field("a label stack has an entry"))?;
    for (index, (entry, place)) in stack.iter().zip(places).enumerate() {
        if entry.label > MAX_LABEL || entry.traffic_class > 7 {
            return Err(Unfit::Field("a label has 20 bits, a traffic class 3"));
        }
        let bottom = if index == last { BOTTOM } else { 0 };
        let [_, a, b, c] = (entry.label << 4).to_be_bytes();
        *place = [a, b, c | entry.traffic_class << 1 | bottom, entry.ttl];
    }
    Ok(need)
}

/// What follows the stack. Nothing in it says so: the first four bits do (RFC 4928, RFC 4385).
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    let next = match view.payload.first().map(|byte| byte >> 4) {
        None => Next::End,
        Some(version @ (4 | 6)) => Next::Number(Number::IpVersion(version)),
        Some(0 | 1) if !pseudowire::is_plain_ethernet(view.payload) => Next::Protocol(Protocol::Pseudowire),
        Some(_) => Next::Protocol(Protocol::Ethernet),
    };
    Ok(Step::new(view.header_len(), view.payload.len(), next))
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
    fn the_first_four_bits_say_what_follows() {
        let next = |payload: &[u8]| step(&[&[0, 1, 1, 1], payload].concat()).unwrap().next;
        assert_eq!(next(&[]), Next::End);
        assert_eq!(next(&[0x45]), Next::Number(Number::IpVersion(4)));
        assert_eq!(next(&[0x60]), Next::Number(Number::IpVersion(6)));
        assert_eq!(next(&[0x00; 30]), Next::Protocol(Protocol::Pseudowire));
        assert_eq!(next(&[0x10, 0, 0, 0x21]), Next::Protocol(Protocol::Pseudowire));
        assert_eq!(next(&[0xfe; 14]), Next::Protocol(Protocol::Ethernet));
    }

    #[test]
    fn what_a_stack_cannot_hold_is_refused() {
        let entry = Entry { label: 1, traffic_class: 0, ttl: 1 };
        assert!(matches!(emit(&[], &mut [0; 4]), Err(Unfit::Field(_))));
        assert!(matches!(emit(&[Entry { label: 1 << 20, ..entry }], &mut [0; 4]), Err(Unfit::Field(_))));
        assert!(matches!(emit(&[Entry { traffic_class: 8, ..entry }], &mut [0; 4]), Err(Unfit::Field(_))));
        assert_eq!(emit(&[entry], &mut [0; 3]), Err(Unfit::NoRoom { need: 4 }));
    }
}
