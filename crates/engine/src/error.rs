//! Why a run that receives failed.

use crate::died::Died;
use linerate_burst::{Pick, SinkError};
use linerate_port::PortError;

/// Why a run that receives failed.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// An input.
    #[error(transparent)]
    Port(#[from] PortError),
    /// An output.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// Where frames of streams go.
    #[error(transparent)]
    Destination(#[from] linerate_receive::destination::DestinationError),
    /// More lanes than can be merged.
    #[error("{found} lanes: at most {most} can be merged; name fewer files, or open fewer queues of each port (as in @0-3, or lanes=4)", most = Pick::MAX_LANES)]
    Lanes {
        /// How many there are.
        found: usize,
    },
    /// Two in one run that do not bear others.
    #[error("{name} takes frames away, or in its own time: it is to be the only consumer of a run")]
    Alone {
        /// What it is called.
        name: &'static str,
    },
    /// The port was opened to count frames in the kernel, and a consumer needs the frames.
    #[error("{port} counts frames in the kernel and shows none, but {name} needs them: open the port without tally")]
    Tallied {
        /// The port.
        port: String,
        /// The consumer that needs the frames.
        name: &'static str,
    },
    /// What joins two ports.
    #[error("{name} joins two ports, and the run receives from {found}")]
    Ends {
        /// What it is called.
        name: &'static str,
        /// How many ports there are.
        found: usize,
    },
    /// The ring.
    #[error("sharing: {0}")]
    Share(#[from] linerate_share::Error),
    /// The thread that lets readers in.
    #[error("sharing: no thread can be started: {0}")]
    Acceptor(std::io::Error),
    /// A bug of this program.
    #[error(transparent)]
    Died(#[from] Died),
    /// A thread of a worker.
    #[error("no thread can be started for a worker: {0}; ask for fewer workers")]
    Worker(std::io::Error),
    /// The filter text does not fit the link type of an interface.
    #[error("interface {interface:?}: {reason}; none of its frames was selected")]
    Filter {
        /// Which interface.
        interface: String,
        /// What is wrong.
        reason: String,
    },
}

impl ReceiveError {
    /// Of what a thread died, if it is that.
    pub(crate) fn died(&self) -> Option<Died> {
        match self {
            ReceiveError::Died(died) => Some(died.clone()),
            _ => None,
        }
    }
}
