//! A file that has its name once it is complete.

use super::directory::Directory;
use linerate_record::numbered;
use rustix::fs::{FlockOperation, OFlags, flock};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;

/// `NAME.part`, which becomes `NAME`.
#[derive(Debug)]
pub(super) struct Part {
    file: File,
    /// What it is in.
    pub folder: Directory,
    /// While it is written.
    part: OsString,
    /// Once it is complete.
    pub name: OsString,
    /// What a run that died had left of it, and where that is now, for people.
    pub leftover: Option<String>,
}

impl Part {
    /// Makes `name.part` in a folder, and holds a lock on it as long as it is written. One that a run has left that was killed goes
    /// to a name with a number, so that nothing of it is lost and the next run need not wait for anybody.
    ///
    /// # Errors
    /// Another run is writing it.
    pub(super) fn make(folder: Directory, name: &OsStr) -> io::Result<Self> {
        let mut part = name.to_owned();
        part.push(".part");
        let told = |error: io::Error| {
            let advice = match error.kind() {
                ErrorKind::AlreadyExists => ": another run is writing it; wait for it to end, or write to another file",
                _ => "",
            };
            io::Error::new(error.kind(), format!("{}: {error}{advice}", folder.path.join(&part).display()))
        };
        let leftover = set_aside(&folder, &part, name).map_err(told)?;
        let file = folder.new_file(&part).map_err(told)?;
        // Where there are no locks a leftover is never moved.
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        Ok(Part { file, folder, part, name: name.to_owned(), leftover })
    }

    /// Another handle to the same file and the same place in it.
    pub(super) fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Gives it its name once it is on the disk, in place of what has it.
    ///
    /// # Errors
    /// Say where the records are.
    pub(super) fn complete(&self) -> io::Result<()> {
        self.complete_as(&self.name)
    }

    /// The same of one behind others of its run, in the place of none: with a number where the name is taken, which it is not by
    /// an empty file, as logrotate(8) leaves it. If somebody has moved it away it is complete there. Returns where it is, for people.
    ///
    /// # Errors
    /// As of [`complete`](Part::complete).
    pub(super) fn complete_beside(&self) -> io::Result<String> {
        let file = self.file.metadata()?;
        let is_this = |there: &rustix::fs::Stat| (there.st_dev, there.st_ino) == (file.dev(), file.ino());
        if !self.is_removed() && !self.folder.look(&self.part).is_ok_and(|there| is_this(&there)) {
            self.file.sync_all()?;
            return Ok(format!("what was {}", self.folder.path.join(&self.part).display()));
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
        let told = |text: String| move |error: io::Error| io::Error::new(error.kind(), format!("{text}: {error}"));
        if self.is_removed() {
            let text = format!("{} was removed while it was written, and what was in it is gone", part.display());
            return Err(io::Error::new(ErrorKind::NotFound, text));
        }
        self.file.sync_all().map_err(told(format!("what is in {} may not all be on the disk", part.display())))?;
        self.folder.rename(&self.part, name).map_err(|error| {
            let advice = match error.kind() {
                ErrorKind::NotFound => format!("{} was moved or removed meanwhile", part.display()),
                _ => format!(
                    "all records are in {}, which cannot take the place of {}; rename it, or move away what is there",
                    part.display(),
                    path.display()
                ),
            };
            told(advice)(error)
        })?;
        let known = self.folder.sync();
        known.map_err(told(format!("{} is complete, but its name may not be on the disk", path.display())))
    }

    /// Whether it has no name any more: what is in it goes with this.
    pub(super) fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|data| data.nlink() == 0)
    }

    /// Takes it away, as nobody could read it.
    pub(super) fn discard(self) {
        // It was not data; that it stays is told by its name.
        let _ = self.folder.remove(&self.part);
    }
}

/// Gives what a run that died has left of a file another name; what is empty is removed. `AlreadyExists`: somebody writes it.
fn set_aside(folder: &Directory, part: &OsStr, name: &OsStr) -> io::Result<Option<String>> {
    let file = match folder.file(part, OFlags::RDONLY) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| io::Error::from(ErrorKind::AlreadyExists))?;
    // Another run may have moved it, and begun its own, before the lock was had.
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
    Ok(Some(format!("{}: left by a run that died; it is kept as {}", part.display(), free.display())))
}

/// Leftovers of one file that are kept beside it.
const MOST_LEFTOVERS: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_name_once_it_is_complete_and_leftovers_stay() {
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
            // As long as somebody writes it nobody else does, and it stays.
            let error = make().unwrap_err().to_string();
            assert!(error.contains("flows.jsonl.part") && error.contains("another run is writing it"), "{error}");
        }
        [1, 2].iter().for_each(|it| std::fs::remove_file(folder.join(format!("flows.jsonl.{it}.part"))).unwrap());
        // An empty one is nothing to keep.
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
        assert!(error.contains("flows.jsonl.part was moved or removed") && !part.is_removed(), "{error}");
        std::fs::remove_file(there).unwrap();
        std::fs::write(&here, "of somebody").unwrap();
        let error = part.complete().unwrap_err().to_string();
        assert!(error.contains("flows.jsonl.part was removed while") && here.exists(), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
