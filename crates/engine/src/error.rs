//! Errors of runs that receive.

use crate::thread_panic::ThreadPanic;
use linerate_burst::{FrameIndex, SinkError};
use linerate_port::PortError;

/// Error of a run that receives.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// Input port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// Output.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// Destination of frames of streams.
    #[error(transparent)]
    Destination(#[from] linerate_transport::destination::DestinationError),
    /// More lanes than can be merged.
    #[error("{found} lanes, at most {most} supported; name fewer files or open fewer queues (@0-3 or lanes=4)", most = FrameIndex::MAX_LANES)]
    Lanes {
        /// Number of lanes.
        found: usize,
    },
    /// A consumer that must be the only one has others.
    #[error("{name} must be the only consumer of a run")]
    NotSole {
        /// Name of the consumer.
        name: &'static str,
    },
    /// The port was opened to count frames in the kernel, but a consumer needs the frames.
    #[error("{port}: opened to count frames in the kernel, but {name} needs the frames; open it without tally")]
    Tallied {
        /// Port name.
        port: String,
        /// The consumer that needs the frames.
        name: &'static str,
    },
    /// A consumer that needs two ports has another number.
    #[error("{name} needs two ports, got {found}")]
    Ends {
        /// Name of the consumer.
        name: &'static str,
        /// Number of ports.
        found: usize,
    },
    /// Shared ring.
    #[error("sharing: {0}")]
    Share(#[from] linerate_share::Error),
    /// Thread that admits readers.
    #[error("sharing: cannot start a thread: {0}")]
    Acceptor(std::io::Error),
    /// Panic, a bug of this program.
    #[error(transparent)]
    ThreadPanic(#[from] ThreadPanic),
    /// Thread of a worker.
    #[error("cannot start a worker thread: {0}; use fewer workers")]
    Worker(std::io::Error),
    /// The filter text does not fit the link type of an interface.
    #[error("interface {interface:?}: {reason}; none of its frames was selected")]
    Filter {
        /// Interface name.
        interface: String,
        /// Cause.
        reason: String,
    },
}

impl ReceiveError {
    /// Returns the panic, if that is the error.
    pub(crate) fn died(&self) -> Option<ThreadPanic> {
        match self {
            ReceiveError::ThreadPanic(died) => Some(died.clone()),
            _ => None,
        }
    }
}
