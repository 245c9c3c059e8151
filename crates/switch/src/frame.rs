//! A frame while it is changed: its bytes are copied to memory of the switch by the first change.

use crate::key::{ICMPV6, ParsedFrame, TCP, TYPE_IPV4, TYPE_IPV6, TYPE_VLAN, UDP};
use linerate_headers::checksum::update_bytes;

/// Room for added tags.
const HEADROOM: usize = 64;

/// Memory for changed frames, reused for one after the other.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    bytes: Vec<u8>,
}

/// Frame, changed or not.
pub(crate) struct Frame<'a> {
    original: &'a [u8],
    /// True if the original is the frame as received.
    is_first: bool,
    scratch: &'a mut Scratch,
    /// Offset of the frame in the memory of the switch, once copied.
    start: Option<usize>,
    /// Distance by which headers have moved from their original offsets.
    moved: isize,
    /// Fields as parsed, kept up to date with changes.
    pub parsed: ParsedFrame,
    /// Number of known outer tags. A received frame may have further tags, which are not parsed.
    tags: usize,
}

impl<'a> Frame<'a> {
    pub(crate) fn new(original: &'a [u8], parsed: ParsedFrame, scratch: &'a mut Scratch) -> Self {
        let tags = usize::from(parsed.key.vlan_tci() != 0);
        Frame { original, is_first: true, scratch, start: None, moved: 0, parsed, tags }
    }

    /// Returns the frame in its current state, to be changed separately.
    pub(crate) fn again<'b>(&'b self, scratch: &'b mut Scratch) -> Frame<'b> {
        let (original, _) = self.bytes();
        let ParsedFrame { l3, l4, end, .. } = self.parsed;
        let now = |at: u32| if at == 0 { 0 } else { self.now(at) as u32 };
        let parsed = ParsedFrame { l3: now(l3), l4: now(l4), end: now(end), ..self.parsed };
        Frame { original, is_first: false, scratch, start: None, moved: 0, parsed, tags: self.tags }
    }

    /// Returns whether it was received with a tag.
    pub(crate) fn had_tag(&self) -> bool {
        self.parsed.key.vlan_tci() != 0
    }

    /// Returns its bytes, and whether they are those received.
    #[inline]
    pub(crate) fn bytes(&self) -> (&[u8], bool) {
        match self.start {
            Some(start) => (&self.scratch.bytes[start..], false),
            None => (self.original, self.is_first),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let start = *self.start.get_or_insert_with(|| {
            self.scratch.bytes.clear();
            self.scratch.bytes.resize(HEADROOM, 0);
            self.scratch.bytes.extend_from_slice(self.original);
            HEADROOM
        });
        &mut self.scratch.bytes[start..]
    }

    /// Returns priority and VLAN of the outer tag; `None` without a known tag.
    pub(crate) fn tag(&self) -> Option<(u8, u16)> {
        let (bytes, _) = self.bytes();
        let tci = u16::from_be_bytes([*bytes.get(14)?, *bytes.get(15)?]);
        (self.tags > 0).then_some(((tci >> 13) as u8, tci & 0xfff))
    }

    pub(crate) fn set_source(&mut self, mac: u64) {
        self.bytes_mut()[6..12].copy_from_slice(&mac.to_be_bytes()[2..]);
    }

    pub(crate) fn set_destination(&mut self, mac: u64) {
        self.bytes_mut()[..6].copy_from_slice(&mac.to_be_bytes()[2..]);
    }

    /// Sets the contents of the outer tag, which must exist.
    fn write_tag(&mut self, priority: u8, vlan: u16) {
        if self.tag() != Some((priority, vlan)) {
            let tci = u16::from(priority) << 13 | vlan;
            self.bytes_mut()[14..16].copy_from_slice(&tci.to_be_bytes());
        }
    }

    pub(crate) fn set_vlan(&mut self, vlan: u16) {
        match self.tag() {
            Some((priority, _)) => self.write_tag(priority, vlan),
            None => self.push_tag(TYPE_VLAN, 0, vlan),
        }
    }

    pub(crate) fn set_priority(&mut self, priority: u8) {
        match self.tag() {
            Some((_, vlan)) => self.write_tag(priority, vlan),
            None => self.push_tag(TYPE_VLAN, priority, 0),
        }
    }

    /// Removes the outer tag, if any.
    pub(crate) fn strip(&mut self) {
        if self.tags == 0 {
            return;
        }
        self.bytes_mut().copy_within(..12, 4);
        self.start = self.start.map(|start| start + 4);
        self.moved -= 4;
        self.tags -= 1;
    }

    /// Adds a tag, unless the headroom is used up.
    pub(crate) fn push_tag(&mut self, kind: u16, priority: u8, vlan: u16) {
        self.bytes_mut();
        let Some(start) = self.start.and_then(|start| start.checked_sub(4)) else { return };
        self.start = Some(start);
        let bytes = &mut self.scratch.bytes[start..];
        bytes.copy_within(4..16, 0);
        bytes[12..14].copy_from_slice(&kind.to_be_bytes());
        bytes[14..16].copy_from_slice(&(u16::from(priority) << 13 | vlan).to_be_bytes());
        self.moved += 4;
        self.tags += 1;
    }

    /// Returns the current offset of the network header, if it has this type.
    fn network(&self, dl_type: u16) -> Option<usize> {
        (self.parsed.l3 > 0 && self.parsed.key.dl_type() == dl_type).then(|| self.now(self.parsed.l3))
    }

    fn now(&self, at: u32) -> usize {
        (at as isize + self.moved) as usize
    }

    /// Changes bytes of an IPv4 header, and updates its checksum.
    fn set_v4(&mut self, from: usize, new: &[u8]) -> Option<[u8; 4]> {
        let at = self.network(TYPE_IPV4)?;
        // From an even offset on, as the checksum counts.
        let even = from & !1;
        let length = (from - even + new.len()).next_multiple_of(2);
        let mut words = [0; 4];
        words[..length].copy_from_slice(&self.bytes().0[at + even..at + even + length]);
        let old = words;
        words[from - even..from - even + new.len()].copy_from_slice(new);
        if old == words {
            return None;
        }
        let bytes = self.bytes_mut();
        bytes[at + even..at + even + length].copy_from_slice(&words[..length]);
        renew(&mut bytes[at + 10..at + 12], &old[..length], &words[..length]);
        Some(old)
    }

    /// Changes the address at this offset of an IPv4 header.
    pub(crate) fn set_v4_address(&mut self, from: usize, address: u32) {
        let new = address.to_be_bytes();
        if let Some(old) = self.set_v4(from, &new) {
            self.renew_transport(&old, &new);
        }
    }

    /// Changes the address at this offset of an IPv6 header; `is_covered` is true if the transport's checksum covers
    /// it.
    pub(crate) fn set_v6_address(&mut self, from: usize, address: u128, is_covered: bool) {
        let Some(at) = self.network(TYPE_IPV6) else { return };
        let new = address.to_be_bytes();
        let mut old = [0; 16];
        old.copy_from_slice(&self.bytes().0[at + from..at + from + 16]);
        if old == new {
            return;
        }
        self.bytes_mut()[at + from..at + from + 16].copy_from_slice(&new);
        if is_covered {
            self.renew_transport(&old, &new);
        }
    }

    /// Changes the bits of `mask` in the type of service, or traffic class.
    pub(crate) fn set_tos(&mut self, value: u8, mask: u8) {
        if let Some(at) = self.network(TYPE_IPV4) {
            let tos = self.bytes().0[at + 1] & !mask | value & mask;
            self.set_v4(1, &[tos]);
        } else if let Some(at) = self.network(TYPE_IPV6) {
            let bytes = self.bytes().0;
            let class = bytes[at] << 4 | bytes[at + 1] >> 4;
            let class = class & !mask | value & mask;
            let (high, low) = (bytes[at] & 0xf0 | class >> 4, bytes[at + 1] & 0x0f | class << 4);
            self.bytes_mut()[at..at + 2].copy_from_slice(&[high, low]);
        }
    }

    /// Returns the time to live, or hop limit.
    pub(crate) fn ttl(&self) -> Option<u8> {
        let at = self.network(TYPE_IPV4).map(|at| at + 8).or(self.network(TYPE_IPV6).map(|at| at + 7))?;
        Some(self.bytes().0[at])
    }

    pub(crate) fn set_ttl(&mut self, ttl: u8) {
        if self.network(TYPE_IPV4).is_some() {
            self.set_v4(8, &[ttl]);
        } else if let Some(at) = self.network(TYPE_IPV6) {
            self.bytes_mut()[at + 7] = ttl;
        }
    }

    /// Changes the port of TCP or UDP at this offset of the header.
    pub(crate) fn set_port(&mut self, from: usize, port: u16) {
        let ParsedFrame { l4, key, .. } = &self.parsed;
        if *l4 == 0 || !matches!(key.nw_proto(), TCP | UDP) {
            return;
        }
        let at = self.now(*l4) + from;
        let (old, new) = ([self.bytes().0[at], self.bytes().0[at + 1]], port.to_be_bytes());
        if old != new {
            self.bytes_mut()[at..at + 2].copy_from_slice(&new);
            self.renew_transport(&old, &new);
        }
    }

    /// Updates the checksum of the transport header after a change of covered bytes. Later fragments have none, and in
    /// UDP it is optional (RFC 768).
    fn renew_transport(&mut self, old: &[u8], new: &[u8]) {
        let ParsedFrame { l4, key, .. } = self.parsed;
        if l4 == 0 {
            return;
        }
        let place = match key.nw_proto() {
            TCP => 16,
            UDP => 6,
            ICMPV6 if key.dl_type() == TYPE_IPV6 => 2,
            _ => return,
        };
        let (at, is_udp) = (self.now(l4) + place, key.nw_proto() == UDP);
        let sum = &mut self.bytes_mut()[at..at + 2];
        if is_udp && sum == [0, 0] {
            return;
        }
        renew(sum, old, new);
        if is_udp && sum == [0, 0] {
            sum.fill(0xff);
        }
    }
}

/// Updates a checksum after a change of covered bytes.
fn renew(sum: &mut [u8], old: &[u8], new: &[u8]) {
    let was = u16::from_be_bytes([sum[0], sum[1]]);
    sum.copy_from_slice(&update_bytes(was, old, new).to_be_bytes());
}
