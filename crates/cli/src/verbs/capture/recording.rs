//! Options that make a recording of what is written: files one after the other, of which the oldest go.

use super::super::inputs::span;
use super::super::units::{seconds, size};
use crate::exit::usage;
use clap::ValueEnum;
use linerate_burst::Sink;
use linerate_index::{ENDING, Indexed};
use linerate_record::recording::{PartialFile, check_place};
use linerate_record::{Format, Limits, OnTrouble, Recording, Sync, Writer};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Options of recordings.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Recordings: -w DIR/ or -w 'NAME-%Y%m%d-%H%M%S.pcapng' (UTC), with -C or -G")]
pub(super) struct RecordingArgs {
    /// Begin a new file once one has reached this size, on the disk (as in 100MiB, 1GiB)
    #[arg(short = 'C', long, value_name = "SIZE")]
    rotate_size: Option<String>,
    /// Keep so many files, the one that is written among them: the oldest of this run are removed
    #[arg(short = 'W', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep_files: Option<u32>,
    /// Keep so many bytes in all files: the oldest of this run are removed
    #[arg(long, value_name = "SIZE")]
    keep_size: Option<String>,
    /// Where nothing more can be written: end the run, lose frames and try a new file once a second, or remove the oldest file
    /// of this run from a full disk (and otherwise go on)
    #[arg(long, value_enum, default_value_t = OnFull::Stop)]
    on_full: OnFull,
    /// Write past the page cache, so that a long recording does not fill it: blocks of 1 MiB, of which the last is in the file at
    /// pauses and at the end. Where the program is killed that one is missing
    #[arg(long)]
    direct: bool,
    /// Have the disk keep what is written, before a power cut: never (the system does within half a minute), file (each
    /// once it is complete), or that and so often in seconds meanwhile
    #[arg(long, value_name = "never|file|S", default_value = "never", value_parser = sync)]
    sync: Sync,
}

/// What each file is.
pub(super) struct FileOf {
    pub format: Format,
    pub comments: Vec<String>,
    /// That compress it.
    pub threads: usize,
    /// An index lies beside it.
    pub is_indexed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnFull {
    Stop,
    GoOn,
    DropOldest,
}

impl RecordingArgs {
    /// Whether files follow each other; `rotate` is how often in seconds, if that was said.
    pub(super) fn is_wanted(&self, path: &str, rotate: Option<f64>) -> bool {
        self.rotate_size.is_some() || rotate.is_some() || path.ends_with('/')
    }

    /// Whether it makes sense for what is written there; mistakes before anything is opened.
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
            return Err(usage(format!("{option} means nothing without -C, -G or -w DIR/: there is one file")));
        }
        let Some(path) = path.filter(|_| is_wanted) else { return Ok(()) };
        if path == "-" {
            return Err(usage("standard output is no recording: -C and -G want -w FILE or DIR/"));
        }
        check_place(path).map_err(usage)?;
        self.limits(rotate).map(drop)
    }

    fn limits(&self, rotate: Option<f64>) -> anyhow::Result<Limits> {
        let of = |option: &str, text: &Option<String>| text.as_deref().map(|text| size(option, text)).transpose();
        let limits = Limits {
            file_bytes: of("--rotate-size", &self.rotate_size)?,
            every: rotate.map(|every| span("--rotate", every)).transpose()?,
            files: self.keep_files.map(|files| files as usize),
            bytes: of("--keep-size", &self.keep_size)?,
        };
        if limits.every.is_some_and(|every| every.is_zero()) {
            return Err(usage("--rotate: more than 0 seconds"));
        }
        if let (Some(all), Some(one)) = (limits.bytes, limits.file_bytes)
            && all < one.saturating_mul(2)
        {
            return Err(usage("--keep-size is to have room for two files of --rotate-size at least"));
        }
        Ok(limits)
    }

    /// Opens what is written, and the folder that it is in.
    pub(super) fn open(&self, path: &str, of: FileOf, rotate: Option<f64>) -> anyhow::Result<(Recording, OwnedFd)> {
        let FileOf { format, comments, threads, is_indexed } = of;
        // Every file of a recording is opened here, and what goes along with it.
        let open = move |partial: &mut PartialFile| -> std::io::Result<Box<dyn Sink>> {
            let mut writer = Writer::new(partial.output().threads(threads)?, format).since(partial.before());
            for comment in &comments {
                writer.comment(comment);
            }
            if !is_indexed {
                return Ok(Box::new(writer));
            }
            let (name, output) = partial.beside(ENDING);
            Ok(Box::new(Indexed::with(writer, name, output).map_err(std::io::Error::other)?))
        };
        let ending = if format == Format::Pcapng { ".pcapng" } else { ".pcap" };
        let on_trouble = match self.on_full {
            OnFull::Stop => OnTrouble::Stop,
            OnFull::GoOn => OnTrouble::GoOn,
            OnFull::DropOldest => OnTrouble::DropOldest,
        };
        let recording = Recording::new(path, ending, self.limits(rotate)?, Box::new(open))?;
        let recording = recording.on_trouble(on_trouble).direct(self.direct)?.sync(self.sync);
        let folder = recording.folder()?;
        Ok((recording, folder))
    }
}

/// When files are brought to the disk.
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
