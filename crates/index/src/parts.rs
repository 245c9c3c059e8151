//! Which parts of a capture file are to be read, by its index; and reading them as if the others were not there.

use crate::entry::{self, Entry};
use crate::layout::{DESCRIBED, HEADER, LAST, MAGIC, MARKED, VERSION, header, u32_at};
use linerate_burst::Nanos;
use linerate_record::plain;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Entries about fewer bytes than this each are not written, but for some at the end.
const LEAST_PART: u64 = 4096;
const ODD_PARTS: u64 = 64;

/// Of the parts that are left out, the first ones and one of so many are looked at to see whether the file is the one that the index tells of: that of
/// a file that is not in memory takes a seek each. In compressed files their first block is decompressed for it.
const SAMPLED: u64 = 16;
const SAMPLED_COMPRESSED: u64 = 64;
const FIRST: u64 = 3;

/// Why an index is not used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It does not begin like one.
    #[error("it is damaged, or no index")]
    Damaged,
    /// It was written by another version.
    #[error("it is of version {0}, and this program knows {VERSION}")]
    Version(u32),
    /// It says what the file does not hold.
    #[error("it is of another file, or the file was changed since: at byte {0} it has something else")]
    Changed(u64),
    /// The system could not read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Nobody can tell what the filter text needs.
    #[error(transparent)]
    Filter(#[from] linerate_filter::FilterError),
}

/// What is to be read of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// In order, apart from each other.
    pub ranges: Vec<Range<u64>>,
    /// Frames between these that are not read: how many come before each.
    pub skipped: Vec<u64>,
    /// Entries of the index, and those whose parts may hold what is asked for.
    pub entries: u64,
    /// Of these.
    pub chosen: u64,
    /// No frame that is asked for is older, if that is known.
    pub earliest: Option<Nanos>,
    /// Bytes behind the last entry, of which nothing is known.
    pub rest: u64,
}

impl Parts {
    /// All of a file.
    pub fn all(length: u64) -> Self {
        let ranges = std::iter::once(0..length).collect();
        Parts { ranges, skipped: vec![0], entries: 0, chosen: 0, earliest: None, rest: length }
    }

    /// Bytes to read.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// Whether there is nothing to be found.
    pub fn is_empty(&self) -> bool {
        self.chosen == 0 && self.rest == 0
    }
}

/// Goes through an index: the parts that `may_hold` what is asked for, those that whoever reads them needs, and what the index
/// says nothing of.
///
/// # Errors
/// The index is not to be used: the file is to be read in full.
pub fn choose(
    mut index: impl Read,
    file: &Arc<File>,
    mut may_hold: impl FnMut(&Entry<'_>) -> Result<bool, Unusable>,
) -> Result<Parts, Unusable> {
    check_header(&mut index)?;
    let mut check = Check::new(file)?;
    let (ranges, skipped) = (Vec::new(), Vec::new());
    let mut parts = Parts { ranges, skipped, entries: 0, chosen: 0, earliest: Some(Nanos::MAX), rest: 0 };
    let mut left_out = 0;
    let (mut bytes, mut end, mut is_last) = (Vec::new(), 0, false);
    let (mut number, mut is_behind_gap, mut last_start) = (0, false, 0);
    while let Some(entry) = next(&mut index, &mut bytes)? {
        let Range { start, end: next_end } = entry.part;
        if start < end || is_last {
            return Err(Unusable::Damaged);
        }
        if number > next_end / LEAST_PART + ODD_PARTS {
            return Err(Unusable::Changed(start));
        }
        number += 1;
        last_start = start;
        if next_end > check.length()? {
            // It came to the disk before what it is about: what is there of that is read.
            break;
        }
        // The first and the last time that there are stand for others too: whoever reads the part is told of these.
        let is_beyond = entry.frames > 0 && (entry.times.0 == Nanos::ZERO || entry.times.1 == Nanos::MAX);
        let is_chosen = may_hold(&entry)? || is_beyond;
        let is_end = entry.frames == 0 && entry.is(LAST);
        let is_skipped = (entry.is(MARKED) || is_end) && !entry.is(DESCRIBED);
        if is_chosen {
            parts.chosen += 1;
            parts.earliest = parts.earliest.min(Some(entry.times.0));
        }
        // What lies between two entries is of none.
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
            // It is read anyway.
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

fn check_header(index: &mut impl Read) -> Result<(), Unusable> {
    let mut bytes = [0; HEADER];
    let count = fill(index, &mut bytes)?;
    if count < HEADER || bytes[..8] != MAGIC {
        return Err(Unusable::Damaged);
    }
    match u32_at(&bytes, 8) {
        VERSION if bytes == header() => Ok(()),
        VERSION => Err(Unusable::Damaged),
        other => Err(Unusable::Version(other)),
    }
}

/// The next entry; `None` where there is none that is whole, as behind a run that was killed.
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

/// Reads as much as there is.
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

/// What a frame of LZ4 begins with, how long its head is without the size of what is inside, and its end.
const LZ4: [u8; 4] = 0x184d_2204u32.to_le_bytes();
const LZ4_HEAD: u64 = 7;
const LZ4_END: u64 = 4;

/// Looks whether a file holds what its index says.
struct Check<'a> {
    file: &'a Arc<File>,
    is_compressed: bool,
    is_lz4: bool,
    /// Where the time lies in a record.
    time: usize,
    /// Parts that were left out.
    left_out: u64,
}

impl<'a> Check<'a> {
    fn new(file: &'a Arc<File>) -> io::Result<Self> {
        let (mut outer, mut inner) = ([0; 4], [0; 4]);
        fill(&mut RangesReader::new(file, Some(0..4)), &mut outer)?;
        let length = file.metadata()?.len();
        // What cannot be decompressed is found when it is read.
        let _ = fill(&mut plain(Box::new(RangesReader::new(file, Some(0..length))))?, &mut inner);
        let is_pcapng = inner == [0x0a, 0x0d, 0x0d, 0x0a];
        let (is_compressed, is_lz4) = (inner != outer, outer == LZ4);
        Ok(Check { file, is_compressed, is_lz4, time: if is_pcapng { 12 } else { 0 }, left_out: 0 })
    }

    /// Whether a place is inside a frame of LZ4, whose blocks can be read behind its head.
    fn is_inside_lz4(&self, place: u64) -> bool {
        let mut begin = [0; 4];
        self.is_lz4 && self.file.read_exact_at(&mut begin, place).is_ok() && begin != LZ4
    }

    /// Of the file, which may be growing: entries are written behind what they are about.
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Looks at some of those that are left out.
    fn left_out(&mut self, entry: &Entry<'_>) -> Result<(), Unusable> {
        let number = self.left_out;
        self.left_out += 1;
        let sampled = if self.is_compressed { SAMPLED_COMPRESSED } else { SAMPLED };
        if number < FIRST || number.is_multiple_of(sampled) { self.mark(entry) } else { Ok(()) }
    }

    /// Whether the time of its first record is there.
    fn mark(&self, entry: &Entry<'_>) -> Result<(), Unusable> {
        let mut found = [0; 20];
        let behind = self.time + 8;
        if self.is_compressed {
            let head = if self.is_inside_lz4(entry.part.start) { LZ4_HEAD } else { 0 };
            let part = RangesReader::new(self.file, [0..head, entry.part.clone()]);
            fill(&mut plain(Box::new(part))?, &mut found[..behind]).map_err(|_| Unusable::Changed(entry.part.start))?;
        } else {
            match self.file.read_exact_at(&mut found[..behind], entry.part.start) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(Unusable::Changed(entry.part.start));
                }
                read => read?,
            }
        }
        if found[self.time..behind] == entry.mark { Ok(()) } else { Err(Unusable::Changed(entry.part.start)) }
    }
}

/// Parts of a file, read one behind the other.
pub struct RangesReader {
    file: Arc<File>,
    ranges: std::vec::IntoIter<Range<u64>>,
    at: Range<u64>,
}

impl RangesReader {
    /// Of an open file, whoever else reads it.
    pub fn new(file: &Arc<File>, ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        RangesReader { file: Arc::clone(file), ranges: ranges.into_iter().collect::<Vec<_>>().into_iter(), at: 0..0 }
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
            if count > 0 || most == 0 {
                return Ok(count);
            }
            // The file was cut meanwhile: nothing more will come of this part.
            self.at = 0..0;
        }
    }
}
