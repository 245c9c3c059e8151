//! The port contract.
//!
//! A receiving queue is shaped like `std::io::BufRead`: [`RxQueue::fill`] returns the frames that are ready,
//! [`RxQueue::consume`] releases the first of them. Since `fill` borrows only its own queue, one thread can hold the
//! heads of many queues at once in safe code, which a merge needs. Calls are virtual and are paid per burst, never per
//! frame.

use crate::held_frame::{HoldQueue, SubmitQueue};
use crate::live::{LiveSender, Unable};
use crate::options::RxOptions;
use crate::scatter::ScatterQueue;
use linerate_burst::{Burst, Horizon, Interface, Ledger, Nanos, Sizes};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Frames that a queue has ready, how far the input is complete after them, and the interfaces that captured them.
///
/// All are returned by one call because they are only consistent together: a horizon taken later could lie beyond
/// frames that arrived in between, and a file may describe a new interface just before its first frame.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// Frames ready now, oldest first; may be empty. They are not written to until they are consumed. The bytes after a
    /// frame ([`linerate_burst::TAIL`] of them are mapped) may be written by others at any time and must not be read.
    pub burst: Burst<'a>,
    /// No frame outside `burst` is older than this.
    pub horizon: Horizon,
    /// The interfaces that descs of this queue point to. Grows, never changes otherwise; the same for all
    /// queues of a port.
    pub interfaces: &'a [Interface],
}

/// One receive path of a port, owned by one thread.
pub trait RxQueue: Send {
    /// Starts taking in frames, if the port was opened paused ([`RxOptions::paused`]).
    fn start(&mut self) {}

    /// Returns the frames ready at `now`: those returned before and not consumed, possibly followed by more.
    fn fill(&mut self, now: Nanos) -> Result<Head<'_>, PortError>;

    /// Releases the first `frames` of those that `fill` returned to the backend.
    ///
    /// # Panics
    /// If `fill` returned fewer.
    fn consume(&mut self, frames: usize);

    /// Stops taking in frames; `fill` continues to return those that had arrived, then [`Horizon::Ended`]. Counters are
    /// exact after that.
    fn detach(&mut self);

    /// Returns the descriptor to poll while no frame is ready; `None` if it has none and the caller must retry after a
    /// while.
    fn wake(&self) -> Option<BorrowedFd<'_>>;

    /// Returns whether the last `fill` returned early and empty so that other lanes get their turn: do not wait, the
    /// next call continues the work.
    fn has_pending_work(&self) -> bool {
        false
    }

    /// Returns the time to wait before the next poll while frames arrive, if they become visible in batches, or if
    /// polling costs their producer time.
    fn poll_interval(&self) -> Option<Duration> {
        None
    }

    /// Adds this queue's counters.
    fn counters(&self, ledger: &mut Ledger);

    /// Returns the totals by the last `fill` of frames that the queue counted without returning them, if it was opened
    /// for that ([`RxOptions::tally`]) and supports it.
    fn tallied(&self) -> Option<&FrameTally> {
        None
    }

    /// Returns the interface to hold frames, if the queue supports it.
    fn holding(&mut self) -> Option<&mut dyn HoldQueue> {
        None
    }

    /// Returns the interface to read frames straight to their destination, if the queue was opened for it
    /// ([`RxOptions::scatter`]).
    fn scatter(&mut self) -> Option<&mut dyn ScatterQueue> {
        None
    }
}

/// Totals of frames that a queue counted without returning them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameTally {
    /// Number of frames.
    pub frames: u64,
    /// Bytes on the wire, without FCS.
    pub bytes: u64,
    /// Shortest and longest frame, in bytes on the wire without FCS.
    pub lengths: Option<(u32, u32)>,
    /// Number of frames per size class.
    pub sizes: Sizes,
}

/// One send path of a port, owned by one thread.
pub trait TxQueue: Send {
    /// Takes frames from the front of `burst` and returns the number that it is done with, sent or dropped with a
    /// reason. Fewer than offered means that the queue is full for now.
    fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError>;

    /// Transmits what was taken so far; returns false while some of it is still buffered. `now` is the sender's
    /// horizon: nothing older will be sent. The default is for queues that buffer nothing.
    fn flush(&mut self, now: Nanos) -> Result<bool, PortError> {
        let _ = now;
        Ok(true)
    }

    /// Returns totals of what was sent so far, without dropped frames.
    fn sent(&self) -> Sent;

    /// Returns the descriptor to poll while the queue is full; `None` if the caller must retry after a while.
    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Adds this queue's counters.
    fn counters(&self, ledger: &mut Ledger);

    /// Returns the interface to send frames in place, if the queue supports it.
    fn submitting(&mut self) -> Option<&mut dyn SubmitQueue> {
        None
    }

    /// Returns the interface to generate frames in the port, if the queue supports it.
    fn live(&mut self) -> Option<&mut dyn LiveSender> {
        None
    }
}

/// Totals of a sending queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames.
    pub frames: u64,
    /// Bytes, without FCS.
    pub bytes: u64,
}

impl Sent {
    /// Adds a burst that was sent.
    pub fn add(&mut self, burst: Burst<'_>) {
        self.frames += burst.len() as u64;
        self.bytes += burst.bytes();
    }
}

/// Counters of a whole port that no queue owns: the network card's.
pub trait Monitor: Send {
    /// Adds the increments since the port was opened.
    fn counters(&self, ledger: &mut Ledger);
}

/// Clock source of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// The clock of this machine: it stamps the frames, and the horizon follows it even if no frame arrives.
    Clock,
    /// An external source, which may stop or follow another clock: frames of clocked ports wait for it at most
    /// `patience`.
    Others {
        /// Longest wait.
        patience: Duration,
    },
    /// None: all frames are present, as in a file.
    Stored,
}

impl Feed {
    /// Returns `Others` with the lag requested in `options` as patience, but at least [`PATIENCE`].
    pub fn others(options: &RxOptions) -> Feed {
        Feed::Others { patience: options.lag.map_or(PATIENCE, |lag| lag.max(PATIENCE)) }
    }
}

/// Time that frames of live ports wait for an external source that delivers nothing. The ring of a `packet` lane
/// buffers 128 ms or more; the writer of a shared ring updates its horizon at least every 10 ms.
pub const PATIENCE: Duration = Duration::from_millis(50);

/// An opened receiving port: its queues are the lanes of a merge.
pub struct RxPort {
    /// Port name as the user wrote it.
    pub name: String,
    /// One or more queues.
    pub queues: Vec<Box<dyn RxQueue>>,
    /// Clock source.
    pub feed: Feed,
    /// Counters of the port itself, if it has any.
    pub monitor: Option<Box<dyn Monitor>>,
    /// Filter text that the backend has applied to all frames except those flagged `Flags::VLAN_RESTORED`, because the
    /// kernel sees those without their tag; empty if none. A consumer applies its own filter unless it is the same
    /// text.
    pub filter: String,
    /// Clock correction in nanoseconds, added to time stamps when frames are ordered.
    pub offset_ns: i64,
    /// Choices made at open and their reasons, one line each, for the user.
    pub notes: Vec<String>,
}

impl RxPort {
    /// Creates a port of these queues and nothing else.
    pub fn new(name: impl Into<String>, queues: Vec<Box<dyn RxQueue>>, feed: Feed) -> Self {
        let (name, notes) = (name.into(), Vec::new());
        RxPort { name, queues, feed, monitor: None, filter: String::new(), offset_ns: 0, notes }
    }
}

/// An opened sending port.
pub struct TxPort {
    /// Port name as the user wrote it.
    pub name: String,
    /// One or more queues.
    pub queues: Vec<Box<dyn TxQueue>>,
    /// Counters of the port itself, if it has any.
    pub monitor: Option<Box<dyn Monitor>>,
}

/// Error of a port, classified by what the caller can do.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// Transient: call again.
    #[error("{port}: {reason}; try again")]
    Again {
        /// Port name.
        port: String,
        /// Cause.
        reason: String,
    },
    /// The port is down and may return: keep calling. Reported once each time it goes down.
    #[error("{port}: the interface is down")]
    Down {
        /// Port name.
        port: String,
    },
    /// The port failed or could not be opened. A regular end is not an error but [`Horizon::Ended`].
    #[error("{port}: {reason}")]
    Broken {
        /// Port name.
        port: String,
        /// Cause and remedy.
        reason: String,
    },
    /// The reader of what is sent has disconnected, as `head` does when it has enough.
    #[error("{port}: {reason}")]
    Unread {
        /// Port name.
        port: String,
        /// Amount written before that.
        reason: String,
    },
    /// The request is invalid for any port: nothing was opened.
    #[error("{port}: {reason}")]
    Wrong {
        /// Port as the user wrote it.
        port: String,
        /// Problem, and what is expected instead.
        reason: String,
    },
    /// The port cannot generate these frames itself.
    #[error("{port}: {reason}")]
    Unable {
        /// Port name.
        port: String,
        /// Cause, and whether the port can send them.
        reason: Unable,
    },
}

impl PortError {
    /// Creates a [`PortError::Broken`].
    pub fn broken(port: impl Into<String>, reason: impl Into<String>) -> Self {
        PortError::Broken { port: port.into(), reason: reason.into() }
    }

    /// Creates the error for an interface that was removed during the run.
    pub fn removed(port: impl Into<String>) -> Self {
        PortError::broken(port, "the interface was removed")
    }

    /// Creates a [`PortError::Wrong`].
    pub fn wrong(port: impl Into<String>, reason: impl Into<String>) -> Self {
        PortError::Wrong { port: port.into(), reason: reason.into() }
    }
}
