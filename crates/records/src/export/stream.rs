//! One file, or whatever else bytes can be written to.

use super::directory::{Directory, parent};
use super::part::Part;
use super::{Demand, Ending, Exporter, Options, at, in_order};
use crate::encode::{Encoder, Format};
use linerate_burst::{Account, Count, Nanos};
use linerate_meter::{Flow, Level};
use linerate_record::{Compressed, Compression};
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

struct Stream {
    name: String,
    format: &'static Format,
    /// `None` once it has ended.
    encoder: Option<Box<dyn Encoder>>,
    /// What ends the file behind the last record, where it is compressed.
    compressed: Option<Shared>,
    /// Of a regular file.
    part: Option<Part>,
    written: u64,
    files: u64,
}

/// A compressed file, of the encoder that writes to it and of who ends it.
#[derive(Clone)]
struct Shared(Arc<Mutex<Compressed>>);

impl Shared {
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
    let none = || Error::new(ErrorKind::Unsupported, "standard output: no records are written there here");
    let out = options.standard_output.ok_or_else(none)?;
    let (format, _) = Format::of_path(target, options.format)?;
    Stream::over("standard output", format, None, None, out())
}

pub(super) fn file(name: &str, options: &Options) -> Result<Box<dyn Exporter>> {
    let (format, compression) = Format::of_path(name, options.format)?;
    let path = Path::new(name);
    if path.exists() && !path.is_file() {
        let file = OpenOptions::new().write(true).open(path).map_err(|error| at(path, "cannot be opened", error))?;
        return Stream::over(name, format, compression, None, Box::new(file));
    }
    // A link stays one: what it leads to is replaced.
    let path = path.canonicalize().unwrap_or(path.to_path_buf());
    let none = || Error::new(ErrorKind::InvalidInput, format!("{name}: no name of a file"));
    let file = path.file_name().ok_or_else(none)?;
    let folder = parent(&path);
    let part = Part::make(Directory::open(folder).map_err(|error| at(folder, "cannot be opened", error))?, file)?;
    let file = part.handle()?;
    Stream::over(name, format, compression, Some(part), Box::new(file))
}

impl Stream {
    fn over(
        name: &str,
        format: &'static Format,
        compression: Option<Compression>,
        part: Option<Part>,
        out: Box<dyn Write + Send>,
    ) -> Result<Box<dyn Exporter>> {
        let (out, compressed) = match compression {
            None => (out, None),
            Some(compression) => {
                let compressed = Shared(Arc::new(Mutex::new(Compressed::new(compression, out)?)));
                (Box::new(compressed.clone()) as Box<dyn Write + Send>, Some(compressed))
            }
        };
        let encoder = Some((format.start)(out)?);
        Ok(Box::new(Stream { name: name.to_owned(), format, encoder, compressed, part, written: 0, files: 0 }))
    }

    fn write_chunk(&mut self, flows: &[&Flow]) -> Result<()> {
        let Some(encoder) = &mut self.encoder else { return Ok(()) };
        let end = self.part.as_ref().map(Part::handle).transpose()?.map(end).transpose()?;
        if let Err(error) = encoder.write(flows) {
            if let Some((file, end)) = end {
                // What is left behind the last whole line is no line.
                let _ = file.set_len(end);
            }
            return Err(at(Path::new(&self.name), "cannot be written to", error));
        }
        self.written += flows.len() as u64;
        Ok(())
    }

    fn complete(&mut self) -> Result<()> {
        self.encoder.take().map_or(Ok(()), |encoder| encoder.finish())?;
        if let Some(compressed) = &self.compressed {
            compressed.lock().finish()?;
        }
        if let Some(part) = self.part.take() {
            part.complete().inspect_err(|_| self.forget(&part))?;
            self.files = 1;
        }
        Ok(())
    }

    /// Counts what went with a file that somebody removed.
    fn forget(&mut self, part: &Part) {
        if part.is_removed() {
            self.written = 0;
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
        // Lines are read while it runs.
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
        // So many that what they become stays in the cache.
        const CHUNK: usize = 512;
        let sorted = if self.format.lines { flows.iter().collect() } else { in_order(flows) };
        let chunk = if self.format.lines { CHUNK } else { sorted.len().max(1) };
        sorted.chunks(chunk).try_for_each(|flows| self.write_chunk(flows))
    }

    /// A failed file of lines stays under its other name, with what could be written.
    fn finish(&mut self, ending: Ending) -> Result<()> {
        let result = if ending == Ending::Complete { self.complete() } else { Ok(()) };
        self.encoder = None;
        if let Some(part) = self.part.take_if(|_| ending == Ending::Abandoned || !self.format.lines) {
            part.discard();
            self.written = 0;
        }
        if let Some(part) = self.part.take() {
            self.forget(&part);
        }
        result.map_err(|error| at(Path::new(&self.name), "cannot be completed", error))
    }

    fn counters(&self, account: &mut Account) {
        account.add(Count::Exported, self.written).add(Count::ExportFiles, self.files);
    }
}

/// Where the next byte goes.
fn end(mut file: File) -> Result<(File, u64)> {
    let end = file.stream_position()?;
    Ok((file, end))
}
