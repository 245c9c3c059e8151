//! Output directory with a subdirectory per hour.
//!
//! No file stays open: collected records are sorted by time, split at hour boundaries and written as complete files at
//! once. Memory does not depend on the number of hours, and a crash loses only the collected records.

use super::directory::Directory;
use super::partial_file::Part;
use super::stream::Shared;
use super::{Demand, Ending, Exporter, Options, at, hours, in_order};
use crate::encode::{FORMATS, Format, Settings};
use linerate_burst::{Account, Count, Nanos};
use linerate_meter::{Flow, Level};
use linerate_pcap::Compression;
use std::hash::{BuildHasher, RandomState};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

struct Folder {
    name: String,
    root: Directory,
    format: &'static Format,
    compression: Option<Compression>,
    settings: Settings,
    /// Rotation interval.
    span: Duration,
    /// Part of all file names of this run; set with the first file.
    run: Option<String>,
    written: u64,
    files: u64,
    /// Number of files reported so far.
    reported: u64,
}

pub(super) fn open(name: &str, options: &Options) -> Result<Box<dyn Exporter>> {
    let root = Path::new(name);
    let root = if root.is_dir() { Directory::open(root) } else { Directory::make(root) }
        .map_err(|error| at(root, "cannot create directory", error))?;
    if !options.append
        && let Some(found) = find_records(root.path.as_path(), 2)
    {
        let text = format!("{name}: already has records ({}); add to them with --append", found.display());
        return Err(Error::new(ErrorKind::AlreadyExists, text));
    }
    let format = options.format.unwrap_or_else(Format::of_folder);
    let span = options.rotate;
    let (compression, settings) = (options.compression, options.settings());
    let name = name.to_owned();
    Ok(Box::new(Folder {
        name,
        root,
        format,
        compression,
        settings,
        span,
        run: None,
        written: 0,
        files: 0,
        reported: 0,
    }))
}

impl Folder {
    fn write_file(&self, [date, hour]: &[String; 2], name: &str, flows: &[&Flow]) -> Result<()> {
        let part = Part::make(self.root.within(date)?.within(hour)?, name.as_ref())?;
        let write = || {
            let mut out: Box<dyn Write + Send> = Box::new(part.handle()?);
            let compressed =
                self.compression.map(|compression| Shared::over(compression, part.handle()?)).transpose()?;
            if let Some(compressed) = &compressed {
                out = Box::new(compressed.clone());
            }
            let mut encoder = (self.format.start)(out, &self.settings)?;
            encoder.write(flows)?;
            encoder.finish()?;
            compressed.map_or(Ok(()), |compressed| compressed.finish())
        };
        match write() {
            Ok(()) => part.complete(),
            Err(error) => {
                part.discard();
                Err(error)
            }
        }
    }
}

impl Exporter for Folder {
    fn name(&self) -> &str {
        &self.name
    }

    fn format(&self) -> (&'static str, Level) {
        (self.format.name, self.format.level)
    }

    fn demand(&self) -> Demand {
        Demand { bytes: usize::MAX, age: self.span, tick: None }
    }

    fn made_in(&self) -> Result<Option<OwnedFd>> {
        self.root.as_fd().try_clone_to_owned().map(Some)
    }

    fn check(&self) -> Result<()> {
        self.root.check()
    }

    fn write(&mut self, flows: &[Flow], now: Nanos) -> Result<()> {
        let run = self.run.get_or_insert_with(|| run(now.seconds())).clone();
        for (folders, flows) in hours::split(&in_order(flows), |flow| flow.first().seconds(), now.seconds()) {
            let ending = self.compression.map_or("", |compression| match compression {
                Compression::Gzip => ".gz",
                Compression::Zstd => ".zst",
                Compression::Lz4 => ".lz4",
            });
            let name = format!("flows-{run}-{:06}.{}{ending}", self.files, self.format.endings[0]);
            let path = self.root.path.join(&folders[0]).join(&folders[1]).join(&name);
            self.write_file(&folders, &name, &flows).map_err(|error| at(&path, "cannot write", error))?;
            self.files += 1;
            self.written += flows.len() as u64;
        }
        Ok(())
    }

    /// Only reports: files are complete as soon as they are written.
    fn reopen(&mut self) -> Result<Option<String>> {
        let files = self.files - std::mem::replace(&mut self.reported, self.files);
        Ok(Some(format!("{}: {files} new files are complete", self.name)))
    }

    fn finish(&mut self, _: Ending) -> Result<()> {
        Ok(())
    }

    fn counters(&self, account: &mut Account) {
        account.add(Count::Exported, self.written).add(Count::ExportFiles, self.files);
    }
}

/// Finds a record file in a directory tree of the given depth.
fn find_records(folder: &Path, depth: usize) -> Option<PathBuf> {
    let is_record = |path: &Path| {
        let name = path.to_string_lossy();
        let ending = Compression::of_path(&name).1.rsplit_once('.').map_or("", |(_, ending)| ending);
        FORMATS.iter().any(|format| format.endings.contains(&ending))
    };
    let entries = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    entries.into_iter().find_map(|path| match depth {
        0 => is_record(&path).then_some(path),
        _ if path.is_dir() => find_records(&path, depth - 1),
        _ => None,
    })
}

/// Returns a name for a run that starts at a time, in seconds since 1970.
fn run(now: u64) -> String {
    let (date, hour) = hours::date_and_hour(now);
    // Two runs in one directory, on one host or several, must not share a name.
    let chance = RandomState::new().hash_one(std::process::id()) as u32;
    format!("{}T{hour:02}{:02}{:02}-{chance:08x}", date.replace('-', ""), now / 60 % 60, now % 60)
}
