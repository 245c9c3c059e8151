//! Why a frame cannot be built.

use crate::{Protocol, Unfit};
use std::fmt;

/// Why a frame cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unbuilt {
    /// The place is shorter than the `need` bytes of the frame.
    NoRoom {
        /// Bytes of the frame.
        need: usize,
    },
    /// One header cannot be written.
    Header {
        /// Which one, from 0.
        index: usize,
        /// What it is.
        protocol: Protocol,
        /// What is wrong.
        problem: Problem,
    },
    /// A patch is for a header that is not there.
    NoSuchHeader {
        /// The number it gives.
        header: usize,
    },
}

/// Why a header cannot be written where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Its value does not fit into it, or what is behind is too long for its length field.
    Unfit(Unfit),
    /// It has no way to say that this comes next.
    CannotCarry(Protocol),
    /// Its checksum covers IP addresses, and no IP header stands in front.
    NoAddresses,
    /// A patch goes beyond it.
    PatchOutside,
}

impl From<Unfit> for Problem {
    fn from(unfit: Unfit) -> Self {
        Problem::Unfit(unfit)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Unfit(unfit) => unfit.fmt(f),
            Problem::CannotCarry(next) => write!(f, "cannot carry {}", next.name()),
            Problem::NoAddresses => f.write_str("the checksum covers IP addresses: put an IP header in front"),
            Problem::PatchOutside => f.write_str("a patch goes beyond the header"),
        }
    }
}

impl fmt::Display for Unbuilt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unbuilt::NoRoom { need } => write!(f, "no room for a frame of {need} bytes"),
            Unbuilt::Header { index, protocol, problem } => write!(f, "header {index}, {}: {problem}", protocol.name()),
            Unbuilt::NoSuchHeader { header } => write!(f, "a patch is for header {header}, which is not there"),
        }
    }
}

impl std::error::Error for Unbuilt {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_and_where() {
        let problem = Problem::CannotCarry(Protocol::Tcp);
        let error = Unbuilt::Header { index: 2, protocol: Protocol::Vlan, problem };
        assert_eq!(error.to_string(), "header 2, vlan: cannot carry tcp");
        assert_eq!(Unbuilt::NoRoom { need: 60 }.to_string(), "no room for a frame of 60 bytes");
    }
}
