//! Split of a batch that is too long for the destination.

use super::super::crc32c;
use super::super::journal::{Batch, Line, Outcome};
use super::super::state::{SpooledBatch, name_of};
use super::Spool;
use std::io::{ErrorKind, Result};
use std::sync::atomic::Ordering;

impl Spool {
    /// Halves the maximum batch size after a rejection of this many records; returns whether that is a change.
    pub(crate) fn shorter(&self, rows: u32) -> bool {
        let most = (rows / 2).max(1) as usize;
        self.most_rows.fetch_min(most, Ordering::Relaxed) > most
    }

    /// Returns the maximum number of records per batch known to be accepted by the destination.
    pub(crate) fn most_rows(&self) -> usize {
        self.most_rows.load(Ordering::Relaxed)
    }

    /// Replaces a batch by its halves; returns false if the spool is full.
    ///
    /// # Errors
    /// Write errors, except for a full disk.
    pub(crate) fn halve(&self, whole: &Batch, halves: [(Batch, Vec<u8>); 2]) -> Result<bool> {
        let halves = halves.map(|(mut half, bytes)| {
            (half.bytes, half.crc) = (bytes.len() as u64, crc32c(&bytes));
            (half, bytes)
        });
        let names = [name_of(&halves[0].0), name_of(&halves[1].0)];
        let write = || {
            names.iter().zip(&halves).try_for_each(|(name, (_, bytes))| self.write(name, bytes))?;
            let mut state = self.lock();
            // The halves do not count until the whole batch has its final line.
            state.note(self, &[Line::Made(halves[0].0), Line::Made(halves[1].0)], false)?;
            state.note(self, &[Line::Done(whole.id, Outcome::Halved)], false)?;
            self.step()
        };
        match write() {
            Ok(()) => {}
            Err(error) if self.is_dead() => return Err(error),
            Err(error) => {
                names.iter().for_each(|name| drop(self.folder.remove(name.as_ref())));
                let is_full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
                return if is_full { Ok(false) } else { Err(error) };
            }
        }
        let mut state = self.lock();
        let Some(at) = state.waiting.iter().position(|waiting| waiting.batch.id == whole.id) else { return Ok(true) };
        state.waiting.remove(at);
        state.under_way.remove(&whole.id);
        state.bytes -= whole.bytes;
        for (batch, _) in halves.iter().rev() {
            state.waiting.insert(at, SpooledBatch::new(*batch));
            state.bytes += batch.bytes;
        }
        drop(state);
        // The next start deletes a remaining file.
        let _ = self.folder.remove(name_of(whole).as_ref());
        self.changed.notify_all();
        self.step().map(|()| true)
    }
}
