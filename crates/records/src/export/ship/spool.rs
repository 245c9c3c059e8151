//! Batches on their way, on the disk: each a file as it will be sent, and a journal of what became of it.
//!
//! Policy: a batch is in the spool once its file, the name of that and its line in the journal are on the disk (`fsync` of each), and only
//! then it is counted and sent. What a process or a machine that dies costs is what had not got that far. A file without a line is half
//! a batch of such a death: it is found and named at the next start. A batch leaves by a line that says why, then its file goes.

mod halve;

use super::super::directory::Directory;
use super::crc::crc32c;
use super::journal::{Assigned, Batch, Id, Journal, Line, Outcome};
use super::now;
use super::state::{State, Tally, Waiting, after, is_batch, name_of};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicUsize;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What holds others off while somebody uses it.
const LOCK: &str = "lock";
/// Behind the names of files that are set aside.
const REFUSED: &str = ".refused";
const DAMAGED: &str = ".damaged";
const UNCLAIMED: &str = ".unclaimed";

pub(super) struct Spool {
    folder: Directory,
    _lock: File,
    /// Bytes of batches that there is room for.
    most: u64,
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
    /// Opens the folder, which is made where it is not there, and finds what an earlier run has left; says what it found, for people.
    ///
    /// # Errors
    /// Another process uses it (`ResourceBusy`); the system's; the journal is none.
    pub fn open(folder: Directory, most: u64) -> Result<(Self, Vec<String>)> {
        let lock = folder.file(LOCK, OFlags::RDWR | OFlags::CREATE)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => Error::new(
                ErrorKind::ResourceBusy,
                "another run uses this spool; wait for it to end, or name another with --ship spool=DIR",
            ),
            error => error.into(),
        })?;
        let (journal, found) = Journal::open(&folder)?;
        let mut state = State::new(journal);
        state.replay(&found.lines);
        let mut told = Vec::new();
        if found.damaged > 0 {
            told.push(format!("{} lines of its journal are damaged: what they said is lost", found.damaged));
        }
        let spool = Spool {
            folder,
            _lock: lock,
            most,
            most_rows: AtomicUsize::new(usize::MAX),
            state: Mutex::new(state),
            changed: Condvar::new(),
            #[cfg(test)]
            death: Default::default(),
        };
        spool.look(found.is_new || found.damaged > 0, &mut told)?;
        Ok((spool, told))
    }

    /// Compares the folder with the journal.
    fn look(&self, keep: bool, told: &mut Vec<String>) -> Result<()> {
        let mut state = self.lock();
        let mut known = BTreeSet::new();
        for waiting in Vec::from(std::mem::take(&mut state.waiting)) {
            let name = name_of(&waiting.batch);
            let size = self.folder.look(name.as_ref()).map(|file| file.st_size as u64);
            known.insert(name.clone());
            let rows = u64::from(waiting.batch.rows);
            state.tally.resumed += rows;
            if size.as_ref().is_ok_and(|size| *size == waiting.batch.bytes) {
                state.bytes += waiting.batch.bytes;
                state.waiting.push_back(waiting);
            } else {
                state.journal.add(&[Line::Done(waiting.batch.id, Outcome::Damaged)], false)?;
                state.tally.damaged += rows;
                told.push(format!("{name} is not as it was written: its {rows} records are lost"));
                self.set_aside(&name, DAMAGED);
            }
        }
        for name in self.names()?.into_iter().filter(|name| is_batch(name) && !known.contains(name)) {
            let has_left = state.left.contains(&name);
            if keep && !has_left {
                told.push(format!("{name} is in no journal, and stays as {name}{UNCLAIMED}"));
                self.set_aside(&name, UNCLAIMED);
                continue;
            }
            if !has_left {
                told.push(format!("{name} was half written when a run died, and is removed"));
            }
            self.folder.remove(name.as_ref())?;
        }
        if let (batches @ 1.., records) = (state.waiting.len(), state.tally.resumed - state.tally.damaged) {
            let plural = if batches == 1 { "" } else { "es" };
            told.push(format!("{records} records in {batches} batch{plural} of an earlier run are sent first"));
        }
        state.left.clear();
        Ok(())
    }

    /// Adds a batch of these bytes; its length and check are set here. False: there is no room.
    ///
    /// # Errors
    /// Those of writing, but for a full disk.
    pub fn add(&self, mut batch: Batch, bytes: &[u8]) -> Result<bool> {
        (batch.bytes, batch.crc) = (bytes.len() as u64, crc32c(bytes));
        if self.lock().bytes + batch.bytes > self.most {
            return Ok(false);
        }
        let name = name_of(&batch);
        let result = self.write(&name, bytes).and_then(|()| {
            let mut state = self.lock();
            state.note(self, &[Line::Made(batch)], true)?;
            self.step()?;
            state.waiting.push_back(Waiting { batch, assigned: None });
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
    pub fn first(&self, patience: Duration) -> Option<Waiting> {
        let state = self.lock();
        let is_none = |state: &mut State| state.waiting.len() == state.under_way.len();
        let mut state =
            self.changed.wait_timeout_while(state, patience, is_none).unwrap_or_else(PoisonError::into_inner).0;
        let is_free = |waiting: &&Waiting| !state.under_way.contains(&waiting.batch.id);
        let first = state.waiting.iter().find(is_free).copied()?;
        state.under_way.insert(first.batch.id);
        Some(first)
    }

    /// A batch was not delivered, and is under way no more.
    pub fn release(&self, id: Id) {
        self.lock().under_way.remove(&id);
    }

    /// What is in a batch; `None` if that is not what was written.
    pub fn read(&self, batch: &Batch) -> Result<Option<Vec<u8>>> {
        let file = match self.folder.file(&name_of(batch), OFlags::RDONLY) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        file.take(batch.bytes + 1).read_to_end(&mut bytes)?;
        Ok((bytes.len() as u64 == batch.bytes && crc32c(&bytes) == batch.crc).then_some(bytes))
    }

    /// What comes next in a partition, as far as is known.
    pub fn next_in(&self, partition: i32) -> Option<Assigned> {
        self.lock().next.get(&partition).copied()
    }

    /// A batch is about to be sent as this: on the disk before this returns.
    pub fn assign(&self, id: Id, assigned: Assigned) -> Result<()> {
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

    /// A batch goes under other numbers the next time.
    pub fn unassign(&self, id: Id) {
        self.lock().unassign(id);
    }

    /// The numbers of a batch that was refused are free again, and those of batches that were to come behind it: none of these is there.
    pub fn take_back(&self, assigned: Assigned) -> Result<()> {
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

    /// Forgets what comes next: another producer begins anew.
    pub fn forget(&self) {
        self.lock().next.clear();
    }

    /// A batch leaves.
    pub fn done(&self, id: Id, outcome: Outcome) -> Result<()> {
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
        state.shorten(self);
        drop(state);
        match outcome {
            Outcome::Delivered | Outcome::Dropped | Outcome::Halved => {
                // What stays is removed at the next start.
                let _ = self.folder.remove(name.as_ref());
            }
            Outcome::Refused => self.set_aside(&name, REFUSED),
            Outcome::Damaged => self.set_aside(&name, DAMAGED),
        }
        self.changed.notify_all();
        self.step()
    }

    /// Has the oldest batch give way that is not under way; `None`: there is none.
    pub fn drop_oldest(&self) -> Result<Option<Batch>> {
        let state = self.lock();
        let free = |waiting: &&Waiting| waiting.assigned.is_none() && !state.under_way.contains(&waiting.batch.id);
        let Some(Waiting { batch, .. }) = state.waiting.iter().find(free).copied() else { return Ok(None) };
        drop(state);
        self.done(batch.id, Outcome::Dropped).map(|()| Some(batch))
    }

    /// Waits until a batch came or went, or so long.
    pub fn wait(&self, patience: Duration) {
        drop(self.changed.wait_timeout(self.lock(), patience));
    }

    /// Wakes who waits.
    pub fn wake(&self) {
        self.changed.notify_all();
    }

    pub fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    pub fn tally(&self) -> Tally {
        self.lock().tally
    }

    /// Counts something beside.
    pub fn count(&self, count: impl FnOnce(&mut Tally)) {
        count(&mut self.lock().tally);
    }

    pub fn lag(&self) -> Lag {
        let state = self.lock();
        let Tally { delivered, dropped, refused, damaged, .. } = state.tally;
        Lag {
            batches: state.waiting.len() as u64,
            records: state.waiting.iter().map(|waiting| u64::from(waiting.batch.rows)).sum(),
            bytes: state.bytes,
            age: state
                .waiting
                .front()
                .map_or(Duration::ZERO, |oldest| Duration::from_nanos(now().saturating_sub(oldest.batch.made))),
            delivered,
            lost: dropped + refused + damaged,
        }
    }

    pub fn folder(&self) -> &Directory {
        &self.folder
    }

    pub fn path(&self) -> &std::path::Path {
        &self.folder.path
    }

    pub fn check(&self) -> Result<()> {
        self.folder.check()
    }

    /// Keeps a file under another name, for people.
    fn set_aside(&self, name: &str, why: &str) {
        // Where that cannot be it stays under its own.
        let _ = self.folder.rename(name.as_ref(), format!("{name}{why}").as_ref());
    }

    fn names(&self) -> Result<Vec<String>> {
        let names = rustix::fs::Dir::read_from(&self.folder)?;
        let names = names.map(|entry| Ok(entry?.file_name().to_str().unwrap_or_default().to_owned()));
        names.collect::<rustix::io::Result<_>>().map_err(Error::from)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a test has the process die.
    #[cfg(test)]
    pub fn step(&self) -> Result<()> {
        self.death.step()
    }

    #[cfg(not(test))]
    pub fn step(&self) -> Result<()> {
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
