//! Indexes an existing capture file.

use crate::gather::EntryBuilder;
use crate::layout::{DESCRIBED, LAST, PART_BYTES};
use crate::parts::RangesReader;
use crate::writer::Entries;
use linerate_pcap::{ReadError, Reader};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The reason why no index was made.
#[derive(Debug, thiserror::Error)]
pub enum IndexingError {
    /// The file is compressed as a single stream.
    #[error("compressed as one stream; copy it with linerate capture -r FILE -w NEW.pcapng.zst --index")]
    Compressed,
    /// Reading the file failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A system call failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Reads a capture file and writes its index; returns the number of frames, and the error that ended reading early, if
/// any: data after it has no entry.
///
/// # Errors
/// If no index can be made: then discard the output.
pub fn make(file: &Arc<File>, name: &str, out: impl Write) -> Result<(u64, Option<ReadError>), IndexingError> {
    let length = file.metadata()?.len();
    let mut reader = Reader::new(Box::new(RangesReader::new(file, Some(0..length))), name)?;
    if reader.compression().is_some() {
        return Err(IndexingError::Compressed);
    }
    let (mut entries, mut gather) = (Entries::new(out), EntryBuilder::new());
    entries.begin()?;
    let (mut start, mut described, mut frames) = (reader.offset(), reader.described(), 0);
    let failure = loop {
        let count = match reader.fill() {
            Ok(burst) => burst.len(),
            Err(error) => break Some(error),
        };
        if count == 0 {
            break None;
        }
        gather.add(reader.shown(), reader.interfaces());
        reader.consume(count);
        frames += count as u64;
        if reader.offset() - start >= PART_BYTES {
            let flags = if reader.described() == described { 0 } else { DESCRIBED };
            entries.push(start..reader.offset(), mark(file, start)?, flags, &gather)?;
            gather.clear();
            (start, described) = (reader.offset(), reader.described());
        }
    };
    // The last record of a truncated file is incomplete.
    if failure.is_none() {
        let flags = if reader.described() == described { 0 } else { DESCRIBED };
        entries.push(start..length, mark(file, start)?, flags | LAST, &gather)?;
    } else if gather.frames > 0 {
        let flags = if reader.described() == described { 0 } else { DESCRIBED };
        entries.push(start..reader.offset(), mark(file, start)?, flags, &gather)?;
    }
    entries.into_inner().flush()?;
    Ok((frames, failure))
}

/// Returns the bytes at the position of the time of the record at `start`, if there is one.
fn mark(file: &File, start: u64) -> io::Result<Option<[u8; 8]>> {
    let (mut magic, mut found) = ([0; 4], [0; 8]);
    file.read_exact_at(&mut magic, 0)?;
    let time = if magic == [0x0a, 0x0d, 0x0d, 0x0a] { 12 } else { 0 };
    match file.read_exact_at(&mut found, start + time) {
        Ok(()) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}
