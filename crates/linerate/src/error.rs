//! Errors of the runs of [`Input`](crate::Input).

use crate::summary::Summary;
use linerate_engine::ReceiveError;
use linerate_port::PortError;

/// Error of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A port is unknown, or could not be opened; when sending, it failed.
    #[error(transparent)]
    Port(PortError),
    /// The filter is invalid.
    #[error(transparent)]
    Filter(#[from] linerate_filter::FilterError),
    /// The file to write could not be created.
    #[error("{path}: cannot create: {error}")]
    Create {
        /// Path as given.
        path: String,
        /// Cause.
        error: std::io::Error,
    },
    /// The text of the streams is invalid.
    #[error(transparent)]
    Streams(#[from] linerate_generate::file::FileError),
    /// The streams cannot be sent through this port.
    #[error(transparent)]
    Send(#[from] linerate_engine::streams::StreamsError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// The run failed: a port broke, the file could not be written, or the filter fits none of the link types. What it
    /// had received before is complete.
    #[error("{error}")]
    Run {
        /// Cause.
        #[source]
        error: ReceiveError,
        /// Result so far, of a run that ended with the failure.
        summary: Option<Box<Summary>>,
    },
}

impl From<PortError> for Error {
    fn from(error: PortError) -> Self {
        Error::Port(error)
    }
}
