//! Output files that get their name on completion.

use super::directory::Directory;
use linerate_pcap::numbered;
use rustix::fs::{FlockOperation, OFlags, flock};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;

/// `NAME.part`, which is renamed to `NAME`.
#[derive(Debug)]
pub(super) struct Part {
    file: File,
    /// Directory of the file.
    pub folder: Directory,
    /// Name while it is written.
    part: OsString,
    /// Name after completion.
    pub name: OsString,
    /// Message about a leftover of a crashed run and its new name.
    pub leftover: Option<String>,
}

impl Part {
    /// Creates `name.part` in a directory and holds a lock on it while it is written. A leftover of a killed run is
    /// renamed with a number, so that its data is kept and the next run can start at once.
    ///
    /// # Errors
    /// Another run is writing it.
    pub(super) fn make(folder: Directory, name: &OsStr) -> io::Result<Self> {
        let mut part = name.to_owned();
        part.push(".part");
        let describe = |error: io::Error| {
            let advice = match error.kind() {
                ErrorKind::AlreadyExists => ": another run is writing it; wait for it to end or use another file",
                _ => "",
            };
            io::Error::new(error.kind(), format!("{}: {error}{advice}", folder.path.join(&part).display()))
        };
        let leftover = set_aside(&folder, &part, name).map_err(describe)?;
        let file = folder.new_file(&part).map_err(describe)?;
        // Without file locks a leftover is never moved.
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        Ok(Part { file, folder, part, name: name.to_owned(), leftover })
    }

    /// Returns a second handle with a shared file offset.
    pub(super) fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Syncs the file and gives it its name, replacing an existing file.
    ///
    /// # Errors
    /// The message names the location of the records.
    pub(super) fn complete(&self) -> io::Result<()> {
        self.complete_as(&self.name)
    }

    /// Completes a rotated file without replacing another: adds a number if the name is taken, except by an empty file,
    /// as logrotate(8) leaves it. If the file was moved in the meantime, it is completed there. Returns its location,
    /// for messages.
    /// # Errors
    /// Same as [`complete`](Part::complete).
    pub(super) fn complete_unique(&self) -> io::Result<String> {
        let file = self.file.metadata()?;
        let is_this = |there: &rustix::fs::Stat| (there.st_dev, there.st_ino) == (file.dev(), file.ino());
        if !self.is_removed() && !self.folder.look(&self.part).is_ok_and(|there| is_this(&there)) {
            self.file.sync_all()?;
            return Ok(format!("{} (moved since)", self.folder.path.join(&self.part).display()));
        }
        let name = self.name.to_string_lossy();
        let names = std::iter::once(self.name.clone()).chain((2..).map(|number| numbered(&name, number).into()));
        let is_free = |name: &OsString| self.folder.look(name).map_or(true, |there| there.st_size == 0);
        let free = names.into_iter().find(is_free).unwrap_or_default();
        self.complete_as(&free)?;
        Ok(self.folder.path.join(free).display().to_string())
    }

    fn complete_as(&self, name: &OsStr) -> io::Result<()> {
        let (part, path) = (self.folder.path.join(&self.part), self.folder.path.join(name));
        let describe = |text: String| move |error: io::Error| io::Error::new(error.kind(), format!("{text}: {error}"));
        if self.is_removed() {
            let text = format!("{}: removed while it was written; its records are lost", part.display());
            return Err(io::Error::new(ErrorKind::NotFound, text));
        }
        self.file
            .sync_all()
            .map_err(describe(format!("{}: sync to disk failed; records may be incomplete", part.display())))?;
        self.folder.rename(&self.part, name).map_err(|error| {
            let advice = match error.kind() {
                ErrorKind::NotFound => format!("{}: moved or removed while it was written", part.display()),
                _ => format!(
                    "all records are in {}, but it cannot replace {}; rename one of them",
                    part.display(),
                    path.display()
                ),
            };
            describe(advice)(error)
        })?;
        let known = self.folder.sync();
        known.map_err(describe(format!("{}: complete, but sync of its directory failed", path.display())))
    }

    /// Returns whether it has no name any more: dropping it deletes its data.
    pub(super) fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|data| data.nlink() == 0)
    }

    /// Removes it, as it contains nothing readable.
    pub(super) fn discard(self) {
        // It has no records; a remaining file is recognisable by its name.
        let _ = self.folder.remove(&self.part);
    }
}

/// Renames the leftover of a crashed run; removes it if empty. `AlreadyExists`: another run is writing it.
fn set_aside(folder: &Directory, part: &OsStr, name: &OsStr) -> io::Result<Option<String>> {
    let file = match folder.file(part, OFlags::RDONLY) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| io::Error::from(ErrorKind::AlreadyExists))?;
    // Another run may have moved it and created its own before the lock was acquired.
    let (data, there) = (file.metadata()?, folder.look(part)?);
    if (there.st_dev, there.st_ino) != (data.dev(), data.ino()) {
        return Err(ErrorKind::AlreadyExists.into());
    }
    if data.len() == 0 {
        return folder.remove(part).map(|()| None);
    }
    let names = (1..).map(|number| OsString::from(format!("{}.{number}.part", name.to_string_lossy())));
    let is_free = |name: &OsString| folder.look(name).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let free = names.into_iter().take(MOST_LEFTOVERS).find(is_free).ok_or(ErrorKind::AlreadyExists)?;
    folder.rename(part, &free)?;
    folder.sync()?;
    let [part, free] = [part, &free].map(|name| folder.path.join(name));
    Ok(Some(format!("{}: left by a crashed run; kept as {}", part.display(), free.display())))
}

/// Maximum number of leftovers per file.
const MOST_LEFTOVERS: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_files_get_their_name_and_leftovers_are_kept() {
        let folder = std::env::temp_dir().join(format!("linerate-part-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("flows.jsonl");
        let make = || Part::make(Directory::open(&folder).unwrap(), "flows.jsonl".as_ref());
        for (number, text) in [(1, "of a run before"), (2, "of another")] {
            std::fs::write(folder.join("flows.jsonl.part"), text).unwrap();
            let part = make().unwrap();
            let kept = folder.join(format!("flows.jsonl.{number}.part"));
            assert!(part.leftover.as_ref().unwrap().ends_with(kept.to_str().unwrap()), "{part:?}");
            assert_eq!(std::fs::read_to_string(&kept).unwrap(), text);
            // While one run writes it, no other can, and the file stays.
            let error = make().unwrap_err().to_string();
            assert!(error.contains("flows.jsonl.part") && error.contains("another run is writing it"), "{error}");
        }
        [1, 2].iter().for_each(|it| std::fs::remove_file(folder.join(format!("flows.jsonl.{it}.part"))).unwrap());
        // An empty leftover is removed.
        let part = make().unwrap();
        assert_eq!((&part.leftover, std::fs::read_dir(&folder).unwrap().count()), (&None, 1));
        io::Write::write_all(&mut part.handle().unwrap(), b"all").unwrap();
        assert!(!path.exists());
        part.complete().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"all");
        make().unwrap().discard();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);

        let part = make().unwrap();
        let (here, there) = (folder.join(&part.part), folder.join("there"));
        std::fs::rename(&here, &there).unwrap();
        let error = part.complete().unwrap_err().to_string();
        assert!(error.contains("flows.jsonl.part: moved or removed") && !part.is_removed(), "{error}");
        std::fs::remove_file(there).unwrap();
        std::fs::write(&here, "of another").unwrap();
        let error = part.complete().unwrap_err().to_string();
        assert!(error.contains("flows.jsonl.part: removed while") && here.exists(), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
