//! Where flows go: a stream, or a folder with a folder for each hour.
//!
//! In a folder no file stays open: what has gathered is sorted by time, cut where hours end, and each piece becomes a
//! complete file at once. So memory does not depend on how many hours flows are of, and what a crash can cost is what
//! has gathered.

use super::folders::{self, parent};
use super::form::{Encode, Form};
use super::hours;
use super::part::Part;
use super::queue::{Demand, MOST, Written};
use anyhow::Context;
use linerate_meter::Flow;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Lines are written once so many bytes of flows are there, and not later than after so long.
const LINES: Demand = Demand { bytes: 1 << 20, age: Duration::from_millis(100) };

/// Where flows are written.
pub enum Place {
    /// One file, or whatever else bytes can be written to.
    Stream(Stream),
    /// A folder of hours.
    Folder(Folder),
}

pub struct Stream {
    name: String,
    form: &'static Form,
    /// `None` only once it has failed.
    encoder: Option<Box<dyn Encode>>,
    /// Of a regular file.
    part: Option<Part>,
    written: u64,
}

pub struct Folder {
    root: folders::Folder,
    form: &'static Form,
    /// How often files are written.
    span: Duration,
    /// In the names of all files of this run.
    run: String,
    written: Written,
}

impl Place {
    /// Opens what `name` means: `-`, a folder if it is one or ends in a slash, else a file. In a folder, files are written
    /// every `span`.
    pub fn open(name: &str, form: Option<&'static Form>, span: Duration) -> anyhow::Result<Self> {
        let of_path = || Form::of_path(name).with_context(|| format!("{name}: this program was built without Parquet"));
        if name == "-" {
            let form = form.map_or_else(of_path, Ok)?;
            return Ok(Place::Stream(Stream::over("standard output", form, None, crate::view::terminal::records())?));
        }
        let path = Path::new(name);
        if name.ends_with('/') || path.is_dir() {
            let form = form.unwrap_or_else(Form::of_folder);
            return Ok(Place::Folder(Folder::open(path, form, span)?));
        }
        let form = form.map_or_else(of_path, Ok)?;
        if path.exists() && !path.is_file() {
            let file =
                OpenOptions::new().write(true).open(path).with_context(|| format!("{name}: cannot be opened"))?;
            return Ok(Place::Stream(Stream::over(name, form, None, Box::new(file))?));
        }
        // A link stays one: what it leads to is replaced.
        let path = path.canonicalize().unwrap_or(path.to_path_buf());
        let folder = folders::Folder::open(parent(&path)).with_context(|| parent(&path).display().to_string())?;
        let part = Part::make(folder, path.file_name().with_context(|| format!("{name}: no name of a file"))?)?;
        let file = part.handle()?;
        Ok(Place::Stream(Stream::over(name, form, Some(part), Box::new(file))?))
    }

    /// Whether files can get their names, found out before it is too late.
    pub(super) fn check(&self) -> io::Result<()> {
        let Some(folder) = self.folder() else { return Ok(()) };
        folder.check().map_err(|error| at(&folder.path, "files cannot be made here", error))
    }

    /// The folder that files are made in while it runs.
    pub fn made_in(&self) -> io::Result<Option<OwnedFd>> {
        self.folder().map(|folder| folder.as_fd().try_clone_to_owned()).transpose()
    }

    fn folder(&self) -> Option<&folders::Folder> {
        match self {
            Place::Stream(stream) => stream.part.as_ref().map(|part| &part.folder),
            Place::Folder(folder) => Some(&folder.root),
        }
    }

    /// What flows are written as.
    pub fn form(&self) -> &'static Form {
        match self {
            Place::Stream(stream) => stream.form,
            Place::Folder(folder) => folder.form,
        }
    }

    /// When it wants flows.
    pub(super) fn demand(&self) -> Demand {
        match self {
            Place::Stream(stream) if stream.form.lines => LINES,
            Place::Stream(_) => Demand { bytes: MOST, age: Duration::MAX },
            Place::Folder(folder) => Demand { bytes: MOST, age: folder.span },
        }
    }

    /// Writes flows.
    pub(super) fn write(&mut self, flows: &[Flow]) -> io::Result<()> {
        match self {
            Place::Stream(stream) => stream.write(flows),
            Place::Folder(folder) => folder.write(flows),
        }
    }

    /// Takes away what was made for records, as there are none.
    pub(super) fn abandon(self) {
        if let Place::Stream(Stream { part: Some(part), .. }) = self {
            part.discard();
        }
    }

    /// Ends what is open, if all that came could be written.
    pub(super) fn finish(self, is_good: bool) -> (Written, io::Result<()>) {
        match self {
            Place::Stream(stream) => stream.finish(is_good),
            Place::Folder(folder) => (folder.written, Ok(())),
        }
    }
}

impl Stream {
    fn over(name: &str, form: &'static Form, part: Option<Part>, out: Box<dyn Write + Send>) -> io::Result<Self> {
        let encoder = Some((form.start)(out)?);
        Ok(Stream { name: name.to_owned(), form, encoder, part, written: 0 })
    }

    fn write(&mut self, flows: &[Flow]) -> io::Result<()> {
        // So many that what they become stays in the cache.
        const CHUNK: usize = 512;
        let sorted = if self.form.lines { flows.iter().collect() } else { in_order(flows) };
        let chunk = if self.form.lines { CHUNK } else { sorted.len().max(1) };
        let Some(encoder) = &mut self.encoder else { return Ok(()) };
        for flows in sorted.chunks(chunk) {
            let end = self.part.as_ref().map(Part::handle).transpose()?.map(end).transpose()?;
            if let Err(error) = encoder.write(flows) {
                if let Some((file, end)) = end {
                    // What is left behind the last whole line is no line.
                    let _ = file.set_len(end);
                }
                return Err(at(Path::new(&self.name), "cannot be written to", error));
            }
            self.written += flows.len() as u64;
        }
        Ok(())
    }

    /// A failed file of lines stays under its other name, with what could be written.
    fn finish(self, is_good: bool) -> (Written, io::Result<()>) {
        let Stream { name, form, encoder, part, written } = self;
        let mut result = Ok(());
        if let (true, Some(encoder)) = (is_good, encoder) {
            result = encoder.finish();
        }
        let mut counts = Written { records: written, files: 0, lost: 0 };
        match part {
            Some(part) if is_good && result.is_ok() => {
                result = part.complete();
                counts.files = u64::from(result.is_ok());
            }
            Some(part) if !form.lines => {
                part.discard();
                counts.records = 0;
            }
            _ => {}
        }
        (counts, result.map_err(|error| at(Path::new(&name), "cannot be completed", error)))
    }
}

/// Where the next byte goes.
fn end(mut file: File) -> io::Result<(File, u64)> {
    let end = file.stream_position()?;
    Ok((file, end))
}

impl Folder {
    fn open(root: &Path, form: &'static Form, span: Duration) -> anyhow::Result<Self> {
        let root = if root.is_dir() { folders::Folder::open(root) } else { folders::Folder::make(root) }
            .with_context(|| format!("{}: cannot be made", root.display()))?;
        let now = now();
        let (date, hour) = hours::date_and_hour(now);
        // Two runs in one folder, on one machine or several, must not have one name.
        let chance = RandomState::new().hash_one(std::process::id()) as u32;
        let run = format!("{}T{hour:02}{:02}{:02}-{chance:08x}", date.replace('-', ""), now / 60 % 60, now % 60);
        Ok(Folder { root, form, span, run, written: Written::default() })
    }

    fn write(&mut self, flows: &[Flow]) -> io::Result<()> {
        for (folders, flows) in hours::split(&in_order(flows), |flow| flow.first().seconds(), now()) {
            let name = format!("flows-{}-{:06}.{}", self.run, self.written.files, self.form.endings[0]);
            let path = self.root.path.join(&folders[0]).join(&folders[1]).join(&name);
            self.write_file(&folders, &name, &flows).map_err(|error| at(&path, "cannot be written", error))?;
            self.written.files += 1;
            self.written.records += flows.len() as u64;
        }
        Ok(())
    }

    fn write_file(&self, [date, hour]: &[String; 2], name: &str, flows: &[&Flow]) -> io::Result<()> {
        let part = Part::make(self.root.within(date)?.within(hour)?, name.as_ref())?;
        let write = || {
            let mut encoder = (self.form.start)(Box::new(part.handle()?))?;
            encoder.write(flows)?;
            encoder.finish()
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

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// By the time of the first packet.
fn in_order(flows: &[Flow]) -> Vec<&Flow> {
    let mut keyed: Vec<(u64, u64, &Flow)> = flows.iter().map(|flow| (flow.first().0, flow.id, flow)).collect();
    keyed.sort_unstable_by_key(|(time, id, _)| (*time, *id));
    keyed.into_iter().map(|(_, _, flow)| flow).collect()
}

fn at(path: &Path, what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {what}: {error}", path.display()))
}
