//! Outcome of batches in flight.

use super::super::Refusal;
use super::super::journal::{Assigned, Id};
use super::super::spool::Spool;
use super::{Kafka, wire};

/// Batch in flight.
pub(super) struct InFlightBatch {
    pub id: Id,
    pub assigned: Assigned,
    /// Broker to which it was sent.
    pub node: i32,
    /// True if it may have been sent before.
    pub is_retry: bool,
    /// True if it is known to be appended, and was not sent again.
    pub is_there: bool,
}

/// Failure of the first batch of a partition that was not accepted.
pub(super) enum BatchFailure {
    /// It is sent again with its numbers, and so are the later ones.
    Later,
    /// The broker expects other numbers: the later ones need new numbers too.
    Numbers,
    /// The broker expects other numbers, possibly those of a later batch.
    Unconfirmed(Assigned),
    /// It is rejected for good. `is_confirmed`: the rejection of all later ones was received.
    Refused { assigned: Assigned, is_confirmed: bool },
}

impl Kafka {
    /// Reads the response for the oldest batch in flight.
    pub(super) fn answer(&mut self, spool: &Spool, sent: &InFlightBatch) -> std::result::Result<i16, Refusal> {
        let broker = self.brokers.get_mut(&sent.node);
        let broker = broker.ok_or_else(|| Refusal::Later("the connection has ended".into()))?;
        let answer = broker
            .end()
            .and_then(|answer| wire::produced(&answer, sent.assigned.partition).ok_or_else(|| broker.garbage()));
        if answer.is_err() {
            // Later responses on this connection cannot be assigned.
            self.brokers.remove(&sent.node);
        }
        spool.step()?;
        Ok(answer?)
    }

    /// Interprets a response, if all earlier batches of the partition were accepted.
    pub(super) fn interpret_response(
        &mut self,
        spool: &Spool,
        sent: &InFlightBatch,
        rows: u32,
        error: i16,
    ) -> std::result::Result<(), Refusal> {
        let InFlightBatch { id, assigned, is_retry, .. } = *sent;
        let partition = assigned.partition;
        match error {
            // 46: duplicate sequence number, already appended.
            0 | 46 => {
                self.taken.insert(partition, (assigned.producer, assigned.epoch));
                self.doubts.taken(sent);
                Ok(())
            }
            45 if is_retry => {
                // A broker without state of this producer would have accepted it.
                self.taken.insert(partition, (assigned.producer, assigned.epoch));
                self.doubts.refused(sent, rows);
                self.broken.insert(partition, BatchFailure::Unconfirmed(assigned));
                Err(Refusal::Again)
            }
            10 | 18 | 32 | 87 => {
                self.broken.insert(partition, BatchFailure::Refused { assigned, is_confirmed: true });
                let why = describe(error);
                Err(if matches!(error, 10 | 18) { Refusal::TooLong(why) } else { Refusal::Never(why) })
            }
            17 | 29 | 31 => {
                self.broken.insert(partition, BatchFailure::Later);
                Err(Refusal::NeedsFix(describe(error)))
            }
            // It expects other numbers.
            45 | 47 | 49 | 59 | 90 => {
                self.broken.insert(partition, BatchFailure::Numbers);
                self.reset_numbers(spool, id, is_retry, rows);
                Err(Refusal::Later(format!("{}; continuing with a new producer id", describe(error))))
            }
            error => {
                self.broken.insert(partition, BatchFailure::Later);
                self.is_stale = true;
                Err(Refusal::Later(describe(error)))
            }
        }
    }

    /// Interprets a response after a failed batch: the sequence numbers have a gap. `None`: no response was received.
    pub(super) fn interpret_after_failure(
        &mut self,
        spool: &Spool,
        sent: &InFlightBatch,
        rows: u32,
        error: Option<i16>,
    ) -> std::result::Result<(), Refusal> {
        if matches!(error, Some(0 | 46)) {
            // Appended by an earlier attempt.
            self.doubts.taken(sent);
            return Ok(());
        }
        if error.is_none() {
            self.doubts.mark_unconfirmed(sent.id);
        }
        match self.broken.get_mut(&sent.assigned.partition) {
            Some(BatchFailure::Refused { is_confirmed, .. }) => {
                *is_confirmed &= error.is_some();
                Err(Refusal::Again)
            }
            Some(BatchFailure::Numbers) => {
                self.reset_numbers(spool, sent.id, sent.is_retry || error.is_none(), rows);
                Err(Refusal::Again)
            }
            Some(BatchFailure::Unconfirmed(_)) if error == Some(45) => {
                self.doubts.refused(sent, rows);
                Err(Refusal::Again)
            }
            _ => Err(Refusal::Again),
        }
    }

    /// Handles a batch that needs new sequence numbers.
    pub(super) fn reset_numbers(&mut self, spool: &Spool, id: Id, is_retry: bool, rows: u32) {
        if is_retry {
            self.reassign_numbers(spool, rows);
        } else {
            spool.forget();
            self.producer = None;
        }
        spool.unassign(id);
    }

    /// Gives a batch new numbers, although it may be appended under the old ones.
    pub(super) fn reassign_numbers(&mut self, spool: &Spool, rows: u32) {
        spool.forget();
        spool.count(|tally| tally.maybe_duplicated += u64::from(rows));
        self.producer = None;
    }
}

/// Formats a broker error.
pub(super) fn describe(error: i16) -> String {
    let what = match error {
        2 => "batch corrupt at the broker",
        3 => "unknown topic or partition",
        5 | 6 => "partition has another leader",
        7 => "replication timed out",
        10 => "batch exceeds message.max.bytes; reduce it with --ship rows=N",
        14 | 15 => "coordinator is loading",
        18 => "batch exceeds the segment size",
        19 => "too few in-sync replicas",
        20 => "appended by too few replicas",
        29 => "write access to the topic denied",
        31 => "idempotent writes are not permitted",
        45 | 59 => "out-of-order sequence number",
        47 | 90 => "producer epoch is fenced by a later one",
        56 => "disk error at the broker",
        87 => "invalid record",
        _ => "rejected by the broker",
    };
    format!("{what} (error {error})")
}
