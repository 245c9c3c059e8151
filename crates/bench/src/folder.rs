//! Files of a benchmark.

use anyhow::Context;
use linerate_cli::view::terminal::tell;
use std::path::{Path, PathBuf};

/// Where the files lie: in memory if that can be; removed with all that is in it.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// For the files of one benchmark.
    pub(crate) fn new(bench: &str) -> anyhow::Result<Folder> {
        let memory = Path::new("/dev/shm").join(name(bench));
        if std::fs::create_dir(&memory).is_ok() {
            return Ok(Folder(memory));
        }
        Folder::on_disk(bench)
    }

    /// For files too large for memory. It is new, so that nobody else has put anything in it.
    pub(crate) fn on_disk(bench: &str) -> anyhow::Result<Folder> {
        let folder = std::env::temp_dir().join(name(bench));
        std::fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        Ok(Folder(folder))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Where the file of this name is to be.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Names can be guessed: a stranger may have made the folder, or a link to somewhere else, first.
    #[test]
    fn what_is_there_already_is_neither_used_nor_removed() {
        let bench = "strangers";
        let [memory, disk] = [Path::new("/dev/shm").join(name(bench)), std::env::temp_dir().join(name(bench))];
        let target = std::env::temp_dir().join(name("target"));
        std::fs::create_dir(&target).unwrap();
        std::os::unix::fs::symlink(&target, &memory).unwrap();
        let folder = Folder::new(bench).unwrap();
        assert_eq!(folder.path(), disk);
        std::fs::write(folder.file("x"), "ours").unwrap();
        let refused = Folder::new(bench).map(|folder| folder.path().to_owned()).unwrap_err();
        assert!(format!("{refused:#}").contains(&disk.display().to_string()), "{refused:#}");
        drop(folder);
        assert!(!disk.exists() && memory.is_symlink());
        assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
        std::fs::remove_file(memory).unwrap();
        std::fs::remove_dir(target).unwrap();
    }
}
