//! Geneve (RFC 8926), with its options.

use crate::error::{room, split};
use crate::registry::{Next, Step};
use crate::{EmitError, Flaw, Malformed, Number, Protocol, ethernet, lookup};

/// Bytes of the header without options.
pub const LEN: usize = 8;
/// Bytes of options in the longest header.
pub const MAX_OPTIONS: usize = 0x3f * UNIT;

/// UDP port.
pub const PORT: u16 = 6081;

/// The largest network identifier.
pub const MAX_VNI: u32 = 0xff_ffff;

/// Unit of the lengths of options, in bytes.
const UNIT: usize = 4;
const CONTROL: u8 = 0x80;
const CRITICAL: u8 = 0x40;

/// A Geneve packet.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a packet; the options must be complete.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let flawed = |flaw| Malformed { protocol: Protocol::Geneve, flaw };
        let (head, rest) = split::<LEN>(bytes, Protocol::Geneve)?;
        if head[0] >> 6 != 0 {
            return Err(flawed(Flaw::Version));
        }
        let (options, payload) =
            rest.split_at_checked(usize::from(head[0] & 0x3f) * UNIT).ok_or(flawed(Flaw::Short))?;
        Ok(View { head, options, payload })
    }

    /// Returns the length of the header in bytes, options included: 8 to 260.
    pub fn header_len(&self) -> usize {
        LEN + self.options.len()
    }

    /// Returns whether the packet is for the tunnel endpoint itself (OAM).
    pub fn control(&self) -> bool {
        self.head[1] & CONTROL != 0
    }

    /// Returns whether an option is critical.
    pub fn critical(&self) -> bool {
        self.head[1] & CRITICAL != 0
    }

    /// Returns the EtherType of the payload; 0x6558 for Ethernet.
    pub fn protocol(&self) -> u16 {
        u16::from_be_bytes([self.head[2], self.head[3]])
    }

    /// Returns the virtual network identifier, 24 bits.
    pub fn vni(&self) -> u32 {
        u32::from_be_bytes([0, self.head[4], self.head[5], self.head[6]])
    }

    /// Returns the options, in order. The list ends at the first that does not fit.
    pub fn options(&self) -> Options<'a> {
        Options { rest: self.options }
    }

    /// Returns the payload after the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header<'a> {
        Header {
            control: self.control(),
            critical: self.critical(),
            protocol: self.protocol(),
            vni: self.vni(),
            options: self.options,
        }
    }
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneveOption<'a> {
    /// Option class: namespace of `kind`.
    pub class: u16,
    /// Type; critical if the upper bit is set.
    pub kind: u8,
    /// Data: a multiple of 4 bytes, at most 124.
    pub data: &'a [u8],
}

impl GeneveOption<'_> {
    /// Writes the option to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let units = self.data.len() / UNIT;
        if !self.data.len().is_multiple_of(UNIT) || units > 0x1f {
            return Err(EmitError::Field("a Geneve option has a multiple of 4 bytes, at most 124"));
        }
        let (head, data) = room::<UNIT>(out, UNIT + self.data.len())?;
        let [high, low] = self.class.to_be_bytes();
        *head = [high, low, self.kind, units as u8];
        data.copy_from_slice(self.data);
        Ok(UNIT + self.data.len())
    }
}

/// Iterates over the options of a header.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Options<'a> {
    type Item = GeneveOption<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let ([high, low, kind, length], rest) = self.rest.split_first_chunk::<UNIT>()?;
        let (data, rest) = rest.split_at_checked(usize::from(length & 0x1f) * UNIT)?;
        self.rest = rest;
        Some(GeneveOption { class: u16::from_be_bytes([*high, *low]), kind: *kind, data })
    }
}

/// A Geneve header; its length is computed when it is emitted, reserved bits are discarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header<'a> {
    /// True if the packet is for the tunnel endpoint itself (OAM).
    pub control: bool,
    /// True if an option is critical.
    pub critical: bool,
    /// EtherType of the payload; 0x6558 for Ethernet.
    pub protocol: u16,
    /// Virtual network identifier, at most [`MAX_VNI`].
    pub vni: u32,
    /// The options as on the wire, at most [`MAX_OPTIONS`] bytes; [`GeneveOption::emit`] writes each.
    pub options: &'a [u8],
}

impl Header<'_> {
    /// Writes the header to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        if self.vni > MAX_VNI {
            return Err(EmitError::Field("a virtual network identifier has 24 bits"));
        }
        if !self.options.len().is_multiple_of(UNIT) || self.options.len() > MAX_OPTIONS {
            return Err(EmitError::Field("Geneve options have a multiple of 4 bytes, at most 252"));
        }
        let length = LEN + self.options.len();
        let (head, options) = room::<LEN>(out, length)?;
        let flags = if self.control { CONTROL } else { 0 } | if self.critical { CRITICAL } else { 0 };
        let ([high, low], [_, a, b, c]) = (self.protocol.to_be_bytes(), self.vni.to_be_bytes());
        *head = [(self.options.len() / UNIT) as u8, flags, high, low, a, b, c, 0];
        options.copy_from_slice(self.options);
        Ok(length)
    }
}

/// Returns the protocol after the header, selected by an EtherType. Reserved bits are ignored (RFC 8926 section 3.4).
/// But only a port identifies this header: if reserved bits are set, the EtherType must be known.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    let number = Number::EtherType(view.protocol());
    let is_reserved = view.head[1] & !(CONTROL | CRITICAL) != 0 || view.head[7] != 0;
    if view.protocol() <= ethernet::MAX_LENGTH || is_reserved && lookup::protocol(number).is_none() {
        return Err(Malformed { protocol: Protocol::Geneve, flaw: Flaw::Reserved });
    }
    Ok(Step::new(view.header_len(), view.payload.len(), Next::Number(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_with_options_round_trips() {
        let bytes = [3, 0x40, 0x65, 0x58, 0, 0, 0x0a, 0, 0x01, 0x02, 0x80, 1, 9, 8, 7, 6, 0xff, 0xff, 1, 0, 0xaa];
        let view = View::parse(&bytes).unwrap();
        assert_eq!((view.header_len(), view.vni(), view.protocol()), (20, 10, 0x6558));
        assert_eq!((view.critical(), view.control(), view.payload()), (true, false, &[0xaa][..]));
        let options: Vec<_> = view.options().collect();
        assert_eq!(options[0], GeneveOption { class: 0x0102, kind: 0x80, data: &[9, 8, 7, 6] });
        assert_eq!(options[1], GeneveOption { class: 0xffff, kind: 1, data: &[] });
        let mut list = [0; 12];
        let first = options[0].emit(&mut list).unwrap();
        assert_eq!((first, options[1].emit(&mut list[first..])), (8, Ok(4)));
        let mut out = [9; 20];
        assert_eq!(Header { options: &list, ..view.header() }.emit(&mut out), Ok(20));
        assert_eq!(out, bytes[..20]);
        assert_eq!(View::parse(&bytes[..19]).unwrap_err().flaw, Flaw::Short);
        assert_eq!(View::parse(&[0x40; 20]).unwrap_err().flaw, Flaw::Version);
    }

    #[test]
    fn longest_option_round_trips() {
        let option = GeneveOption { class: 1, kind: 2, data: &[3; 124] };
        let mut options = [0; 128];
        assert_eq!(option.emit(&mut options), Ok(128));
        options[3] |= 0xe0; // reserved
        let mut bytes = [0; 136];
        Header { options: &options, ..Header::default() }.emit(&mut bytes).unwrap();
        assert!(View::parse(&bytes).unwrap().options().eq([option]));
    }

    #[test]
    fn reserved_bits_are_ignored_before_known_protocols() {
        for (at, byte) in [(0, 0), (1, 1), (1, 0x3f), (1, 0xff), (7, 1), (7, 0xff)] {
            let mut bytes = [0, 0, 0x08, 0, 0, 0, 1, 0];
            bytes[at] = byte;
            assert_eq!(step(&bytes).unwrap().next, Next::Number(Number::EtherType(0x0800)));
            bytes[2] = 0x12;
            assert_eq!(step(&bytes).is_ok(), byte == 0, "an unknown EtherType");
            bytes[2] = 0;
            assert_eq!(step(&bytes).unwrap_err().flaw, Flaw::Reserved, "no EtherType");
        }
    }

    #[test]
    fn an_option_that_does_not_fit_ends_the_list() {
        let bytes = [1, 0, 0x65, 0x58, 0, 0, 1, 0, 0, 1, 1, 2];
        assert_eq!(View::parse(&bytes).unwrap().options().count(), 0);
    }

    #[test]
    fn values_beyond_the_header_are_rejected() {
        let header = Header::default();
        assert!(matches!(Header { vni: 1 << 24, ..header }.emit(&mut [0; 8]), Err(EmitError::Field(_))));
        assert!(matches!(Header { options: &[0; 3], ..header }.emit(&mut [0; 16]), Err(EmitError::Field(_))));
        assert!(matches!(Header { options: &[0; 256], ..header }.emit(&mut [0; 512]), Err(EmitError::Field(_))));
        assert!(matches!(
            GeneveOption { class: 0, kind: 0, data: &[0; 128] }.emit(&mut [0; 256]),
            Err(EmitError::Field(_))
        ));
    }
}
