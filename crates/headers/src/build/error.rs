//! Errors of building a frame.

use crate::{EmitError, Protocol};
use std::fmt;

/// Error of building a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// The buffer is shorter than the `need` bytes of the frame.
    NoRoom {
        /// Bytes of the frame.
        need: usize,
    },
    /// One header cannot be written.
    Header {
        /// Index of the header, from 0.
        index: usize,
        /// Protocol of the header.
        protocol: Protocol,
        /// Cause.
        problem: Problem,
    },
    /// A patch has an invalid header index.
    NoSuchHeader {
        /// Its header index.
        header: usize,
    },
}

/// Error of writing a header at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Its value does not fit, or its contents are too long for its length field.
    EmitError(EmitError),
    /// It cannot carry this protocol.
    CannotCarry(Protocol),
    /// Its checksum covers IP addresses, and no IP header precedes it.
    NoAddresses,
    /// A patch exceeds it.
    PatchOutside,
}

impl From<EmitError> for Problem {
    fn from(unfit: EmitError) -> Self {
        Problem::EmitError(unfit)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::EmitError(unfit) => unfit.fmt(f),
            Problem::CannotCarry(next) => write!(f, "cannot carry {}", next.name()),
            Problem::NoAddresses => f.write_str("the checksum covers IP addresses: add an IP header before it"),
            Problem::PatchOutside => f.write_str("a patch exceeds the header"),
        }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::NoRoom { need } => write!(f, "buffer too small: the frame needs {need} bytes"),
            BuildError::Header { index, protocol, problem } => {
                write!(f, "header {index}, {}: {problem}", protocol.name())
            }
            BuildError::NoSuchHeader { header } => write!(f, "patch for header {header}: no such header"),
        }
    }
}

impl std::error::Error for BuildError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_problem_and_position() {
        let problem = Problem::CannotCarry(Protocol::Tcp);
        let error = BuildError::Header { index: 2, protocol: Protocol::Vlan, problem };
        assert_eq!(error.to_string(), "header 2, vlan: cannot carry tcp");
        assert_eq!(BuildError::NoRoom { need: 60 }.to_string(), "buffer too small: the frame needs 60 bytes");
    }
}
