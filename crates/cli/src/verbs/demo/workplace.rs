//! Where the demonstration's files are.

use anyhow::Context;
use linerate_record::Output;
use rustix::fs::{Mode, OFlags};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Files of a run: in a directory if they are to be kept, else without names, so that nothing is left of
/// them however the process ends.
pub(super) enum Workplace {
    Kept(PathBuf),
    Nameless,
}

/// A file of the run.
pub(super) struct WorkFile {
    pub path: PathBuf,
    name: String,
    /// Keeps a file without a name alive; its path leads through this process.
    nameless: Option<File>,
}

impl Workplace {
    pub fn new(keep: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = keep else { return Ok(Workplace::Nameless) };
        std::fs::create_dir_all(path).with_context(|| format!("cannot make the directory {}", path.display()))?;
        Ok(Workplace::Kept(path.to_path_buf()))
    }

    /// Makes a file.
    pub fn file(&self, name: &str) -> anyhow::Result<WorkFile> {
        let name = name.to_owned();
        match self {
            Workplace::Kept(path) => Ok(WorkFile { path: path.join(&name), name, nameless: None }),
            Workplace::Nameless => {
                let folder = std::env::temp_dir();
                let file = nameless(&folder).with_context(|| format!("cannot make a file in {}", folder.display()))?;
                let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
                Ok(WorkFile { path, name, nameless: Some(file) })
            }
        }
    }
}

impl WorkFile {
    /// Opens it for writing, once.
    pub fn output(&self) -> anyhow::Result<Output> {
        let output = match &self.nameless {
            None => Output::open(&self.path.to_string_lossy()),
            Some(file) => file.try_clone().map(|file| Output::to(Box::new(file), &self.name)),
        };
        output.with_context(|| format!("cannot write {}", self.name))
    }
}

fn nameless(folder: &Path) -> std::io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR) {
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
    fn a_file_without_a_name_is_read_from_its_beginning_by_its_path() {
        let file = Workplace::new(None).unwrap().file("a.pcap").unwrap();
        file.nameless.as_ref().unwrap().write_all(b"bytes").unwrap();
        let mut text = String::new();
        File::open(&file.path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "bytes");
        assert!(file.output().is_ok());
    }
}
