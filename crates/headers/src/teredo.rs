//! Teredo, IPv6 in UDP over IPv4 (RFC 4380): the indications before the IPv6 packet.

use crate::error::{room, split};
use crate::registry::{Next, Step};
use crate::{EmitError, Flaw, Malformed, Protocol, ipv6};
use std::net::Ipv4Addr;

/// UDP port of servers and relays.
pub const PORT: u16 = 3544;

/// Bytes of the origin indication.
pub const ORIGIN_LEN: usize = 8;

/// Prefix of Teredo addresses (section 2.6).
pub const PREFIX: [u8; 4] = [0x20, 0x01, 0, 0];

/// Bytes of the authentication header without identifier and value.
const AUTHENTICATION_LEN: usize = 13;
const ORIGIN: [u8; 2] = [0, 0];
const AUTHENTICATION: [u8; 2] = [0, 1];

/// The indications and the packet after them.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: Header<'a>,
    length: usize,
    packet: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a datagram: indications in the order of section 5.1.1, then an IPv6 header, which must be present.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (authentication, rest) = authentication(bytes)?;
        let (origin, packet) = origin(rest)?;
        let (ip, _) = split::<{ ipv6::LEN }>(packet, Protocol::Teredo)?;
        if ip[0] >> 4 != 6 {
            return Err(Malformed { protocol: Protocol::Teredo, flaw: Flaw::Version });
        }
        Ok(View { header: Header { authentication, origin }, length: bytes.len() - packet.len(), packet })
    }

    /// Returns the length of the indications in bytes; 0 if absent.
    pub fn header_len(&self) -> usize {
        self.length
    }

    /// Returns the indications as a value.
    pub fn header(&self) -> Header<'a> {
        self.header
    }

    /// Returns the IPv6 packet.
    pub fn payload(&self) -> &'a [u8] {
        self.packet
    }
}

/// The indications before a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header<'a> {
    /// Authentication of the packet.
    pub authentication: Option<Authentication<'a>>,
    /// Source of the packet as seen by the server.
    pub origin: Option<Origin>,
}

/// Authenticates server and client to each other (section 5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authentication<'a> {
    /// Client identifier, at most 255 bytes.
    pub client: &'a [u8],
    /// Authentication value, at most 255 bytes.
    pub value: &'a [u8],
    /// Distinguishes a reply from a replayed one.
    pub nonce: [u8; 8],
    /// Not 0 if the client needs a new key.
    pub confirmation: u8,
}

/// The client's address and port as seen by the server (section 5.1.1); the bits are inverted on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// UDP port.
    pub port: u16,
    /// Address.
    pub address: Ipv4Addr,
}

impl Header<'_> {
    /// Writes the indications to the front of `out`; returns their length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let vouched = self.authentication.map_or(0, |it| AUTHENTICATION_LEN + it.client.len() + it.value.len());
        let need = vouched + if self.origin.is_some() { ORIGIN_LEN } else { 0 };
        let (_, place) = room::<0>(out, need)?;
        let (first, second) = place.split_at_mut(vouched);
        if let Some(authentication) = &self.authentication {
            authentication.emit(first)?;
        }
        if let (Some(origin), Ok(place)) = (self.origin, <&mut [u8; ORIGIN_LEN]>::try_from(second)) {
            let ([high, low], [a, b, c, d]) = ((!origin.port).to_be_bytes(), origin.address.octets());
            *place = [ORIGIN[0], ORIGIN[1], high, low, !a, !b, !c, !d];
        }
        Ok(need)
    }
}

impl Authentication<'_> {
    fn emit(&self, out: &mut [u8]) -> Result<(), EmitError> {
        let (Ok(client), Ok(value)) = (u8::try_from(self.client.len()), u8::try_from(self.value.len())) else {
            return Err(EmitError::Field(
                "a Teredo client identifier and an authentication value have at most 255 bytes",
            ));
        };
        let (head, behind) = room::<4>(out, AUTHENTICATION_LEN + self.client.len() + self.value.len())?;
        *head = [AUTHENTICATION[0], AUTHENTICATION[1], client, value];
        let (place, behind) = behind.split_at_mut(self.client.len());
        place.copy_from_slice(self.client);
        let (place, behind) = behind.split_at_mut(self.value.len());
        place.copy_from_slice(self.value);
        let (nonce, confirmation) = behind.split_at_mut(self.nonce.len());
        nonce.copy_from_slice(&self.nonce);
        confirmation.fill(self.confirmation);
        Ok(())
    }
}

/// Returns the authentication at the start of `bytes`, if present, and the rest.
fn authentication(bytes: &[u8]) -> Result<(Option<Authentication<'_>>, &[u8]), Malformed> {
    const SHORT: Malformed = Malformed { protocol: Protocol::Teredo, flaw: Flaw::Short };
    let Some(rest) = bytes.strip_prefix(&AUTHENTICATION) else { return Ok((None, bytes)) };
    let ([client, value], rest) = split::<2>(rest, Protocol::Teredo)?;
    let (client, rest) = rest.split_at_checked((*client).into()).ok_or(SHORT)?;
    let (value, rest) = rest.split_at_checked((*value).into()).ok_or(SHORT)?;
    let (nonce, rest) = split::<8>(rest, Protocol::Teredo)?;
    let ([confirmation], rest) = split::<1>(rest, Protocol::Teredo)?;
    Ok((Some(Authentication { client, value, nonce: *nonce, confirmation: *confirmation }), rest))
}

/// Returns the origin at the start of `bytes`, if present, and the rest.
fn origin(bytes: &[u8]) -> Result<(Option<Origin>, &[u8]), Malformed> {
    let Some(rest) = bytes.strip_prefix(&ORIGIN) else { return Ok((None, bytes)) };
    let ([high, low, a, b, c, d], rest) = split::<6>(rest, Protocol::Teredo)?;
    let origin = Origin { port: !u16::from_be_bytes([*high, *low]), address: [!a, !b, !c, !d].into() };
    Ok((Some(origin), rest))
}

/// Returns the length of the indications; IPv6 follows. Only a port identifies this header, so one of the packet's
/// addresses must be a Teredo address, or the source link-local, as in a client's first messages (section 5.2.1).
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    let (ip, _) = split::<{ ipv6::LEN }>(view.packet, Protocol::Teredo)?;
    let (source, destination) = (&ip[8..24], &ip[24..40]);
    let of_the_link = source[0] == 0xfe && source[1] & 0xc0 == 0x80;
    if !(source.starts_with(&PREFIX) || destination.starts_with(&PREFIX) || of_the_link) {
        return Err(Malformed { protocol: Protocol::Teredo, flaw: Flaw::Reserved });
    }
    Ok(Step::new(view.length, view.packet.len(), Next::Protocol(Protocol::Ipv6)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indications_round_trip() {
        let both = [0, 1, 1, 2, 7, 8, 9, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0xf0, 0x00, 0xf5, 0xff, 0xff, 0xfe];
        for (from, header) in [
            (
                0,
                Header {
                    authentication: Some(Authentication {
                        client: &[7],
                        value: &[8, 9],
                        nonce: [1; 8],
                        confirmation: 0,
                    }),
                    origin: Some(Origin { port: 4095, address: [10, 0, 0, 1].into() }),
                },
            ),
            (16, Header { authentication: None, origin: Some(Origin { port: 4095, address: [10, 0, 0, 1].into() }) }),
            (24, Header::default()),
        ] {
            let packet = [&both[from..], &[0x60; 40]].concat();
            let view = View::parse(&packet).unwrap();
            assert_eq!((view.header(), view.header_len(), view.payload().len()), (header, 24 - from, 40));
            let mut out = [9; 24];
            assert_eq!(header.emit(&mut out), Ok(24 - from));
            assert_eq!(out[..24 - from], both[from..]);
            assert_eq!(View::parse(&packet[..packet.len() - 1]).unwrap_err().flaw, Flaw::Short);
        }
        assert_eq!(View::parse(&[0x45; 40]).unwrap_err().flaw, Flaw::Version);
    }

    #[test]
    fn other_addresses_fail_the_heuristic() {
        for (at, begin, plausible) in [
            (8, [0x20, 0x01, 0, 0], true),
            (24, [0x20, 0x01, 0, 0], true),
            (8, [0xfe, 0x80, 0, 0], true),
            (24, [0xfe, 0x80, 0, 0], false),
            (8, [0x20, 0x01, 0, 1], false),
        ] {
            let mut packet = [0; 40];
            packet[0] = 0x60;
            packet[at..at + 4].copy_from_slice(&begin);
            assert_eq!(step(&packet).is_ok(), plausible, "{begin:?} at {at}");
        }
    }

    #[test]
    fn too_long_names_are_rejected() {
        let authentication = Authentication { client: &[0; 256], value: &[], nonce: [0; 8], confirmation: 0 };
        let header = Header { authentication: Some(authentication), origin: None };
        assert!(matches!(header.emit(&mut [0; 512]), Err(EmitError::Field(_))));
        assert!(matches!(header.emit(&mut [0; 9]), Err(EmitError::NoRoom { .. })));
    }
}
