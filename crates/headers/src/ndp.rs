//! Neighbor discovery (RFC 4861): solicitation and advertisement of an IPv6 address. Both are bodies of ICMPv6
//! messages.

use crate::error::{room, split};
use crate::{EmitError, Flaw, MacAddr, Malformed, Protocol};
use std::net::Ipv6Addr;

/// ICMPv6 type of a neighbor solicitation.
pub const SOLICITATION: u8 = 135;
/// ICMPv6 type of a neighbor advertisement.
pub const ADVERTISEMENT: u8 = 136;
/// The hop limit required by receivers: no router forwarded the message (section 7.1).
pub const HOP_LIMIT: u8 = 255;
/// Every node of the link (RFC 4291 section 2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Bytes of a body without options: flags and the target.
const FIXED: usize = 20;
/// Bytes of an option that holds a MAC address (section 4.6.1).
const OPTION: usize = 8;
const SOURCE_MAC: u8 = 1;
const TARGET_MAC: u8 = 2;

const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// Neighbor solicitation (section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solicitation {
    /// The requested address.
    pub target: Ipv6Addr,
    /// MAC address of the sender, if present.
    pub source_mac: Option<MacAddr>,
}

impl Solicitation {
    /// Reads the body of a solicitation; unknown options are skipped.
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let (head, options) = split::<FIXED>(body, Protocol::Icmpv6)?;
        Ok(Solicitation { target: target(head), source_mac: option(options, SOURCE_MAC)? })
    }

    /// Writes the body to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        emit(0, self.target, SOURCE_MAC, self.source_mac, out)
    }
}

/// Neighbor advertisement (section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// The sender is a router.
    pub router: bool,
    /// It answers a solicitation.
    pub solicited: bool,
    /// Override flag: cached entries of this address are to be replaced.
    pub replace: bool,
    /// The advertised address.
    pub target: Ipv6Addr,
    /// Its MAC address, if present.
    pub target_mac: Option<MacAddr>,
}

impl Advertisement {
    /// Reads the body of an advertisement; unknown options are skipped.
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let (head, options) = split::<FIXED>(body, Protocol::Icmpv6)?;
        Ok(Advertisement {
            router: head[0] & ROUTER != 0,
            solicited: head[0] & SOLICITED != 0,
            replace: head[0] & OVERRIDE != 0,
            target: target(head),
            target_mac: option(options, TARGET_MAC)?,
        })
    }

    /// Writes the body to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(self.router, ROUTER) | flag(self.solicited, SOLICITED) | flag(self.replace, OVERRIDE);
        emit(flags, self.target, TARGET_MAC, self.target_mac, out)
    }
}

/// Returns the solicited-node group of this address (RFC 4291 section 2.7.1).
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]))
}

/// Returns the MAC address of a multicast group (RFC 2464 section 7).
pub fn multicast_mac(group: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = group.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

fn target(head: &[u8; FIXED]) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&head[4..]);
    octets.into()
}

/// Returns the MAC address in the first option of `kind`. Every option has a length, in units of 8 bytes; a message
/// with a length of 0 must be discarded (section 4.6).
fn option(mut options: &[u8], kind: u8) -> Result<Option<MacAddr>, Malformed> {
    const FLAWED: Malformed = Malformed { protocol: Protocol::Icmpv6, flaw: Flaw::OptionLength };
    let mut found = None;
    while let [own, units, ..] = *options {
        let (value, rest) = options.split_at_checked(8 * usize::from(units)).ok_or(FLAWED)?;
        match *value {
            [] => return Err(FLAWED),
            [_, _, a, b, c, d, e, f] if own == kind && found.is_none() => found = Some(MacAddr([a, b, c, d, e, f])),
            _ => {}
        }
        options = rest;
    }
    if options.is_empty() { Ok(found) } else { Err(FLAWED) }
}

fn emit(flags: u8, target: Ipv6Addr, kind: u8, mac: Option<MacAddr>, out: &mut [u8]) -> Result<usize, EmitError> {
    let length = FIXED + mac.map_or(0, |_| OPTION);
    let (head, rest) = room::<FIXED>(out, length)?;
    head[..4].copy_from_slice(&[flags, 0, 0, 0]);
    head[4..].copy_from_slice(&target.octets());
    if let (Some(MacAddr(mac)), Some(option)) = (mac, rest.first_chunk_mut::<OPTION>()) {
        option[..2].copy_from_slice(&[kind, 1]);
        option[2..].copy_from_slice(&mac);
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    #[test]
    fn known_bodies_round_trip() {
        let address: Ipv6Addr = "2001:db8::1:2".parse().unwrap();
        let mut asked = [0; 28];
        asked[4..20].copy_from_slice(&address.octets());
        asked[20..].copy_from_slice(&[1, 1, 2, 0, 0, 0, 0, 9]);
        let solicitation = Solicitation { target: address, source_mac: Some(MAC) };
        let mut out = [0xff; 28];
        assert_eq!((Solicitation::parse(&asked), solicitation.emit(&mut out)), (Ok(solicitation), Ok(28)));
        assert_eq!(out, asked);

        let mut advertised = asked;
        (advertised[0], advertised[20]) = (0x60, 2);
        let answer =
            Advertisement { router: false, solicited: true, replace: true, target: address, target_mac: Some(MAC) };
        assert_eq!((Advertisement::parse(&advertised), answer.emit(&mut out)), (Ok(answer), Ok(28)));
        assert_eq!(out, advertised);
        assert_eq!(Solicitation::parse(&advertised).unwrap().source_mac, None, "the option of the target is another");
        assert_eq!(Solicitation { source_mac: None, ..solicitation }.emit(&mut out), Ok(20));
        assert!(solicitation.emit(&mut out[..27]).is_err());
    }

    #[test]
    fn options_are_checked_to_the_end() {
        let body = |options: &[u8]| Solicitation::parse(&[&[0; 20], options].concat());
        assert_eq!(body(&[14, 1, 0, 0, 0, 0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 9]).unwrap().source_mac, Some(MAC));
        assert_eq!(body(&[[1u8, 2].as_slice(), &[0; 14]].concat()).unwrap().source_mac, None, "a longer address");
        for bad in [&[1][..], &[1, 0, 2, 0, 0, 0, 0, 9], &[1, 2, 2, 0, 0, 0, 0, 9], &[1, 1, 2, 0, 0, 0, 0, 9, 0, 0]] {
            assert_eq!(body(bad).unwrap_err().flaw, Flaw::OptionLength, "{bad:?}");
        }
        assert_eq!(Solicitation::parse(&[0; 19]).unwrap_err().flaw, Flaw::Short);
    }

    #[test]
    fn groups_follow_from_addresses() {
        let group = solicited_node("2001:db8::1:aabb:ccdd".parse().unwrap());
        assert_eq!(group, "ff02::1:ffbb:ccdd".parse::<Ipv6Addr>().unwrap());
        assert_eq!(multicast_mac(group).to_string(), "33:33:ff:bb:cc:dd");
    }
}
