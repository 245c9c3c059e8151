//! Errors while a ring is created, shared or attached to.

use linerate_burst::text::quoted;
use std::io;

/// The failure to create a ring or to attach to one; each message includes a remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An option is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The name is already in use.
    #[error("{address}: already shared by pid {pid}; choose another name")]
    Taken {
        /// Name of the ring.
        address: String,
        /// The process that shares it; 0 if it is not visible from here.
        pid: i32,
    },
    /// There is too little memory, or too little of the requested kind.
    #[error("{0}")]
    Memory(String),
    /// No ring is shared under this name.
    #[error(
        "{address}: no such ring; start one with `linerate capture PORT --share {}` (names are per network namespace, paths are not)",
        quoted(address)
    )]
    Absent {
        /// Name of the ring.
        address: String,
    },
    /// The writer rejected this reader.
    #[error("{address}: {reason}")]
    Refused {
        /// Name of the ring.
        address: String,
        /// The writer's reason, or ours.
        reason: String,
    },
    /// The peer violated the protocol.
    #[error("{address}: peer is not a linerate ring: {reason}")]
    Protocol {
        /// Name of the ring.
        address: String,
        /// The violation.
        reason: String,
    },
    /// The peer did not answer: it may not be a ring.
    #[error("{address}: {reason}")]
    Unanswered {
        /// Name of the ring.
        address: String,
        /// The cause and the remedy.
        reason: &'static str,
    },
    /// The ring ended abnormally.
    #[error("{address}: {reason}")]
    Gone {
        /// Name of the ring.
        address: String,
        /// The cause.
        reason: String,
    },
    /// A system call failed.
    #[error("{doing}: {reason}")]
    System {
        /// The operation.
        doing: String,
        /// The system's error; not the `source` of this error, or error chains would print it twice.
        reason: io::Error,
    },
}

impl Error {
    /// Returns a [`Error::System`].
    pub(crate) fn system(doing: impl Into<String>, reason: impl Into<io::Error>) -> Self {
        Error::System { doing: doing.into(), reason: reason.into() }
    }
}
