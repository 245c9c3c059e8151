//! PPP (RFC 1661) in HDLC-like framing (RFC 1662), or without, as in PPPoE and PPTP.

use crate::error::room;
use crate::registry::{Next, Step};
use crate::{EmitError, Flaw, Malformed, Number, Protocol};

/// Protocol number of IPv4.
pub const IPV4: u16 = 0x0021;
/// Protocol number of IPv6 (RFC 5072).
pub const IPV6: u16 = 0x0057;
/// Protocol number of MPLS (RFC 3032 section 4.3).
pub const MPLS: u16 = 0x0281;
/// Protocol number of MPLS with labels that the upstream router assigned.
pub const MPLS_MULTICAST: u16 = 0x0283;
/// Protocol number of the link control protocol.
pub const LINK_CONTROL: u16 = 0xc021;

/// Address (all stations) and control (unnumbered information) of a frame.
const ADDRESS_CONTROL: [u8; 2] = [0xff, 0x03];

/// A PPP frame, without flags and FCS.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: Header,
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a frame. Address and control may be compressed away, and so may the zero byte that a protocol number
    /// begins with (RFC 1661 sections 6.5 and 6.6).
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let behind = bytes.strip_prefix(&ADDRESS_CONTROL);
        let framed = behind.is_some();
        // Only the last byte of a number is odd. 0x00ff is excluded, to avoid confusion with an address.
        let (protocol, compressed, payload) = match *behind.unwrap_or(bytes) {
            [0xff] => return Err(Malformed { protocol: Protocol::Ppp, flaw: Flaw::Short }),
            [short, ref payload @ ..] if short & 1 == 1 => (short.into(), true, payload),
            [high, low, ref payload @ ..] => (u16::from_be_bytes([high, low]), false, payload),
            _ => return Err(Malformed { protocol: Protocol::Ppp, flaw: Flaw::Short }),
        };
        Ok(View { header: Header { framed, compressed, protocol }, payload })
    }

    /// Returns the length of the header in bytes: 1 to 4.
    pub fn header_len(&self) -> usize {
        self.header.length()
    }

    /// Returns the PPP protocol of the payload.
    pub fn protocol(&self) -> u16 {
        self.header.protocol
    }

    /// Returns the payload after the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header {
        self.header
    }
}

/// A PPP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// True if address and control are present.
    pub framed: bool,
    /// True if the zero byte of the protocol number is compressed away.
    pub compressed: bool,
    /// PPP protocol of the payload: odd, with an even upper byte.
    pub protocol: u16,
}

impl Header {
    /// Writes the header to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let [high, low] = self.protocol.to_be_bytes();
        if self.compressed && (high != 0 || low & 1 == 0 || low == 0xff) {
            return Err(EmitError::Field("a PPP protocol of one byte is odd and below 255"));
        }
        if !self.compressed && high & 1 == 1 {
            return Err(EmitError::Field("a PPP protocol has an even upper byte"));
        }
        let need = self.length();
        let (_, behind) = room::<0>(out, need)?;
        let (front, number) = behind.split_at_mut(if self.framed { ADDRESS_CONTROL.len() } else { 0 });
        front.copy_from_slice(&ADDRESS_CONTROL[..front.len()]);
        let both = [high, low];
        number.copy_from_slice(&both[both.len() - number.len()..]);
        Ok(need)
    }

    fn length(&self) -> usize {
        let front = if self.framed { ADDRESS_CONTROL.len() } else { 0 };
        front + if self.compressed { 1 } else { 2 }
    }
}

/// Returns the protocol after the header.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    Ok(Step::new(view.header_len(), view.payload.len(), Next::Number(Number::PppProtocol(view.protocol()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_four_forms_round_trip() {
        for (bytes, framed, compressed, protocol) in [
            (&[0xff, 0x03, 0xc0, 0x21][..], true, false, LINK_CONTROL),
            (&[0x00, 0x21], false, false, IPV4),
            (&[0x57], false, true, IPV6),
            (&[0xff, 0x03, 0x21], true, true, IPV4),
        ] {
            let header = Header { framed, compressed, protocol };
            let frame = [bytes, &[1, 2, 3]].concat();
            let view = View::parse(&frame).unwrap();
            assert_eq!((view.header(), view.header_len(), view.payload().len()), (header, bytes.len(), 3));
            let mut out = [9; 4];
            assert_eq!(header.emit(&mut out), Ok(bytes.len()));
            assert_eq!(&out[..bytes.len()], bytes);
            assert!(header.emit(&mut out[..bytes.len() - 1]).is_err());
            assert_eq!(View::parse(&bytes[..bytes.len() - 1]).unwrap_err().flaw, Flaw::Short);
        }
    }

    #[test]
    fn numbers_that_do_not_round_trip_are_rejected() {
        let header = Header { framed: false, compressed: false, protocol: 0x0121 };
        assert!(matches!(header.emit(&mut [0; 4]), Err(EmitError::Field(_))));
        for protocol in [0x0020, 0x0221, 0x00ff] {
            assert!(matches!(
                Header { compressed: true, protocol, ..header }.emit(&mut [0; 4]),
                Err(EmitError::Field(_))
            ));
        }
    }
}
