//! The port contract.
//!
//! A receiving queue is shaped like `std::io::BufRead`: [`RxQueue::fill`] shows what is there,
//! [`RxQueue::consume`] gives the first frames back. Since `fill` borrows its own queue alone, one thread
//! can hold the heads of many queues at once in safe code, which is what a merge needs. Calls are virtual
//! and are paid per round of frames, never per frame.

use crate::held::{Holding, Submitting};
use crate::live::{LiveSender, Unable};
use crate::options::RxOptions;
use crate::scatter::Scatter;
use linerate_burst::{Burst, Horizon, Interface, Ledger, Nanos, Sizes};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What a queue has ready: frames, how far the input is complete behind them, and where they were seen.
///
/// All come from one call because they are only true together: a horizon taken later could lie beyond
/// frames that arrived in between, and a file may describe a new interface just before its first frame.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// Frames ready now, oldest first; may be empty. Until they are consumed nobody writes to them. The bytes behind a frame
    /// ([`linerate_burst::TAIL`] of them are mapped) may be written by others at any time, and are not to be read.
    pub burst: Burst<'a>,
    /// No frame that is not in `burst` is older than this.
    pub horizon: Horizon,
    /// The interfaces that descs of this queue point to. Grows, never changes otherwise; the same for all
    /// queues of a port.
    pub interfaces: &'a [Interface],
}

/// One receive path of a port, owned by one thread.
pub trait RxQueue: Send {
    /// Takes frames in from now on, where the port was opened paused ([`RxOptions::paused`]).
    fn start(&mut self) {}

    /// The frames ready at `now`: those shown before and not consumed, and perhaps more behind them.
    fn fill(&mut self, now: Nanos) -> Result<Head<'_>, PortError>;

    /// Gives the first `frames` of what `fill` showed back to the backend.
    ///
    /// # Panics
    /// If that many were not shown.
    fn consume(&mut self, frames: usize);

    /// Stops taking in frames; `fill` goes on to show what had arrived, then [`Horizon::Ended`]. Counters
    /// are exact after that.
    fn detach(&mut self);

    /// What to wait on while nothing is ready; `None` where there is nothing to wait on and the caller
    /// has to look again after a while.
    fn wake(&self) -> Option<BorrowedFd<'_>>;

    /// Whether the last `fill` came back empty in the middle of its work, so that others get their turn: there is
    /// nothing to wait for, it goes on with the next call.
    fn is_at_work(&self) -> bool {
        false
    }

    /// Where looking for frames takes time from whoever brings them: how long to wait before the next look, while they come.
    fn nap(&self) -> Option<Duration> {
        None
    }

    /// Adds this queue's counters.
    fn counters(&self, ledger: &mut Ledger);

    /// What the queue has counted itself by the last `fill`, of frames that it does not show: where that was all that was wanted
    /// ([`RxOptions::tally`]), and is to be had.
    fn tallied(&self) -> Option<&Tallied> {
        None
    }

    /// The queue as one whose frames can be held, where they can.
    fn holding(&mut self) -> Option<&mut dyn Holding> {
        None
    }

    /// The queue as one that reads frames to where they are wanted, where it was opened so ([`RxOptions::scatter`]).
    fn scatter(&mut self) -> Option<&mut dyn Scatter> {
        None
    }
}

/// Frames that a queue has counted and does not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tallied {
    /// How many there were.
    pub frames: u64,
    /// The bytes they had on the wire, without FCS.
    pub bytes: u64,
    /// The shortest and the longest of them, in bytes on the wire without FCS.
    pub lengths: Option<(u32, u32)>,
    /// How many had which size.
    pub sizes: Sizes,
}

/// One send path of a port, owned by one thread.
pub trait TxQueue: Send {
    /// Takes frames from the front of `burst` and returns how many it is done with, sent or dropped with
    /// a reason. Fewer than offered means that the queue is full for now.
    fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError>;

    /// Gets what was taken so far on its way; false while some of it is still in hand. `now` is how far the
    /// sender is complete: nothing older will be sent. As it is here it is for queues that keep nothing.
    fn flush(&mut self, now: Nanos) -> Result<bool, PortError> {
        let _ = now;
        Ok(true)
    }

    /// What was sent so far; frames dropped do not count.
    fn sent(&self) -> Sent;

    /// What to wait on while the queue is full; `None` where the caller has to try again after a while.
    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Adds this queue's counters.
    fn counters(&self, ledger: &mut Ledger);

    /// The queue as one that sends frames from where they lie, where it can.
    fn submitting(&mut self) -> Option<&mut dyn Submitting> {
        None
    }

    /// The queue as one that makes frames itself, where it can.
    fn live(&mut self) -> Option<&mut dyn LiveSender> {
        None
    }
}

/// How much a queue has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames.
    pub frames: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
}

impl Sent {
    /// These frames were sent too.
    pub fn add(&mut self, burst: Burst<'_>) {
        self.frames += burst.len() as u64;
        self.bytes += burst.bytes();
    }
}

/// Counters of a whole port that no queue owns: the network card's.
pub trait Monitor: Send {
    /// Adds what was counted since the port was opened.
    fn counters(&self, ledger: &mut Ledger);
}

/// Who moves the time of a port on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// The clock of this machine: it stamps the frames, and the horizon follows it though none comes.
    Clock,
    /// Somebody else, who may stop, or be of another time: frames of the clock wait for them so long at most.
    Others {
        /// How long.
        patience: Duration,
    },
    /// Nobody: all frames are there, as in a file.
    Stored,
}

impl Feed {
    /// Others, with the patience that options ask for: that of the lag, and no less than [`PATIENCE`].
    pub fn others(options: &RxOptions) -> Feed {
        Feed::Others { patience: options.lag.map_or(PATIENCE, |lag| lag.max(PATIENCE)) }
    }
}

/// How long frames of live ports wait for somebody who brings nothing. The ring of a `packet` lane bears a stall of 128 ms
/// and more; whoever shares a ring says at least every 10 ms how far it is complete.
pub const PATIENCE: Duration = Duration::from_millis(50);

/// An opened receiving port: its queues are the lanes of a merge.
pub struct RxPort {
    /// As the user named it.
    pub name: String,
    /// One or more queues.
    pub queues: Vec<Box<dyn RxQueue>>,
    /// Who moves its time on.
    pub feed: Feed,
    /// The port's own counters, where there are any.
    pub monitor: Option<Box<dyn Monitor>>,
    /// The filter text that the backend has applied to all frames except those flagged `Flags::VLAN_RESTORED`, because the
    /// kernel sees those without their tag; empty if it has applied none. A consumer applies its own filter unless it is this one.
    pub filter: String,
    /// By how much its clock is to be set forward, in nanoseconds: whoever orders frames adds this to their times.
    pub offset_ns: i64,
    /// What was chosen and why, a line each, for the user.
    pub notes: Vec<String>,
}

impl RxPort {
    /// A port of these queues that has nothing more to it.
    pub fn new(name: impl Into<String>, queues: Vec<Box<dyn RxQueue>>, feed: Feed) -> Self {
        let (name, notes) = (name.into(), Vec::new());
        RxPort { name, queues, feed, monitor: None, filter: String::new(), offset_ns: 0, notes }
    }
}

/// An opened sending port.
pub struct TxPort {
    /// As the user named it.
    pub name: String,
    /// One or more queues.
    pub queues: Vec<Box<dyn TxQueue>>,
    /// The port's own counters, where there are any.
    pub monitor: Option<Box<dyn Monitor>>,
}

/// Why a port does not work, in classes that say what the caller can do.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// Something transient: call again.
    #[error("{port}: {reason}; try again")]
    Again {
        /// Which port.
        port: String,
        /// What happened.
        reason: String,
    },
    /// The port is down and may come back: go on calling. Said once for each time it goes down.
    #[error("{port}: the interface is down")]
    Down {
        /// Which port.
        port: String,
    },
    /// The port failed or could not be opened. An end in order is none: [`Horizon::Ended`] says it.
    #[error("{port}: {reason}")]
    Broken {
        /// Which port.
        port: String,
        /// What failed and what to do about it.
        reason: String,
    },
    /// Whoever read what is sent there has gone, as one does who has enough.
    #[error("{port}: {reason}")]
    Unread {
        /// Which port.
        port: String,
        /// What was written before that.
        reason: String,
    },
    /// What was asked for is nothing that a port can be: nothing was opened.
    #[error("{port}: {reason}")]
    Wrong {
        /// Which port, as the user wrote it.
        port: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// The port does not make these frames itself.
    #[error("{port}: {reason}")]
    Unable {
        /// Which port.
        port: String,
        /// Why, and whether it would send them.
        reason: Unable,
    },
}

impl PortError {
    /// A [`PortError::Broken`].
    pub fn broken(port: impl Into<String>, reason: impl Into<String>) -> Self {
        PortError::Broken { port: port.into(), reason: reason.into() }
    }

    /// The interface is gone: nobody asked for that end.
    pub fn removed(port: impl Into<String>) -> Self {
        PortError::broken(port, "the interface was removed")
    }

    /// A [`PortError::Wrong`].
    pub fn wrong(port: impl Into<String>, reason: impl Into<String>) -> Self {
        PortError::Wrong { port: port.into(), reason: reason.into() }
    }
}
