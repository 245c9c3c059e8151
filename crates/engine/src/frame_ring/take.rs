//! Frames of another process, for a destination of this one.

use super::frame;
use crate::control::Stop;
use crate::died::survive;
use crate::error::ReceiveError;
use crate::metrics::Metrics;
use crate::receive::Received;
use crate::reception::ReceptionWatch;
use linerate_burst::{Count, Ledger, Stage};
use linerate_receive::destination::Destination;
use linerate_receive::frames::Frame;
use linerate_share::Error;
use linerate_share::frame_ring::{End, Reader};
use std::time::{Duration, Instant};

/// How long a wait for frames takes at most, so that a stop is seen.
const NAP: Duration = Duration::from_millis(20);

/// Takes frames until there are no more.
pub struct TakeFrames {
    /// What they are shared as, for people.
    pub name: String,
    /// From whom.
    pub reader: Reader,
    /// Ends once so many streams have ended.
    pub streams: Option<u64>,
    /// Ends after so long.
    pub duration: Option<Duration>,
    /// Ends when requested.
    pub stop: Stop,
    /// Lets others see how far it is.
    pub watch: ReceptionWatch,
}

/// What became of frames that were taken.
pub struct Took {
    /// As of any run that receives.
    pub run: Received,
    /// Frames that another reader had had before.
    pub offered_again: u64,
    /// Whether the writer said that there are no more.
    pub is_whole: bool,
}

impl TakeFrames {
    /// Hands each frame to the destination, then gives it back. What a destination has not taken goes to the next reader.
    pub fn run(mut self, destination: &mut dyn Destination) -> Took {
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
                    // It is the next reader's, and with it what comes behind it.
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
                Some(self.gone("whoever shared it is gone without having ended: what came is whole".into()))
            }
            Some(End::PutOut) => Some(self.gone("whoever shares it has put this reader out".into())),
            Some(End::Broken(what)) => Some(self.gone(format!("whoever shares it broke the format: {what}"))),
        });
        let mut ledger = Ledger::new();
        count(&mut ledger, taken, stored);
        metrics.close(&ledger);
        let events = match again {
            0 => Vec::new(),
            again => {
                vec![format!("{again} frames had been handed to another reader, which left without giving them back")]
            }
        };
        let run =
            Received { ledger, quiesced: true, interfaces: Vec::new(), elapsed: began.elapsed(), events, failure };
        Took { run, offered_again: again, is_whole: ended == Some(End::InOrder) }
    }

    fn gone(&self, reason: String) -> ReceiveError {
        Error::Gone { address: self.name.clone(), reason }.into()
    }
}

fn store(destination: &mut dyn Destination, frame: &Frame) -> Result<(), ReceiveError> {
    Ok(survive(|| destination.accept(frame))??)
}
