//! Spool of undelivered batches on disk: one file each, as it will be sent, and a journal of their outcomes.
//!
//! A batch is in the spool when its file, its file name and its journal line are on disk (`fsync` of each); only then
//! is it counted and sent. A crash of the process or host loses batches before that point. A file without a line is a
//! leftover of such a crash: the next start reports it. A batch leaves by a journal line with the reason; its file is
//! removed when that line is on disk.

mod recovery;
mod set_aside;
mod split;

pub(super) use self::recovery::Terms;

use super::super::directory::Directory;
use super::crc32c;
use super::journal::{Assigned, Batch, Id, Line, Outcome};
use super::state::{SpooledBatch, State, Tally, after, name_of};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{ErrorKind, Read, Result, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicUsize;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of files that wait for their journal lines to be on disk.
const MOST_GONE: usize = 8;

pub(super) struct Spool {
    folder: Directory,
    _lock: File,
    pub terms: Terms,
    /// Maximum number of records per batch known to be accepted by the destination.
    most_rows: AtomicUsize,
    state: Mutex<State>,
    /// Signals added and removed batches.
    changed: Condvar,
    #[cfg(test)]
    pub death: super::tests::CrashPoint,
}

/// Delivery lag.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lag {
    /// Batches in the spool.
    pub batches: u64,
    /// Records in these batches.
    pub records: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Age of the oldest batch.
    pub age: Duration,
    /// Records delivered.
    pub delivered: u64,
    /// Records dropped, rejected or damaged.
    pub lost: u64,
}

impl Spool {
    /// Adds a batch with these bytes; sets its length and checksum. Returns false if the spool is full.
    ///
    /// # Errors
    /// Write errors, except for a full disk.
    pub(super) fn add(&self, mut batch: Batch, bytes: &[u8]) -> Result<bool> {
        (batch.bytes, batch.crc) = (bytes.len() as u64, crc32c(bytes));
        if self.lock().bytes + batch.bytes > self.terms.most {
            return Ok(false);
        }
        let name = name_of(&batch);
        let result = self.write(&name, bytes).and_then(|()| {
            let mut state = self.lock();
            state.note(self, &[Line::Made(batch)], true)?;
            self.step()?;
            state.waiting.push_back(SpooledBatch::new(batch));
            state.bytes += batch.bytes;
            state.tally.spooled += u64::from(batch.rows);
            Ok(())
        });
        self.changed.notify_all();
        match result {
            Ok(()) => Ok(true),
            Err(error) if self.is_dead() => Err(error),
            Err(error) => {
                // Not a batch yet; the next start reports a remaining file.
                let _ = self.folder.remove(name.as_ref());
                if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
                    self.lock().sync(self)?;
                    Ok(false)
                } else {
                    Err(error)
                }
            }
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.step()?;
        let mut file = self.folder.new_file(name.as_ref())?;
        let (one, other) = bytes.split_at(bytes.len() / 2);
        file.write_all(one)?;
        self.step()?;
        file.write_all(other)?;
        file.sync_all()?;
        self.step()?;
        self.folder.sync()
    }

    /// Returns the oldest batch that is not in flight, and marks it as in flight; `None` if none arrives within
    /// `patience`.
    pub(super) fn first(&self, patience: Duration) -> Option<SpooledBatch> {
        let mut state = self.lock();
        let is_none = |state: &mut State| state.waiting.len() == state.under_way.len();
        if is_none(&mut state) && !state.gone.is_empty() {
            // On failure the files stay for now.
            let _ = state.sync(self);
        }
        let mut state =
            self.changed.wait_timeout_while(state, patience, is_none).unwrap_or_else(PoisonError::into_inner).0;
        let is_free = |waiting: &&SpooledBatch| !state.under_way.contains(&waiting.batch.id);
        let first = state.waiting.iter().find(is_free).copied()?;
        state.under_way.insert(first.batch.id);
        Some(first)
    }

    /// Marks an undelivered batch as not in flight.
    pub(super) fn release(&self, id: Id) {
        self.lock().under_way.remove(&id);
    }

    /// Returns the content of a batch; `None` if it is damaged.
    pub(super) fn read(&self, batch: &Batch) -> Result<Option<Vec<u8>>> {
        let file = match self.folder.file(name_of(batch), OFlags::RDONLY) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        file.take(batch.bytes + 1).read_to_end(&mut bytes)?;
        Ok((bytes.len() as u64 == batch.bytes && crc32c(&bytes) == batch.crc).then_some(bytes))
    }

    /// Returns the next sequence number of a partition, if known.
    pub(super) fn next_in(&self, partition: i32) -> Option<Assigned> {
        self.lock().next.get(&partition).copied()
    }

    /// Notes on disk that a batch is about to be sent with these numbers.
    pub(super) fn assign(&self, id: Id, assigned: Assigned) -> Result<()> {
        self.step()?;
        let mut state = self.lock();
        state.note(self, &[Line::Sent(id, assigned)], false)?;
        state.next.insert(assigned.partition, after(assigned));
        if let Some(waiting) = state.waiting.iter_mut().find(|waiting| waiting.batch.id == id) {
            waiting.assigned = Some(assigned);
        }
        drop(state);
        self.step()
    }

    /// Notes on disk that a batch without sequence numbers is about to be sent; `None`: it is certainly not delivered.
    pub(super) fn tried(&self, id: Id, at: Option<u64>) -> Result<()> {
        self.step()?;
        let mut state = self.lock();
        let line = [Line::Tried(id, at.unwrap_or_default())];
        if at.is_some() {
            state.note(self, &line, false)?
        } else {
            state.journal.add(&line, false)?
        }
        state.tried(id, at);
        state.shorten(self);
        drop(state);
        self.step()
    }

    /// Releases the numbers of a batch.
    pub(super) fn unassign(&self, id: Id) {
        self.lock().unassign(id);
    }

    /// Releases the numbers of a rejected batch, and of later ones in its partition: none of these is appended.
    pub(super) fn take_back(&self, assigned: Assigned) -> Result<()> {
        let next = Assigned { count: 0, ..assigned };
        let mut state = self.lock();
        let is_behind = |other: &Assigned| {
            let numbers = |of: &Assigned| (of.partition, of.producer, of.epoch);
            // Sequence numbers wrap around.
            numbers(other) == numbers(&assigned) && other.sequence.wrapping_sub(assigned.sequence) & i32::MAX < 1 << 30
        };
        let behind = state.waiting.iter().filter(|waiting| waiting.assigned.as_ref().is_some_and(is_behind));
        let behind: Vec<Id> = behind.map(|waiting| waiting.batch.id).collect();
        // In this order: a partial write leaves no later batch with numbers but an earlier one without.
        let lines = behind.iter().map(|id| Line::Sent(*id, next)).chain([Line::Next(next)]);
        state.note(self, &lines.collect::<Vec<_>>(), false)?;
        behind.iter().for_each(|id| state.unassign(*id));
        state.next.insert(next.partition, next);
        Ok(())
    }

    /// Returns the batches that the producer of this one may have sent to its partition.
    pub(super) fn numbered(&self, of: &Assigned) -> Vec<Id> {
        let numbers = |of: &Assigned| (of.partition, of.producer, of.epoch);
        let state = self.lock();
        let sent = |waiting: &&SpooledBatch| waiting.assigned.is_some_and(|own| numbers(&own) == numbers(of));
        state.waiting.iter().filter(sent).map(|waiting| waiting.batch.id).collect()
    }

    /// Forgets the next sequence numbers: a new producer starts again.
    pub(super) fn forget(&self) {
        self.lock().next.clear();
    }

    /// Removes a batch with an outcome.
    pub(super) fn done(&self, id: Id, outcome: Outcome) -> Result<()> {
        self.step()?;
        let mut state = self.lock();
        state.journal.add(&[Line::Done(id, outcome)], false)?;
        self.step()?;
        let Some(at) = state.waiting.iter().position(|waiting| waiting.batch.id == id) else { return Ok(()) };
        let Some(SpooledBatch { batch, .. }) = state.waiting.remove(at) else { return Ok(()) };
        let (rows, name) = (u64::from(batch.rows), name_of(&batch));
        state.bytes -= batch.bytes;
        state.under_way.remove(&id);
        let tally = &mut state.tally;
        match outcome {
            Outcome::Delivered => (tally.delivered, tally.batches) = (tally.delivered + rows, tally.batches + 1),
            Outcome::Dropped => tally.dropped += rows,
            Outcome::Refused => tally.refused += rows,
            Outcome::Damaged => tally.damaged += rows,
            // Counted with the halves.
            Outcome::Halved => {}
        }
        if let Some(why) = set_aside::ending(outcome) {
            state.sync(self)?;
            self.set_aside(&mut state, &name, why);
        } else {
            state.gone.push(name);
            // A dropped batch must free its space at once.
            if outcome == Outcome::Dropped || state.gone.len() >= MOST_GONE {
                state.sync(self)?;
            }
        }
        state.shorten(self);
        drop(state);
        self.changed.notify_all();
        self.step()
    }

    /// Drops the oldest batch that is not in flight; `None`: all are.
    pub(super) fn drop_oldest(&self) -> Result<Option<Batch>> {
        let state = self.lock();
        let free = |waiting: &&SpooledBatch| waiting.assigned.is_none() && !state.under_way.contains(&waiting.batch.id);
        let Some(SpooledBatch { batch, .. }) = state.waiting.iter().find(free).copied() else { return Ok(None) };
        drop(state);
        self.done(batch.id, Outcome::Dropped).map(|()| Some(batch))
    }

    /// Waits until a batch is added or removed, at most this long.
    pub(super) fn wait(&self, patience: Duration) {
        drop(self.changed.wait_timeout(self.lock(), patience));
    }

    /// Wakes all waiting threads.
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    pub(super) fn tally(&self) -> Tally {
        self.lock().tally
    }

    /// Updates other counters.
    pub(super) fn count(&self, count: impl FnOnce(&mut Tally)) {
        count(&mut self.lock().tally);
    }

    pub(super) fn lag(&self) -> Lag {
        let state = self.lock();
        let Tally { delivered, dropped, refused, damaged, .. } = state.tally;
        Lag {
            batches: state.waiting.len() as u64,
            records: state.waiting.iter().map(|waiting| u64::from(waiting.batch.rows)).sum(),
            bytes: state.bytes,
            age: state
                .waiting
                .front()
                .map_or(Duration::ZERO, |oldest| self.terms.clock.age(oldest.batch.made).unwrap_or_default()),
            delivered,
            lost: dropped + refused + damaged,
        }
    }

    pub(super) fn folder(&self) -> &Directory {
        &self.folder
    }

    pub(super) fn path(&self) -> &std::path::Path {
        &self.folder.path
    }

    pub(super) fn check(&self) -> Result<()> {
        self.folder.check()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Simulates a crash in tests.
    #[cfg(test)]
    pub(super) fn step(&self) -> Result<()> {
        self.death.step()
    }

    #[cfg(not(test))]
    pub(super) fn step(&self) -> Result<()> {
        Ok(())
    }

    fn is_dead(&self) -> bool {
        #[cfg(test)]
        return self.death.is_dead();
        #[cfg(not(test))]
        false
    }
}

impl AsFd for Spool {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}
