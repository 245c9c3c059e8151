//! Recording -> rules -> schedule -> the queues of one port, or of two.
//!
//! One thread sends, by one clock: frames leave in the order of the recording, by whichever queue of whichever port. A
//! recording that fits into memory is read and prepared before the first frame leaves; for any other, and if each pass
//! has its own addresses, another thread prepares frames ahead.
//!
//! - `prepare`: changes to each frame; `feed`: source of prepared frames; `session`: schedule.

mod feed;
mod prepare;
mod session;
#[cfg(test)]
mod tests;

pub use crate::timing::{CATCH_UP, LATE, Timing};

use crate::clock::{Clock, SystemClock};
use crate::control::{Progress, Stop};
use feed::{Feed, HeldRecording, Passes, Stock};
use linerate_burst::Ledger;
use linerate_generate::{Pacing, Rewriting, Split, SplitBy};
use linerate_port::{PortError, RxPort, Sent, TxPort};
use prepare::FramePreparer;
use session::Session;
use std::sync::Arc;
use std::time::Duration;

/// Size up to which a recording is held in memory by default, in bytes.
pub const SMALL: u64 = 256 << 20;

/// Opens the recording from its start.
pub type Open = Box<dyn FnMut() -> Result<RxPort, PortError> + Send>;

/// A recording to be sent.
pub struct Replay {
    /// Opens it from the start.
    pub open: Open,
    /// Location while frames are sent.
    pub memory: RecordingMemory,
    /// Number of passes; 0: without end.
    pub loops: u64,
    /// Time from the last frame of a pass to the first of the next; by default the mean gap of a pass.
    pub loop_gap: Option<Duration>,
    /// Changes to frames.
    pub edits: Edits,
    /// Destination: one port, or the client's and the server's; all of their queues are used.
    pub ports: Vec<TxPort>,
    /// Schedule.
    pub pacing: Pacing,
    /// Does not wait for frames to be due: for ports that store frames with their times. Frames get their due times,
    /// counted from that of the first one, and the duration of the run is that of these times.
    pub at_once: bool,
    /// Maximum number of frames to send in all passes; `None`: all.
    pub packets: Option<u64>,
    /// Duration of the run, if limited.
    pub duration: Option<Duration>,
    /// Stops the run when requested.
    pub stop: Stop,
    /// Totals of the run so far.
    pub progress: Arc<Progress>,
}

/// Location of a recording while its frames are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordingMemory {
    /// In memory if it takes at most [`SMALL`] bytes there, else read ahead.
    #[default]
    IfSmall,
    /// In memory; an error if it would take more than half of what the system has available.
    Whole,
    /// Read ahead in bounded memory, again in each pass.
    Ahead,
}

/// Changes to frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edits {
    /// Selection of the frames to send.
    pub split: Split,
    /// Pads truncated frames with zeros; otherwise they are dropped and counted.
    pub pad: bool,
    /// Changes to the recorded packets.
    pub rewriting: Rewriting,
    /// Selection of frames for the second port, by their recorded content, before rewriting.
    pub split_by: Option<SplitBy>,
}

impl Default for Edits {
    fn default() -> Self {
        Edits { split: Split::WHOLE, pad: false, rewriting: Rewriting::default(), split_by: None }
    }
}

/// Result of a replay.
#[derive(Debug)]
pub struct ReplayReport {
    /// Packet accounting.
    pub ledger: Ledger,
    /// Totals sent and not dropped.
    pub sent: Sent,
    /// Totals by port.
    pub ports: Vec<(String, Sent)>,
    /// Time from the first frame to the last; by their times with `at_once`.
    pub elapsed: Duration,
    /// True if frames were sent without waiting.
    pub at_once: bool,
    /// Deviation from the schedule.
    pub timing: Timing,
    /// Number of completed passes over the recording.
    pub passes: u64,
    /// Number of truncated frames that were padded.
    pub padded: u64,
    /// Number of frames that rewriting changed, if requested.
    pub rewritten: Option<u64>,
    /// Number of times that no frame was ready because reading was too slow.
    pub starved: u64,
    /// Failure, if any.
    pub failure: Option<PortError>,
}

impl Replay {
    /// Sends until all passes are complete, the time is over, or stopping is requested.
    pub fn run(self) -> ReplayReport {
        self.run_by(Box::new(SystemClock))
    }

    /// Does the same with another clock.
    fn run_by(mut self, clock: Box<dyn Clock>) -> ReplayReport {
        let (feed, failure) = match self.feed() {
            Ok(feed) => (feed, None),
            Err(error) => {
                (Feed::Held { batches: Vec::new(), at: 0, passes: Passes::new(1), failure: None }, Some(error))
            }
        };
        Session::run_by(self, feed, failure, clock)
    }

    fn feed(&mut self) -> Result<Feed, PortError> {
        let queues = self.ports.iter().map(|port| port.queues.len() as u16).collect();
        let mut prepare = FramePreparer::new(&self.edits, queues);
        let most = match self.memory {
            RecordingMemory::IfSmall => SMALL,
            RecordingMemory::Whole => available_memory() / 2,
            RecordingMemory::Ahead => return begin(feed::start(Stock::File(self.take_open()), prepare, self.loops)),
        };
        let each_pass_differs = self.edits.rewriting.shift.is_some() && self.loops != 1;
        let mut keeping = FramePreparer::keeping();
        let holding = if each_pass_differs { &mut keeping } else { &mut prepare };
        match feed::hold(&mut self.open, holding, most, &self.stop)? {
            Some(held) if each_pass_differs => begin(feed::start(Stock::Held(held), prepare, self.loops)),
            Some(HeldRecording { batches, failure }) => {
                Ok(Feed::Held { batches, at: 0, passes: Passes::new(self.loops), failure })
            }
            None if self.memory == RecordingMemory::Whole => Err(PortError::broken(
                "replay",
                format!(
                    "the recording needs more than {} MiB, half of the available memory; read it ahead instead",
                    most >> 20
                ),
            )),
            None => begin(feed::start(Stock::File(self.take_open()), prepare, self.loops)),
        }
    }

    fn take_open(&mut self) -> Open {
        std::mem::replace(&mut self.open, Box::new(|| Err(PortError::broken("replay", "already open"))))
    }
}

/// Converts the error of a feed with a thread of its own.
fn begin(feed: std::io::Result<Feed>) -> Result<Feed, PortError> {
    feed.map_err(|error| PortError::broken("replay", format!("cannot start the read-ahead thread: {error}")))
}

/// Returns memory available without swapping (`MemAvailable` of proc_meminfo(5)); unlimited if it is unknown.
fn available_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()).map_or(u64::MAX, |kib| kib << 10)
}
