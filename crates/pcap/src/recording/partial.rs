//! The file in progress of a recording: `NAME.part`, which becomes `NAME` once it is complete.

use super::direct::{self, Direct};
use super::limits::WriteOptions;
use super::names::Pattern;
use super::retained::{Id, RetainedFile, RetainedFiles};
use super::target::{FileTarget, is_full};
use crate::compression::Compression;
use crate::file::Output;
use linerate_burst::{Ledger, Nanos};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, openat, renameat, renameat_with, statat, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Suffix of an incomplete file; a companion file has its extension after that.
pub const PARTIAL_ENDING: &str = ".part";
/// Mode of new files: private, since captures are confidential.
const MODE: u32 = 0o600;

/// A newly created file of a recording, passed to the function that opens its sink.
pub struct PartialFile {
    retained: Arc<Mutex<RetainedFiles>>,
    folder: PathBuf,
    /// Final name.
    name: String,
    /// The file itself first, then its companion files.
    members: Vec<Member>,
    output: Option<Output>,
    before: Ledger,
    options: WriteOptions,
    /// Extensions of the requested companion files.
    companions: Vec<&'static str>,
    /// True if a companion file exists already.
    is_taken: bool,
}

/// One file in the folder.
struct Member {
    /// Extension; empty for the file itself.
    ending: &'static str,
    file: File,
    id: Id,
    size: Arc<AtomicU64>,
}

impl PartialFile {
    /// Creates a file for data that starts at a time, with the first free name.
    pub(super) fn make(
        retained: &Arc<Mutex<RetainedFiles>>,
        pattern: &mut Pattern,
        time: Nanos,
        before: Ledger,
        options: WriteOptions,
    ) -> io::Result<Self> {
        loop {
            let name = pattern.next(time);
            let mut partial = PartialFile {
                retained: Arc::clone(retained),
                folder: pattern.folder.clone(),
                name,
                members: Vec::new(),
                output: None,
                before: before.clone(),
                options,
                companions: Vec::new(),
                is_taken: false,
            };
            match partial.add("") {
                Ok(output) => partial.output = Some(output),
                // Another run is writing it, or it is left over from a crash.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                Err(error) => {
                    partial.discard();
                    return Err(error);
                }
            }
            if partial.is_free(&partial.name) {
                return Ok(partial);
            }
            partial.discard();
        }
    }

    /// Returns the file itself, compressed according to its name. Call it once.
    ///
    /// # Panics
    /// If it is called twice.
    pub fn output(&mut self) -> Output {
        self.output.take().expect("a file has one output")
    }

    /// Creates a companion file with this name and extension (`.idx`), which is completed and deleted with the file.
    /// Returns its current name too. A caller that cannot create or write it reports an error with this name when the
    /// file ends: the recording continues without it. If such a file exists already, the next name is used for both.
    pub fn open_companion(&mut self, ending: &'static str) -> (String, io::Result<Output>) {
        self.companions.push(ending);
        let made = match self.is_free(&format!("{}{ending}", self.name)) {
            true => self.add(ending),
            false => Err(ErrorKind::AlreadyExists.into()),
        };
        self.is_taken |= made.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists);
        (self.shown(&format!("{}{PARTIAL_ENDING}{ending}", self.name)), made)
    }

    /// Returns whether a companion file exists already.
    pub(super) fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// Returns the final path of the companion file that has this name now.
    pub(super) fn companion_named(&self, name: &str) -> Option<String> {
        let mut endings = self.companions.iter();
        let ending = endings.find(|ending| self.shown(&format!("{}{PARTIAL_ENDING}{ending}", self.name)) == name)?;
        Some(self.shown(&format!("{}{ending}", self.name)))
    }

    /// Returns the final path, for display.
    pub fn path(&self) -> String {
        self.shown(&self.name)
    }

    /// Returns the ledger at the start of the file.
    pub fn before(&self) -> Ledger {
        self.before.clone()
    }

    /// Returns the size including companion files.
    pub(super) fn size(&self) -> u64 {
        self.members.iter().map(|member| member.size.load(Ordering::Relaxed)).sum()
    }

    /// Returns the size of the file itself.
    pub(super) fn own_size(&self) -> u64 {
        self.members.first().map_or(0, |member| member.size.load(Ordering::Relaxed))
    }

    /// Waits until the data is on disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.members.iter().try_for_each(|member| member.file.sync_all())
    }

    /// Renames it to its final name, or one with a number if that was taken in the meantime. A file that was moved or
    /// removed in the meantime is ignored; one that cannot be renamed keeps its current name.
    pub(super) fn complete(mut self) -> io::Result<()> {
        self.drop_empty();
        let (mut names, mut result, stem) = (Vec::new(), Ok(()), self.name.clone());
        let mut number = 1;
        let is_free = |partial: &PartialFile| {
            partial.members.iter().all(|member| {
                member.ending.is_empty() || partial.is_free(&format!("{}{}", partial.name, member.ending))
            })
        };
        let mut next = |partial: &mut PartialFile| {
            number += 1;
            partial.name = crate::file::numbered(&stem, number);
        };
        while !is_free(&self) {
            next(&mut self);
        }
        for at in 0..self.members.len() {
            let Member { ending, id, .. } = self.members[at];
            let from = format!("{stem}{PARTIAL_ENDING}{ending}");
            if !self.locked().has(&from, id) {
                continue;
            }
            loop {
                let to = format!("{}{ending}", self.name);
                match self.rename(&from, &to) {
                    Ok(()) => break names.push((to, id)),
                    Err(Errno::EXIST) if ending.is_empty() => next(&mut self),
                    Err(error) => {
                        result = result.and(Err(error.into()));
                        break names.push((from, id));
                    }
                }
            }
        }
        let bytes = self.size();
        if !names.is_empty() {
            self.locked().push(RetainedFile { names, bytes });
        }
        result
    }

    /// Deletes the files, which are empty.
    pub(super) fn discard(self) {
        self.members.iter().for_each(|member| self.remove(member));
    }

    /// Deletes empty companion files.
    fn drop_empty(&mut self) {
        let is_empty = |member: &Member| !member.ending.is_empty() && member.size.load(Ordering::Relaxed) == 0;
        self.members.iter().filter(|member| is_empty(member)).for_each(|member| self.remove(member));
        self.members.retain(|member| !is_empty(member));
    }

    fn remove(&self, member: &Member) {
        let name = format!("{}{PARTIAL_ENDING}{}", self.name, member.ending);
        let retained = self.locked();
        if retained.has(&name, member.id) {
            // It was empty; if it remains, its name shows that.
            let _ = unlinkat(&retained.folder, name.as_str(), AtFlags::empty());
        }
    }

    /// Creates a file. If this fails halfway, [`discard`](Self::discard) deletes it.
    fn add(&mut self, ending: &'static str) -> io::Result<Output> {
        let name = format!("{}{PARTIAL_ENDING}{ending}", self.name);
        let file = self.create(&name)?;
        let (id, size) = (Id::of(&file)?, Arc::<AtomicU64>::default());
        self.members.push(Member { ending, file, id, size: Arc::clone(&size) });
        let file = self.members[self.members.len() - 1].file.try_clone()?;
        let direct = if self.options.direct && ending.is_empty() { Some(self.direct(&name, &file)?) } else { None };
        let slot = FileTarget::new(file, direct, size, Arc::clone(&self.retained), self.options.drop_oldest);
        let output = Output::over(Box::new(slot), self.shown(&name));
        match Compression::of_path(&self.name) {
            (Some(compression), _) if ending.is_empty() => output.compressed(compression),
            _ => Ok(output),
        }
    }

    /// Creates a file in the folder. Even a new directory entry may not fit a full disk.
    fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let file = openat(&self.locked().folder, name, flags, Mode::from_raw_mode(MODE)).map_err(io::Error::from);
            match file {
                Err(error) if is_full(error.kind()) && self.options.drop_oldest && self.remove_oldest() => {}
                file => return Ok(file?.into()),
            }
        }
    }

    fn remove_oldest(&self) -> bool {
        self.locked().remove_oldest()
    }

    /// Opens the same file for direct writes.
    fn direct(&self, name: &str, file: &File) -> io::Result<Direct> {
        let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let direct = openat(&self.locked().folder, name, flags, Mode::empty());
        let direct = direct.map(File::from).map_err(direct::explain)?;
        if Id::of(&direct)? != Id::of(file)? {
            return Err(io::Error::other("the file was replaced by another process"));
        }
        Ok(Direct::new(direct, file.try_clone()?))
    }

    fn shown(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn is_free(&self, name: &str) -> bool {
        statat(&self.locked().folder, name, AtFlags::SYMLINK_NOFOLLOW).is_err_and(|error| error == Errno::NOENT)
    }

    /// Renames without overwriting, atomically if the file system supports that.
    fn rename(&self, from: &str, to: &str) -> rustix::io::Result<()> {
        let retained = self.locked();
        match renameat_with(&retained.folder, from, &retained.folder, to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => {}
            done => return done,
        }
        match statat(&retained.folder, to, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => renameat(&retained.folder, from, &retained.folder, to),
            Err(error) => Err(error),
            Ok(_) => Err(Errno::EXIST),
        }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, RetainedFiles> {
        self.retained.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
