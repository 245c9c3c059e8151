//! Where flows go: a stream, or a folder with a folder for each hour.
//!
//! In a folder no file stays open: what has gathered is sorted by time, cut where hours end, and each piece becomes a
//! complete file at once. So memory does not depend on how many hours flows are of, and what a crash can cost is what
//! has gathered.

use super::folders::{self, parent};
use super::form::{Encode, Form};
use super::part::Part;
use super::queue::{Demand, MOST, Written};
use anyhow::Context;
use linerate_burst::Nanos;
use linerate_meter::Flow;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Seek, Write};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Lines are written once so many bytes of flows are there, and not later than after so long.
const LINES: Demand = Demand { bytes: 1 << 20, age: Duration::from_millis(100) };

/// Where flows are written.
pub(in super::super) enum Place {
    /// One file, or whatever else bytes can be written to.
    Stream(Stream),
    /// A folder of hours.
    Folder(Folder),
}

pub(in super::super) struct Stream {
    name: String,
    form: &'static Form,
    /// `None` only once it has failed.
    encoder: Option<Box<dyn Encode>>,
    /// Of a regular file.
    part: Option<Part>,
    written: u64,
}

pub(in super::super) struct Folder {
    root: PathBuf,
    form: &'static Form,
    /// How often files are written.
    span: Duration,
    /// In the names of all files of this run.
    run: String,
    written: Written,
}

impl Place {
    /// Opens what `name` means: `-`, a folder if it is one or ends in a slash, else a file. What is made belongs to `owner`
    /// (user, group) if one is named. In a folder, files are written every `span`.
    pub fn open(
        name: &str,
        form: Option<&'static Form>,
        span: Duration,
        owner: Option<(u32, u32)>,
    ) -> anyhow::Result<Self> {
        let of_path = || Form::of_path(name).with_context(|| format!("{name}: this program was built without Parquet"));
        if name == "-" {
            let form = form.map_or_else(of_path, Ok)?;
            return Ok(Place::Stream(Stream::over("standard output", form, None, crate::view::terminal::records())?));
        }
        let path = Path::new(name);
        if name.ends_with('/') || path.is_dir() {
            let form = form.unwrap_or_else(Form::of_folder);
            return Ok(Place::Folder(Folder::open(path, form, span, owner)?));
        }
        let form = form.map_or_else(of_path, Ok)?;
        if path.exists() && !path.is_file() {
            let file =
                OpenOptions::new().write(true).open(path).with_context(|| format!("{name}: cannot be opened"))?;
            return Ok(Place::Stream(Stream::over(name, form, None, Box::new(file))?));
        }
        // A link stays one: what it leads to is replaced.
        let part = Part::make(path.canonicalize().unwrap_or(path.to_path_buf()), owner)?;
        let file = part.handle()?;
        Ok(Place::Stream(Stream::over(name, form, Some(part), Box::new(file))?))
    }

    /// Whether files can get their names, found out before it is too late.
    pub(super) fn check(&self) -> io::Result<()> {
        let folder = match self {
            Place::Stream(Stream { part: None, .. }) => return Ok(()),
            Place::Stream(Stream { part: Some(part), .. }) => parent(&part.path),
            Place::Folder(folder) => &folder.root,
        };
        accessat(CWD, folder, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
            .map_err(|error| at(folder, "files cannot be made here", io::Error::from(error)))
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
    fn open(root: &Path, form: &'static Form, span: Duration, owner: Option<(u32, u32)>) -> anyhow::Result<Self> {
        if !root.is_dir() {
            folders::make(root).with_context(|| format!("{}: cannot be made", root.display()))?;
            if let Some((user, group)) = owner {
                chown(root, Some(user), Some(group)).with_context(|| format!("{}", root.display()))?;
            }
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (date, hour) = date_and_hour(now);
        // Two runs in one folder, on one machine or several, must not have one name.
        let chance = RandomState::new().hash_one(std::process::id()) as u32;
        let run = format!("{}T{hour:02}{:02}{:02}-{chance:08x}", date.replace('-', ""), now / 60 % 60, now % 60);
        Ok(Folder { root: root.to_path_buf(), form, span, run, written: Written::default() })
    }

    fn write(&mut self, flows: &[Flow]) -> io::Result<()> {
        for flows in in_order(flows).chunk_by(|one, other| hours(one) == hours(other)) {
            let path = self.path(flows[0].first());
            self.write_file(&path, flows).map_err(|error| at(&path, "cannot be written", error))?;
            self.written.files += 1;
            self.written.records += flows.len() as u64;
        }
        Ok(())
    }

    /// The next file of the hour.
    fn path(&self, time: Nanos) -> PathBuf {
        let (date, hour) = date_and_hour(time.seconds());
        let name = format!("flows-{}-{:06}.{}", self.run, self.written.files, self.form.endings[0]);
        self.root.join(format!("date={date}")).join(format!("hour={hour:02}")).join(name)
    }

    fn write_file(&self, path: &Path, flows: &[&Flow]) -> io::Result<()> {
        folders::make(parent(path))?;
        let part = Part::make(path.to_path_buf(), None)?;
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

/// By the time of the first packet.
fn in_order(flows: &[Flow]) -> Vec<&Flow> {
    let mut keyed: Vec<(u64, u64, &Flow)> = flows.iter().map(|flow| (flow.first().0, flow.id, flow)).collect();
    keyed.sort_unstable_by_key(|(time, id, _)| (*time, *id));
    keyed.into_iter().map(|(_, _, flow)| flow).collect()
}

/// Since 1970.
fn hours(flow: &Flow) -> u64 {
    flow.first().seconds() / 3600
}

/// The date (as `2026-11-21`) and hour of a time in seconds since 1970, UTC.
fn date_and_hour(seconds: u64) -> (String, u64) {
    // Years from March on, in eras of 400 of them: a leap day is then the last of its year.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    (format!("{year:04}-{month:02}-{day:02}"), seconds / 3600 % 24)
}

fn at(path: &Path, what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {what}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let known = [
            (0, "1970-01-01", 0),
            (951_782_399, "2000-02-28", 23),
            (951_782_400, "2000-02-29", 0),
            (951_868_800, "2000-03-01", 0),
            (1_600_000_000, "2020-09-13", 12),
            (4_107_542_399, "2100-02-28", 23),
            (4_107_542_400, "2100-03-01", 0),
            (18_446_744_073, "2554-07-21", 23),
        ];
        for (seconds, date, hour) in known {
            assert_eq!(date_and_hour(seconds), (date.to_owned(), hour), "{seconds}");
        }
        let months = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let (mut day, mut month, mut year) = (1, 0, 1970);
        for days in 0..200_000 {
            let date = format!("{year:04}-{:02}-{day:02}", month + 1);
            assert_eq!(date_and_hour(days * 86_400 + 7_199), (date, 1));
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            day += 1;
            if day > months[month] + u64::from(is_leap && month == 1) {
                (day, month) = (1, month + 1);
            }
            if month == 12 {
                (month, year) = (0, year + 1);
            }
        }
    }
}
