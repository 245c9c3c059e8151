//! Ports that make frames themselves, from a description of what is to be sent.
//!
//! How that is described is between whoever sends and the backend: this contract knows no streams. The program describes
//! it by `linerate_generate::stream::StreamSet`, whose `Stream::frame` says what each frame is; what a port sends has to
//! equal that. What streams are told while they run is a `linerate_generate::Command`.

use crate::contract::{PortError, Sent};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// A packet that leaves more than this after it was due is late.
pub const LATE: Duration = Duration::from_millis(1);
/// A sender that was held up catches up with this much of its schedule; the rest of the schedule is due later.
pub const CATCH_UP: Duration = Duration::from_millis(100);

/// A sending queue that makes frames itself.
pub trait LiveSender: Send {
    /// The longest frame that it sends, whoever makes it; without FCS.
    fn longest(&self) -> usize;

    /// Gets ready to send what `streams` describes; from then on the queue takes no other frames. Needs the privileges
    /// that opening needed. After [`PortError::Unable`] the queue is as it was; so it is when it does not know the type.
    fn prepare(&mut self, streams: &dyn Any) -> Result<Arc<dyn LiveControl>, PortError>;

    /// The same of streams that may be [told](LiveControl::tell) something while they run.
    fn prepare_told(&mut self, streams: &dyn Any) -> Result<Arc<dyn LiveControl>, PortError>;

    /// Sends until the streams end or are stopped. Called again it goes on where it was, its schedule beginning anew.
    fn run(&mut self) -> Result<(), PortError>;
}

/// What another thread may do with streams that run.
pub trait LiveControl: Debug + Send + Sync {
    /// How far they are.
    fn progress(&self) -> LiveProgress;

    /// How many frames of each stream were made, in the order of the set.
    fn made(&self) -> Vec<u64>;

    /// Has the running streams look at the world: a clock that was set, an interface that is gone, an end that came
    /// early; and has them do what they are told. To be called several times a second, and again within the time returned.
    fn look(&self) -> Duration;

    /// Has [`LiveSender::run`] return, within milliseconds if it runs; until [`LiveControl::resume`] it will not
    /// run again.
    fn stop(&self);

    /// Lets the streams run again.
    fn resume(&self);

    /// For how long the streams have been running, since they first did: what times of commands are counted in.
    fn elapsed(&self) -> Duration;

    /// Whether streams could be told that.
    ///
    /// # Errors
    /// Why not.
    fn check(&self, command: &dyn Any) -> Result<(), String>;

    /// Tells streams something that they can be told: from its time on, or from now on where that is over.
    fn tell(&self, command: &dyn Any);

    /// What of it they have done. What has begun or ended is told once.
    fn done(&self) -> LiveDone;
}

/// What streams have done of what they were told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveDone {
    /// So many commands.
    pub commands: u64,
    /// The time of the last of them, in nanoseconds from the start.
    pub until: Option<u64>,
    /// Streams that began anew, in this order.
    pub begun: Vec<LiveBegun>,
    /// Streams that have made all of their frames since then, by their places.
    pub ended: Vec<u32>,
}

/// A stream that began anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBegun {
    /// Which, by its place in the set.
    pub stream: u32,
    /// Its number in trailers from then on, if that is another one.
    pub number: Option<u32>,
    /// Frames of it that were made before.
    pub made: u64,
}

/// How far streams are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveProgress {
    /// What was sent.
    pub sent: Sent,
    /// The longest time by which a frame was made later than it was due.
    pub late_max: Duration,
    /// The mean over all frames.
    pub late_mean: Duration,
    /// Frames made more than [`LATE`] after they were due.
    pub late: u64,
    /// How much later the end of the schedule became, because the sender was held up for longer than [`CATCH_UP`].
    pub shifted: Duration,
}

/// Why a port does not make the frames of streams itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unable {
    /// It cannot make such frames, or not in this order or at these times. It can send them when they are made by
    /// this process.
    #[error("{0}")]
    Make(String),
    /// It sends no frames of that length, whoever makes them.
    #[error("frames of {length} bytes: the kernel makes at most {most}; use packet: or xdp:")]
    TooLong {
        /// What was asked for, without FCS.
        length: usize,
        /// The longest, without FCS.
        most: usize,
    },
}
