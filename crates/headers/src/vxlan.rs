//! VXLAN (RFC 7348), with the group policy and the generic protocol extensions that are in use
//! (draft-smith-vxlan-group-policy, draft-ietf-nvo3-vxlan-gpe).

use crate::error::{room, split};
use crate::registry::{Next, Step};
use crate::{EmitError, Flaw, Malformed, Number, Protocol, ethernet, mpls};

/// Bytes of the header.
pub const LEN: usize = 8;

/// UDP port.
pub const PORT: u16 = 4789;
/// Default UDP port of Linux, from before the number was assigned.
pub const OLD_PORT: u16 = 8472;
/// UDP port of the generic protocol extension.
pub const GPE_PORT: u16 = 4790;

/// The largest network identifier.
pub const MAX_VNI: u32 = 0xff_ffff;

/// Flag: the network identifier is valid.
pub const FLAG_VNI: u8 = 0x08;
/// Flag: the last of the reserved bytes before it selects the payload (generic protocol extension).
pub const FLAG_PROTOCOL: u8 = 0x04;
/// Flag: the reserved bytes before it have a policy group.
pub const FLAG_POLICY: u8 = 0x80;

/// The version of the generic protocol extension, 0 so far.
const VERSION_WITH_PROTOCOL: u8 = 0x30;
/// Flags of the generic protocol extension: broadcast and maintenance.
const FLAGS_WITH_PROTOCOL: u8 = 0x03;
/// Reserved bits of the first byte after [`FLAG_POLICY`].
const RESERVED_WITH_POLICY: u8 = 0xb7;

/// A VXLAN packet.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a packet, whose network identifier must be valid.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, payload) = split::<LEN>(bytes, Protocol::Vxlan)?;
        if head[0] & FLAG_VNI == 0 {
            return Err(Malformed { protocol: Protocol::Vxlan, flaw: Flaw::Reserved });
        }
        Ok(View { head, payload })
    }

    /// Returns the flags, [`FLAG_VNI`] among them.
    pub fn flags(&self) -> u8 {
        self.head[0]
    }

    /// Returns the VXLAN network identifier, 24 bits.
    pub fn vni(&self) -> u32 {
        u32::from_be_bytes([0, self.head[4], self.head[5], self.head[6]])
    }

    /// Returns the three bytes after the flags: reserved, or as defined by [`FLAG_PROTOCOL`] and [`FLAG_POLICY`].
    pub fn extension(&self) -> [u8; 3] {
        [self.head[1], self.head[2], self.head[3]]
    }

    /// Returns the payload after the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header {
        Header { flags: self.flags(), vni: self.vni(), extension: self.extension() }
    }
}

/// A VXLAN header; the last reserved byte is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// [`FLAG_VNI`] for plain VXLAN.
    pub flags: u8,
    /// VXLAN network identifier, at most [`MAX_VNI`].
    pub vni: u32,
    /// The three bytes after the flags.
    pub extension: [u8; 3],
}

impl Header {
    /// Creates a header of plain VXLAN, in the network `vni`.
    pub fn new(vni: u32) -> Self {
        Header { flags: FLAG_VNI, vni, extension: [0; 3] }
    }

    /// Writes the header to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        if self.vni > MAX_VNI {
            return Err(EmitError::Field("a VXLAN network identifier has 24 bits"));
        }
        if self.flags & FLAG_VNI == 0 {
            return Err(EmitError::Field("a VXLAN header has the flag of its network identifier"));
        }
        let (head, _) = room::<LEN>(out, LEN)?;
        let ([_, a, b, c], [d, e, f]) = (self.vni.to_be_bytes(), self.extension);
        *head = [self.flags, d, e, f, a, b, c, 0];
        Ok(LEN)
    }
}

/// Returns the protocol after the header: Ethernet, unless the generic protocol extension selects another. Reserved
/// bits are ignored (RFC 7348 section 5). But only a port identifies this header: if reserved bits are set, the payload
/// must be plausible.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    let [.., protocol] = view.extension();
    let has_protocol = view.flags() & (FLAG_PROTOCOL | VERSION_WITH_PROTOCOL) == FLAG_PROTOCOL;
    let is_likely = ethernet::is_likely(view.payload);
    let said = match protocol {
        1 if has_protocol => Next::Number(Number::IpVersion(4)),
        2 if has_protocol => Next::Number(Number::IpVersion(6)),
        5 if has_protocol => Next::Number(Number::EtherType(mpls::UNICAST)),
        // Network service headers; protocols without a number.
        4 if has_protocol => Next::End,
        6.. if has_protocol && !is_likely => Next::End,
        _ => Next::Protocol(Protocol::Ethernet),
    };
    let next = match said {
        _ if is_reserved_clear(&view) => said,
        Next::Number(Number::IpVersion(version)) if view.payload.first().is_some_and(|byte| byte >> 4 == version) => {
            said
        }
        // Also after reserved bits that look like the extension.
        _ if is_likely => Next::Protocol(Protocol::Ethernet),
        _ => return Err(Malformed { protocol: Protocol::Vxlan, flaw: Flaw::Reserved }),
    };
    Ok(Step::new(LEN, view.payload.len(), next))
}

/// Returns whether all reserved bits are zero, as with most senders.
fn is_reserved_clear(view: &View<'_>) -> bool {
    match (view.flags() & !FLAG_VNI, view.extension()) {
        (0, extension) => extension == [0; 3],
        (FLAG_POLICY, [policy, ..]) => policy & RESERVED_WITH_POLICY == 0,
        (flags, [high, low, _]) => flags & !FLAGS_WITH_PROTOCOL == FLAG_PROTOCOL && [high, low] == [0; 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_header_round_trips() {
        let bytes = [0x08, 0, 0, 0, 0x01, 0x02, 0x03, 0, 0xff];
        let view = View::parse(&bytes).unwrap();
        assert_eq!((view.header(), view.payload()), (Header::new(0x1_0203), &[0xff][..]));
        let mut out = [9; LEN];
        assert_eq!(view.header().emit(&mut out), Ok(LEN));
        assert_eq!(out, bytes[..LEN]);
        assert!(View::parse(&bytes[..7]).is_err());
        assert!(matches!(Header::new(1 << 24).emit(&mut out), Err(EmitError::Field(_))));
        assert!(matches!(Header { flags: 0, ..Header::new(1) }.emit(&mut out), Err(EmitError::Field(_))));
    }

    #[test]
    fn extension_names_the_next_protocol() {
        let next = |flags, protocol| step(&[flags, 0, 0, protocol, 0, 0, 0, 0]).map(|step| step.next);
        assert_eq!(next(0x08, 0), Ok(Next::Protocol(Protocol::Ethernet)));
        assert_eq!(next(0x88, 1), Ok(Next::Protocol(Protocol::Ethernet)), "a policy group");
        assert_eq!(next(0x0f, 2), Ok(Next::Number(Number::IpVersion(6))), "broadcast, maintenance");
        assert_eq!(next(0x0c, 1), Ok(Next::Number(Number::IpVersion(4))));
        assert_eq!(next(0x0c, 3), Ok(Next::Protocol(Protocol::Ethernet)));
        assert_eq!(next(0x0c, 99), Ok(Next::End));
        for (flags, protocol) in [(0x80, 1), (0x04, 1), (0x18, 0), (0x08, 1), (0x8c, 1), (0x09, 0), (0x98, 1)] {
            assert_eq!(next(flags, protocol).unwrap_err().flaw, Flaw::Reserved, "and no plausible payload");
        }
        assert!(step(&[0x88, 0x48, 0, 9, 0, 0, 0, 0]).is_ok(), "policy flags");
    }

    #[test]
    fn reserved_bits_are_ignored_before_plausible_payload() {
        let frame = |ether_type: u16| [&[2; 12][..], &ether_type.to_be_bytes(), &[0x45; 20]].concat();
        let next =
            |head: [u8; 4], payload: &[u8]| step(&[&head, &[0, 0, 7, 0][..], payload].concat()).map(|step| step.next);
        let ethernet = Ok(Next::Protocol(Protocol::Ethernet));
        for head in [
            [0x08, 0, 0, 1],
            [0x09, 0, 0, 0],
            [0x18, 0, 0, 0],
            [0xff, 1, 0, 0],
            [0xc8, 0, 0, 0],
            [0xc8, 0x12, 0x34, 0x56],
            [0x88, 0xff, 1, 2],
            [0x0c, 1, 0, 5],
            [0xfc, 9, 9, 9],
            [0x4c, 0, 0, 1],
        ] {
            for ether_type in [0x0800, 0x86dd, 0x0806, 0x8100, 20] {
                assert_eq!(next(head, &frame(ether_type)), ethernet, "{head:x?} {ether_type:#x}");
            }
            assert!(next(head, &frame(0x1234)).is_err() && next(head, &[0; 8]).is_err(), "{head:x?}");
        }
        assert_eq!(next([0x0c, 0, 0, 99], &frame(0x0800)), ethernet, "no extension");
        // Also for the extension itself.
        assert_eq!(next([0x0c, 1, 0, 1], &[0x45; 20]), Ok(Next::Number(Number::IpVersion(4))));
        assert_eq!(next([0x4c, 0, 0, 2], &[0x60; 40]), Ok(Next::Number(Number::IpVersion(6))));
        assert!(next([0, 0, 0, 0], &frame(0x0800)).is_err(), "the network identifier must be valid");
    }
}
