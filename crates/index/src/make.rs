//! An index of a file that was written without.

use crate::gather::Gather;
use crate::layout::{DESCRIBED, LAST, PART_BYTES};
use crate::parts::RangesReader;
use crate::writer::Entries;
use linerate_record::{ReadError, Reader};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Why no index was made.
#[derive(Debug, thiserror::Error)]
pub enum NotMade {
    /// The file is one stream from its first byte on.
    #[error(
        "it is compressed, and cannot be read from its middle: copy it by linerate capture -r FILE -w NEW.pcapng.zst --index"
    )]
    Compressed,
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The system could not read or write.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Reads a capture file and writes its index; how many frames it has, and why it could not be read to its end, if so: what is
/// behind has no entry.
///
/// # Errors
/// There is none: what was written is to be thrown away.
pub fn make(file: &Arc<File>, name: &str, out: impl Write) -> Result<(u64, Option<ReadError>), NotMade> {
    let length = file.metadata()?.len();
    let mut reader = Reader::new(Box::new(RangesReader::new(file, Some(0..length))), name)?;
    if reader.compression().is_some() {
        return Err(NotMade::Compressed);
    }
    let (mut entries, mut gather) = (Entries::new(out), Gather::new());
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
    // Of a file that was cut off, the last record is not in its place.
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

/// The bytes where the time of the record there lies, if it has one.
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
