//! Folders of benchmarks.

use anyhow::Context;
use linerate_cli::view::terminal::print_stderr;
use std::path::{Path, PathBuf};

/// A folder, in memory if possible; removed with its files.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Creates a folder for the files of one benchmark.
    pub(crate) fn new(bench: &str) -> anyhow::Result<Folder> {
        let memory = Path::new("/dev/shm").join(name(bench));
        if std::fs::create_dir(&memory).is_ok() {
            return Ok(Folder(memory));
        }
        Folder::on_disk(bench)
    }

    /// Creates a folder for files too large for memory. It is new, so that it has no files of others.
    pub(crate) fn on_disk(bench: &str) -> anyhow::Result<Folder> {
        let folder = std::env::temp_dir().join(name(bench));
        std::fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        Ok(Folder(folder))
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of a file in it.
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
            print_stderr(format_args!("{}: cannot be removed: {error}\n", self.0.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names can be guessed: another user may have made the folder, or a link to another place, first.
    #[test]
    fn existing_folder_is_not_used_or_removed() {
        let bench = "others";
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
