//! BSD loopback encapsulation: an address family, in the byte order of the capturing host (`LINKTYPE_NULL`) or of the
//! network (`LINKTYPE_LOOP`).

use crate::error::{room, split};
use crate::registry::{Next, Step};
use crate::{EmitError, Malformed, Number, Protocol};

/// Bytes of the header.
pub const LEN: usize = 4;

/// Address family of IPv4, everywhere.
pub const IPV4: u32 = 2;
/// Address family of IPv6 on NetBSD, OpenBSD and BSD/OS.
pub const IPV6: u32 = 24;
/// Address family of IPv6 on FreeBSD and DragonFly.
pub const IPV6_FREEBSD: u32 = 28;
/// Address family of IPv6 on macOS.
pub const IPV6_MACOS: u32 = 30;
/// Address family of IPv6 on Linux and Windows, if other tools write such files there.
pub const IPV6_LINUX: u32 = 10;
/// See [`IPV6_LINUX`].
pub const IPV6_WINDOWS: u32 = 23;

/// The loopback header and its payload.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: Header,
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a frame. Families are small numbers, so the byte order is the one in which the value is small.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, payload) = split::<LEN>(bytes, Protocol::Null)?;
        let big_endian = head[0] == 0 && head[1] == 0;
        let family = if big_endian { u32::from_be_bytes(*head) } else { u32::from_le_bytes(*head) };
        Ok(View { header: Header { family, big_endian }, payload })
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header {
        self.header
    }

    /// Returns the payload after the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The loopback header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Address family of the packet.
    pub family: u32,
    /// True if it is in network byte order.
    pub big_endian: bool,
}

impl Header {
    /// Writes the header to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let (head, _) = room::<LEN>(out, LEN)?;
        *head = if self.big_endian { self.family.to_be_bytes() } else { self.family.to_le_bytes() };
        Ok(LEN)
    }
}

/// Returns the length of the header; the packet follows.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    Ok(Step::new(LEN, view.payload.len(), Next::Number(Number::AddressFamily(view.header.family))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_byte_orders_round_trip() {
        for (bytes, family, big_endian) in
            [([2, 0, 0, 0], IPV4, false), ([0, 0, 0, 2], IPV4, true), ([0, 0, 0, 30], IPV6_MACOS, true)]
        {
            let header = View::parse(&bytes).unwrap().header();
            assert_eq!(header, Header { family, big_endian });
            let mut out = [9; LEN];
            assert_eq!(header.emit(&mut out), Ok(LEN));
            assert_eq!(out, bytes);
        }
        assert!(View::parse(&[2, 0, 0]).is_err());
    }
}
