//! What can go wrong while a ring is made, shared or attached to.

use linerate_burst::text::quoted;
use std::io;

/// Why a ring could not be made or attached to. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for cannot be.
    #[error("{0}")]
    Invalid(String),
    /// Somebody shares under this name already.
    #[error("{address} is being shared by pid {pid}")]
    Taken {
        /// The name.
        address: String,
        /// Who shares it; 0 where that cannot be seen from here.
        pid: i32,
    },
    /// There is too little memory, or memory of the kind asked for.
    #[error("{0}")]
    Memory(String),
    /// Nobody shares under this name.
    #[error(
        "nobody shares {address}: `linerate capture PORT --share {}` would; a name is of one network namespace, a path of all",
        quoted(address)
    )]
    Absent {
        /// The name.
        address: String,
    },
    /// The writer does not take this reader.
    #[error("{address}: {reason}")]
    Refused {
        /// The name.
        address: String,
        /// The writer's words, or ours about the writer.
        reason: String,
    },
    /// The other side did something else than the protocol says.
    #[error("{address}: what answers is no block ring: {reason}")]
    Protocol {
        /// The name.
        address: String,
        /// What it did.
        reason: String,
    },
    /// The other side said nothing: whether it is a ring is not known.
    #[error("{address}: {reason}")]
    Unanswered {
        /// The name.
        address: String,
        /// What it did instead, and what to do.
        reason: &'static str,
    },
    /// It was there, and ended otherwise than in order.
    #[error("{address}: {reason}")]
    Gone {
        /// The name.
        address: String,
        /// How.
        reason: String,
    },
    /// A system call failed.
    #[error("{doing}: {reason}")]
    System {
        /// What was being done.
        doing: String,
        /// The system's answer; not the source of this error, or chains of errors would say it twice.
        reason: io::Error,
    },
}

impl Error {
    /// A [`Error::System`].
    pub(crate) fn system(doing: impl Into<String>, reason: impl Into<io::Error>) -> Self {
        Error::System { doing: doing.into(), reason: reason.into() }
    }
}
