//! Capture files by name, and those of directories.

use crate::view::rates::counted;
use linerate_burst::text::nearest;
use linerate_pcap::Compression;
use linerate_pcap::recording::PARTIAL_ENDING;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_dir;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Endings of capture files; numbers may follow, as with tcpdump -C.
const ENDINGS: [&str; 3] = ["pcap", "pcapng", "cap"];

/// Maximum depth of directories.
const DEEPEST: usize = 32;

/// Maximum number of names in a directory that are compared with a misspelled one.
const MOST_NAMES: usize = 10_000;

/// Capture files that were found.
#[derive(Debug, Default)]
pub(super) struct SearchFiles {
    /// In order of their names.
    pub files: Vec<String>,
    /// Number of other files in directories, without indexes.
    pub others: u64,
    /// Files and directories that cannot be read, with the reason.
    pub unread: Vec<String>,
}

/// Finds the files that these words name, and the capture files below directories among them.
pub(super) fn search(words: &[String]) -> anyhow::Result<SearchFiles> {
    let (mut found, mut seen) = (SearchFiles::default(), BTreeSet::new());
    for word in words {
        let path = Path::new(word);
        if path.is_dir() {
            found.folder(path, 0, &mut seen);
        } else if path.is_file() {
            seen.insert(path.to_owned());
        } else {
            anyhow::bail!(missing(word).unwrap_or_else(|| format!("{word}: not a regular file or directory")));
        }
    }
    let mut known = BTreeSet::new();
    for path in seen {
        // A file with several names is searched once.
        if path.metadata().is_ok_and(|data| !known.insert((data.dev(), data.ino()))) {
            continue;
        }
        match path.into_os_string().into_string() {
            Ok(path) => found.files.push(path),
            Err(path) => found.unread.push(format!("{}: file name is not UTF-8", path.display())),
        }
    }
    Ok(found)
}

/// Replaces each directory by the capture files below it. Returns notes on other files.
pub(super) fn expand(words: Vec<String>) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let (mut files, mut notes) = (Vec::new(), Vec::new());
    for word in words {
        if !Path::new(&word).is_dir() {
            files.push(word);
            continue;
        }
        let found = search(std::slice::from_ref(&word))?;
        if let Some(reason) = found.unread.into_iter().next() {
            anyhow::bail!(reason);
        }
        if found.files.is_empty() {
            anyhow::bail!("{word}: a directory without capture files; linerate query reads flow records");
        }
        notes.extend((found.others > 0).then(|| format!("{word}: {} not read", counted(found.others, "other file"))));
        files.extend(found.files);
    }
    Ok((files, notes))
}

/// Returns the error for a word that names no file; `None` if it exists, or is `-`.
pub(super) fn missing(word: &str) -> Option<String> {
    let is_missing = word != "-" && Path::new(word).try_exists().is_ok_and(|exists| !exists);
    is_missing.then(|| no_such_file(word))
}

/// Returns the error for a missing file, with the capture file in its directory that was probably meant.
pub(super) fn no_such_file(path: &str) -> String {
    let stem = |name: &str| name.split('.').next().unwrap_or_default().to_lowercase();
    let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
    let directory = Path::new(path).parent().filter(|directory| !directory.as_os_str().is_empty());
    let files = read_dir(directory.unwrap_or(Path::new("."))).into_iter().flatten().take(MOST_NAMES).flatten();
    let captures = files.filter_map(|file| file.file_name().into_string().ok()).filter(|file| is_capture(file));
    let captures: BTreeMap<String, String> = captures.map(|file| (stem(&file), file)).collect();
    match nearest(&stem(&name), captures.keys()).and_then(|near| captures.get(near)) {
        Some(meant) => {
            format!("{path}: no such file (did you mean {}?)", Path::new(path).with_file_name(meant).display())
        }
        None => format!("{path}: no such file"),
    }
}

impl SearchFiles {
    fn folder(&mut self, folder: &Path, depth: usize, seen: &mut BTreeSet<PathBuf>) {
        let entries = match read_dir(folder) {
            Ok(entries) if depth < DEEPEST => entries,
            Ok(_) => return self.unread.push(format!("{}: directories nested too deeply", folder.display())),
            Err(error) => return self.unread.push(format!("{}: {error}", folder.display())),
        };
        for entry in entries {
            let entry = match entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))) {
                Ok(entry) => entry,
                Err(error) => {
                    self.unread.push(format!("{}: {error}", folder.display()));
                    continue;
                }
            };
            match entry {
                (path, kind) if kind.is_dir() => self.folder(&path, depth + 1, seen),
                (path, kind) => self.file(path, kind.is_symlink(), seen),
            }
        }
    }

    /// Adds a file. Links to files are followed, links to directories are not: they may form a loop.
    fn file(&mut self, path: PathBuf, is_link: bool, seen: &mut BTreeSet<PathBuf>) {
        let is_file = path.metadata().map(|data| data.is_file());
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match (is_file, is_capture(&name)) {
            (Err(error), true) if is_link => self.unread.push(format!("{}: {error}", path.display())),
            // Errors are reported when the file is opened.
            (Ok(true) | Err(_), true) => _ = seen.insert(path),
            (Ok(true), false)
                if !name.strip_suffix(PARTIAL_ENDING).unwrap_or(&name).ends_with(linerate_index::ENDING) =>
            {
                self.others += 1;
            }
            _ => {}
        }
    }
}

/// Returns whether a name is that of a capture file, also of one still being recorded (`.part`).
fn is_capture(name: &str) -> bool {
    let (_, plain) = Compression::of_path(name.strip_suffix(PARTIAL_ENDING).unwrap_or(name));
    let plain = plain.trim_end_matches(|c: char| c.is_ascii_digit());
    let ending = plain.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
    ENDINGS.contains(&ending.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_are_recognised_by_name() {
        for name in ["a.pcap", "a.2.pcapng", "b.PCAP.gz", "c.cap.zst", "d.pcap12", "e.pcap00.gz", "f.pcapng.part"] {
            assert!(is_capture(name), "{name}");
        }
        for name in ["a.pcap.idx", "pcap", "a.txt", "a.pcap.part.idx", "a.txt.part", "a.gz", "12"] {
            assert!(!is_capture(name), "{name}");
        }
    }
}
