//! Checks that no file is both read and written, or written twice.

use crate::exit::usage;
use linerate_backends::REGISTRY;
#[cfg(feature = "parquet")]
use linerate_export::export;
use linerate_index::ENDING;
use linerate_port::Spec;
use std::fs::{Metadata, metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Refuses to write to a port, and to a file that is read, also inside a wrapper (`faulty:`) or by another name or link.
pub(in crate::verbs) fn check_output<'a>(
    specs: impl IntoIterator<Item = &'a Spec>,
    written: &str,
) -> anyhow::Result<()> {
    if written.is_empty() {
        return Err(usage("empty name of an output; expected FILE, - or DIR/"));
    }
    let (scheme, target) = written.split_once(':').unwrap_or_default();
    if scheme == "pcap" {
        return Err(usage(format!("{written} is a port, not a file; expected its name, {target}")));
    }
    if REGISTRY.backends().iter().any(|backend| backend.scheme == scheme) {
        let replay = "write a file, and send it with linerate replay FILE --to PORT";
        return Err(usage(format!("{written} is a port, not a file; {replay} (a file of this name: ./{written})")));
    }
    let mut files = specs.into_iter().filter_map(|spec| REGISTRY.file(spec));
    files.try_for_each(|file| {
        if is_same_file(&file, written) {
            return Err(usage(format!("{file}: both read and written ({written}); write to another file")));
        }
        let index = Output::of(&format!("{file}{ENDING}"));
        if index.is_some() && file != "-" && index == Output::of(written) {
            return Err(usage(format!("{written}: is the index of the input {file}; write to another file")));
        }
        Ok(())
    })
}

/// Returns whether the file read is the regular file written, or the partial file (`.part`) that is written until it is
/// complete. `-` is standard input or standard output.
fn is_same_file(read: &str, written: &str) -> bool {
    let look = |path: &str, stream: &str| metadata(if path == "-" { stream } else { path }).ok();
    let identity = |data: Metadata| data.is_file().then(|| (data.dev(), data.ino()));
    let Some(read) = look(read, "/dev/stdin").and_then(identity) else { return false };
    let names = [written.to_owned(), format!("{written}.part")];
    names.iter().any(|name| look(name, "/dev/stdout").and_then(identity) == Some(read))
}

/// Refuses two outputs into one file, also by different names: they would overwrite each other.
pub(in crate::verbs) fn check_distinct(written: &[impl AsRef<str>]) -> anyhow::Result<()> {
    let written: Vec<&str> = written.iter().map(AsRef::as_ref).collect();
    for (place, one) in written.iter().enumerate() {
        let is_same = |other: &&&str| Output::of(one).is_some_and(|output| Some(output) == Output::of(other));
        if let Some(other) = written[..place].iter().find(is_same) {
            let other = if other == one { String::new() } else { format!(", also as {other}") };
            return Err(usage(format!("{one}: named twice{other}; write to another file")));
        }
    }
    Ok(())
}

/// Refuses to write records into a directory that is read.
#[cfg(feature = "parquet")]
pub(in crate::verbs) fn check_apart(target: &str, places: &[String]) -> anyhow::Result<()> {
    let real = |path: &str| Path::new(path).canonicalize().ok();
    if export::is_collector(target) || target == "-" {
        return Ok(());
    }
    let Some(own) = real(target) else { return Ok(()) };
    match places
        .iter()
        .find(|place| real(place).is_some_and(|place| own == place || own.starts_with(place) && own.is_dir()))
    {
        Some(place) => Err(usage(format!("{target}: inside the input {place}; write to another place"))),
        None => Ok(()),
    }
}

/// Identity of an output: an existing file, pipe or socket, or a new file in a directory.
#[derive(PartialEq)]
enum Output {
    Existing(u64, u64),
    New(PathBuf),
}

impl Output {
    /// Returns `None` for devices such as /dev/null, which may be written repeatedly, and for names that are not files.
    fn of(path: &str) -> Option<Output> {
        if let Ok(data) = metadata(if path == "-" { "/dev/stdout" } else { path }) {
            let kind = data.file_type();
            return (!kind.is_char_device()).then(|| Output::Existing(data.dev(), data.ino()));
        }
        let path = Path::new(path);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(Output::New(folder.canonicalize().ok()?.join(path.file_name()?)))
    }
}
