//! A recording: a sequence of capture files, the oldest of which are deleted.
//!
//! A file ends before the frame of a new time span (`every`), or after the frame with which it reaches its size. Each
//! is complete by itself. It is named `NAME.part` while it is written. If the program is killed, the file ends with a
//! complete record and at most a part of the next one, as the kernel may interrupt a write between two pages; a file
//! written with `O_DIRECT` then ends with a block, or where it was last flushed.
//!
//! - `limits`: when files end; `names`: file names; `partial`: the file in progress; `retained`: complete files;
//!   `rotation`: from one file to the next; `target`, `direct`: destinations of bytes.

mod direct;
mod limits;
mod names;
mod partial;
mod retained;
mod rotation;
mod target;

pub use limits::{Limits, Sync, WriteErrorPolicy, check_recording_path};
pub use partial::{PARTIAL_ENDING, PartialFile};

use limits::{frames_for, most_bytes};
use linerate_burst::block::View;
use linerate_burst::{Account, Count, Desc, Flags, Ledger, Nanos, Sink, SinkError, Stage};
use names::Pattern;
use retained::RetainedFiles;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, accessat, openat};
use std::io::{self, Error};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Minimum size of pieces of a compressed file, for a good compression ratio.
const LEAST_PIECE: u64 = 64 << 10;
/// Number of calls of `look` between attempts to create a file after a failure: once per second.
const LOOKS: u32 = 10;

/// Creates the sink that writes one file of a recording; called for each of them.
pub type Open = Box<dyn FnMut(&mut PartialFile) -> io::Result<Box<dyn Sink>> + Send>;

/// Writes frames to a sequence of files.
pub struct Recording {
    /// As given by the user.
    name: String,
    pattern: Pattern,
    limits: Limits,
    on_write_error: WriteErrorPolicy,
    direct: bool,
    sync: Sync,
    /// Time of the last sync to disk.
    synced: Nanos,
    open: Open,
    retained: Arc<Mutex<RetainedFiles>>,
    current: Option<CurrentFile>,
    /// Ledger at the last look, and that of all files that have ended.
    run: Ledger,
    done: Ledger,
    /// Latest time of a frame that was not late.
    newest: Nanos,
    counts: Counts,
    trouble: Option<LastWriteError>,
    /// Failures of companion files (indexes) of complete files.
    index_trouble: Option<LastWriteError>,
    /// Failure that could not be returned when it occurred; it ends the run at the next look.
    failure: Option<SinkError>,
    /// Looks until the next attempt to create a file.
    pause: u32,
}

/// File in progress.
struct CurrentFile {
    sink: Box<dyn Sink>,
    partial: PartialFile,
    /// Frames from this time on belong to the next file.
    until: Option<Nanos>,
}

#[derive(Default)]
struct Counts {
    files: u64,
    /// Frames without a file.
    without_file: u64,
    /// Frames in files since [`Sink::reopen`].
    frames: u64,
}

/// Last write failure.
struct LastWriteError {
    times: u64,
    text: String,
}

impl LastWriteError {
    /// Records another occurrence.
    fn note(trouble: &mut Option<LastWriteError>, text: String) {
        let times = trouble.as_ref().map_or(0, |trouble| trouble.times) + 1;
        *trouble = Some(LastWriteError { times, text });
    }
}

impl Recording {
    /// Returns a recording to the files that `path` names, as in `DIR/` or `DIR/eth0-%Y%m%d-%H%M%S.pcapng`; `ending`
    /// is the extension if the path gives no name. The folder is created if needed, files with their first frames.
    ///
    /// # Errors
    /// Unknown conversions; a folder that cannot be created or written to.
    pub fn new(path: &str, ending: &str, limits: Limits, open: Open) -> io::Result<Self> {
        let pattern = Pattern::new(path, ending)?;
        let folder = if pattern.folder.as_os_str().is_empty() { Path::new(".") } else { &pattern.folder };
        if path.ends_with('/') {
            std::fs::create_dir_all(folder)?;
        }
        let open_folder = openat(CWD, folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        accessat(&open_folder, ".", rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK, AtFlags::EACCESS)?;
        Ok(Recording {
            name: path.to_owned(),
            pattern,
            limits,
            on_write_error: WriteErrorPolicy::Stop,
            direct: false,
            sync: Sync::Never,
            synced: Nanos::ZERO,
            open,
            retained: Arc::new(Mutex::new(RetainedFiles::new(open_folder))),
            current: None,
            run: Ledger::new(),
            done: Ledger::new(),
            newest: Nanos::ZERO,
            counts: Counts::default(),
            trouble: None,
            index_trouble: None,
            failure: None,
            pause: 0,
        })
    }

    /// Sets the policy for write failures.
    #[must_use]
    pub fn on_write_error(mut self, on_write_error: WriteErrorPolicy) -> Self {
        self.on_write_error = on_write_error;
        self
    }

    /// Writes files with `O_DIRECT`, in blocks of 1 MiB, so that a long recording does not fill the page cache. An
    /// incomplete block is in the file at pauses and at the end; a crash of the program or the disk loses at most that
    /// much.
    ///
    /// # Errors
    /// If the file system of the folder does not support direct writes.
    pub fn direct(mut self, direct: bool) -> io::Result<Self> {
        if direct {
            direct::probe(&self.locked().folder)?;
        }
        self.direct = direct;
        Ok(self)
    }

    /// Sets when data is forced to disk.
    #[must_use]
    pub fn sync(mut self, sync: Sync) -> Self {
        self.sync = sync;
        self
    }

    /// Returns the folder of its files.
    ///
    /// # Errors
    /// Those of `dup(2)`.
    pub fn folder(&self) -> io::Result<OwnedFd> {
        self.locked().folder.try_clone()
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, RetainedFiles> {
        self.retained.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ensures that a file for a frame is open; false if none is.
    fn ready(&mut self, desc: &Desc) -> Result<bool, SinkError> {
        let time = if desc.flags.contains(Flags::LATE) { self.newest.max(desc.time) } else { desc.time };
        let is_over = |current: &CurrentFile| {
            current.until.is_some_and(|until| time >= until)
                || self.limits.file_bytes.is_some_and(|most| current.partial.own_size() >= most)
        };
        if self.current.as_ref().is_some_and(is_over) {
            let run = self.run.clone();
            self.end_file(&run)?;
        }
        if self.current.is_none() && self.pause == 0 {
            self.start_file(time).or_else(|error| self.handle_failure(error))?;
        }
        Ok(self.current.is_some())
    }

    /// Handles a write failure: ends the run, or records it.
    fn handle_failure(&mut self, error: SinkError) -> Result<(), SinkError> {
        if self.on_write_error == WriteErrorPolicy::Stop {
            return Err(error);
        }
        LastWriteError::note(&mut self.trouble, format!("{}: {}", error.target, error.reason));
        // If a file can be deleted, space is available at once.
        let is_full = target::is_full(error.reason.kind()) && self.on_write_error == WriteErrorPolicy::DropOldest;
        self.pause = if is_full && self.locked().len() > 0 { 0 } else { LOOKS };
        Ok(())
    }

    /// Returns the number of frames of the view that belong to the open file: at least the first.
    fn frames_that_fit(&self, view: &View<'_>) -> usize {
        let descs = view.burst().descs();
        let most = self.limits.file_bytes.unwrap_or(u64::MAX);
        let size = self.current.as_ref().map_or(0, |current| current.partial.own_size());
        let room = most.saturating_sub(size).max(if self.is_compressed() { LEAST_PIECE } else { 0 });
        let until = self.current.as_ref().and_then(|current| current.until).unwrap_or(Nanos::MAX);
        frames_for(descs, room, until)
    }

    fn is_compressed(&self) -> bool {
        let path = self.current.as_ref().map(|current| current.partial.path());
        path.is_some_and(|path| crate::Compression::of_path(&path).0.is_some())
    }

    /// Deletes the oldest files until `more` bytes are within the limit.
    fn make_room(&self, more: u64) {
        let Some(most) = self.limits.bytes else { return };
        let current = self.current.as_ref().map_or(0, |current| current.partial.size());
        while self.locked().bytes + current + more > most && self.locked().remove_oldest() {}
    }

    fn sync_if_due(&mut self, now: Nanos) -> Result<(), SinkError> {
        let (Sync::Every(every), Some(current)) = (self.sync, &mut self.current) else { return Ok(()) };
        if now == Nanos::MAX || now.since(self.synced) < every {
            return Ok(());
        }
        self.synced = now;
        let failed = |reason| SinkError { target: current.partial.path(), reason, advice: String::new() };
        let result = current.sink.flush().and_then(|()| current.partial.sync().map_err(failed));
        result.or_else(|error| self.handle_failure(error))
    }

    fn write(&mut self, view: View<'_>) -> Result<(), SinkError> {
        self.make_room(most_bytes(view.burst().descs()));
        let Some(current) = &mut self.current else { return Ok(()) };
        let result = current.sink.accept(view);
        if result.is_err() && self.on_write_error != WriteErrorPolicy::Stop {
            // The file ends with its last complete record.
            if let Some(current) = self.current.take() {
                let _ = self.close_file(current);
            }
        }
        result.or_else(|error| self.handle_failure(error))
    }
}

impl Sink for Recording {
    fn accept(&mut self, view: View<'_>) -> Result<(), SinkError> {
        let (mut at, mut result) = (0, Ok(()));
        let frames = view.burst().len();
        while at < frames {
            let rest = view.slice(at..frames);
            let is_ready = self.ready(&rest.burst().descs()[0]).unwrap_or_else(|error| {
                result = Err(error);
                false
            });
            if !is_ready || result.is_err() {
                self.counts.without_file += (frames - at) as u64;
                break;
            }
            let fitting = rest.slice(0..self.frames_that_fit(&rest));
            let in_order = |desc: &&Desc| !desc.flags.contains(Flags::LATE);
            let newest = fitting.burst().descs().iter().rev().find(in_order).map(|desc| desc.time);
            self.newest = newest.unwrap_or(self.newest).max(self.newest);
            at += fitting.burst().len();
            result = self.write(fitting);
        }
        result
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let result = current.sink.flush();
        result.or_else(|error| self.handle_failure(error))
    }

    /// Starts a new file with the next frame.
    fn reopen(&mut self, run: &Ledger) -> Result<Option<String>, SinkError> {
        self.run = run.clone();
        if let Err(error) = self.end_file(run) {
            let (target, advice) = (error.target.clone(), error.advice.clone());
            let reason = Error::new(error.reason.kind(), error.reason.to_string());
            self.failure.get_or_insert(SinkError { target, reason, advice });
            return Err(error);
        }
        let frames = std::mem::take(&mut self.counts.frames);
        Ok(Some(format!("{}: {frames} packets in complete files; the next packet starts a new file", self.name)))
    }

    fn follows(&self) -> bool {
        true
    }

    /// Completes a file whose time span is over, even if no frame arrives for long.
    fn look(&mut self, run: &Ledger, complete: Nanos) -> Result<(), SinkError> {
        self.failure.take().map_or(Ok(()), Err)?;
        self.run = run.clone();
        self.pause = self.pause.saturating_sub(1);
        let is_over =
            |current: &CurrentFile| current.until.is_some_and(|until| complete >= until && complete < Nanos::MAX);
        if self.current.as_ref().is_some_and(is_over) {
            return self.end_file(run);
        }
        self.sync_if_due(complete)
    }

    fn finish(&mut self, run: &Ledger) -> Result<(), SinkError> {
        let ended = self.end_file(run);
        self.failure.take().map_or(ended, Err)
    }

    fn notes(&self) -> Vec<String> {
        let (files, retained) = (self.counts.files, self.locked());
        let mut notes = vec![format!("recording {}: {files} files written, {} deleted", self.name, retained.removed)];
        if let Some((files, reason)) = retained.stuck {
            notes.push(format!("{}: {files} old files could not be deleted: {}", self.name, Error::from(reason)));
        }
        if let Some(LastWriteError { times, text }) = &self.trouble {
            notes.push(format!("writing failed {times} times, last error: {text}"));
        }
        if let Some(LastWriteError { times, text }) = &self.index_trouble {
            notes.push(format!("{times} files are complete without their index, last error: {text}"));
        }
        notes
    }

    fn counters(&self, ledger: &mut Ledger) {
        ledger.add_all(&self.done);
        let without_file = self.counts.without_file;
        let removed = self.locked().removed;
        let account: &mut Account = ledger.account(Stage::Write, &self.name);
        account.add(Count::WriteReceived, without_file).add(Count::Written, 0).add(Count::WriteFailed, without_file);
        account.add(Count::WriteFiles, self.counts.files).add(Count::FilesRemoved, removed);
        if let Some(current) = &self.current {
            let mut own = Ledger::new();
            current.sink.counters(&mut own);
            for (count, frames) in own.accounts().iter().flat_map(Account::counts) {
                account.add(count, frames);
            }
        }
    }
}
