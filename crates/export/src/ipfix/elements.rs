//! Information elements that are decoded, with their semantics.
//!
//! Several elements have the same meaning, depending on the exporter: packets are 2, 86, 298 and others. [`NUMBERS`]
//! lists them by meaning, the best first. A record uses the best one that is not 0, so that absent or zero elements do
//! not hide others.

use super::collect::Spec;
use super::enterprise::{OWN, RESPONDER};
use super::names;
use crate::fields::REVERSE;

/// Number of a record. Those up to `UpLast` belong to a direction, the others to the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Number {
    Packets,
    PacketBytes,
    FrameBytes,
    PayloadBytes,
    TcpFlags,
    Tos,
    /// After the exporter (post-mutation).
    PostTos,
    TtlMin,
    TtlMax,
    /// TTL of one packet, or of all.
    Ttl,
    Isn,
    Label0,
    Label1,
    Label2,
    Label3,
    /// Those of the reverse direction are derived.
    Icmp4,
    IcmpType4,
    IcmpCode4,
    Icmp6,
    IcmpType6,
    IcmpCode6,
    /// In ns since 1970.
    First,
    Last,
    /// In ms of uptime.
    UpFirst,
    UpLast,
    Protocol,
    IpVersion,
    EtherType,
    SourcePort,
    DestinationPort,
    UdpSource,
    UdpDestination,
    TcpSource,
    TcpDestination,
    Vlan,
    PostVlan,
    InnerVlan,
    PostInnerVlan,
    SourceMac,
    DestinationMac,
    Ingress,
    Egress,
    Domain,
    Flows,
    Id,
    /// In us.
    Duration,
    /// Observation time of an event, in ns since 1970.
    Observed,
    EndReason,
    FirewallEvent,
    NatEvent,
    BiflowDirection,
    Segment,
    /// Start of the exporter, in ms since 1970.
    Boot,
    SamplingInterval,
    SamplingSize,
    SamplingSpace,
    SamplingPopulation,
}

/// Number of variants, and of those that belong to a direction.
const COUNT: usize = Number::SamplingPopulation as usize + 1;
const OF_SIDES: usize = Number::UpLast as usize + 1;

/// Numbers of a record: for each the best element that is not 0.
pub(super) struct Numbers {
    values: [[u64; COUNT]; 2],
    ranks: [[u8; COUNT]; 2],
    /// One bit for each number present, even if 0.
    seen: u64,
}

const _: () = assert!(COUNT <= 64);

impl Default for Numbers {
    fn default() -> Self {
        Numbers { values: [[0; COUNT]; 2], ranks: [[0; COUNT]; 2], seen: 0 }
    }
}

impl Numbers {
    /// Applies a value. Of two elements of one rank the later one wins; flags are combined.
    pub(super) fn offer(&mut self, number: Number, side: usize, rank: u8, value: u64) {
        let (place, side) = (number as usize, side & 1);
        self.seen |= 1 << place;
        let (known, best) = (&mut self.values[side][place], &mut self.ranks[side][place]);
        if number == Number::TcpFlags {
            *known |= value;
        } else if value != 0 && (*known == 0 || rank <= *best) {
            (*known, *best) = (value, rank);
        }
    }

    pub(super) fn of(&self, number: Number) -> u64 {
        self.of_side(number, 0)
    }

    pub(super) fn of_side(&self, number: Number, side: usize) -> u64 {
        self.values[side & 1][number as usize]
    }

    /// Returns whether a number was present, even if 0.
    pub(super) fn has(&self, number: Number) -> bool {
        self.seen & 1 << number as usize != 0
    }

    /// Returns a number, or if absent its value after the exporter.
    pub(super) fn or_post(&self, number: Number, post: Number, side: usize) -> u64 {
        self.of_side(if self.has(number) { number } else { post }, side)
    }
}

/// IANA elements by meaning, the best first. Elements after `post` apply only after the exporter.
const NUMBERS: &[(Number, &[u16])] = &[
    (Number::Packets, &[2, 86, 298, 402, 24, 172, 430, 431]),
    (Number::PacketBytes, &[1, 85, 23, 171]),
    (Number::FrameBytes, &[352, 353, 416, 419, 417, 420]),
    (Number::PayloadBytes, &[231, 401]),
    (Number::TcpFlags, &[6, 218, 219, 220, 221, 222, 223]),
    (Number::Tos, &[5, 195, 196]),
    (Number::PostTos, &[55, 98, 257]),
    (Number::TtlMin, &[52]),
    (Number::TtlMax, &[53]),
    (Number::Ttl, &[192]),
    (Number::Isn, &[184]),
    (Number::Label0, &[70]),
    (Number::Label1, &[71]),
    (Number::Label2, &[72]),
    (Number::Label3, &[73]),
    (Number::Icmp4, &[32]),
    (Number::IcmpType4, &[176]),
    (Number::IcmpCode4, &[177]),
    (Number::Icmp6, &[139]),
    (Number::IcmpType6, &[178]),
    (Number::IcmpCode6, &[179]),
    (Number::First, &[156, 154, 152, 150, 158, 273, 271, 272, 265, 359]),
    (Number::Last, &[157, 155, 153, 151, 159, 270, 268, 269, 261, 360]),
    (Number::UpFirst, &[22]),
    (Number::UpLast, &[21]),
    (Number::Protocol, &[4, 193]),
    (Number::IpVersion, &[60]),
    (Number::EtherType, &[256]),
    (Number::SourcePort, &[7]),
    (Number::DestinationPort, &[11]),
    (Number::UdpSource, &[180]),
    (Number::UdpDestination, &[181]),
    (Number::TcpSource, &[182]),
    (Number::TcpDestination, &[183]),
    (Number::Vlan, &[58, 243]),
    (Number::PostVlan, &[59, 254]),
    (Number::InnerVlan, &[245]),
    (Number::PostInnerVlan, &[255]),
    (Number::SourceMac, &[56, 81, 414]),
    (Number::DestinationMac, &[80, 57, 415]),
    (Number::Ingress, &[10, 252]),
    (Number::Egress, &[14, 253]),
    (Number::Domain, &[149, 405]),
    (Number::Flows, &[3]),
    (Number::Id, &[148]),
    (Number::Duration, &[162, 161]),
    (Number::Observed, &[325, 324, 323, 322]),
    (Number::EndReason, &[136]),
    (Number::FirewallEvent, &[233, 40005]),
    (Number::NatEvent, &[230]),
    (Number::BiflowDirection, &[239]),
    (Number::Segment, &[351]),
    (Number::Boot, &[160]),
    (Number::SamplingInterval, &[34, 50]),
    (Number::SamplingSize, &[305, 309]),
    (Number::SamplingSpace, &[306]),
    (Number::SamplingPopulation, &[310]),
];

/// Elements of the responder, with the equivalent ones of the initiator.
const RESPONDERS: [(u16, u16); 2] = [(232, 231), (299, 298)];

/// Addresses: source and destination of IPv4, of IPv6, the exporter's. The best element first; prefixes occur in
/// aggregated records.
const ADDRESSES: [&[u16]; 6] = [&[8, 44], &[12, 45], &[27, 170], &[28, 169], &[130, 403], &[131, 404]];

/// Meaning of an element, looked up once per template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Not decoded.
    Unknown,
    /// Number of a direction, by an IANA element; the lowest rank is the best.
    Number { number: Number, rank: u8, side: u8, element: u16 },
    /// Address, by index in [`ADDRESSES`].
    Address { place: u8, rank: u8 },
    /// Field of one of our own elements, by index in [`OWN`].
    Own { place: u8, side: u8 },
    /// Name found in payload, by index in these fields.
    Name(u8),
}

impl Meaning {
    /// Returns the meaning of an element; `ours` is our own enterprise number.
    pub(super) fn of(Spec { enterprise, element, length }: Spec, ours: u32) -> Meaning {
        let is_variable = length == u16::MAX;
        let meaning = match enterprise {
            0 => of_iana(element, 0),
            REVERSE => of_iana(element, 1),
            own if own == ours => of_own(element),
            _ => None,
        };
        let meaning = meaning.or_else(|| names::place_of(enterprise, element).map(Meaning::Name));
        match meaning {
            // Addresses of other lengths are ignored.
            Some(Meaning::Address { .. }) if !is_variable && length != 4 && length != 16 => Meaning::Unknown,
            Some(meaning) => meaning,
            None => Meaning::Unknown,
        }
    }
}

/// Looks up an IANA element: `reverse` is 1 for the reverse direction (RFC 5103).
fn of_iana(element: u16, reverse: u8) -> Option<Meaning> {
    let (same, is_responder) = match RESPONDERS.iter().find(|(responder, _)| *responder == element) {
        Some((_, initiator)) => (*initiator, 1),
        None => (element, 0),
    };
    let rank = |elements: &[u16]| elements.iter().position(|one| *one == same).map(|rank| rank as u8 + 1);
    if let Some((number, rank)) = NUMBERS.iter().find_map(|(number, elements)| Some((*number, rank(elements)?))) {
        let is_of_sides = (number as usize) < OF_SIDES;
        let side = reverse ^ is_responder;
        return (is_of_sides || reverse == 0).then_some(Meaning::Number { number, rank, side, element });
    }
    let address = ADDRESSES.iter().enumerate().find_map(|(place, elements)| Some((place as u8, rank(elements)?)));
    address.filter(|_| reverse == 0).map(|(place, rank)| Meaning::Address { place, rank })
}

fn of_own(element: u16) -> Option<Meaning> {
    let place = usize::from(element & !RESPONDER).checked_sub(1).filter(|place| *place < OWN.len())?;
    Some(Meaning::Own { place: place as u8, side: u8::from(element & RESPONDER != 0) })
}

/// Converts the value of an element to the unit of its meaning.
pub(super) fn scaled(element: u16, number: u64) -> u64 {
    match element {
        195 | 98 => (number & 0x3f) << 2,
        196 | 257 => (number & 7) << 5,
        // Packets with a flag: SYN, FIN, RST, PSH, ACK, URG.
        218..=223 => [2, 1, 4, 8, 16, 32][usize::from(element - 218)] * u64::from(number > 0),
        70..=73 => number >> 4 & 0xf_ffff,
        161 => number.saturating_mul(1_000),
        _ => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_elements_are_unique() {
        for (place, (number, _)) in NUMBERS.iter().enumerate() {
            assert_eq!(*number as usize, place, "{number:?}");
        }
        assert_eq!(NUMBERS.len(), COUNT);
        let mut all: Vec<u16> = NUMBERS.iter().flat_map(|(_, elements)| *elements).copied().collect();
        all.extend(ADDRESSES.iter().flat_map(|elements| *elements));
        all.sort_unstable();
        assert!(all.windows(2).all(|two| two[0] < two[1]), "{all:?}");
        assert!(OWN.len() < 256);
    }
}
