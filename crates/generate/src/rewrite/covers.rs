//! Checksums of a frame, and updates of the bytes they cover.
//!
//! A change is added to every checksum that covers it (RFC 1624), from the inside out: a checksum in a tunnel is itself
//! covered by those outside. So right checksums stay right, wrong ones stay wrong by the same difference, and only the
//! changed bytes need to be present: of a cut frame or a first fragment the header is enough.

use linerate_headers::{
    Crc32c, Layer, Layers, Protocol, Sum, checksum, gre, ipv4, ipv6, ipv6_extension, ipv6_fragment, registry, udp,
};
use std::ops::Range;

/// Checksums of one frame, outermost first. Reused for all frames.
#[derive(Clone, Debug, Default)]
pub(super) struct FrameChecksums {
    covers: Vec<FrameChecksum>,
}

/// Checksum: its position and its ranges in the frame.
#[derive(Clone, Debug)]
struct FrameChecksum {
    field: usize,
    kind: SumAlgorithm,
    bytes: Range<usize>,
    /// Addresses of the pseudo-header.
    addresses: [Range<usize>; 2],
    /// Protocol in the pseudo-header; `None` without a pseudo-header.
    protocol: Option<u8>,
    /// Length of the message in the pseudo-header.
    length: u32,
    /// True if the frame contains everything it covers.
    whole: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SumAlgorithm {
    Internet,
    /// Zero would mean no checksum (RFC 768).
    NeverZero,
    Crc32c,
}

/// Properties of an IP packet that its inner checksums depend on.
#[derive(Clone, Debug, Default)]
struct Packet {
    addresses: [Range<usize>; 2],
    end: usize,
    whole: bool,
}

impl FrameChecksums {
    /// Finds the checksums of a frame with these headers; `is_cut` is true if bytes are missing at its end.
    pub(super) fn find(&mut self, frame: &[u8], layers: &Layers, is_cut: bool) {
        self.covers.clear();
        let mut packet = Packet { end: frame.len(), whole: !is_cut, ..Packet::default() };
        for layer in layers.as_slice() {
            self.look_at(frame, layer, &mut packet);
        }
    }

    /// Adds the checksums of a packet that is quoted in the frame and may be incomplete.
    pub(super) fn find_quoted(&mut self, frame: &[u8], layers: &[Layer], quote: Range<usize>) {
        let (before, mut packet) = (self.covers.len(), Packet { end: quote.end, ..Packet::default() });
        layers.iter().for_each(|layer| self.look_at(frame, layer, &mut packet));
        let mut place = 0;
        self.covers.retain(|cover| {
            place += 1;
            place <= before || cover.field + 2 <= cover.bytes.end
        });
    }

    fn look_at(&mut self, frame: &[u8], layer: &Layer, packet: &mut Packet) {
        let start = layer.offset as usize;
        let bytes = frame.get(start..packet.end).unwrap_or_default();
        match layer.protocol {
            Protocol::Ipv4 => {
                self.add(start + 10, SumAlgorithm::Internet, start..layer.end() as usize, None);
                let Ok(view) = ipv4::View::parse(bytes) else {
                    self.covers.iter_mut().last().into_iter().for_each(|cover| cover.whole = false);
                    return;
                };
                let end = start + view.header_len() + view.payload().len();
                let addresses = [start + 12..start + 16, start + 16..start + 20];
                *packet = Packet { addresses, end, whole: packet.whole && !view.is_cut() && !view.is_fragment() };
            }
            Protocol::Ipv6 => {
                let Ok(view) = ipv6::View::parse(bytes) else { return };
                let end = start + ipv6::LEN + view.payload().len();
                let addresses = [start + 8..start + 24, start + 24..start + 40];
                *packet = Packet { addresses, end, whole: packet.whole && !view.is_cut() };
            }
            Protocol::Routing => {
                let view = ipv6_extension::View::parse(Protocol::Routing, bytes);
                // The final destination counts, which is in the routing header.
                if view.is_ok_and(|view| view.segments_left() > 0) {
                    packet.addresses[1] = 0..0;
                    packet.whole = false;
                }
            }
            Protocol::Fragment => {
                let view = ipv6_fragment::View::parse(bytes);
                packet.whole &= view.is_ok_and(|view| !view.more_fragments() && view.fragment_offset() == 0);
            }
            Protocol::Udp => {
                let Ok(view) = udp::View::parse(bytes) else { return };
                packet.whole &= !view.is_cut();
                packet.end = start + udp::LEN + view.payload().len();
                if view.checksum() != 0 {
                    self.add(start + 6, SumAlgorithm::NeverZero, start..packet.end, Some((packet, registry::UDP)));
                }
            }
            Protocol::UdpLite => {
                let coverage = bytes.get(4..6).map_or(0, |field| usize::from(u16::from_be_bytes([field[0], field[1]])));
                let end = if coverage == 0 { packet.end } else { packet.end.min(start + coverage) };
                self.add(start + 6, SumAlgorithm::NeverZero, start..end, Some((packet, registry::UDP_LITE)));
            }
            Protocol::Tcp => {
                self.add(start + 16, SumAlgorithm::Internet, start..packet.end, Some((packet, registry::TCP)));
            }
            Protocol::Icmpv6 => {
                self.add(start + 2, SumAlgorithm::Internet, start..packet.end, Some((packet, registry::ICMPV6)));
            }
            Protocol::Mobility => self.add_header(layer, packet, registry::MOBILITY),
            Protocol::Hip => self.add_header(layer, packet, registry::HIP),
            Protocol::Icmp => self.add_plain(start + 2, start, packet),
            Protocol::Sctp => self.add_plain(start + 8, start, packet),
            Protocol::Gre => {
                let header = gre::View::parse(bytes).map(|view| view.header());
                if matches!(header, Ok(gre::Header::Routing(gre::Routing { checksum: true, .. }))) {
                    self.add_plain(start + 4, start, packet);
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, field: usize, kind: SumAlgorithm, bytes: Range<usize>, pseudo: Option<(&Packet, u8)>) {
        let (addresses, protocol) = match pseudo {
            Some((packet, protocol)) => (packet.addresses.clone(), Some(protocol)),
            None => Default::default(),
        };
        let length = pseudo.map_or(bytes.len(), |(packet, _)| packet.end.saturating_sub(bytes.start)) as u32;
        let whole = pseudo.is_none_or(|(packet, _)| packet.whole);
        self.covers.push(FrameChecksum { field, kind, bytes, addresses, protocol, length, whole });
    }

    /// Adds a checksum after the first four bytes of an extension header, over only this header.
    fn add_header(&mut self, layer: &Layer, packet: &Packet, protocol: u8) {
        let (start, end) = (layer.offset as usize, layer.end() as usize);
        let packet = Packet { end, ..packet.clone() };
        self.add(start + 4, SumAlgorithm::Internet, start..end, Some((&packet, protocol)));
    }

    /// Adds a checksum without a pseudo-header that covers the rest of the packet.
    fn add_plain(&mut self, field: usize, start: usize, packet: &Packet) {
        let kind = if field == start + 8 { SumAlgorithm::Crc32c } else { SumAlgorithm::Internet };
        self.add(field, kind, start..packet.end, None);
        if let Some(cover) = self.covers.last_mut() {
            cover.whole = packet.whole;
        }
    }

    /// Overwrites the bytes at `at`, one field of a header, with `new`, at most 16 bytes. Has no effect beyond the end
    /// of the frame.
    pub(super) fn write(&self, frame: &mut [u8], at: usize, new: &[u8]) {
        let mut old = [0; MOST];
        let (Some(place), Some(old)) = (frame.get_mut(at..at + new.len()), old.get_mut(..new.len())) else { return };
        if place == new {
            return;
        }
        old.copy_from_slice(place);
        let covering = || self.covers.iter().rev().filter(|cover| cover.field != at && cover.covers(at));
        // After the change it is unknown whether the CRC was right.
        let right = covering().find(|cover| cover.kind == SumAlgorithm::Crc32c && cover.is_crc_right(frame));
        let right = right.map(|cover| cover.field);
        frame[at..at + new.len()].copy_from_slice(new);
        for cover in covering() {
            match cover.kind {
                SumAlgorithm::Crc32c if right == Some(cover.field) => {
                    let crc = cover.crc(frame);
                    self.write(frame, cover.field, &crc.to_le_bytes());
                }
                SumAlgorithm::Crc32c => {}
                SumAlgorithm::Internet | SumAlgorithm::NeverZero => {
                    let Some(field) = read(frame, cover.field) else { continue };
                    let sum = cover.updated(field, at, old, new);
                    self.write(frame, cover.field, &sum.to_be_bytes());
                }
            }
        }
    }

    /// Recomputes every checksum, except incomplete ones, and UDP without one.
    pub(super) fn fix(&self, frame: &mut [u8]) {
        let length = frame.len();
        for cover in self.covers.iter().rev().filter(|cover| cover.whole && cover.bytes.end <= length) {
            match cover.kind {
                SumAlgorithm::Crc32c => {
                    let crc = cover.crc(frame);
                    frame[cover.field..cover.field + 4].copy_from_slice(&crc.to_le_bytes());
                }
                SumAlgorithm::Internet | SumAlgorithm::NeverZero => {
                    frame[cover.field..cover.field + 2].fill(0);
                    let sum = cover.sum(frame);
                    frame[cover.field..cover.field + 2].copy_from_slice(&sum.to_be_bytes());
                }
            }
        }
    }
}

/// The longest field: an IPv6 address.
const MOST: usize = 16;

fn read(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..at + 2).map(|field| u16::from_be_bytes([field[0], field[1]]))
}

impl FrameChecksum {
    fn covers(&self, at: usize) -> bool {
        self.bytes.contains(&at) || self.addresses.iter().any(|address| address.contains(&at))
    }

    /// Returns the checksum after a change of the bytes at `at`, the first of which is covered.
    fn updated(&self, field: u16, at: usize, old: &[u8], new: &[u8]) -> u16 {
        // Sums are over words from the beginning of the message.
        let odd = usize::from(self.bytes.contains(&at) && (at - self.bytes.start) % 2 == 1);
        let words = |bytes: &[u8]| {
            let mut words = [0; MOST + 2];
            words[odd..odd + bytes.len()].copy_from_slice(bytes);
            words
        };
        self.on_wire(checksum::update_bytes(field, &words(old), &words(new)))
    }

    /// Returns the checksum of a frame in which its field is zero.
    fn sum(&self, frame: &[u8]) -> u16 {
        let mut sum = Sum::ZERO;
        if let Some(protocol) = self.protocol {
            for address in &self.addresses {
                sum = sum.with(&frame[address.clone()]);
            }
            sum = sum.with(&self.length.to_be_bytes()).with_word(protocol.into());
        }
        self.on_wire(sum.with(&frame[self.bytes.clone()]).checksum())
    }

    fn on_wire(&self, sum: u16) -> u16 {
        if self.kind == SumAlgorithm::NeverZero && sum == 0 { u16::MAX } else { sum }
    }

    fn is_crc_right(&self, frame: &[u8]) -> bool {
        let field = frame.get(self.field..self.field + 4);
        self.whole && field.is_some_and(|field| field == self.crc(frame).to_le_bytes())
    }

    /// Returns the CRC with its own field as zero (RFC 9260 section 6.8).
    fn crc(&self, frame: &[u8]) -> u32 {
        let (front, rest) = (self.bytes.start..self.field, self.field + 4..self.bytes.end);
        let part = |range: Range<usize>| frame.get(range).unwrap_or_default();
        Crc32c::NEW.with(part(front)).with(&[0; 4]).with(part(rest)).value()
    }
}
