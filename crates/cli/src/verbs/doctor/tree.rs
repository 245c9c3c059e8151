//! Files of `/proc` and `/sys`, or test files below any folder.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Roots of `proc/...` and `sys/...`.
#[derive(Debug)]
pub(super) struct Tree {
    proc: PathBuf,
    sys: PathBuf,
    /// Keeps the path in `sys` valid.
    _held: Option<OwnedFd>,
}

impl Tree {
    /// Reads below this folder instead of `/`.
    pub(super) fn at(root: impl AsRef<Path>) -> Self {
        Tree { proc: root.as_ref().join("proc"), sys: root.as_ref().join("sys"), _held: None }
    }

    /// Reads `/proc` of this machine, and `/sys` of a network namespace.
    pub(super) fn with_sys(sys: OwnedFd) -> Self {
        let path = format!("/proc/self/fd/{}", sys.as_raw_fd()).into();
        Tree { proc: "/proc".into(), sys: path, _held: Some(sys) }
    }

    /// Returns whether it is that of this machine.
    pub(super) fn is_real(&self) -> bool {
        self.proc == Path::new("/proc")
    }

    /// Returns the path of a file; `path` starts with `proc/` or `sys/`.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        if let Some(path) = path.strip_prefix("sys/") {
            return self.sys.join(path);
        }
        let path = path.strip_prefix("proc/").unwrap_or(path);
        // /proc/net is that of the process, whatever the network namespace of this thread.
        match path.strip_prefix("net/").filter(|_| self.is_real()) {
            Some(path) => self.proc.join("thread-self/net").join(path),
            None => self.proc.join(path),
        }
    }

    /// Returns the trimmed text of a file, or `None` if it is missing.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        // It may contain names that are not UTF-8.
        let bytes = fs::read(self.path(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Returns the number in a file.
    pub(super) fn number(&self, path: &str) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// Returns whether the file or folder exists.
    pub(super) fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Returns the names in a folder, in natural order of their numbers.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_by_cached_key(|name| {
            let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
            (name.len() - digits.len(), digits.parse::<u64>().ok(), name.clone())
        });
        names
    }

    /// Writes a value into a file, and returns the previous one.
    pub(super) fn replace(&self, path: &str, value: &str) -> io::Result<String> {
        let was = fs::read_to_string(self.path(path))?.trim().to_owned();
        // Without create: files of /proc are never created.
        let mut file = fs::OpenOptions::new().write(true).truncate(true).open(self.path(path))?;
        io::Write::write_all(&mut file, value.as_bytes())?;
        Ok(was)
    }
}

/// Parses a processor list of the kernel such as `0-3,8`.
pub(super) fn members(list: &str) -> Vec<u32> {
    /// More processors than Linux can have.
    const MOST: u32 = 1 << 16;
    let ranges = list.split(',').filter_map(|range| {
        let (first, last) = range.trim().split_once('-').unwrap_or((range.trim(), range.trim()));
        Some((first.parse::<u32>().ok()?, last.parse::<u32>().ok()?.min(MOST)))
    });
    ranges.flat_map(|(first, last)| first..=last).collect()
}

/// Formats such a list.
pub(super) fn list(members: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for one in members {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*one) => *last = *one,
            _ => ranges.push((*one, *one)),
        }
    }
    let range = |(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read_and_written() {
        assert_eq!(members("0-2,5,8-9\n"), [0, 1, 2, 5, 8, 9]);
        assert_eq!((members(""), members("x,3-1,2")), (vec![], vec![2]));
        assert!(members("0-4294967295").len() <= 1 << 17, "an impossible number takes no memory");
        assert_eq!((list(&[0, 1, 2, 5, 8, 9]), list(&[])), ("0-2,5,8-9".into(), String::new()));
    }
}
