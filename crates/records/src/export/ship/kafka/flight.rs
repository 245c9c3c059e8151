//! What becomes of batches that are under way together.

use super::super::Refusal;
use super::super::journal::{Assigned, Id};
use super::super::spool::Spool;
use super::{Kafka, wire};

/// A batch on its way.
pub(super) struct Sent {
    pub id: Id,
    pub assigned: Assigned,
    /// The broker that it was sent to.
    pub node: i32,
    /// It may have been sent before.
    pub is_again: bool,
    /// It is there, and was not sent again.
    pub is_there: bool,
}

/// What became of the first batch of a partition that was not taken.
pub(super) enum Broken {
    /// It is sent again under its numbers, and so are those behind it.
    Later,
    /// The broker knows other numbers: those behind it need others too.
    Numbers,
    /// The broker knows other numbers, maybe those of one behind it.
    Doubt(Assigned),
    /// It is never taken. Those behind it were refused, as far as that was heard.
    Refused { assigned: Assigned, is_heard: bool },
}

impl Kafka {
    /// What the broker says to the oldest that was sent.
    pub(super) fn answer(&mut self, spool: &Spool, sent: &Sent) -> std::result::Result<i16, Refusal> {
        let broker = self.brokers.get_mut(&sent.node);
        let broker = broker.ok_or_else(|| Refusal::Later("the connection has ended".into()))?;
        let answer = broker
            .end()
            .and_then(|answer| wire::produced(&answer, sent.assigned.partition).ok_or_else(|| broker.garbage()));
        if answer.is_err() {
            // Nothing that follows on this connection can be told apart.
            self.brokers.remove(&sent.node);
        }
        spool.step()?;
        Ok(answer?)
    }

    /// What an answer means, where all before it in its partition were taken.
    pub(super) fn judge(
        &mut self,
        spool: &Spool,
        sent: &Sent,
        rows: u32,
        error: i16,
    ) -> std::result::Result<(), Refusal> {
        let Sent { id, assigned, is_again, .. } = *sent;
        let partition = assigned.partition;
        match error {
            // 46: it is there already.
            0 | 46 => {
                self.taken.insert(partition, (assigned.producer, assigned.epoch));
                self.doubts.taken(sent);
                Ok(())
            }
            45 if is_again => {
                // One that knew nothing of this producer would have taken it.
                self.taken.insert(partition, (assigned.producer, assigned.epoch));
                self.doubts.refused(sent, rows);
                self.broken.insert(partition, Broken::Doubt(assigned));
                Err(Refusal::Again)
            }
            10 | 18 | 32 | 87 => {
                self.broken.insert(partition, Broken::Refused { assigned, is_heard: true });
                let why = told(error);
                Err(if matches!(error, 10 | 18) { Refusal::TooLong(why) } else { Refusal::Never(why) })
            }
            17 | 29 | 31 => {
                self.broken.insert(partition, Broken::Later);
                Err(Refusal::ToMend(told(error)))
            }
            // It knows other numbers than these.
            45 | 47 | 49 | 59 | 90 => {
                self.broken.insert(partition, Broken::Numbers);
                self.other_numbers(spool, id, is_again, rows);
                Err(Refusal::Later(format!("{}; from now on by a new producer id", told(error))))
            }
            error => {
                self.broken.insert(partition, Broken::Later);
                self.is_stale = true;
                Err(Refusal::Later(told(error)))
            }
        }
    }

    /// What an answer means behind one that was not taken: its numbers leave a gap. `None`: nothing was heard.
    pub(super) fn judge_behind(
        &mut self,
        spool: &Spool,
        sent: &Sent,
        rows: u32,
        error: Option<i16>,
    ) -> std::result::Result<(), Refusal> {
        if matches!(error, Some(0 | 46)) {
            // Of an earlier time.
            self.doubts.taken(sent);
            return Ok(());
        }
        if error.is_none() {
            self.doubts.unheard(sent.id);
        }
        match self.broken.get_mut(&sent.assigned.partition) {
            Some(Broken::Refused { is_heard, .. }) => {
                *is_heard &= error.is_some();
                Err(Refusal::Again)
            }
            Some(Broken::Numbers) => {
                self.other_numbers(spool, sent.id, sent.is_again || error.is_none(), rows);
                Err(Refusal::Again)
            }
            Some(Broken::Doubt(_)) if error == Some(45) => {
                self.doubts.refused(sent, rows);
                Err(Refusal::Again)
            }
            _ => Err(Refusal::Again),
        }
    }

    /// A batch needs other numbers than the broker knows.
    pub(super) fn other_numbers(&mut self, spool: &Spool, id: Id, is_again: bool, rows: u32) {
        if is_again {
            self.give_up(spool, rows);
        } else {
            spool.forget();
            self.producer = None;
        }
        spool.unassign(id);
    }

    /// A batch goes on under new numbers though it may have been appended under the old ones.
    pub(super) fn give_up(&mut self, spool: &Spool, rows: u32) {
        spool.forget();
        spool.count(|tally| tally.maybe_duplicated += u64::from(rows));
        self.producer = None;
    }
}

/// An error of a broker, for people.
pub(super) fn told(error: i16) -> String {
    let what = match error {
        2 => "the broker found the batch damaged",
        3 => "the topic is not there, or not yet",
        5 | 6 => "the partition has another leader",
        7 => "the replicas took too long",
        10 => "the batch is longer than message.max.bytes: --ship rows=N makes shorter ones",
        14 | 15 => "the coordinator is loading",
        18 => "the batch is longer than a segment",
        19 => "too few replicas are in sync",
        20 => "appended by too few replicas",
        29 => "this sensor may not write to the topic",
        31 => "this sensor may not write idempotently",
        45 | 59 => "the broker knows other sequence numbers of this producer",
        47 | 90 => "the broker knows a later epoch of this producer",
        56 => "a disk of the broker failed, or is full",
        87 => "the broker takes no such record",
        _ => "the broker refused",
    };
    format!("{what} (error {error})")
}
