//! Folders that outlast a power cut.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Makes a folder and those it is in, as far as they are not there. Each new one is in its parent on the disk before this
/// returns: else a file in it, itself on the disk, could be found by nobody.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    make_with(folder, &mut sync)
}

/// The folder that a path is in.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder == Path::new("") => Path::new("."),
        Some(folder) => folder,
        None => Path::new("/"),
    }
}

/// Brings the entries of a folder to the disk.
pub(super) fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Another run may make the same folders meanwhile.
fn make_with(folder: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    match std::fs::create_dir(folder) {
        Ok(()) => sync(parent(folder)),
        Err(error) if error.kind() == ErrorKind::NotFound && folder.parent().is_some() => {
            make_with(parent(folder), sync)?;
            make_with(folder, sync)
        }
        Err(_) if folder.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn the_parent_of_each_new_folder_is_synced_once() {
        let root = std::env::temp_dir().join(format!("linerate-folders-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let made = |folder: &str| {
            let mut synced: Vec<PathBuf> = Vec::new();
            let result = make_with(&root.join(folder), &mut |folder| {
                synced.push(folder.strip_prefix(&root).unwrap().to_path_buf());
                super::sync(folder)
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
    fn a_path_is_in_a_folder() {
        for (path, folder) in [("a", "."), ("a/b", "a"), ("/a", "/"), ("/", "/")] {
            assert_eq!(parent(Path::new(path)), Path::new(folder), "{path}");
        }
    }
}
