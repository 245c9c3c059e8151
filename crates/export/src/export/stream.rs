//! Export to one file or byte stream.

use super::directory::{Directory, parent};
use super::partial_file::Part;
use super::{Demand, Ending, Exporter, Options, at, in_order};
use crate::encode::{Encoder, Format, Settings};
use linerate_burst::{Account, Count, Nanos};
use linerate_meter::{Flow, Level};
use linerate_pcap::{Compressed, Compression};
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

struct Stream {
    name: String,
    format: &'static Format,
    compression: Option<Compression>,
    settings: Settings,
    /// `None` after the end.
    encoder: Option<Box<dyn Encoder>>,
    /// Compressed file that must be ended after the last record.
    compressed: Option<Shared>,
    /// Regular file.
    part: Option<Part>,
    written: u64,
    /// Records in complete files.
    completed: u64,
    files: u64,
}

/// Compressed file, shared by the encoder that writes to it and the owner that ends it.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<Compressed>>);

impl Shared {
    pub(super) fn over(compression: Compression, out: impl Write + Send + 'static) -> Result<Self> {
        Ok(Shared(Arc::new(Mutex::new(Compressed::new(compression, Box::new(out))?))))
    }

    /// Ends it after the last record.
    pub(super) fn finish(&self) -> Result<()> {
        self.lock().finish()
    }

    fn lock(&self) -> MutexGuard<'_, Compressed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.lock().write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.lock().flush()
    }
}

pub(super) fn standard_output(target: &str, options: &Options) -> Result<Box<dyn Exporter>> {
    let none = || Error::new(ErrorKind::Unsupported, "standard output: not available for records here");
    let out = options.standard_output.ok_or_else(none)?;
    let (format, _) = Format::of_path(target, options.format)?;
    Stream::over("standard output", (format, options.compression, options.settings()), None, out())
}

pub(super) fn file(name: &str, options: &Options) -> Result<Box<dyn Exporter>> {
    let (format, compression) = Format::of_path(name, options.format)?;
    let how = (format, compression.or(options.compression), options.settings());
    let path = Path::new(name);
    if path.exists() && !path.is_file() {
        let file = OpenOptions::new().write(true).open(path).map_err(|error| at(path, "cannot open", error))?;
        return Stream::over(name, how, None, Box::new(file));
    }
    // Follows a symbolic link: its target is replaced, not the link.
    let path = path.canonicalize().unwrap_or(path.to_path_buf());
    let none = || Error::new(ErrorKind::InvalidInput, format!("{name}: invalid file name"));
    let file = path.file_name().ok_or_else(none)?;
    let folder = parent(&path);
    let part = Part::make(Directory::open(folder).map_err(|error| at(folder, "cannot open", error))?, file)?;
    if let (Some(leftover), Some(notify)) = (&part.leftover, options.notify) {
        notify(leftover.clone());
    }
    let file = part.handle()?;
    Stream::over(name, how, Some(part), Box::new(file))
}

impl Stream {
    fn over(
        name: &str,
        (format, compression, settings): (&'static Format, Option<Compression>, Settings),
        part: Option<Part>,
        out: Box<dyn Write + Send>,
    ) -> Result<Box<dyn Exporter>> {
        let name = name.to_owned();
        let mut stream = Stream {
            name,
            format,
            compression,
            settings,
            encoder: None,
            compressed: None,
            part,
            written: 0,
            completed: 0,
            files: 0,
        };
        stream.begin(out)?;
        Ok(Box::new(stream))
    }

    /// Starts writing to `out`.
    fn begin(&mut self, mut out: Box<dyn Write + Send>) -> Result<()> {
        self.compressed = None;
        if let Some(compression) = self.compression {
            let compressed = Shared::over(compression, out)?;
            self.compressed = Some(compressed.clone());
            out = Box::new(compressed);
        }
        self.encoder = Some((self.format.start)(out, &self.settings)?);
        Ok(())
    }

    fn write_chunk(&mut self, flows: &[&Flow]) -> Result<()> {
        let Some(encoder) = &mut self.encoder else { return Ok(()) };
        let end = self.part.as_ref().map(Part::handle).transpose()?.map(end).transpose()?;
        if let Err(error) = encoder.write(flows) {
            self.encoder = None;
            if let Some((mut file, end)) = end {
                // Truncates a partial line.
                let _ = file.set_len(end).and_then(|()| file.seek(SeekFrom::Start(end)));
                if let Some(compressed) = self.compressed.take() {
                    // Uses the space freed by the truncation.
                    let _ = compressed.lock().finish_before();
                }
            }
            return Err(at(Path::new(&self.name), "cannot write", error));
        }
        self.written += flows.len() as u64;
        Ok(())
    }

    /// Ends the encoding; the file keeps its name.
    fn end(&mut self) -> Result<()> {
        self.encoder.take().map_or(Ok(()), |encoder| encoder.finish())?;
        self.compressed.take().map_or(Ok(()), |compressed| compressed.finish())
    }

    fn complete(&mut self) -> Result<()> {
        self.end()?;
        let Some(part) = self.part.take() else { return Ok(()) };
        let result = if self.files == 0 { part.complete() } else { part.complete_unique().map(drop) };
        result.inspect_err(|_| self.forget(&part))?;
        (self.files, self.completed) = (self.files + 1, self.written);
        Ok(())
    }

    /// Completes the file, even if it was moved, and starts the next.
    fn turn(&mut self) -> Result<Option<String>> {
        let Some(mut part) = self.part.take() else { return Ok(None) };
        self.end()?;
        let done = part.complete_unique().inspect_err(|_| self.forget(&part))?;
        let records = self.written - std::mem::replace(&mut self.completed, self.written);
        self.files += 1;
        part = Part::make(part.folder, &part.name)?;
        self.begin(Box::new(part.handle()?))?;
        let leftover = part.leftover.take().map_or_else(String::new, |leftover| format!("; {leftover}"));
        self.part = Some(part);
        Ok(Some(format!("{done}: complete, {records} records{leftover}")))
    }

    /// Counts the records lost with a removed file.
    fn forget(&mut self, part: &Part) {
        if part.is_removed() {
            self.written = self.completed;
        }
    }
}

impl Exporter for Stream {
    fn name(&self) -> &str {
        &self.name
    }

    fn format(&self) -> (&'static str, Level) {
        (self.format.name, self.format.level)
    }

    fn demand(&self) -> Demand {
        // Lines are read during the run.
        let (bytes, age) =
            if self.format.lines { (1 << 20, Duration::from_millis(100)) } else { (usize::MAX, Duration::MAX) };
        Demand { bytes, age, tick: None }
    }

    fn made_in(&self) -> Result<Option<OwnedFd>> {
        self.part.as_ref().map(|part| part.folder.as_fd().try_clone_to_owned()).transpose()
    }

    fn check(&self) -> Result<()> {
        self.part.as_ref().map_or(Ok(()), |part| part.folder.check())
    }

    fn write(&mut self, flows: &[Flow], _: Nanos) -> Result<()> {
        // Small enough for the encoded chunk to stay in the cache.
        const CHUNK: usize = 512;
        let sorted = if self.format.lines { flows.iter().collect() } else { in_order(flows) };
        let chunk = if self.format.lines { CHUNK } else { sorted.len().max(1) };
        sorted.chunks(chunk).try_for_each(|flows| self.write_chunk(flows))
    }

    fn reopen(&mut self) -> Result<Option<String>> {
        self.turn().map_err(|error| at(Path::new(&self.name), "cannot rotate", error))
    }

    /// A failed file of lines keeps its temporary name, with the records that could be written.
    fn finish(&mut self, ending: Ending) -> Result<()> {
        let result = match ending {
            Ending::Complete => self.complete(),
            Ending::Failed if self.format.lines => {
                // The cause is already reported.
                let _ = self.end();
                Ok(())
            }
            _ => Ok(()),
        };
        self.encoder = None;
        if let Some(part) = self.part.take_if(|_| ending == Ending::Abandoned || !self.format.lines) {
            part.discard();
            self.written = self.completed;
        }
        if let Some(part) = self.part.take() {
            self.forget(&part);
        }
        result.map_err(|error| at(Path::new(&self.name), "cannot complete", error))
    }

    fn counters(&self, account: &mut Account) {
        account.add(Count::Exported, self.written).add(Count::ExportFiles, self.files);
    }
}

/// Returns the file with the offset of the next byte.
fn end(mut file: File) -> Result<(File, u64)> {
    let end = file.stream_position()?;
    Ok((file, end))
}
