//! Errors of parsing and emitting headers.

use crate::Protocol;
use std::fmt;

/// Error of parsing a header of `protocol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Malformed {
    /// The expected header.
    pub protocol: Protocol,
    /// Cause.
    pub flaw: Flaw,
}

/// Cause of a parse error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// The bytes end before the header does.
    Short,
    /// The version field is not the protocol's.
    Version,
    /// The header length field is less than the minimum.
    HeaderLength,
    /// The total length field is less than the length of the header.
    TotalLength,
    /// An option's length field is below 2, exceeds the header, or does not match its kind.
    OptionLength,
    /// A field has a reserved value, or one that the protocol does not define.
    Reserved,
    /// The header is longer than 65,535 bytes.
    TooLong,
}

impl Flaw {
    /// Returns a description, to follow the name of a protocol.
    pub fn describe(self) -> &'static str {
        match self {
            Flaw::Short => "the header is longer than the bytes available",
            Flaw::Version => "the version field is wrong",
            Flaw::HeaderLength => "the header length field is below the smallest header",
            Flaw::TotalLength => "the length field is below the header's own length",
            Flaw::Reserved => "a field has a reserved value",
            Flaw::TooLong => "the header is longer than 65535 bytes",
            Flaw::OptionLength => "an option's length field is wrong",
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.protocol.name(), self.flaw.describe())
    }
}

impl std::error::Error for Malformed {}

/// Error of emitting a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EmitError {
    /// The buffer is shorter than the `need` bytes of the header.
    NoRoom {
        /// Bytes the header takes.
        need: usize,
    },
    /// A value does not fit in its field; the text has the field and its limit.
    Field(&'static str),
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EmitError::NoRoom { need } => write!(f, "buffer too small: the header needs {need} bytes"),
            EmitError::Field(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for EmitError {}

/// Counts the work of a dissection, in headers and list entries. Tests compare it with the bytes of the frame.
#[inline(always)]
pub(crate) fn count(_steps: usize) {
    #[cfg(test)]
    STEPS.set(STEPS.get() + _steps);
}

#[cfg(test)]
thread_local!(pub(crate) static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });

/// Returns the first `N` bytes, and the rest.
#[inline(always)]
pub(crate) fn split<const N: usize>(bytes: &[u8], protocol: Protocol) -> Result<(&[u8; N], &[u8]), Malformed> {
    count(1);
    bytes.split_first_chunk().ok_or(Malformed { protocol, flaw: Flaw::Short })
}

/// Returns the first `N` bytes, for a header of `need` bytes that starts with them, and the rest.
pub(crate) fn room<const N: usize>(out: &mut [u8], need: usize) -> Result<(&mut [u8; N], &mut [u8]), EmitError> {
    match out.get_mut(..need).and_then(|header| header.split_first_chunk_mut()) {
        Some(parts) => Ok(parts),
        None => Err(EmitError::NoRoom { need }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_problem_and_position() {
        let malformed = Malformed { protocol: Protocol::Ipv4, flaw: Flaw::HeaderLength };
        assert_eq!(malformed.to_string(), "ipv4: the header length field is below the smallest header");
        assert_eq!(EmitError::NoRoom { need: 20 }.to_string(), "buffer too small: the header needs 20 bytes");
    }

    #[test]
    fn room_is_for_the_whole_header() {
        assert_eq!(room::<2>(&mut [0; 3], 4).unwrap_err(), EmitError::NoRoom { need: 4 });
        assert_eq!(room::<2>(&mut [0; 5], 4).unwrap().1.len(), 2);
    }
}
