//! Batches that are not sent any more and are kept under other names, limited to a tenth of the spool size.

use super::super::journal::Outcome;
use super::super::state::{State, is_batch};
use super::Spool;
use std::io::Result;

/// Suffixes of files set aside.
const REFUSED: &str = ".refused";
pub(super) const DAMAGED: &str = ".damaged";
pub(super) const UNCLAIMED: &str = ".unclaimed";

/// Their share of the spool size, in addition to it.
const PART: u64 = 10;

/// Returns the suffix for an outcome; `None`: the file is deleted.
pub(super) fn ending(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Refused => Some(REFUSED),
        Outcome::Damaged => Some(DAMAGED),
        Outcome::Delivered | Outcome::Dropped | Outcome::Halved => None,
    }
}

impl Spool {
    /// Finds files set aside by earlier runs.
    pub(super) fn find_set_aside(&self, state: &mut State) -> Result<()> {
        let is_aside = |name: &String| {
            [REFUSED, DAMAGED, UNCLAIMED].iter().any(|why| name.strip_suffix(why).is_some_and(is_batch))
        };
        let mut found = Vec::new();
        for name in self.names()?.into_iter().filter(is_aside) {
            let file = self.folder.look(name.as_ref())?;
            found.push(((file.st_mtime, file.st_mtime_nsec), name, file.st_size as u64));
        }
        found.sort();
        state.aside = found.into_iter().map(|(_, name, size)| (name, size)).collect();
        self.limit_set_aside(state);
        Ok(())
    }

    /// Renames a file to keep it.
    pub(super) fn set_aside(&self, state: &mut State, name: &str, why: &str) {
        let new = format!("{name}{why}");
        // On failure it keeps its name, or is missing.
        if self.folder.rename(name.as_ref(), new.as_ref()).is_ok() {
            let size = self.folder.look(new.as_ref()).map_or(0, |file| file.st_size as u64);
            state.aside.push_back((new, size));
            self.limit_set_aside(state);
        }
    }

    /// Deletes the oldest files above the limit; the newest stays.
    fn limit_set_aside(&self, state: &mut State) {
        let is_too_much = |state: &State| {
            let bytes = state.aside.iter().map(|(_, size)| *size).sum::<u64>();
            state.aside.len() > 1 && bytes > self.terms.most / PART
        };
        if is_too_much(state) {
            // The user may have removed some.
            state.aside.retain(|(name, _)| self.folder.look(name.as_ref()).is_ok());
        }
        while is_too_much(state) {
            let Some((name, _)) = state.aside.pop_front() else { return };
            if self.folder.remove(name.as_ref()).is_ok() {
                state.tally.aside_dropped += 1;
                self.send_notice(format_args!("{name}: deleted; files set aside exceed a tenth of the spool size"));
            }
        }
    }

    /// Returns the number of files set aside.
    pub(crate) fn aside(&self) -> u64 {
        self.lock().aside.len() as u64
    }
}
