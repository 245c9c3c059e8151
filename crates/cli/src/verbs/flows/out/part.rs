//! A file that has its name once it is complete.

use super::folders::{parent, sync};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::fchown;
use std::path::PathBuf;

/// `NAME.part`, which becomes `NAME`.
#[derive(Debug)]
pub(super) struct Part {
    file: File,
    /// While it is written.
    pub part: PathBuf,
    /// Once it is complete.
    pub path: PathBuf,
}

impl Part {
    /// Makes `path.part`, for `owner` (user, group) if one is named.
    ///
    /// # Errors
    /// It is there already: another run is writing it, or one was cut off, and what it wrote is not to be lost.
    pub fn make(path: PathBuf, owner: Option<(u32, u32)>) -> io::Result<Self> {
        let mut part = path.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = OpenOptions::new().write(true).create_new(true).open(&part).map_err(|error| {
            let advice = match error.kind() {
                ErrorKind::AlreadyExists => ": another run is writing it, or one was cut off: move it away if none is",
                _ => "",
            };
            io::Error::new(error.kind(), format!("{}: {error}{advice}", part.display()))
        })?;
        if let Some((user, group)) = owner {
            fchown(&file, Some(user), Some(group))?;
        }
        Ok(Part { file, part, path })
    }

    /// Another handle to the same file and the same place in it.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Gives it its name once it is on the disk.
    ///
    /// # Errors
    /// Say where the records are.
    pub fn complete(self) -> io::Result<()> {
        let Part { file, part, path } = self;
        let (part, path) = (part.as_path(), path.as_path());
        let told = |text: String| move |error: io::Error| io::Error::new(error.kind(), format!("{text}: {error}"));
        file.sync_all().map_err(told(format!("what is in {} may not all be on the disk", part.display())))?;
        std::fs::rename(part, path).map_err(|error| {
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
        sync(parent(path)).map_err(told(format!("{} is complete, but its name may not be on the disk", path.display())))
    }

    /// Takes it away, as nobody could read it.
    pub fn discard(self) {
        // It was not data; that it stays is told by its name.
        let _ = std::fs::remove_file(&self.part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_name_once_it_is_complete_and_leftovers_stay() {
        let folder = std::env::temp_dir().join(format!("linerate-part-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("flows.jsonl");
        std::fs::write(folder.join("flows.jsonl.part"), "of a run before").unwrap();
        let error = Part::make(path.clone(), None).unwrap_err().to_string();
        assert!(error.contains("flows.jsonl.part") && error.contains("move it away"), "{error}");
        assert_eq!(std::fs::read(folder.join("flows.jsonl.part")).unwrap(), b"of a run before");

        std::fs::remove_file(folder.join("flows.jsonl.part")).unwrap();
        let part = Part::make(path.clone(), None).unwrap();
        io::Write::write_all(&mut part.handle().unwrap(), b"all").unwrap();
        assert!(!path.exists());
        part.complete().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"all");
        Part::make(path.clone(), None).unwrap().discard();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);

        let part = Part::make(path.clone(), None).unwrap();
        std::fs::remove_file(&part.part).unwrap();
        let error = part.complete().unwrap_err().to_string();
        assert!(error.contains("flows.jsonl.part was moved or removed"), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
