//! Files of the demonstration.

use anyhow::{Context, bail};
use linerate_pcap::Output;
use rustix::fs::{Mode, OFlags, fstat, open, openat};
use rustix::process::geteuid;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Files of a run: in a folder if kept, else unnamed, so that none is left however the process ends.
pub(super) enum Workplace {
    Kept(PathBuf, OwnedFd),
    Nameless,
}

/// A file of the run.
pub(super) struct WorkFile {
    /// Path through `/proc/self/fd`.
    pub path: PathBuf,
    name: String,
    file: File,
}

impl Workplace {
    /// Opens the folder, and creates it if missing.
    pub(super) fn new(keep: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = keep else { return Ok(Workplace::Nameless) };
        let shown = path.display();
        std::fs::create_dir_all(path).with_context(|| format!("cannot create directory {shown}"))?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = open(path, flags, Mode::empty()).with_context(|| format!("cannot open directory {shown}"))?;
        let stat = fstat(&folder).with_context(|| format!("cannot read attributes of directory {shown}"))?;
        // Other users could redirect or replace files that root writes there.
        let is_of_others = stat.st_uid != 0 || stat.st_mode & 0o022 != 0;
        if geteuid().is_root() && is_of_others {
            bail!(
                "{shown}: writable by other users, while root creates the files; use a new directory inside one that only root can write"
            );
        }
        Ok(Workplace::Kept(path.to_path_buf(), folder))
    }

    /// Creates a file; fails if it exists.
    pub(super) fn file(&self, name: &str) -> anyhow::Result<WorkFile> {
        let file = match self {
            Workplace::Kept(path, folder) => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
                let made = openat(folder, name, flags, Mode::from_raw_mode(0o644));
                File::from(
                    made.with_context(|| format!("cannot create {name} in {}; use a new directory", path.display()))?,
                )
            }
            Workplace::Nameless => {
                let folder = std::env::temp_dir();
                nameless(&folder).with_context(|| format!("cannot create a file in {}", folder.display()))?
            }
        };
        let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
        Ok(WorkFile { path, name: name.to_owned(), file })
    }
}

impl WorkFile {
    /// Opens it for writing, once.
    pub(super) fn output(&self) -> anyhow::Result<Output> {
        let output = self.file.try_clone().map(|file| Output::to(Box::new(file), &self.name));
        output.with_context(|| format!("cannot write {}", self.name))
    }
}

fn nameless(folder: &Path) -> std::io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    if let Ok(file) = open(folder, flags, Mode::RUSR | Mode::WUSR) {
        return Ok(file.into());
    }
    // Not every file system has O_TMPFILE.
    let path = folder.join(format!("linerate-demo-{}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn an_unnamed_file_is_read_from_the_start_by_its_path() {
        let file = Workplace::new(None).unwrap().file("a.pcap").unwrap();
        (&file.file).write_all(b"bytes").unwrap();
        let mut text = String::new();
        File::open(&file.path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "bytes");
        assert!(file.output().is_ok());
    }

    /// Links are not followed, and files are not overwritten.
    #[test]
    fn files_are_not_overwritten() {
        let folder = std::env::temp_dir().join(format!("linerate-kept-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink(folder.join("secret"), folder.join("a.pcap")).unwrap();
        let place = Workplace::new(Some(&folder)).unwrap();
        assert!(place.file("a.pcap").is_err() && place.file("secret").is_err());
        let file = place.file("b.pcap").unwrap();
        (&file.file).write_all(b"bytes").unwrap();
        assert_eq!(std::fs::read_to_string(folder.join("b.pcap")).unwrap(), "bytes");
        assert_eq!(std::fs::read_to_string(folder.join("secret")).unwrap(), "secret");
        let link = folder.with_extension("link");
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        assert!(Workplace::new(Some(&link)).is_err(), "a link to a folder");
        if geteuid().is_root() {
            std::os::unix::fs::chown(&folder, Some(65_534), None).unwrap();
            assert!(Workplace::new(Some(&folder)).is_err(), "a folder of another user");
        }
        std::fs::remove_file(link).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }
}
