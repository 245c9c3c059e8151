//! The parts of a capture file that must be read, according to its index; and a reader of only these.

use crate::entry::{self, Entry};
use crate::layout::{DESCRIBED, HEADER, LAST, MAGIC, MARKED, VERSION, header, u32_at};
use linerate_burst::Nanos;
use linerate_pcap::plain;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Buffer size for an index, in bytes.
const PIECE: usize = 256 << 10;
/// Minimum bytes of a part, and the number of entries that may have less.
const LEAST_PART: u64 = 4096;
const ODD_PARTS: u64 = 64;

/// Sampling of skipped parts, to verify that the index belongs to the file: the first ones and one of this many are
/// checked. Each check takes a seek if the file is not cached. In compressed files it decompresses the part's first
/// block.
const SAMPLED: u64 = 16;
const SAMPLED_COMPRESSED: u64 = 64;
const FIRST: u64 = 3;

/// The reason why an index is not used.
#[derive(Debug, thiserror::Error)]
pub enum IndexFault {
    /// The header or an entry is damaged.
    #[error("it is damaged, or not an index")]
    Damaged,
    /// The index has another version.
    #[error("it has version {0}; this program supports {VERSION}")]
    Version(u32),
    /// The file does not match the index.
    #[error("it is of another file, or the file was changed since: the contents at byte {0} differ")]
    Changed(u64),
    /// The file was modified after its index was complete.
    #[error("the file was modified after its index was built; build it again with linerate find FILE --make-index")]
    Older,
    /// Reading failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The filter text cannot be evaluated.
    #[error(transparent)]
    Filter(#[from] linerate_filter::FilterError),
}

/// The parts of a file to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Ascending, disjoint ranges of bytes.
    pub ranges: Vec<Range<u64>>,
    /// For each range, the number of frames skipped before it.
    pub skipped: Vec<u64>,
    /// Number of entries of the index.
    pub entries: u64,
    /// Number of entries whose parts may match.
    pub chosen: u64,
    /// No matching frame is older, if this is known.
    pub earliest: Option<Nanos>,
    /// Bytes after the last entry, which are not indexed.
    pub rest: u64,
    /// True if the index was finished: nothing was written to the file later.
    pub is_complete: bool,
}

impl Parts {
    /// Returns all of a file as one part.
    pub fn all(length: u64) -> Self {
        let ranges = std::iter::once(0..length).collect();
        Parts { ranges, skipped: vec![0], entries: 0, chosen: 0, earliest: None, rest: length, is_complete: false }
    }

    /// Returns the number of bytes to read.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// Returns whether nothing can be found.
    pub fn is_empty(&self) -> bool {
        self.chosen == 0 && self.rest == 0
    }
}

/// Calls [`choose`] for an index file. Its age is compared too: contents are only sampled, and a finished index is younger
/// than its file. A copy that does not keep both times may appear older, and is then read in full.
///
/// # Errors
/// If the index cannot be used: then read the file in full.
pub fn choose_from(
    index: &File,
    file: &Arc<File>,
    may_hold: impl FnMut(&Entry<'_>) -> Result<bool, IndexFault>,
) -> Result<Parts, IndexFault> {
    let parts = choose(BufReader::with_capacity(PIECE, index), file, may_hold)?;
    let is_older = index.metadata()?.modified()? < file.metadata()?.modified()?;
    if parts.is_complete && is_older { Err(IndexFault::Older) } else { Ok(parts) }
}

/// Processes an index: returns the parts that `may_hold` a match, those needed to read others, and those that the index
/// does not cover.
///
/// # Errors
/// If the index cannot be used: then read the file in full.
pub fn choose(
    mut index: impl Read,
    file: &Arc<File>,
    mut may_hold: impl FnMut(&Entry<'_>) -> Result<bool, IndexFault>,
) -> Result<Parts, IndexFault> {
    check_header(&mut index)?;
    let mut check = Check::new(file)?;
    let (ranges, skipped) = (Vec::new(), Vec::new());
    let mut parts =
        Parts { ranges, skipped, entries: 0, chosen: 0, earliest: Some(Nanos::MAX), rest: 0, is_complete: false };
    let mut left_out = 0;
    let (mut bytes, mut end, mut is_last) = (Vec::new(), 0, false);
    let (mut number, mut is_behind_gap, mut last_start) = (0, false, 0);
    while let Some(entry) = next(&mut index, &mut bytes)? {
        let Range { start, end: next_end } = entry.part;
        if start < end || is_last {
            return Err(IndexFault::Damaged);
        }
        if number > next_end / LEAST_PART + ODD_PARTS {
            return Err(IndexFault::Changed(start));
        }
        number += 1;
        last_start = start;
        if next_end > check.length()? {
            // The entry reached the disk before its part: read what is there of the part.
            break;
        }
        // The least and the greatest possible time may stand for others, which the reader of the part reports.
        let is_beyond = entry.frames > 0 && (entry.times.0 == Nanos::ZERO || entry.times.1 == Nanos::MAX);
        let is_chosen = may_hold(&entry)? || is_beyond;
        let is_end = entry.frames == 0 && entry.is(LAST);
        let is_skipped = (entry.is(MARKED) || is_end) && !entry.is(DESCRIBED);
        if is_chosen {
            parts.chosen += 1;
            parts.earliest = parts.earliest.min(Some(entry.times.0));
        }
        // Data between two entries belongs to neither.
        push(&mut parts, end..start, left_out);
        if is_chosen || !is_skipped {
            push(&mut parts, start..next_end, left_out);
        } else {
            left_out += entry.frames;
        }
        if is_skipped && !is_chosen && entry.frames > 0 {
            check.left_out(&entry)?;
            is_behind_gap = true;
        } else if std::mem::take(&mut is_behind_gap) && entry.is(MARKED) && entry.frames > 0 {
            // Checked because it is read anyway.
            check.mark(&entry)?;
        }
        parts.entries += u64::from(entry.frames > 0);
        (end, is_last) = (next_end, entry.is(LAST));
    }
    let length = check.length()?;
    if is_last && check.is_inside_lz4(last_start) && parts.ranges.last().is_none_or(|last| last.end < end) {
        push(&mut parts, end.saturating_sub(LZ4_END)..end, left_out);
    }
    push(&mut parts, end..length, left_out);
    parts.rest = length - end;
    parts.is_complete = is_last;
    if parts.rest > 0 {
        parts.earliest = None;
    }
    Ok(parts)
}

fn push(parts: &mut Parts, range: Range<u64>, skipped: u64) {
    match parts.ranges.last_mut() {
        _ if range.is_empty() => {}
        Some(last) if last.end == range.start => last.end = range.end,
        _ => {
            parts.ranges.push(range);
            parts.skipped.push(skipped);
        }
    }
}

fn check_header(index: &mut impl Read) -> Result<(), IndexFault> {
    let mut bytes = [0; HEADER];
    let count = fill(index, &mut bytes)?;
    if count < HEADER || bytes[..8] != MAGIC {
        return Err(IndexFault::Damaged);
    }
    match u32_at(&bytes, 8) {
        VERSION if bytes == header() => Ok(()),
        VERSION => Err(IndexFault::Damaged),
        other => Err(IndexFault::Version(other)),
    }
}

/// Returns the next entry; `None` if no complete one follows, as after a run that was killed.
fn next<'a>(index: &mut impl Read, bytes: &'a mut Vec<u8>) -> io::Result<Option<Entry<'a>>> {
    let mut begin = [0; 8];
    if fill(index, &mut begin)? < begin.len() {
        return Ok(None);
    }
    let Some(length) = entry::length(&begin) else { return Ok(None) };
    bytes.resize(length, 0);
    bytes[..8].copy_from_slice(&begin);
    if fill(index, &mut bytes[8..])? < length - 8 {
        return Ok(None);
    }
    Ok(Entry::parse(bytes))
}

/// Reads as much as is available, up to the length of `into`.
fn fill(source: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < into.len() {
        match source.read(&mut into[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// Magic number of an LZ4 frame, length of its header without the content size, and its end mark.
const LZ4: [u8; 4] = 0x184d_2204u32.to_le_bytes();
const LZ4_HEAD: u64 = 7;
const LZ4_END: u64 = 4;

/// Verifies that a file matches its index.
struct Check<'a> {
    file: &'a Arc<File>,
    is_compressed: bool,
    is_lz4: bool,
    /// Offset of the time in a record.
    time: usize,
    /// Number of skipped parts.
    left_out: u64,
}

impl<'a> Check<'a> {
    fn new(file: &'a Arc<File>) -> io::Result<Self> {
        let (mut outer, mut inner) = ([0; 4], [0; 4]);
        fill(&mut RangesReader::new(file, Some(0..4)), &mut outer)?;
        let length = file.metadata()?.len();
        // Errors of decompression are reported when the file is read.
        let _ = fill(&mut plain(Box::new(RangesReader::new(file, Some(0..length))))?, &mut inner);
        let is_pcapng = inner == [0x0a, 0x0d, 0x0d, 0x0a];
        let (is_compressed, is_lz4) = (inner != outer, outer == LZ4);
        Ok(Check { file, is_compressed, is_lz4, time: if is_pcapng { 12 } else { 0 }, left_out: 0 })
    }

    /// Returns whether a position is inside an LZ4 frame, whose blocks can be decompressed after its header.
    fn is_inside_lz4(&self, place: u64) -> bool {
        let mut begin = [0; 4];
        self.is_lz4 && self.file.read_exact_at(&mut begin, place).is_ok() && begin != LZ4
    }

    /// Returns the length of the file, which may be growing: entries are written after their parts.
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Verifies some of the skipped parts.
    fn left_out(&mut self, entry: &Entry<'_>) -> Result<(), IndexFault> {
        let number = self.left_out;
        self.left_out += 1;
        let sampled = if self.is_compressed { SAMPLED_COMPRESSED } else { SAMPLED };
        if number < FIRST || number.is_multiple_of(sampled) { self.mark(entry) } else { Ok(()) }
    }

    /// Verifies the time of its first record.
    fn mark(&self, entry: &Entry<'_>) -> Result<(), IndexFault> {
        let mut found = [0; 20];
        let behind = self.time + 8;
        if self.is_compressed {
            let head = if self.is_inside_lz4(entry.part.start) { LZ4_HEAD } else { 0 };
            let part = RangesReader::new(self.file, [0..head, entry.part.clone()]);
            fill(&mut plain(Box::new(part))?, &mut found[..behind])
                .map_err(|_| IndexFault::Changed(entry.part.start))?;
        } else {
            match self.file.read_exact_at(&mut found[..behind], entry.part.start) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(IndexFault::Changed(entry.part.start));
                }
                read => read?,
            }
        }
        if found[self.time..behind] == entry.mark { Ok(()) } else { Err(IndexFault::Changed(entry.part.start)) }
    }
}

/// Reads parts of a file one after another.
pub struct RangesReader {
    file: Arc<File>,
    ranges: std::vec::IntoIter<Range<u64>>,
    at: Range<u64>,
    /// Bytes read, of all readers that share it.
    total: Arc<AtomicU64>,
}

impl RangesReader {
    /// Returns a reader of these ranges of an open file, independent of other readers.
    pub fn new(file: &Arc<File>, ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let ranges = ranges.into_iter().collect::<Vec<_>>().into_iter();
        RangesReader { file: Arc::clone(file), ranges, at: 0..0, total: Arc::default() }
    }

    /// Adds the bytes read to `total`.
    pub(crate) fn adding_to(self, total: &Arc<AtomicU64>) -> Self {
        RangesReader { total: Arc::clone(total), ..self }
    }
}

impl Read for RangesReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            while self.at.is_empty() {
                match self.ranges.next() {
                    Some(range) => self.at = range,
                    None => return Ok(0),
                }
            }
            let most = into.len().min(usize::try_from(self.at.end - self.at.start).unwrap_or(usize::MAX));
            let count = self.file.read_at(&mut into[..most], self.at.start)?;
            self.at.start += count as u64;
            self.total.fetch_add(count as u64, Ordering::Relaxed);
            if count > 0 || most == 0 {
                return Ok(count);
            }
            // The file was truncated: this part has no more data.
            self.at = 0..0;
        }
    }
}
