//! Batches on their way, on the disk: each a file as it will be sent, and a journal of what became of it.
//!
//! Policy: a batch is in the spool once its file, the name of that and its line in the journal are on the disk (`fsync` of each), and only
//! then it is counted and sent. What a process or a machine that dies costs is what had not got that far. A file without a line is half
//! a batch of such a death: it is found and named at the next start. A batch leaves by a line that says why; once that is on the disk its file
//! goes.

mod aside;
mod found;
mod halve;

pub(super) use self::found::Terms;

use super::super::directory::Directory;
use super::crc32c;
use super::journal::{Assigned, Batch, Id, Line, Outcome};
use super::state::{State, Tally, Waiting, after, name_of};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{ErrorKind, Read, Result, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicUsize;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most files that have left and wait for their lines to be on the disk.
const MOST_GONE: usize = 8;

pub(super) struct Spool {
    folder: Directory,
    _lock: File,
    /// What it was opened with.
    pub terms: Terms,
    /// The most records of a batch, as far as the other side has shown.
    most_rows: AtomicUsize,
    state: Mutex<State>,
    /// A batch came or went.
    changed: Condvar,
    #[cfg(test)]
    pub death: super::tests::Death,
}

/// How far behind the other side is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lag {
    /// Batches, their records and bytes that wait in the spool.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// How long the oldest of them waits.
    pub age: Duration,
    /// Records that were delivered, and that are lost.
    pub delivered: u64,
    /// Records that gave way, were refused or damaged.
    pub lost: u64,
}

impl Spool {
    /// Adds a batch of these bytes; its length and check are set here. False: there is no room.
    ///
    /// # Errors
    /// Those of writing, but for a full disk.
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
            state.waiting.push_back(Waiting::new(batch));
            state.bytes += batch.bytes;
            state.tally.spooled += u64::from(batch.rows);
            Ok(())
        });
        self.changed.notify_all();
        match result {
            Ok(()) => Ok(true),
            Err(error) if self.is_dead() => Err(error),
            Err(error) => {
                // It is no batch yet; what stays is found at the next start.
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

    /// The oldest that is not under way, which it is from now on; `None` if there is none for so long.
    pub(super) fn first(&self, patience: Duration) -> Option<Waiting> {
        let mut state = self.lock();
        let is_none = |state: &mut State| state.waiting.len() == state.under_way.len();
        if is_none(&mut state) && !state.gone.is_empty() {
            // Where that cannot be they stay for now.
            let _ = state.sync(self);
        }
        let mut state =
            self.changed.wait_timeout_while(state, patience, is_none).unwrap_or_else(PoisonError::into_inner).0;
        let is_free = |waiting: &&Waiting| !state.under_way.contains(&waiting.batch.id);
        let first = state.waiting.iter().find(is_free).copied()?;
        state.under_way.insert(first.batch.id);
        Some(first)
    }

    /// A batch was not delivered, and is under way no more.
    pub(super) fn release(&self, id: Id) {
        self.lock().under_way.remove(&id);
    }

    /// What is in a batch; `None` if that is not what was written.
    pub(super) fn read(&self, batch: &Batch) -> Result<Option<Vec<u8>>> {
        let file = match self.folder.file(name_of(batch), OFlags::RDONLY) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        file.take(batch.bytes + 1).read_to_end(&mut bytes)?;
        Ok((bytes.len() as u64 == batch.bytes && crc32c(&bytes) == batch.crc).then_some(bytes))
    }

    /// What comes next in a partition, as far as is known.
    pub(super) fn next_in(&self, partition: i32) -> Option<Assigned> {
        self.lock().next.get(&partition).copied()
    }

    /// A batch is about to be sent as this: on the disk before this returns.
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

    /// A batch is about to be sent where it has no number: on the disk before this returns; `None`: it is surely not there.
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

    /// A batch goes under other numbers the next time.
    pub(super) fn unassign(&self, id: Id) {
        self.lock().unassign(id);
    }

    /// The numbers of a batch that was refused are free again, and those of batches that were to come behind it: none of these is there.
    pub(super) fn take_back(&self, assigned: Assigned) -> Result<()> {
        let next = Assigned { count: 0, ..assigned };
        let mut state = self.lock();
        let is_behind = |other: &Assigned| {
            let numbers = |of: &Assigned| (of.partition, of.producer, of.epoch);
            // Numbers begin anew behind the last.
            numbers(other) == numbers(&assigned) && other.sequence.wrapping_sub(assigned.sequence) & i32::MAX < 1 << 30
        };
        let behind = state.waiting.iter().filter(|waiting| waiting.assigned.as_ref().is_some_and(is_behind));
        let behind: Vec<Id> = behind.map(|waiting| waiting.batch.id).collect();
        // In this order: half of it leaves nothing that has no number before it.
        let lines = behind.iter().map(|id| Line::Sent(*id, next)).chain([Line::Next(next)]);
        state.note(self, &lines.collect::<Vec<_>>(), false)?;
        behind.iter().for_each(|id| state.unassign(*id));
        state.next.insert(next.partition, next);
        Ok(())
    }

    /// Batches that may have been sent by the producer of this one, in its partition.
    pub(super) fn numbered(&self, of: &Assigned) -> Vec<Id> {
        let numbers = |of: &Assigned| (of.partition, of.producer, of.epoch);
        let state = self.lock();
        let sent = |waiting: &&Waiting| waiting.assigned.is_some_and(|own| numbers(&own) == numbers(of));
        state.waiting.iter().filter(sent).map(|waiting| waiting.batch.id).collect()
    }

    /// Forgets what comes next: another producer begins anew.
    pub(super) fn forget(&self) {
        self.lock().next.clear();
    }

    /// A batch leaves.
    pub(super) fn done(&self, id: Id, outcome: Outcome) -> Result<()> {
        self.step()?;
        let mut state = self.lock();
        state.journal.add(&[Line::Done(id, outcome)], false)?;
        self.step()?;
        let Some(at) = state.waiting.iter().position(|waiting| waiting.batch.id == id) else { return Ok(()) };
        let Some(Waiting { batch, .. }) = state.waiting.remove(at) else { return Ok(()) };
        let (rows, name) = (u64::from(batch.rows), name_of(&batch));
        state.bytes -= batch.bytes;
        state.under_way.remove(&id);
        let tally = &mut state.tally;
        match outcome {
            Outcome::Delivered => (tally.delivered, tally.batches) = (tally.delivered + rows, tally.batches + 1),
            Outcome::Dropped => tally.dropped += rows,
            Outcome::Refused => tally.refused += rows,
            Outcome::Damaged => tally.damaged += rows,
            // That is a matter of its own.
            Outcome::Halved => {}
        }
        if let Some(why) = aside::ending(outcome) {
            state.sync(self)?;
            self.set_aside(&mut state, &name, why);
        } else {
            state.gone.push(name);
            // One that gives way is to make room.
            if outcome == Outcome::Dropped || state.gone.len() >= MOST_GONE {
                state.sync(self)?;
            }
        }
        state.shorten(self);
        drop(state);
        self.changed.notify_all();
        self.step()
    }

    /// Has the oldest batch give way that is not under way; `None`: there is none.
    pub(super) fn drop_oldest(&self) -> Result<Option<Batch>> {
        let state = self.lock();
        let free = |waiting: &&Waiting| waiting.assigned.is_none() && !state.under_way.contains(&waiting.batch.id);
        let Some(Waiting { batch, .. }) = state.waiting.iter().find(free).copied() else { return Ok(None) };
        drop(state);
        self.done(batch.id, Outcome::Dropped).map(|()| Some(batch))
    }

    /// Waits until a batch came or went, or so long.
    pub(super) fn wait(&self, patience: Duration) {
        drop(self.changed.wait_timeout(self.lock(), patience));
    }

    /// Wakes who waits.
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    pub(super) fn tally(&self) -> Tally {
        self.lock().tally
    }

    /// Counts something beside.
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

    /// Where a test has the process die.
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
