//! Streams without a trailer: identified by their length and constant bytes.

use crate::trailer::Tail;
use linerate_headers::{Layers, Link, Protocol, dissect};
use std::collections::{HashMap, HashSet};

/// Bytes that the frames of a stream without a trailer have in common, from the IP header on (from after the MAC
/// addresses without IP): addresses and tags that routers rewrite are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    /// Bytes of the whole packet.
    bytes: Vec<u8>,
    /// Bits of them to compare.
    mask: Vec<u8>,
}

impl Matcher {
    /// Creates a matcher from one frame of the stream and the byte ranges (first byte and end) that `change`. Hop
    /// counts and checksums of the outermost packet are never compared.
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

/// Returns the checksum offset in a transport header; without one, that of UDP.
fn checksum_offset(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Tcp => 16,
        Protocol::Icmp | Protocol::Icmpv6 => 2,
        _ => 6,
    }
}

const ADDRESSES: usize = 12;

/// Returns the range of a frame to compare.
fn part(frame: &[u8], tail: &Tail) -> (usize, usize) {
    let end = tail.end.min(frame.len());
    (tail.packet.unwrap_or(ADDRESSES).min(end), end)
}

#[derive(Clone, Debug, Default)]
pub(super) struct Matchers {
    /// Streams and their matchers, by packet length.
    by_length: HashMap<usize, Vec<(u32, Matcher)>>,
}

impl Matchers {
    /// Assigns frames that match `matcher` to stream `id`, unless an earlier matcher matches.
    pub(super) fn add(&mut self, id: u32, matcher: Matcher) {
        self.by_length.entry(matcher.bytes.len()).or_default().push((id, matcher));
    }

    /// Removes the matchers of these streams.
    pub(super) fn remove(&mut self, ids: &HashSet<u32>) {
        self.by_length.values_mut().for_each(|rows| rows.retain(|(id, _)| !ids.contains(id)));
        self.by_length.retain(|_, rows| !rows.is_empty());
    }

    /// Returns whether no stream has a matcher.
    pub(super) fn is_empty(&self) -> bool {
        self.by_length.is_empty()
    }

    /// Returns the stream that a frame belongs to.
    pub(super) fn find(&self, frame: &[u8], tail: &Tail) -> Option<u32> {
        let (first, end) = part(frame, tail);
        let rows = self.by_length.get(&(end - first))?;
        rows.iter().find(|(_, matcher)| matcher.matches(&frame[first..end])).map(|(id, _)| *id)
    }
}
