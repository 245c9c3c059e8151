//! Files of a benchmark.

use crate::view::terminal::tell;
use anyhow::Context;
use std::path::{Path, PathBuf};

/// Where the files lie: in memory if that can be; removed with all that is in it.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// For the files of one benchmark.
    pub fn new(bench: &str) -> anyhow::Result<Folder> {
        let memory = Path::new("/dev/shm").join(name(bench));
        if std::fs::create_dir(&memory).is_ok() {
            return Ok(Folder(memory));
        }
        Folder::on_disk(bench)
    }

    /// For files too large for memory. It is new, so that nobody else has put anything in it.
    pub fn on_disk(bench: &str) -> anyhow::Result<Folder> {
        let folder = std::env::temp_dir().join(name(bench));
        std::fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        Ok(Folder(folder))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where the file of this name is to be.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

fn name(bench: &str) -> String {
    format!("linerate-bench-{}-{bench}", std::process::id())
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tell(format_args!("bench: {} cannot be removed: {error}\n", self.0.display()));
        }
    }
}
