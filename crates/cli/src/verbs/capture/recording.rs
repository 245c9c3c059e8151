//! Options of file rotation.

use super::super::inputs::span;
use super::super::units::{seconds, size};
use crate::exit::usage;
use clap::ValueEnum;
use linerate_burst::Sink;
use linerate_index::{ENDING, IndexedWriter};
use linerate_pcap::recording::{PartialFile, check_recording_path};
use linerate_pcap::{Format, Limits, Recording, Sync, WriteErrorPolicy, Writer};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Number of files into which `--keep-size` divides a recording by default.
const PARTS: u64 = 8;

/// Options of recordings.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Rotation of files")]
pub(super) struct RecordingArgs {
    /// Start a new file after SIZE: 100MB, 1GiB, 1G (1 GiB); 100 is 100 MB
    #[arg(short = 'C', long, value_name = "SIZE")]
    rotate_size: Option<String>,
    /// Keep at most N files, including the current one; older files of this run are deleted
    #[arg(short = 'W', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep_files: Option<u32>,
    /// Keep at most SIZE in all files; older files of this run are deleted. Without -C a file ends at an eighth of it
    #[arg(long, value_name = "SIZE")]
    keep_size: Option<String>,
    /// If a file cannot be written: stop; continue (drop packets, retry every second); drop-oldest (delete the oldest file
    /// of this run if the disk is full, else as continue)
    #[arg(long, value_enum, default_value_t = OnFull::Stop)]
    on_full: OnFull,
    /// Bypass the page cache (O_DIRECT), in blocks of 1 MiB; the last one is lost if the program is killed
    #[arg(long)]
    direct: bool,
    /// fsync policy: never, file (each finished file), or every S seconds too
    #[arg(long, value_name = "never|file|S", default_value = "never", value_parser = sync)]
    sync: Sync,
}

/// Properties of each file.
pub(super) struct FileProperties {
    pub format: Format,
    pub comments: Vec<String>,
    /// Longest captured length in bytes, if not 0.
    pub snap: u32,
    /// Threads that compress it.
    pub threads: usize,
    /// Write an index of it.
    pub is_indexed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnFull {
    Stop,
    Continue,
    DropOldest,
}

impl RecordingArgs {
    /// Returns whether files are rotated; `rotate` is the interval in seconds, if given.
    pub(super) fn is_wanted(&self, path: &str, rotate: Option<f64>) -> bool {
        self.rotate_size.is_some() || rotate.is_some() || path.ends_with('/')
    }

    /// Checks the options against the target before anything is opened.
    pub(super) fn check(&self, path: Option<&str>, rotate: Option<f64>) -> anyhow::Result<()> {
        let is_wanted = path.is_some_and(|path| self.is_wanted(path, rotate));
        let options = [
            ("--keep-files", self.keep_files.is_some()),
            ("--keep-size", self.keep_size.is_some()),
            ("--on-full", self.on_full != OnFull::Stop),
            ("--direct", self.direct),
            ("--sync", self.sync != Sync::Never),
        ];
        if let Some((option, _)) = options.iter().find(|(_, is_given)| *is_given && !is_wanted) {
            return Err(usage(format!("{option} needs -C, -G or -w DIR/")));
        }
        let Some(path) = path.filter(|_| is_wanted) else { return Ok(()) };
        if path == "-" {
            return Err(usage("-C and -G need -w FILE or -w DIR/, not standard output"));
        }
        check_recording_path(path).map_err(usage)?;
        self.limits(rotate).map(drop)
    }

    fn limits(&self, rotate: Option<f64>) -> anyhow::Result<Limits> {
        let of = |option: &str, text: &Option<String>| text.as_deref().map(|text| size(option, text)).transpose();
        let bytes = of("--keep-size", &self.keep_size)?;
        let file_bytes = of("--rotate-size", &self.rotate_size.as_deref().map(millions))?;
        let limits = Limits {
            // Else a single file could exceed the limit of all.
            file_bytes: file_bytes.or(bytes.map(|bytes| (bytes / PARTS).max(1))),
            every: rotate.map(|every| span("--rotate", every)).transpose()?,
            files: self.keep_files.map(|files| files as usize),
            bytes,
        };
        if limits.files.is_some() && limits.file_bytes.is_none() && limits.every.is_none() {
            return Err(usage("--keep-files needs -C, -G or --keep-size: without them there is one file"));
        }
        if limits.every.is_some_and(|every| every.is_zero()) {
            return Err(usage("--rotate: must be more than 0 seconds"));
        }
        if let (Some(all), Some(one)) = (limits.bytes, limits.file_bytes)
            && all < one.saturating_mul(2)
        {
            return Err(usage("--keep-size must be at least twice --rotate-size"));
        }
        Ok(limits)
    }

    /// Opens the first file. Returns the recording and its directory.
    pub(super) fn open(
        &self,
        path: &str,
        of: FileProperties,
        rotate: Option<f64>,
    ) -> anyhow::Result<(Recording, OwnedFd)> {
        let FileProperties { format, comments, snap, threads, is_indexed } = of;
        // Opens every file of the recording, and its index.
        let open = move |partial: &mut PartialFile| -> std::io::Result<Box<dyn Sink>> {
            let mut writer = Writer::new(partial.output().threads(threads)?, format).since(partial.before()).snap(snap);
            for comment in &comments {
                writer.comment(comment);
            }
            if !is_indexed {
                return Ok(Box::new(writer));
            }
            let (name, output) = partial.open_companion(ENDING);
            Ok(Box::new(IndexedWriter::with(writer, name, output).map_err(std::io::Error::other)?))
        };
        let ending = if format == Format::Pcapng { ".pcapng" } else { ".pcap" };
        let on_write_error = match self.on_full {
            OnFull::Stop => WriteErrorPolicy::Stop,
            OnFull::Continue => WriteErrorPolicy::Continue,
            OnFull::DropOldest => WriteErrorPolicy::DropOldest,
        };
        let recording = Recording::new(path, ending, self.limits(rotate)?, Box::new(open))?;
        let recording = recording.on_write_error(on_write_error).direct(self.direct)?.sync(self.sync);
        let folder = recording.folder()?;
        Ok((recording, folder))
    }
}

/// Adds the unit of tcpdump to a number without one.
fn millions(size: &str) -> String {
    let unit = if size.bytes().all(|byte| byte.is_ascii_digit()) { "MB" } else { "" };
    format!("{size}{unit}")
}

/// Parses `--sync`.
fn sync(text: &str) -> Result<Sync, String> {
    match text {
        "never" => Ok(Sync::Never),
        "file" => Ok(Sync::File),
        every => match seconds(every).map(Duration::from_secs_f64) {
            Ok(every) if !every.is_zero() => Ok(Sync::Every(every)),
            _ => Err("never, file, or a duration, such as 10, 500ms, 1m".to_owned()),
        },
    }
}
