//! Directory handles whose entries survive a power failure, and that stay valid if their path changes.

use super::at;
use rustix::fs::{
    Access, AtFlags, CWD, Mode, OFlags, Stat, accessat, fsync, mkdirat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Open directory: files in it are created and renamed relative to it, and symbolic links in it are not followed.
#[derive(Debug)]
pub(super) struct Directory {
    open: OwnedFd,
    /// Path at the time of opening, for messages.
    pub path: PathBuf,
}

impl Directory {
    /// Opens an existing directory.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let open = openat(CWD, path, FOLDER, Mode::empty())?;
        Ok(Directory { open, path: path.to_path_buf() })
    }

    /// Creates a directory and its missing parents. Each new one is synced in its parent before this returns: otherwise
    /// a synced file in it could be unreachable after a crash.
    pub(super) fn make(path: &Path) -> io::Result<Self> {
        make_with(path, &mut |folder| File::open(folder)?.sync_all())?;
        Directory::open(path)
    }

    /// Opens the subdirectory with this name, and creates it if missing.
    pub(super) fn within(&self, name: &str) -> io::Result<Self> {
        match mkdirat(&self.open, name, Mode::RWXU) {
            Ok(()) => self.sync()?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let open = openat(&self.open, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
        Ok(Directory { open, path: self.path.join(name) })
    }

    /// Returns the status of an entry.
    pub(super) fn look(&self, name: &OsStr) -> io::Result<Stat> {
        Ok(statat(&self.open, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Creates a file; fails if the name exists.
    pub(super) fn new_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.open, name, flags, OWNER)?.into())
    }

    /// Opens a regular file. Rejects symbolic links, and FIFOs and devices, on which an open could block.
    pub(super) fn file(&self, name: impl AsRef<OsStr>, how: OFlags) -> io::Result<File> {
        let flags = how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(openat(&self.open, name.as_ref(), flags, OWNER)?);
        if !file.metadata()?.is_file() {
            let path = self.path.join(name.as_ref());
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("{}: not a regular file", path.display())));
        }
        Ok(file)
    }

    /// Renames a file, replacing an existing one.
    pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.open, from, &self.open, to)?)
    }

    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.open, name, AtFlags::empty())?)
    }

    /// Syncs its entries to disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.open)?)
    }

    /// Returns whether files can be created in it.
    pub(super) fn check(&self) -> io::Result<()> {
        accessat(&self.open, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
            .map_err(|error| at(&self.path, "cannot create files", error.into()))
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.open.as_fd()
    }
}

/// Records contain addresses and names: new files are readable only by their owner.
const OWNER: Mode = Mode::RUSR.union(Mode::WUSR);
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Returns the parent directory of a path.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder == Path::new("") => Path::new("."),
        Some(folder) => folder,
        None => Path::new("/"),
    }
}

/// Tolerates concurrent creation by another run.
fn make_with(folder: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    match make_one(folder, sync) {
        // The parent may exist and reject entries, like a removed directory or /proc: retry once, not forever.
        Err(error) if error.kind() == ErrorKind::NotFound && parent(folder) != folder => {
            make_with(parent(folder), sync)?;
            make_one(folder, sync)
        }
        made => made,
    }
}

fn make_one(folder: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    match DirBuilder::new().mode(Mode::RWXU.bits()).create(folder) {
        Ok(()) => sync(parent(folder)),
        Err(_) if folder.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("linerate-folders-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        root
    }

    #[test]
    fn the_parent_of_each_new_folder_is_synced_once() {
        let root = scratch("synced");
        let made = |folder: &str| {
            let mut synced: Vec<PathBuf> = Vec::new();
            let result = make_with(&root.join(folder), &mut |folder| {
                synced.push(folder.strip_prefix(&root).unwrap().to_path_buf());
                File::open(folder)?.sync_all()
            });
            result.map(|()| synced)
        };
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(made("flows/date=2026-11-21/hour=09").unwrap(), paths(&["", "flows", "flows/date=2026-11-21"]));
        assert_eq!(made("flows/date=2026-11-21/hour=10/").unwrap(), paths(&["flows/date=2026-11-21"]));
        assert_eq!(made("flows/date=2026-11-21/hour=10").unwrap(), paths(&[]));
        std::fs::write(root.join("file"), "").unwrap();
        made("file").unwrap_err();
        made("file/hour=10").unwrap_err();
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn open_directories_ignore_renames_and_links() {
        let root = scratch("itself");
        let [flows, moved, elsewhere] = ["flows", "moved", "elsewhere"].map(|name| root.join(name));
        let folder = Directory::make(&flows).unwrap();
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::rename(&flows, &moved).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &flows).unwrap();
        folder.within("date=2026-11-21").unwrap().new_file("a".as_ref()).unwrap();
        assert!(moved.join("date=2026-11-21/a").is_file());
        std::os::unix::fs::symlink(&elsewhere, moved.join("date=2026-11-22")).unwrap();
        folder.within("date=2026-11-22").unwrap_err();
        std::os::unix::fs::symlink(elsewhere.join("b"), moved.join("b")).unwrap();
        folder.new_file("b".as_ref()).unwrap_err();
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn files_are_private_and_fifos_do_not_block() {
        use std::os::unix::fs::PermissionsExt;
        let root = scratch("modes");
        let folder = Directory::make(&root.join("a/b")).unwrap();
        folder.within("c").unwrap().new_file("new".as_ref()).unwrap();
        folder.file("lock", OFlags::RDWR | OFlags::CREATE).unwrap();
        for (path, mode) in [("a", 0o700), ("a/b", 0o700), ("a/b/c", 0o700), ("a/b/c/new", 0o600), ("a/b/lock", 0o600)]
        {
            let found = std::fs::metadata(root.join(path)).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode, "{path}");
        }
        rustix::fs::mknodat(&folder, "journal", rustix::fs::FileType::Fifo, OWNER, 0).unwrap();
        for how in [OFlags::RDONLY, OFlags::RDWR, OFlags::WRONLY, OFlags::RDWR | OFlags::CREATE] {
            let error = folder.file("journal", how).unwrap_err();
            // Without a reader the system rejects the write.
            assert!(error.raw_os_error() == Some(6) || error.to_string().contains("not a regular file"), "{error}");
        }
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn unwritable_directories_are_reported() {
        for path in ["/proc/linerate", "/proc/linerate/a/b"] {
            let error = make_with(Path::new(path), &mut |_| panic!("nothing was made")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{path}");
        }
    }

    #[test]
    fn a_path_is_in_a_folder() {
        for (path, folder) in [("a", "."), ("a/b", "a"), ("/a", "/"), ("/", "/")] {
            assert_eq!(parent(Path::new(path)), Path::new(folder), "{path}");
        }
    }
}
