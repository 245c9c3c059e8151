//! Segments to send: the constant part of a connection's headers is built once.

use super::segment::{Key, MOST_LINK, Segment, pseudo};
use linerate_headers::{Sum, registry};

/// TCP flags.
pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const PSH: u8 = 8;
pub(super) const ACK: u8 = 16;
pub(super) const URG: u8 = 32;

/// Link header, IPv6, TCP with all options.
pub(super) const MOST_FRAME: usize = MOST_LINK + 40 + 60;
/// Minimum Ethernet frame without FCS (IEEE 802.3, clause 3.2.8).
const LEAST_FRAME: usize = 60;
const HOPS: u8 = 64;

#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    bytes: [u8; 40],
    len: usize,
}

impl Options {
    pub(super) const NONE: Options = Options { bytes: [0; 40], len: 0 };

    /// Appends bytes, whose total must be a multiple of 4; an option that does not fit is omitted.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        if let Some(to) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            to.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Variable part of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentFields {
    pub flags: u8,
    pub sequence: u32,
    pub ack: u32,
    pub window: u16,
    pub options: Options,
}

impl SegmentFields {
    /// Builds a RST.
    pub(super) fn reset(sequence: u32, ack: Option<u32>) -> Self {
        let flags = RST | if ack.is_some() { ACK } else { 0 };
        SegmentFields { flags, sequence, ack: ack.unwrap_or(0), window: 0, options: Options::NONE }
    }
}

/// Constant part of the headers of all segments to one peer.
#[derive(Clone, Debug)]
pub(super) struct Template {
    /// Link header, IP header and ports.
    bytes: [u8; MOST_LINK + 44],
    link: u8,
    is_v6: bool,
    /// Sum of the IPv4 header without its length; sum of pseudo-header and ports.
    network: Sum,
    transport: Sum,
}

impl Template {
    /// Returns the template of answers to a segment.
    pub(super) fn back(segment: &Segment<'_>) -> Self {
        let mut template = Template {
            bytes: [0; MOST_LINK + 44],
            link: 0,
            is_v6: segment.key.is_v6(),
            network: Sum::ZERO,
            transport: Sum::ZERO,
        };
        template.go(segment.link, &segment.key);
        template
    }

    /// Returns whether a link header is the reverse of this template's.
    #[inline]
    pub(super) fn is_reverse_of(&self, link: &[u8]) -> bool {
        let own = &self.bytes[..self.link.into()];
        link.len() == own.len()
            && (own.len() < 12 || (own[..6] == link[6..12] && own[6..12] == link[..6] && own[12..] == link[12..]))
    }

    /// Replaces the link header: the peer is now reached by another path.
    pub(super) fn go(&mut self, link: &[u8], key: &Key) {
        let at = link.len();
        self.link = at as u8;
        self.bytes[..at].copy_from_slice(link);
        if at >= 12 {
            self.bytes[..6].copy_from_slice(&link[6..12]);
            self.bytes[6..12].copy_from_slice(&link[..6]);
        }
        let network = &mut self.bytes[at..];
        network.fill(0);
        let ports = if self.is_v6 {
            network[0] = 0x60;
            (network[6], network[7]) = (registry::TCP, HOPS);
            network[8..24].copy_from_slice(&key.to.to_be_bytes());
            network[24..40].copy_from_slice(&key.from.to_be_bytes());
            40
        } else {
            // DF set, so the identification field carries no meaning (RFC 6864).
            (network[0], network[6], network[8], network[9]) = (0x45, 0x40, HOPS, registry::TCP);
            network[12..16].copy_from_slice(&(key.to as u32).to_be_bytes());
            network[16..20].copy_from_slice(&(key.from as u32).to_be_bytes());
            20
        };
        network[ports..ports + 4].copy_from_slice(&key.ports.rotate_right(16).to_be_bytes());
        self.network = Sum::of(&network[..20]);
        self.transport = pseudo(key.to, key.from).sum(registry::TCP, 0).with(&network[ports..ports + 4]);
    }

    /// Writes a frame to the start of `out`. Returns its length.
    pub(super) fn write(&self, said: &SegmentFields, out: &mut [u8; MOST_FRAME]) -> usize {
        let at = usize::from(self.link);
        let network = if self.is_v6 { 40 } else { 20 };
        let tcp = at + network;
        let options = said.options.as_bytes();
        let length = 20 + options.len();
        out[..tcp + 4].copy_from_slice(&self.bytes[..tcp + 4]);
        if self.is_v6 {
            out[at + 4..at + 6].copy_from_slice(&(length as u16).to_be_bytes());
        } else {
            let total = (20 + length) as u16;
            out[at + 2..at + 4].copy_from_slice(&total.to_be_bytes());
            out[at + 10..at + 12].copy_from_slice(&self.network.with_word(total).checksum().to_be_bytes());
        }
        let head = &mut out[tcp..tcp + length];
        head[4..8].copy_from_slice(&said.sequence.to_be_bytes());
        head[8..12].copy_from_slice(&said.ack.to_be_bytes());
        (head[12], head[13]) = ((length as u8 / 4) << 4, said.flags);
        head[14..16].copy_from_slice(&said.window.to_be_bytes());
        head[16..20].fill(0);
        head[20..].copy_from_slice(options);
        let checksum = self.transport.with_word(length as u16).with(&head[4..]).checksum();
        head[16..18].copy_from_slice(&checksum.to_be_bytes());
        let end = tcp + length;
        if at == 0 || end >= LEAST_FRAME {
            return end;
        }
        out[end..LEAST_FRAME].fill(0);
        LEAST_FRAME
    }
}
