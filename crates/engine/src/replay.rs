//! Recording -> rules -> schedule -> the queues of one port, or of two.
//!
//! One thread sends, by one clock: frames leave in the order of the recording, whichever queue of whichever port each
//! leaves by. A recording that fits into memory is read and made ready before the first frame leaves; of any other, and
//! where each pass has addresses of its own, another thread makes frames ready and stays ahead.
//!
//! - `prepare`: what is done to each frame; `feed`: where they come from then; `session`: when each leaves.

mod feed;
mod prepare;
mod session;
#[cfg(test)]
mod tests;

pub use crate::timing::{CATCH_UP, LATE, Timing};

use crate::clock::{Clock, System};
use crate::control::{Progress, Stop};
use feed::{Feed, Passes, Stock};
use linerate_burst::Ledger;
use linerate_generate::{Pacing, Rewriting, Split, SplitBy};
use linerate_port::{PortError, RxPort, Sent, TxPort};
use prepare::Prepare;
use session::Session;
use std::sync::Arc;
use std::time::Duration;

/// A recording of at most this many bytes in memory is held there unasked.
pub const SMALL: u64 = 256 << 20;

/// Opens the recording from its beginning.
pub type Open = Box<dyn FnMut() -> Result<RxPort, PortError> + Send>;

/// A recording to be sent.
pub struct Replay {
    /// Opens it from the beginning.
    pub open: Open,
    /// Where it is while frames leave.
    pub memory: Memory,
    /// How often to send it; 0: without end.
    pub loops: u64,
    /// Time from the last frame of a pass to the first of the next; else the mean gap of a pass.
    pub loop_gap: Option<Duration>,
    /// What is done to frames.
    pub edits: Edits,
    /// Where they go: one port, or the client's and the server's; all of their queues are used.
    pub ports: Vec<TxPort>,
    /// When each is due.
    pub pacing: Pacing,
    /// Nobody waits for frames to be due: for ports that frames do not leave from when they are sent. They get the times they
    /// are due at, counted from that of the first one, and the run is as long as those say.
    pub at_once: bool,
    /// After how long to stop.
    pub duration: Option<Duration>,
    /// Ends the run when requested.
    pub stop: Stop,
    /// What the run has done so far.
    pub progress: Arc<Progress>,
}

/// Where a recording is while its frames leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// In memory if it takes at most [`SMALL`] bytes there, else read ahead.
    #[default]
    IfSmall,
    /// In memory; an error if it would take more than half of what the system has available.
    Whole,
    /// Read ahead in bounded memory, anew in each pass.
    Ahead,
}

/// What is done to frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edits {
    /// Which of them are sent at all.
    pub split: Split,
    /// Frames of which bytes are missing get zeros there; else they are left out, and counted.
    pub pad: bool,
    /// What is to be other than it was recorded.
    pub rewriting: Rewriting,
    /// Which frames leave by the second port; decided by what was recorded, before rewriting.
    pub split_by: Option<SplitBy>,
}

impl Default for Edits {
    fn default() -> Self {
        Edits { split: Split::WHOLE, pad: false, rewriting: Rewriting::default(), split_by: None }
    }
}

/// What a replay did.
#[derive(Debug)]
pub struct ReplayReport {
    /// Every frame accounted for.
    pub ledger: Ledger,
    /// What was sent and not dropped.
    pub sent: Sent,
    /// By port.
    pub ports: Vec<(String, Sent)>,
    /// From the first frame to the last; by their times where nobody waited for them.
    pub elapsed: Duration,
    /// Whether nobody waited.
    pub at_once: bool,
    /// How far from the schedule frames left.
    pub timing: Timing,
    /// Passes over the recording that were finished.
    pub passes: u64,
    /// Frames that were padded because bytes of them were missing.
    pub padded: u64,
    /// How often nothing was there to be sent because reading was too slow.
    pub starved: u64,
    /// What went wrong, if anything.
    pub failure: Option<PortError>,
}

impl Replay {
    /// Sends until the recording has ended as often as asked for, the time is over, or stopping is requested.
    pub fn run(self) -> ReplayReport {
        self.run_by(Box::new(System))
    }

    /// The same by another clock.
    fn run_by(mut self, clock: Box<dyn Clock>) -> ReplayReport {
        let (feed, failure) = match self.feed() {
            Ok(feed) => (feed, None),
            Err(error) => (Feed::Held { batches: Vec::new(), at: 0, passes: Passes::new(1) }, Some(error)),
        };
        Session::run_by(self, feed, failure, clock)
    }

    fn feed(&mut self) -> Result<Feed, PortError> {
        let queues = self.ports.iter().map(|port| port.queues.len() as u16).collect();
        let mut prepare = Prepare::new(&self.edits, queues);
        let most = match self.memory {
            Memory::IfSmall => SMALL,
            Memory::Whole => available_memory() / 2,
            Memory::Ahead => return begin(feed::start(Stock::File(self.take_open()), prepare, self.loops)),
        };
        let each_pass_differs = self.edits.rewriting.shift.is_some() && self.loops != 1;
        let mut keeping = Prepare::keeping();
        let holding = if each_pass_differs { &mut keeping } else { &mut prepare };
        match feed::hold(&mut self.open, holding, most, &self.stop)? {
            Some(batches) if each_pass_differs => begin(feed::start(Stock::Held(batches), prepare, self.loops)),
            Some(batches) => Ok(Feed::Held { batches, at: 0, passes: Passes::new(self.loops) }),
            None if self.memory == Memory::Whole => Err(PortError::broken(
                "replay",
                format!(
                    "the recording takes more than {} MiB, half of the memory available: leave it to be read ahead",
                    most >> 20
                ),
            )),
            None => begin(feed::start(Stock::File(self.take_open()), prepare, self.loops)),
        }
    }

    fn take_open(&mut self) -> Open {
        std::mem::replace(&mut self.open, Box::new(|| Err(PortError::broken("replay", "is open already"))))
    }
}

/// A feed that has a thread of its own.
fn begin(feed: std::io::Result<Feed>) -> Result<Feed, PortError> {
    feed.map_err(|error| PortError::broken("replay", format!("no thread can be started to read ahead: {error}")))
}

/// Memory that can be used without pushing others out (`MemAvailable` of proc_meminfo(5)); all there is where nothing says.
fn available_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()).map_or(u64::MAX, |kib| kib << 10)
}
