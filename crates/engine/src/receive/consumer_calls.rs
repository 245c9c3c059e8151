//! Calls of consumers: one that panics is skipped from then on, and its frames are accounted for.

use crate::consumer::{Consumer, HeldFrames, Round, ScatterQueues};
use crate::error::ReceiveError;
use crate::lanes::Lanes;
use crate::thread_panic::{ThreadPanic, survive};
use linerate_burst::{Count, Kind, Ledger, Nanos, Stage};
use linerate_port::HeldFrame;
use std::time::Duration;

/// Passes a round to each consumer that has not panicked.
pub(super) fn offer(
    round: &mut Round<'_>,
    consumers: &mut [&mut dyn Consumer],
    died: &mut [Option<ThreadPanic>],
    failure: &mut Option<ReceiveError>,
) {
    for (consumer, died) in consumers.iter_mut().zip(died).filter(|(_, died)| died.is_none()) {
        let result = survive(|| consumer.take(round)).unwrap_or_else(|dead| {
            *died = Some(dead.clone());
            Err(dead.into())
        });
        if let Err(error) = result {
            failure.get_or_insert(error);
        }
    }
}

/// Outcome of the calls that only a sole consumer receives.
pub(super) struct ServeOutcome {
    /// Number of frames read.
    pub frames: usize,
    pub is_busy: bool,
    pub result: Result<(), ReceiveError>,
}

/// Lets a sole consumer hold frames, release them, and read.
pub(super) fn serve(
    consumer: &mut dyn Consumer,
    lanes: &mut Lanes,
    held: &mut Vec<HeldFrame>,
    now: Nanos,
    draining: Option<Duration>,
) -> ServeOutcome {
    let mut holds = HeldFrames { lanes, held, now, draining, is_busy: false };
    let holding = survive(|| consumer.hold(&mut holds));
    let is_holding = holds.is_busy;
    let mut reads = ScatterQueues { lanes, frames: 0, draining, is_busy: false };
    let result = holding.and_then(|()| survive(|| consumer.read(&mut reads)));
    ServeOutcome {
        frames: reads.frames as usize,
        is_busy: is_holding || reads.is_busy,
        result: result.unwrap_or_else(|dead| Err(dead.into())),
    }
}

/// Accounts for frames that a consumer did not process because it panicked.
pub(super) fn account_for_rest(ledger: &mut Ledger, branch: &str, given: u64) {
    if !ledger.accounts().iter().any(|account| account.stage == Stage::Select && account.branch == branch) {
        return;
    }
    let select = ledger.account(Stage::Select, "");
    let unseen = given.saturating_sub(select.sum(Kind::Received));
    select.add(Count::SelectReceived, unseen);
    let lost = u64::try_from(select.unaccounted()).unwrap_or(0);
    select.add(Count::SelectDied, lost);
}
