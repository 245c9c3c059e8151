//! Ports that generate frames themselves, from a description of streams.
//!
//! The description is between the sender and the backend: this contract does not know streams. The program describes
//! them by `linerate_generate::stream::StreamSet`, whose `Stream::frame` defines each frame; what a port sends must
//! equal that. Commands to running streams are `linerate_generate::Command`.

use crate::contract::{PortError, Sent};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// A packet that leaves more than this after its due time is late.
pub const LATE: Duration = Duration::from_millis(1);
/// A delayed sender catches up with this much of its schedule; the rest of the schedule is shifted.
pub const CATCH_UP: Duration = Duration::from_millis(100);

/// A sending queue that generates frames itself.
pub trait LiveSender: Send {
    /// Returns the longest frame that it sends, wherever it is generated, in bytes without FCS.
    fn longest(&self) -> usize;

    /// Prepares to send what `streams` describes; from then on the queue takes no other frames. Needs the privileges
    /// that opening needed. After [`PortError::Unable`] the queue is unchanged, as it is if it does not know the type.
    fn prepare(&mut self, streams: &dyn Any) -> Result<Arc<dyn LiveControl>, PortError>;

    /// Does the same for streams that may be [controlled](LiveControl::command) while they run.
    fn prepare_commanded(&mut self, streams: &dyn Any) -> Result<Arc<dyn LiveControl>, PortError>;

    /// Sends until the streams end or are stopped. Another call continues where the last one stopped, with a new
    /// schedule.
    fn run(&mut self) -> Result<(), PortError>;
}

/// Control of running streams by another thread.
pub trait LiveControl: Debug + Send + Sync {
    /// Returns the progress of the streams.
    fn progress(&self) -> LiveProgress;

    /// Returns the number of frames made per stream, in the order of the set.
    fn made(&self) -> Vec<u64>;

    /// Has the running streams check for external changes (a clock that was set, a removed interface, an early end) and
    /// apply commands that are due. Must be called several times a second, and again within the time returned.
    fn look(&self) -> Duration;

    /// Stops [`LiveSender::run`] within milliseconds; it will not run again until [`LiveControl::resume`].
    fn stop(&self);

    /// Allows the streams to run again.
    fn resume(&self);

    /// Returns the time since the streams first ran, which times of commands count from.
    fn elapsed(&self) -> Duration;

    /// Checks whether the streams support a command.
    ///
    /// # Errors
    /// The reason if they do not.
    fn check(&self, command: &dyn Any) -> Result<(), String>;

    /// Sends a supported command to the streams: it takes effect at its time, or at once if that has passed.
    fn command(&self, command: &dyn Any);

    /// Returns the commands applied so far. Each start or end of a stream is reported once.
    fn done(&self) -> AppliedCommands;
}

/// Commands that streams have applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedCommands {
    /// Number of commands.
    pub commands: u64,
    /// The time of the last of them, in nanoseconds from the start.
    pub until: Option<u64>,
    /// Streams that restarted, in this order.
    pub begun: Vec<RestartedStream>,
    /// Streams that have made all of their frames since then, by their indices.
    pub ended: Vec<u32>,
}

/// A stream that restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartedStream {
    /// Index in the set.
    pub stream: u32,
    /// New number in trailers, if it changed.
    pub number: Option<u32>,
    /// Frames made before the restart.
    pub made: u64,
}

/// Progress of streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveProgress {
    /// Totals sent.
    pub sent: Sent,
    /// Longest delay of a frame after its due time.
    pub late_max: Duration,
    /// Mean delay over all frames.
    pub late_mean: Duration,
    /// Frames made more than [`LATE`] after their due time.
    pub late: u64,
    /// Shift of the end of the schedule, caused by delays longer than [`CATCH_UP`].
    pub shifted: Duration,
}

/// Reason why a port does not generate the frames of streams itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unable {
    /// It cannot generate such frames, or not in this order or at these times. It can send them if this process
    /// generates them.
    #[error("{0}")]
    Make(String),
    /// It sends no frames of that length, wherever they are generated.
    #[error("frames of {length} bytes: the kernel makes at most {most}; use packet: or xdp:")]
    TooLong {
        /// Requested length, without FCS.
        length: usize,
        /// Longest supported length, without FCS.
        most: usize,
    },
}
