//! ERSPAN, mirrored frames of a switch over GRE: types II and III (draft-foschiano-erspan-03 sections 4.2 and 4.3).
//! Type I (section 4.1) has no header.

use crate::error::{room, split};
use crate::registry::{Next, Step};
use crate::{EmitError, Flaw, Malformed, Number, Protocol, vlan};

/// Bytes of a header of type II.
pub const LEN_2: usize = 8;
/// Bytes of a type III header without the platform-specific part.
pub const LEN_3: usize = 12;
/// Bytes of the platform-specific part.
pub const PLATFORM_LEN: usize = 8;

/// GRE protocol type of types I and II.
pub const TYPE_2: u16 = 0x88be;
/// GRE protocol type of type III.
pub const TYPE_3: u16 = 0x22eb;

/// Frame type of Ethernet, in type III.
pub const ETHERNET: u8 = 0;
/// Frame type of IP packets, in type III.
pub const IP: u8 = 2;

/// The largest session number.
pub const MAX_SESSION: u16 = 0x3ff;
/// The largest port index of type II.
pub const MAX_INDEX: u32 = 0xf_ffff;

/// A mirrored frame.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: Header,
    length: usize,
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses the payload of GRE.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let ([a, b, c, d], _) = split::<4>(bytes, Protocol::Erspan)?;
        let (word, low) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
        let session = Session {
            vlan: word & vlan::MAX_ID,
            class: c >> 5,
            encapsulation: c >> 3 & 3,
            truncated: c & 4 != 0,
            number: low & MAX_SESSION,
        };
        let (header, length, payload) = match word >> 12 {
            1 => {
                let (head, payload) = split::<LEN_2>(bytes, Protocol::Erspan)?;
                let index = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) & MAX_INDEX;
                (Header::Type2 { session, index }, LEN_2, payload)
            }
            2 => {
                let (head, rest) = split::<LEN_3>(bytes, Protocol::Erspan)?;
                let flags = u16::from_be_bytes([head[10], head[11]]);
                let (platform, payload) = if flags & 1 != 0 {
                    let (platform, payload) = split::<PLATFORM_LEN>(rest, Protocol::Erspan)?;
                    (Some(*platform), payload)
                } else {
                    (None, rest)
                };
                let timestamp = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
                let group = u16::from_be_bytes([head[8], head[9]]);
                let header = Header::Type3 { session, timestamp, group, flags: flags & !1, platform };
                (header, bytes.len() - payload.len(), payload)
            }
            _ => return Err(Malformed { protocol: Protocol::Erspan, flaw: Flaw::Version }),
        };
        Ok(View { header, length, payload })
    }

    /// Returns the length of the header in bytes.
    pub fn header_len(&self) -> usize {
        self.length
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header {
        self.header
    }

    /// Returns the mirrored frame, possibly truncated.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// Fields common to both types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// VLAN identifier of the frame, at most [`vlan::MAX_ID`].
    pub vlan: u16,
    /// Class of service, at most 7.
    pub class: u8,
    /// Two bits: the kind of tag (type II), or good, short, or bad (type III).
    pub encapsulation: u8,
    /// True if the end of the frame was removed.
    pub truncated: bool,
    /// Number of the mirror session, at most [`MAX_SESSION`].
    pub number: u16,
}

/// An ERSPAN header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Type II. Its 12 reserved bits are discarded.
    Type2 {
        /// The session.
        session: Session,
        /// Port and direction at the switch, at most [`MAX_INDEX`].
        index: u32,
    },
    /// Type III.
    Type3 {
        /// The session.
        session: Session,
        /// Time of mirroring, in units given by `flags`.
        timestamp: u32,
        /// Security group tag.
        group: u16,
        /// As on the wire, with a last bit of 0: a bit for Ethernet frames, 5 of frame type, 6 of hardware number,
        /// direction, 2 of clock granularity.
        flags: u16,
        /// The platform-specific part.
        platform: Option<[u8; PLATFORM_LEN]>,
    },
}

impl Header {
    /// Returns the type of the mirrored frame: [`ETHERNET`], [`IP`] or another.
    pub fn frame_type(&self) -> u8 {
        match self {
            Header::Type2 { .. } => ETHERNET,
            Header::Type3 { flags, .. } => (flags >> 10 & 0x1f) as u8,
        }
    }

    /// Writes the header to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        match *self {
            Header::Type2 { session, index } => {
                if index > MAX_INDEX {
                    return Err(EmitError::Field("an ERSPAN index has 20 bits"));
                }
                let first = session.word(1)?;
                let (head, _) = room::<LEN_2>(out, LEN_2)?;
                head[0..4].copy_from_slice(&first.to_be_bytes());
                head[4..8].copy_from_slice(&index.to_be_bytes());
                Ok(LEN_2)
            }
            Header::Type3 { session, timestamp, group, flags, platform } => {
                if flags & 1 != 0 {
                    return Err(EmitError::Field("the last ERSPAN flag follows from the platform's part"));
                }
                let first = session.word(2)?;
                let platform = platform.as_ref().map_or(&[][..], |platform| platform);
                let length = LEN_3 + platform.len();
                let (head, behind) = room::<LEN_3>(out, length)?;
                head[0..4].copy_from_slice(&first.to_be_bytes());
                head[4..8].copy_from_slice(&timestamp.to_be_bytes());
                head[8..10].copy_from_slice(&group.to_be_bytes());
                head[10..12].copy_from_slice(&(flags | u16::from(!platform.is_empty())).to_be_bytes());
                behind.copy_from_slice(platform);
                Ok(length)
            }
        }
    }
}

impl Session {
    fn word(&self, version: u32) -> Result<u32, EmitError> {
        if self.vlan > vlan::MAX_ID || self.class > 7 || self.encapsulation > 3 || self.number > MAX_SESSION {
            return Err(EmitError::Field("ERSPAN: VLAN 12 bits, class 3, encapsulation 2, session 10"));
        }
        let high = version << 28 | u32::from(self.vlan) << 16 | u32::from(self.class) << 13;
        Ok(high | u32::from(self.encapsulation) << 11 | u32::from(self.truncated) << 10 | u32::from(self.number))
    }
}

/// Returns the protocol of the mirrored frame.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    let next = match view.header.frame_type() {
        ETHERNET => Next::Protocol(Protocol::Ethernet),
        IP => Next::Number(Number::version_of(view.payload)),
        _ => Next::End,
    };
    Ok(Step::new(view.length, view.payload.len(), next))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: Session = Session { vlan: 0x123, class: 5, encapsulation: 3, truncated: true, number: 0x201 };

    fn check(bytes: &[u8], header: Header) {
        let view = View::parse(bytes).unwrap();
        assert_eq!((view.header(), view.header_len()), (header, bytes.len()));
        let mut out = vec![9; bytes.len()];
        assert_eq!(header.emit(&mut out), Ok(bytes.len()));
        assert_eq!(out, bytes);
        assert_eq!(View::parse(&bytes[..bytes.len() - 1]).unwrap_err().flaw, Flaw::Short);
    }

    #[test]
    fn both_types_round_trip() {
        check(&[0x11, 0x23, 0xbe, 0x01, 0, 0x0f, 0, 1], Header::Type2 { session: SESSION, index: 0xf_0001 });
        let header = |flags, platform| Header::Type3 { session: SESSION, timestamp: 7, group: 8, flags, platform };
        check(&[0x21, 0x23, 0xbe, 0x01, 0, 0, 0, 7, 0, 8, 0x88, 0x06], header(0x8806, None));
        let long = [0x21, 0x23, 0xbe, 0x01, 0, 0, 0, 7, 0, 8, 0x80, 0x07, 1, 2, 3, 4, 5, 6, 7, 8];
        check(&long, header(0x8006, Some([1, 2, 3, 4, 5, 6, 7, 8])));
        assert_eq!(header(0x8806, None).frame_type(), IP);
        assert_eq!(View::parse(&[0; 12]).unwrap_err().flaw, Flaw::Version);
    }

    #[test]
    fn values_beyond_the_header_are_rejected() {
        for session in [
            Session { vlan: 4096, ..SESSION },
            Session { class: 8, ..SESSION },
            Session { encapsulation: 4, ..SESSION },
            Session { number: 1024, ..SESSION },
        ] {
            assert!(matches!(Header::Type2 { session, index: 0 }.emit(&mut [0; 8]), Err(EmitError::Field(_))));
        }
        assert!(matches!(
            Header::Type2 { session: SESSION, index: 1 << 20 }.emit(&mut [0; 8]),
            Err(EmitError::Field(_))
        ));
        let odd = Header::Type3 { session: SESSION, timestamp: 0, group: 0, flags: 1, platform: None };
        assert!(matches!(odd.emit(&mut [0; 12]), Err(EmitError::Field(_))));
    }
}
