//! Fields of a frame that rules can match: 64 bytes, parsed once.
//!
//! ```text
//!  word  63            48 47            32 31            16 15       8 7        0
//!  0     in_port          vlan_tci         dl_type          nw_frag    nw_proto
//!  1     dl_dst                                             nw_tos     nw_ttl
//!  2     dl_src                                             tp_src
//!  3     tp_dst           tcp_flags        0
//!  4, 5  source address (of IPv4 and ARP in the low half of 5)
//!  6, 7  destination address
//! ```
//!
//! ARP has its operation in `nw_proto`, ICMP its type and code in `tp_src` and `tp_dst`, as in Open vSwitch. Missing
//! fields are 0; [`Key::TAGGED`] is set if there is a tag. Only the outer tag is parsed: after it the type is that of
//! the next tag.

/// EtherType of a VLAN tag (IEEE 802.1Q).
pub(crate) const TYPE_VLAN: u16 = 0x8100;
/// EtherType of a service tag (IEEE 802.1ad).
pub(crate) const TYPE_SERVICE: u16 = 0x88a8;
pub(crate) const TYPE_IPV4: u16 = 0x0800;
pub(crate) const TYPE_ARP: u16 = 0x0806;
pub(crate) const TYPE_RARP: u16 = 0x8035;
pub(crate) const TYPE_IPV6: u16 = 0x86dd;
/// Type of an IEEE 802.3 frame without one.
const TYPE_NONE: u16 = 0x05ff;

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const SCTP: u8 = 132;
pub(crate) const ICMPV6: u8 = 58;

/// Offset of the payload in an untagged Ethernet frame.
pub(crate) const ETHERNET: usize = 14;

/// Matchable fields of a frame, or a mask of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(align(64))]
pub struct Key(pub [u64; 8]);

/// Field of a key: word, offset from the right, and bits; IPv6 addresses continue in the word before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    word: usize,
    shift: u32,
    bits: u32,
}

impl Field {
    const fn new(word: usize, shift: u32, bits: u32) -> Self {
        Field { word, shift, bits }
    }

    /// Returns the mask of all of its bits.
    pub const fn all(self) -> u128 {
        if self.bits == 128 { u128::MAX } else { (1 << self.bits) - 1 }
    }
}

/// Input port.
pub const IN_PORT: Field = Field::new(0, 48, 16);
/// Outer tag, with [`Key::TAGGED`] in place of the drop eligible bit (DEI).
pub const VLAN_TCI: Field = Field::new(0, 32, 16);
/// EtherType after the outer tag.
pub const DL_TYPE: Field = Field::new(0, 16, 16);
/// Fragment flags: fragment, later fragment.
pub const NW_FRAG: Field = Field::new(0, 8, 8);
/// IP protocol, or operation of ARP.
pub const NW_PROTO: Field = Field::new(0, 0, 8);
/// Destination MAC.
pub const DL_DST: Field = Field::new(1, 16, 48);
/// Type of service, traffic class.
pub const NW_TOS: Field = Field::new(1, 8, 8);
/// Time to live, hop limit.
pub const NW_TTL: Field = Field::new(1, 0, 8);
/// Source MAC.
pub const DL_SRC: Field = Field::new(2, 16, 48);
/// Source port, type of ICMP.
pub const TP_SRC: Field = Field::new(2, 0, 16);
/// Destination port, code of ICMP.
pub const TP_DST: Field = Field::new(3, 48, 16);
/// TCP flags, 12 bits.
pub const TCP_FLAGS: Field = Field::new(3, 32, 16);
/// Source address of IPv4 and ARP.
pub const NW_SRC: Field = Field::new(5, 0, 32);
/// Destination address of IPv4 and ARP.
pub const NW_DST: Field = Field::new(7, 0, 32);
/// Source address of IPv6.
pub const IPV6_SRC: Field = Field::new(5, 0, 128);
/// Destination address of IPv6.
pub const IPV6_DST: Field = Field::new(7, 0, 128);

impl Key {
    /// Bit in `vlan_tci`: tagged.
    pub const TAGGED: u16 = 0x1000;
    /// Bit in `nw_frag`: the packet is a fragment.
    pub const FRAGMENT: u8 = 1;
    /// Bit in `nw_frag`: it is not the first fragment.
    pub const LATER: u8 = 2;

    /// Returns a field.
    #[inline]
    pub fn get(&self, field: Field) -> u128 {
        let Field { word, shift, .. } = field;
        let low = u128::from(self.0[word] >> shift);
        let high = if field.bits == 128 { u128::from(self.0[word - 1]) << 64 } else { 0 };
        (high | low) & field.all()
    }

    /// Sets a field; excess bits of the value are cut off.
    #[inline]
    pub fn set(&mut self, field: Field, value: u128) {
        let Field { word, shift, .. } = field;
        let (value, all) = (value & field.all(), field.all());
        if field.bits == 128 {
            self.0[word - 1] = (value >> 64) as u64;
        }
        let mask = (all as u64) << shift;
        self.0[word] = self.0[word] & !mask | (value as u64) << shift;
    }

    /// Returns the bits that are set in a mask.
    #[inline(always)]
    pub fn masked(&self, mask: &Key) -> Key {
        let mut key = *self;
        key.0.iter_mut().zip(&mask.0).for_each(|(word, mask)| *word &= mask);
        key
    }

    /// Returns the union of the bits.
    pub fn or(&self, other: &Key) -> Key {
        let mut key = *self;
        key.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
        key
    }

    pub(crate) fn vlan_tci(&self) -> u16 {
        (self.0[0] >> 32) as u16
    }

    pub(crate) fn dl_type(&self) -> u16 {
        (self.0[0] >> 16) as u16
    }

    pub(crate) fn nw_proto(&self) -> u8 {
        self.0[0] as u8
    }

    pub(crate) fn is_later_fragment(&self) -> bool {
        (self.0[0] >> 8) as u8 & Key::LATER != 0
    }
}

/// A parsed frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParsedFrame {
    /// Fields for rules.
    pub key: Key,
    /// Offset of the network header, 0 if missing or truncated.
    pub l3: u32,
    /// Offset of the transport header; 0 if missing.
    pub l4: u32,
    /// End of the IP packet: padding may follow.
    pub end: u32,
    /// True if an IPv6 routing header has a final destination, for the checksum, other than the packet's current one.
    pub is_routed: bool,
}

/// Parses a frame from `in_port`. Any bytes are valid input: truncated or wrong headers have no fields.
pub fn parse(in_port: u16, frame: &[u8]) -> ParsedFrame {
    let mut parsed = ParsedFrame::default();
    parsed.key.0[0] = u64::from(in_port) << 48;
    let Some(head) = frame.first_chunk::<ETHERNET>() else { return parsed };
    let word = |at: usize| {
        u64::from_be_bytes([0, 0, head[at], head[at + 1], head[at + 2], head[at + 3], head[at + 4], head[at + 5]])
    };
    parsed.key.0[1] = word(0) << 16;
    parsed.key.0[2] = word(6) << 16;
    let (mut dl_type, mut at) = (u16::from_be_bytes([head[12], head[13]]), ETHERNET);
    if is_tag(dl_type)
        && let Some([tci @ .., high, low]) = frame.get(at..).and_then(<[u8]>::first_chunk::<4>)
    {
        let tci = u16::from_be_bytes([tci[0], tci[1]]) | Key::TAGGED;
        parsed.key.0[0] |= u64::from(tci) << 32;
        dl_type = u16::from_be_bytes([*high, *low]);
        at += 4;
    }
    if dl_type < 0x600 {
        // A length: only a SNAP header after it has a type (IEEE 802.2).
        dl_type = match frame.get(at..).and_then(<[u8]>::first_chunk::<8>) {
            Some([0xaa, 0xaa, 3, 0, 0, 0, high, low]) if *high >= 6 => {
                at += 8;
                u16::from_be_bytes([*high, *low])
            }
            _ => TYPE_NONE,
        };
    }
    parsed.key.0[0] |= u64::from(dl_type) << 16;
    match dl_type {
        TYPE_IPV4 => ipv4(frame, at, &mut parsed),
        TYPE_IPV6 => ipv6(frame, at, &mut parsed),
        TYPE_ARP | TYPE_RARP => arp(&frame[at..], &mut parsed.key),
        _ => {}
    }
    parsed
}

pub(crate) fn is_tag(dl_type: u16) -> bool {
    matches!(dl_type, TYPE_VLAN | TYPE_SERVICE)
}

#[inline]
fn ipv4(frame: &[u8], at: usize, parsed: &mut ParsedFrame) {
    let Some(head) = frame[at..].first_chunk::<20>() else { return };
    let length = usize::from(head[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let rest = frame.len() - at;
    if length < 20 || length > total || total > rest || rest - total > usize::from(u16::MAX) {
        return;
    }
    let fragment = u16::from_be_bytes([head[6], head[7]]) & 0x3fff;
    let frag = if fragment == 0 { 0 } else { Key::FRAGMENT | if fragment & 0x1fff != 0 { Key::LATER } else { 0 } };
    let key = &mut parsed.key;
    key.0[0] |= u64::from(frag) << 8 | u64::from(head[9]);
    key.0[1] |= u64::from(head[1]) << 8 | u64::from(head[8]);
    key.0[5] = u64::from(u32::from_be_bytes([head[12], head[13], head[14], head[15]]));
    key.0[7] = u64::from(u32::from_be_bytes([head[16], head[17], head[18], head[19]]));
    (parsed.l3, parsed.end) = (at as u32, (at + total) as u32);
    transport(frame, at + length, at + total, parsed);
}

fn ipv6(frame: &[u8], at: usize, parsed: &mut ParsedFrame) {
    let Some(head) = frame[at..].first_chunk::<40>() else { return };
    let end = at + 40 + usize::from(u16::from_be_bytes([head[4], head[5]]));
    if end > frame.len() || frame.len() - end > usize::from(u16::MAX) {
        return;
    }
    for (word, bytes) in parsed.key.0[4..].iter_mut().zip(head[8..].as_chunks::<8>().0) {
        *word = u64::from_be_bytes(*bytes);
    }
    let Some(Extensions { protocol, at: l4, frag, is_routed }) = extensions(head[6], &frame[..end], at + 40) else {
        return;
    };
    let class = (head[0] << 4) | (head[1] >> 4);
    parsed.key.0[0] |= u64::from(frag) << 8 | u64::from(protocol);
    parsed.key.0[1] |= u64::from(class) << 8 | u64::from(head[7]);
    (parsed.l3, parsed.end, parsed.is_routed) = (at as u32, end as u32, is_routed);
    transport(frame, l4, end, parsed);
}

struct Extensions {
    protocol: u8,
    at: usize,
    frag: u8,
    is_routed: bool,
}

/// Skips the extension headers of IPv6 (RFC 8200 section 4); `None` if one is truncated.
fn extensions(mut protocol: u8, packet: &[u8], mut at: usize) -> Option<Extensions> {
    let (mut frag, mut is_routed) = (0, false);
    loop {
        if !matches!(protocol, 0 | 43 | 44 | 51 | 60) {
            return Some(Extensions { protocol, at, frag, is_routed });
        }
        let head = packet.get(at..)?.first_chunk::<8>()?;
        let length = match protocol {
            44 => 8,
            51 => (usize::from(head[1]) + 2) * 4,
            _ => (usize::from(head[1]) + 1) * 8,
        };
        at += length;
        if at > packet.len() {
            return None;
        }
        is_routed |= protocol == 43 && head[3] > 0;
        let is_fragment = protocol == 44;
        protocol = head[0];
        let offset = u16::from_be_bytes([head[2], head[3]]);
        if is_fragment && offset != 0 {
            frag = Key::FRAGMENT;
            if offset & 0xfff8 != 0 {
                return Some(Extensions { protocol: 44, at, frag: frag | Key::LATER, is_routed });
            }
        }
    }
}

/// Parses ports, or ICMP type and code.
#[inline]
fn transport(frame: &[u8], at: usize, end: usize, parsed: &mut ParsedFrame) {
    let key = &mut parsed.key;
    if key.is_later_fragment() {
        return;
    }
    let segment = &frame[at..end];
    let (least, is_icmp) = match key.nw_proto() {
        TCP => (20, false),
        UDP => (8, false),
        SCTP => (12, false),
        ICMP if key.dl_type() == TYPE_IPV4 => (8, true),
        ICMPV6 if key.dl_type() == TYPE_IPV6 => (8, true),
        _ => return,
    };
    if segment.len() < least {
        return;
    }
    parsed.l4 = at as u32;
    if is_icmp {
        key.0[2] |= u64::from(segment[0]);
        key.0[3] |= u64::from(segment[1]) << 48;
        return;
    }
    key.0[2] |= u64::from(u16::from_be_bytes([segment[0], segment[1]]));
    key.0[3] |= u64::from(u16::from_be_bytes([segment[2], segment[3]])) << 48;
    if least == 20 {
        key.0[3] |= u64::from(u16::from_be_bytes([segment[12], segment[13]]) & 0xfff) << 32;
    }
}

/// Parses ARP for Ethernet and IPv4 (RFC 826).
fn arp(packet: &[u8], key: &mut Key) {
    let Some(head) = packet.first_chunk::<28>() else { return };
    if head[..6] != [0, 1, 8, 0, 6, 4] {
        return;
    }
    if head[6] == 0 {
        key.0[0] |= u64::from(head[7]);
    }
    key.0[5] = u64::from(u32::from_be_bytes([head[14], head[15], head[16], head[17]]));
    key.0[7] = u64::from(u32::from_be_bytes([head[24], head[25], head[26], head[27]]));
}
