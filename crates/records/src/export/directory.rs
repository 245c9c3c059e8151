//! Folders that outlast a power cut, and stay what they were whatever their paths lead to later.

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

/// An open folder: everything in it is made and renamed relative to it, and links in it are not followed.
#[derive(Debug)]
pub(super) struct Directory {
    open: OwnedFd,
    /// What it was called, for people.
    pub path: PathBuf,
}

impl Directory {
    /// Opens one that is there.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let open = openat(CWD, path, FOLDER, Mode::empty())?;
        Ok(Directory { open, path: path.to_path_buf() })
    }

    /// Makes one, and those it is in, as far as they are not there. Each new one is in its parent on the disk before this
    /// returns: else a file in it, itself on the disk, could be found by nobody.
    pub(super) fn make(path: &Path) -> io::Result<Self> {
        make_with(path, &mut |folder| File::open(folder)?.sync_all())?;
        Directory::open(path)
    }

    /// The folder of this name in it, which is made if it is not there.
    pub(super) fn within(&self, name: &str) -> io::Result<Self> {
        match mkdirat(&self.open, name, Mode::RWXU) {
            Ok(()) => self.sync()?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let open = openat(&self.open, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
        Ok(Directory { open, path: self.path.join(name) })
    }

    /// What there is of a name.
    pub(super) fn look(&self, name: &OsStr) -> io::Result<Stat> {
        Ok(statat(&self.open, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Makes a file; an error if there is anything of its name.
    pub(super) fn new_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.open, name, flags, OWNER)?.into())
    }

    /// Opens a file. No link is followed, and a FIFO or a device, which could be waited for without end, is refused.
    pub(super) fn file(&self, name: impl AsRef<OsStr>, how: OFlags) -> io::Result<File> {
        let flags = how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(openat(&self.open, name.as_ref(), flags, OWNER)?);
        if !file.metadata()?.is_file() {
            let path = self.path.join(name.as_ref());
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("{}: not a regular file", path.display())));
        }
        Ok(file)
    }

    /// Gives a file another name, in place of what has it.
    pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.open, from, &self.open, to)?)
    }

    /// Removes a file.
    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.open, name, AtFlags::empty())?)
    }

    /// Brings its entries to the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.open)?)
    }

    /// Whether files can be made in it.
    pub(super) fn check(&self) -> io::Result<()> {
        accessat(&self.open, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
            .map_err(|error| at(&self.path, "files cannot be made here", error.into()))
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.open.as_fd()
    }
}

/// Records have addresses and names in them: what is made is for its owner alone.
const OWNER: Mode = Mode::RUSR.union(Mode::WUSR);
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The folder that a path is in.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder == Path::new("") => Path::new("."),
        Some(folder) => folder,
        None => Path::new("/"),
    }
}

/// Another run may make the same folders meanwhile.
fn make_with(folder: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    match make_one(folder, sync) {
        // What it is in may be there and take nothing, as a folder that was removed, or /proc: it is tried once more, not for ever.
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
    fn a_folder_stays_itself_and_links_in_it_lead_nowhere() {
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
    fn what_is_made_is_for_its_owner_alone_and_a_fifo_is_not_waited_for() {
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
            // Nobody reads it: to write is refused by the system.
            assert!(error.raw_os_error() == Some(6) || error.to_string().contains("not a regular file"), "{error}");
        }
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_folder_that_takes_nothing_is_told_of() {
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
