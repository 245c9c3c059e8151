//! A recording: capture files one after the other, of which the oldest go.
//!
//! A file ends before the frame of a new span of time (`every`), or behind the frame that it reaches its size with. Each is
//! complete by itself. It is called `NAME.part` while it is written. Whenever the program is killed, it ends with a whole record and
//! at most a piece of the next one, as the kernel breaks a write off between two pages; one that is written past the page cache ends
//! with a block then, or where it was flushed last.
//!
//! - `limits`: when files end; `names`: what files are called; `partial`: one in the making; `retained`: those that are complete;
//!   `change`: from one file to the next; `target`, `direct`: where bytes go.

mod change;
mod direct;
mod limits;
mod names;
mod partial;
mod retained;
mod target;

pub use limits::{Limits, OnTrouble, Sync, check_place};
pub use partial::{PARTIAL_ENDING, PartialFile};

use limits::{frames_for, most_bytes};
use linerate_burst::block::View;
use linerate_burst::{Account, Count, Desc, Flags, Ledger, Nanos, Sink, SinkError, Stage};
use names::Pattern;
use retained::Retained;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, accessat, openat};
use std::io::{self, Error};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Frames of a compressed file are handed on in pieces of so many bytes at least, as compression pays then.
const LEAST_PIECE: u64 = 64 << 10;
/// After trouble a new file is tried at every so many looks: once a second.
const LOOKS: u32 = 10;

/// Makes the sink that writes one file of a recording. All of them are opened by it.
pub type Open = Box<dyn FnMut(&mut PartialFile) -> io::Result<Box<dyn Sink>> + Send>;

/// Writes frames into one file after the other.
pub struct Recording {
    /// As the user named it.
    name: String,
    pattern: Pattern,
    limits: Limits,
    on_trouble: OnTrouble,
    direct: bool,
    sync: Sync,
    /// When a file was brought to the disk the last time.
    synced: Nanos,
    open: Open,
    retained: Arc<Mutex<Retained>>,
    current: Option<Current>,
    /// The ledger as of the last look, and that of all files that have ended.
    run: Ledger,
    done: Ledger,
    /// The greatest time of a frame that was not late.
    newest: Nanos,
    counts: Counts,
    trouble: Option<Trouble>,
    /// The same of what lies beside files that are complete.
    beside: Option<Trouble>,
    /// What went wrong when nobody could be told but the user: it ends the run at the next look.
    failure: Option<SinkError>,
    /// Looks until a new file is tried.
    pause: u32,
}

/// The file that is written.
struct Current {
    sink: Box<dyn Sink>,
    partial: PartialFile,
    /// No frame of this time or later is for it.
    until: Option<Nanos>,
}

#[derive(Default)]
struct Counts {
    files: u64,
    /// Frames that found no file to go to.
    without_file: u64,
    /// Frames in files since [`Sink::reopen`].
    frames: u64,
}

/// Why nothing could be written, the last time.
struct Trouble {
    times: u64,
    text: String,
}

impl Trouble {
    /// Notes that it happened again.
    fn note(trouble: &mut Option<Trouble>, text: String) {
        let times = trouble.as_ref().map_or(0, |trouble| trouble.times) + 1;
        *trouble = Some(Trouble { times, text });
    }
}

impl Recording {
    /// Of files that `path` names, as in `DIR/` or `DIR/eth0-%Y%m%d-%H%M%S.pcapng`; `ending` is of those that it gives no name. The
    /// folder is made where it is not there; files are made with their first frames.
    ///
    /// # Errors
    /// Conversions that are not known; a folder that cannot be made or written to.
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
            on_trouble: OnTrouble::Stop,
            direct: false,
            sync: Sync::Never,
            synced: Nanos::ZERO,
            open,
            retained: Arc::new(Mutex::new(Retained::new(open_folder))),
            current: None,
            run: Ledger::new(),
            done: Ledger::new(),
            newest: Nanos::ZERO,
            counts: Counts::default(),
            trouble: None,
            beside: None,
            failure: None,
            pause: 0,
        })
    }

    /// What is done where nothing more can be written.
    #[must_use]
    pub fn on_trouble(mut self, on_trouble: OnTrouble) -> Self {
        self.on_trouble = on_trouble;
        self
    }

    /// Files are written past the page cache, in blocks of 1 MiB, so that a long recording does not fill it. What has not filled
    /// one is in the file at pauses and at the end; whoever kills the program, or breaks the disk, takes that much away.
    ///
    /// # Errors
    /// The file system of the folder takes no such writes.
    pub fn direct(mut self, direct: bool) -> io::Result<Self> {
        if direct {
            direct::probe(&self.locked().folder)?;
        }
        self.direct = direct;
        Ok(self)
    }

    /// When what was written is forced to the disk.
    #[must_use]
    pub fn sync(mut self, sync: Sync) -> Self {
        self.sync = sync;
        self
    }

    /// The folder that its files are in.
    ///
    /// # Errors
    /// Those of `dup(2)`.
    pub fn folder(&self) -> io::Result<OwnedFd> {
        self.locked().folder.try_clone()
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Retained> {
        self.retained.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file for a frame, begun if need be; false where there is none.
    fn ready(&mut self, desc: &Desc) -> Result<bool, SinkError> {
        let time = if desc.flags.contains(Flags::LATE) { self.newest.max(desc.time) } else { desc.time };
        let is_over = |current: &Current| {
            current.until.is_some_and(|until| time >= until)
                || self.limits.file_bytes.is_some_and(|most| current.partial.own_size() >= most)
        };
        if self.current.as_ref().is_some_and(is_over) {
            let run = self.run.clone();
            self.end_file(&run)?;
        }
        if self.current.is_none() && self.pause == 0 {
            self.begin_file(time).or_else(|error| self.handle_failure(error))?;
        }
        Ok(self.current.is_some())
    }

    /// Writing failed: that ends the run, or is kept in mind.
    fn handle_failure(&mut self, error: SinkError) -> Result<(), SinkError> {
        if self.on_trouble == OnTrouble::Stop {
            return Err(error);
        }
        Trouble::note(&mut self.trouble, format!("{}: {}", error.target, error.reason));
        // Where a file goes for it room is there at once.
        let is_full = target::is_full(error.reason.kind()) && self.on_trouble == OnTrouble::DropOldest;
        self.pause = if is_full && self.locked().len() > 0 { 0 } else { LOOKS };
        Ok(())
    }

    /// How many frames of the view belong to the file that is open: at least the first.
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

    /// Removes the oldest files until so many bytes more are within what may be kept.
    fn make_room(&self, more: u64) {
        let Some(most) = self.limits.bytes else { return };
        let current = self.current.as_ref().map_or(0, |current| current.partial.size());
        while self.locked().bytes + current + more > most && self.locked().remove_oldest() {}
    }

    fn sync_now_and_then(&mut self, now: Nanos) -> Result<(), SinkError> {
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
        if result.is_err() && self.on_trouble != OnTrouble::Stop {
            // It ends with its last whole record.
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

    /// The next frame begins a new file.
    fn reopen(&mut self, run: &Ledger) -> Result<Option<String>, SinkError> {
        self.run = run.clone();
        if let Err(error) = self.end_file(run) {
            let (target, advice) = (error.target.clone(), error.advice.clone());
            let reason = Error::new(error.reason.kind(), error.reason.to_string());
            self.failure.get_or_insert(SinkError { target, reason, advice });
            return Err(error);
        }
        let frames = std::mem::take(&mut self.counts.frames);
        Ok(Some(format!("{}: {frames} frames are in files that are complete; the next begins another", self.name)))
    }

    fn follows(&self) -> bool {
        true
    }

    /// A file whose time is over is completed, though no frame may come for long.
    fn look(&mut self, run: &Ledger, complete: Nanos) -> Result<(), SinkError> {
        self.failure.take().map_or(Ok(()), Err)?;
        self.run = run.clone();
        self.pause = self.pause.saturating_sub(1);
        let is_over = |current: &Current| current.until.is_some_and(|until| complete >= until && complete < Nanos::MAX);
        if self.current.as_ref().is_some_and(is_over) {
            return self.end_file(run);
        }
        self.sync_now_and_then(complete)
    }

    fn finish(&mut self, run: &Ledger) -> Result<(), SinkError> {
        let ended = self.end_file(run);
        self.failure.take().map_or(ended, Err)
    }

    fn notes(&self) -> Vec<String> {
        let (files, retained) = (self.counts.files, self.locked());
        let mut notes = vec![format!("{}: files written {files}, removed {}", self.name, retained.removed)];
        if let Some((files, reason)) = retained.stuck {
            notes.push(format!(
                "{}: {files} files that had to go could not be removed: {}",
                self.name,
                Error::from(reason)
            ));
        }
        if let Some(Trouble { times, text }) = &self.trouble {
            notes.push(format!("writing failed {times} times, at last: {text}"));
        }
        if let Some(Trouble { times, text }) = &self.beside {
            notes.push(format!("{times} files are complete without what lies beside them, at last: {text}"));
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
