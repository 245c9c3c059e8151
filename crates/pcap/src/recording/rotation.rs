//! Changes from one file of a recording to the next.

use super::limits::{Sync, WriteErrorPolicy, WriteOptions, end_of_span};
use super::partial::PartialFile;
use super::{CurrentFile, LastWriteError, Recording};
use linerate_burst::{Count, Ledger, Nanos, SinkError, Stage};
use std::io::Error;

impl Recording {
    pub(super) fn start_file(&mut self, time: Nanos) -> Result<(), SinkError> {
        if let Some(most) = self.limits.files {
            while self.locked().len() >= most.max(1) {
                self.locked().remove_oldest();
            }
        }
        self.make_room(0);
        let drop_oldest = self.on_write_error == WriteErrorPolicy::DropOldest;
        let options = WriteOptions { drop_oldest, direct: self.direct };
        let failed = |target: String| move |reason: Error| SinkError { target, reason, advice: String::new() };
        loop {
            let made = PartialFile::make(&self.retained, &mut self.pattern, time, self.run.clone(), options);
            let mut partial = made.map_err(failed(self.name.clone()))?;
            match (self.open)(&mut partial) {
                // A companion file of this name exists; another name is free for both.
                _ if partial.is_taken() => partial.discard(),
                Ok(sink) => {
                    let until = self.limits.every.map(|every| end_of_span(time, every));
                    self.current = Some(CurrentFile { sink, partial, until });
                    self.counts.files += 1;
                    return Ok(());
                }
                Err(reason) => {
                    let path = partial.path();
                    partial.discard();
                    return Err(failed(path)(reason));
                }
            }
        }
    }

    /// Completes the open file; the next frame starts another.
    pub(super) fn end_file(&mut self, run: &Ledger) -> Result<(), SinkError> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        let ended = match current.sink.finish(run) {
            // The capture itself is complete, so the recording continues.
            Err(error) if let Some(path) = current.partial.companion_named(&error.target) => {
                LastWriteError::note(&mut self.index_trouble, format!("{path}: {}; {}", error.reason, error.advice));
                Ok(())
            }
            ended => ended,
        };
        let kept = self.close_file(current);
        ended.and(kept).or_else(|error| self.handle_failure(error))
    }

    /// Closes a file, and keeps the counters of its sink.
    pub(super) fn close_file(&mut self, current: CurrentFile) -> Result<(), SinkError> {
        let mut own = Ledger::new();
        current.sink.counters(&mut own);
        drop(current.sink);
        self.counts.frames += self.add(&own);
        if current.partial.own_size() == 0 {
            self.counts.files -= 1;
            current.partial.discard();
            return Ok(());
        }
        let path = current.partial.path();
        // On any failure it still gets its name and counts among the retained files.
        let is_synced = self.sync != Sync::Never;
        let synced = if is_synced { current.partial.sync() } else { Ok(()) };
        let completed = current.partial.complete();
        let named = if is_synced { self.locked().sync() } else { Ok(()) };
        let advice = "the file may still be named .part, or not be completely on disk".to_owned();
        synced.and(completed).and(named).map_err(|reason| SinkError { target: path, reason, advice })
    }

    /// Adds the counters of a file's sink to the account of all files. Returns the frames written.
    fn add(&mut self, own: &Ledger) -> u64 {
        let done = self.done.account(Stage::Write, &self.name);
        let before = done.get(Count::Written);
        for account in own.accounts().iter().filter(|account| account.stage == Stage::Write) {
            for (count, frames) in account.counts() {
                done.add(count, frames);
            }
        }
        done.get(Count::Written) - before
    }
}
