//! Frames of another process, taken for a destination of this one.

use super::frame;
use crate::control::Stop;
use crate::error::ReceiveError;
use crate::metrics::Metrics;
use crate::receive::RunReport;
use crate::reception::ReceptionWatch;
use crate::thread_panic::survive;
use linerate_burst::{Count, Ledger, Stage};
use linerate_share::Error;
use linerate_share::frame_ring::{End, Reader};
use linerate_transport::destination::Destination;
use linerate_transport::frames::Frame;
use std::time::{Duration, Instant};

/// Longest wait for frames, which bounds the delay of a stop.
const NAP: Duration = Duration::from_millis(20);

/// Takes frames until the ring ends.
pub struct FrameRingReader {
    /// Name of the ring, for messages.
    pub name: String,
    /// Reader of the ring.
    pub reader: Reader,
    /// Ends after this number of streams has ended.
    pub streams: Option<u64>,
    /// Ends after this time.
    pub duration: Option<Duration>,
    /// Stops when requested.
    pub stop: Stop,
    /// Publishes the progress.
    pub watch: ReceptionWatch,
}

/// Result of taking frames.
pub struct FrameRingReport {
    /// Result, as of any run that receives.
    pub run: RunReport,
    /// Number of frames that another reader had taken before.
    pub redelivered: u64,
    /// True if the writer has ended the ring.
    pub is_whole: bool,
}

impl FrameRingReader {
    /// Passes each frame to the destination, then returns it. The next reader gets frames that a destination has not
    /// taken.
    pub fn run(mut self, destination: &mut dyn Destination) -> FrameRingReport {
        let began = Instant::now();
        let (mut taken, mut stored, mut again, mut failure) = (0u64, 0u64, 0u64, None);
        let is_over = |watch: &ReceptionWatch, stop: &Stop| {
            stop.is_requested()
                || self.duration.is_some_and(|limit| began.elapsed() >= limit)
                || self.streams.is_some_and(|most| watch.totals().ended >= most)
        };
        let mut metrics = Metrics::new();
        let count = |ledger: &mut Ledger, taken, stored| {
            let account = ledger.account(Stage::Store, "");
            account.add(Count::StoreReceived, taken).add(Count::Stored, stored).add(Count::StoreFailed, taken - stored);
        };
        while failure.is_none() && !is_over(&self.watch, &self.stop) {
            metrics.answer(|ledger| count(ledger, taken, stored));
            let Some(one) = self.reader.take() else {
                if self.reader.ended().is_some() {
                    break;
                }
                self.reader.wait(NAP);
                continue;
            };
            taken += 1;
            again += u64::from(one.about.offered > 0);
            let result = frame(one).map_err(|error| self.gone(error.to_string())).and_then(|frame| {
                let stored = store(destination, &frame);
                match &stored {
                    Ok(()) => self.watch.taken(&frame),
                    // The next reader gets it, and later ones.
                    Err(_) => self.reader.leave(),
                }
                stored
            });
            stored += u64::from(result.is_ok());
            failure = result.err();
        }
        let finished = survive(|| destination.finish()).map_err(ReceiveError::from);
        failure = failure.or(finished.and_then(|result| result.map_err(ReceiveError::from)).err());
        let ended = self.reader.ended();
        failure = failure.or(match ended {
            None | Some(End::InOrder | End::Left) => None,
            Some(End::Died) => {
                Some(self.gone("the writer died without ending the ring; the frames received are complete".into()))
            }
            Some(End::Evicted) => Some(self.gone("this reader was evicted by the writer".into())),
            Some(End::Broken(what)) => Some(self.gone(format!("the writer broke the format: {what}"))),
        });
        let mut ledger = Ledger::new();
        count(&mut ledger, taken, stored);
        metrics.close(&ledger);
        let events = match again {
            0 => Vec::new(),
            again => {
                vec![format!("{again} frames had been taken by another reader, which left without returning them")]
            }
        };
        let run =
            RunReport { ledger, quiesced: true, interfaces: Vec::new(), elapsed: began.elapsed(), events, failure };
        FrameRingReport { run, redelivered: again, is_whole: ended == Some(End::InOrder) }
    }

    fn gone(&self, reason: String) -> ReceiveError {
        Error::Gone { address: self.name.clone(), reason }.into()
    }
}

fn store(destination: &mut dyn Destination, frame: &Frame) -> Result<(), ReceiveError> {
    Ok(survive(|| destination.accept(frame))??)
}
