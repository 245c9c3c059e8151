//! Recovery of the state that an earlier run has left in a spool.

use super::super::clock::Clock;
use super::super::journal::{Journal, Line, Outcome};
use super::super::state::{State, is_batch, name_of};
use super::set_aside::{DAMAGED, UNCLAIMED, ending};
use super::{Directory, Spool};
use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io::{Error, ErrorKind, Result};
use std::sync::atomic::AtomicUsize;
use std::sync::{Condvar, Mutex};

/// Lock file of the process that uses the spool.
const LOCK: &str = "lock";

/// Parameters of a spool.
#[derive(Clone, Copy)]
pub(in super::super) struct Terms {
    /// Maximum bytes of batches.
    pub most: u64,
    /// True if the destination deduplicates by sequence numbers.
    pub has_numbers: bool,
    pub clock: Clock,
    /// Receives messages.
    pub notify: fn(String),
}

impl Spool {
    /// Opens the spool directory, or creates it, and reports what an earlier run has left.
    ///
    /// # Errors
    /// Another process uses it (`ResourceBusy`); system errors; the journal is invalid.
    pub(crate) fn open(folder: Directory, terms: Terms) -> Result<Self> {
        let lock = folder.file(LOCK, OFlags::RDWR | OFlags::CREATE)?;
        // Any user who can open the file can hold the lock; earlier versions left it open to all. Fails for another
        // user's file.
        let _ = fchmod(&lock, Mode::RUSR | Mode::WUSR);
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => Error::new(
                ErrorKind::ResourceBusy,
                "another run uses this spool; wait for it to end or set another --ship spool=DIR",
            ),
            error => error.into(),
        })?;
        let (journal, found) = Journal::open(&folder)?;
        let mut state = State::new(journal);
        state.replay(&found.lines);
        let spool = Spool {
            folder,
            _lock: lock,
            terms,
            most_rows: AtomicUsize::new(usize::MAX),
            state: Mutex::new(state),
            changed: Condvar::new(),
            #[cfg(test)]
            death: Default::default(),
        };
        let is_damaged = found.damaged > 0;
        if is_damaged {
            spool.send_notice(format_args!("{} damaged journal lines ignored", found.damaged));
        }
        spool.look(found.is_new, is_damaged)?;
        if is_damaged {
            let mut state = spool.lock();
            state.handle_lost_lines(terms.has_numbers);
            // Recovers only once. On failure the next run recovers again.
            state.rewrite(&spool);
        }
        Ok(spool)
    }

    /// Reconciles the directory with the journal.
    fn look(&self, is_new: bool, is_damaged: bool) -> Result<()> {
        let mut state = self.lock();
        self.find_set_aside(&mut state)?;
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
                state.note(self, &[Line::Done(waiting.batch.id, Outcome::Damaged)], false)?;
                state.tally.damaged += rows;
                if size.is_err() && is_damaged {
                    self.send_notice(format_args!("{name}: missing; its {rows} records were delivered or are lost"));
                } else {
                    self.send_notice(format_args!("{name}: damaged; {rows} records lost"));
                }
                self.set_aside(&mut state, &name, DAMAGED);
            }
        }
        for name in self.names()?.into_iter().filter(|name| is_batch(name) && !known.contains(name)) {
            match state.left.get(&name).map(|outcome| ending(*outcome)) {
                // A crash before the rename.
                Some(Some(why)) => self.set_aside(&mut state, &name, why),
                None if is_new || is_damaged => {
                    self.send_notice(format_args!("{name}: not in the journal; kept as {name}{UNCLAIMED}"));
                    self.set_aside(&mut state, &name, UNCLAIMED);
                }
                left => {
                    if left.is_none() {
                        self.send_notice(format_args!("{name}: partially written by a crashed run; deleted"));
                    }
                    self.folder.remove(name.as_ref())?;
                }
            }
        }
        if let (batches @ 1.., records) = (state.waiting.len(), state.tally.resumed - state.tally.damaged) {
            let plural = if batches == 1 { "" } else { "es" };
            self.send_notice(format_args!(
                "sending {records} records in {batches} batch{plural} of an earlier run first"
            ));
        }
        state.left.clear();
        Ok(())
    }

    pub(super) fn names(&self) -> Result<Vec<String>> {
        let names = rustix::fs::Dir::read_from(&self.folder)?;
        let names = names.map(|entry| Ok(entry?.file_name().to_str().unwrap_or_default().to_owned()));
        names.collect::<rustix::io::Result<_>>().map_err(Error::from)
    }

    pub(super) fn send_notice(&self, text: std::fmt::Arguments<'_>) {
        (self.terms.notify)(format!("{}: {text}", self.path().display()));
    }
}
