//! Streams without a trailer: known by their length and what is constant in them.

use crate::trailer::Tail;
use linerate_wire::{Layers, Link, Protocol, dissect};
use std::collections::{HashMap, HashSet};

/// What frames of a stream without a trailer have in common, from the IP header on (behind the MAC addresses where there
/// is no IP): addresses and tags of a router's making do not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    /// Those bytes; as long as the packet.
    bytes: Vec<u8>,
    /// The bits of them that count.
    mask: Vec<u8>,
}

impl Matcher {
    /// From one frame of the stream and the parts of it that `change`: first byte and end of each. Hop counts and checksums of
    /// the outermost packet never count.
    pub fn new(frame: &[u8], change: &[(usize, usize)]) -> Self {
        let mut layers = Layers::new();
        let tail = Tail::of(Link::Ethernet, frame, &mut layers);
        let mut mask = vec![0xff; frame.len()];
        let mut ignore = |first: usize, end: usize| {
            if let Some(part) = mask.get_mut(first..end) {
                part.fill(0);
            }
        };
        change.iter().for_each(|(first, end)| ignore(*first, *end));
        if let Some(packet) = tail.packet {
            match frame[packet] >> 4 {
                4 => (ignore(packet + 8, packet + 9), ignore(packet + 10, packet + 12)),
                _ => (ignore(packet + 7, packet + 8), ()),
            };
        }
        dissect(Link::Ethernet, frame, &mut layers);
        if let Some(transport) = layers.transport() {
            let field = transport.offset as usize + checksum_offset(transport.protocol);
            ignore(field, field + 2);
        }
        let (first, end) = part(frame, &tail);
        Matcher { bytes: frame[first..end].to_vec(), mask: mask[first..end].to_vec() }
    }

    fn matches(&self, bytes: &[u8]) -> bool {
        let differ = |((one, other), mask): ((&u8, &u8), &u8)| (one ^ other) & mask;
        bytes.iter().zip(&self.bytes).zip(&self.mask).map(differ).fold(0, |sum, byte| sum | byte) == 0
    }
}

/// The field of a transport header; of one without, that of UDP.
fn checksum_offset(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Tcp => 16,
        Protocol::Icmp | Protocol::Icmpv6 => 2,
        _ => 6,
    }
}

/// Bytes of the two MAC addresses.
const ADDRESSES: usize = 12;

/// What is compared of a frame.
fn part(frame: &[u8], tail: &Tail) -> (usize, usize) {
    let end = tail.end.min(frame.len());
    (tail.packet.unwrap_or(ADDRESSES).min(end), end)
}

/// Matchers of several streams.
#[derive(Clone, Debug, Default)]
pub(super) struct Matchers {
    /// By length, with the stream.
    by_length: HashMap<usize, Vec<(u32, Matcher)>>,
}

impl Matchers {
    /// Frames that `matcher` fits belong to stream `id`, unless they fit an earlier one.
    pub(super) fn add(&mut self, id: u32, matcher: Matcher) {
        self.by_length.entry(matcher.bytes.len()).or_default().push((id, matcher));
    }

    /// Takes away those of these streams.
    pub(super) fn remove(&mut self, ids: &HashSet<u32>) {
        self.by_length.values_mut().for_each(|rows| rows.retain(|(id, _)| !ids.contains(id)));
        self.by_length.retain(|_, rows| !rows.is_empty());
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.by_length.is_empty()
    }

    /// The stream that a frame belongs to.
    pub(super) fn find(&self, frame: &[u8], tail: &Tail) -> Option<u32> {
        let (first, end) = part(frame, tail);
        let rows = self.by_length.get(&(end - first))?;
        rows.iter().find(|(_, matcher)| matcher.matches(&frame[first..end])).map(|(id, _)| *id)
    }
}
