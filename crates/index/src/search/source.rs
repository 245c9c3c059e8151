//! One file of a search.

use super::{Note, NoteKind, Search, Totals};
use crate::ENDING;
use crate::parts::{Parts, RangesReader, choose_from};
use crate::plan::Plan;
use linerate_burst::input::open_regular;
use linerate_burst::{Block, Burst, Desc, Interface, LinkType, Nanos};
use linerate_filter::FilterError;
use linerate_pcap::recording::PARTIAL_ENDING;
use linerate_pcap::{ReadError, Reader};
use std::collections::HashSet;
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::ops::{Range, RangeInclusive};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A file with possible matches.
pub(super) struct Source {
    path: String,
    id: Id,
    parts: Parts,
    /// No matching frame is older.
    begin: Nanos,
    /// Its link types that the filter text does not fit, and that were noted.
    pub unfit: Vec<u16>,
    open: Option<Box<OpenFile>>,
    /// Bytes read from all files.
    read: Arc<AtomicU64>,
}

/// A file that is being read.
struct OpenFile {
    reader: Reader,
    /// Frames presented by the reader that are done.
    done: usize,
    /// Greatest time so far.
    time: Nanos,
    known: Vec<FileInterface>,
}

/// Identity of a file, whatever its name: device and inode.
pub(super) type Id = (u64, u64);

/// State of a file's interface: its filter, and its numbers among those of the search, for frames without notes and
/// with.
type FileInterface = (usize, [Option<u16>; 2]);

/// Position of a source.
pub(super) enum SourcePosition {
    /// The rank time of its next frame.
    At(Nanos),
    /// The same, with the block full, or after enough reading for one call.
    Full(Nanos),
    Ended,
}

impl Source {
    /// Determines the possible matches of a file; `None` if there are none, or if it was `seen` under another name.
    pub(super) fn find(
        path: &str,
        seen: &mut HashSet<Id>,
        span: &RangeInclusive<Nanos>,
        plan: &mut Plan,
        totals: &mut Totals,
        notes: &mut Vec<Note>,
        read: &Arc<AtomicU64>,
    ) -> Option<Source> {
        let mut opened = open(path).map(|opened| (path, opened));
        if let (Err(error), Some(complete)) = (&opened, path.strip_suffix(PARTIAL_ENDING))
            && error.kind() == ErrorKind::NotFound
        {
            // A recorder may have completed it since.
            opened = open(complete).map(|opened| (complete, opened));
        }
        let (path, (file, id)) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let what = if error.kind() == ErrorKind::NotFound { NoteKind::Gone } else { NoteKind::Unopened(error) };
                notes.push(Note { path: path.to_owned(), what });
                return None;
            }
        };
        if !seen.insert(id) {
            return None;
        }
        let mut note = |what| notes.push(Note { path: path.to_owned(), what });
        let length = file.metadata().map_or(0, |data| data.len());
        totals.files += 1;
        totals.file_bytes += length;
        let chosen = open(&format!("{path}{ENDING}")).map(|(index, _)| {
            choose_from(&index, &file, |entry| {
                let is_then = entry.times.0 <= *span.end() && entry.times.1 >= *span.start();
                // Evaluated for every part, so that a text that does not fit is always reported.
                Ok(plan.may_pass(entry)? && is_then)
            })
        });
        let parts = match chosen {
            Ok(Ok(parts)) => parts,
            other => {
                totals.without_index += 1;
                match other {
                    Ok(Err(unusable)) => note(NoteKind::Unused(unusable)),
                    Err(error) if error.kind() != ErrorKind::NotFound => note(NoteKind::Unused(error.into())),
                    _ => note(NoteKind::NoIndex),
                }
                Parts::all(length)
            }
        };
        totals.parts += parts.entries;
        totals.parts_read += parts.chosen;
        if length == 0 && !is_being_written(path) {
            let error = Reader::new(Box::new(io::empty()), path).err();
            notes.extend(error.map(|error| Note { path: path.to_owned(), what: NoteKind::Unread(error) }));
        }
        if parts.is_empty() {
            return None;
        }
        let (path, read) = (path.to_owned(), Arc::clone(read));
        let mut source = Source { path, id, begin: Nanos::ZERO, parts, unfit: Vec::new(), open: None, read };
        source.begin = match source.parts.earliest {
            Some(earliest) => earliest,
            // Take the time of the first frame; the file is then closed again.
            None => {
                let mut reader = source.reader(&file);
                match reader.fill() {
                    Ok(burst) => burst.descs().first()?.time,
                    // Reported when it is read.
                    Err(_) => Nanos::ZERO,
                }
            }
        };
        Some(source)
    }

    /// Returns a time that no matching frame is older than.
    pub(super) fn begin(&self) -> Nanos {
        self.begin
    }

    fn reader(&self, file: &Arc<File>) -> Reader {
        let ranges = RangesReader::new(file, self.parts.ranges.clone()).adding_to(&self.read);
        Reader::lazy(Box::new(ranges), &*self.path)
    }

    fn open(&mut self) -> io::Result<&mut OpenFile> {
        if self.open.is_none() {
            let reader = self.reader(&self.again()?);
            self.open = Some(Box::new(OpenFile { reader, done: 0, time: Nanos::ZERO, known: Vec::new() }));
        }
        self.open.as_deref_mut().ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Opens the file examined before, under its name or the one that a recorder has given it since. Another file is
    /// not accepted, since the parts were chosen for this one.
    fn again(&self) -> io::Result<Arc<File>> {
        let names = [Some(&*self.path), self.path.strip_suffix(PARTIAL_ENDING)];
        let mut failure = None;
        for name in names.into_iter().flatten() {
            match open(name) {
                Ok((file, id)) if id == self.id => return Ok(file),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| io::Error::other("moved or removed during the search; search again")))
    }
}

impl Search {
    /// Reads a source while its frames come before those of the one at `limit`.
    pub(super) fn read(
        &mut self,
        number: usize,
        limit: Option<(Nanos, usize)>,
        block: &mut Block,
    ) -> Result<SourcePosition, FilterError> {
        let path = self.sources[number].path.clone();
        let mut open = match self.sources[number].open() {
            Ok(_) => self.sources[number].open.take(),
            Err(error) => {
                self.notes.push(Note { path, what: NoteKind::Unopened(error) });
                return Ok(SourcePosition::Ended);
            }
        };
        let Some(source) = open.as_deref_mut() else { return Ok(SourcePosition::Ended) };
        let next = self.read_open(source, (number, &path), limit, block)?;
        if !matches!(next, SourcePosition::Ended) {
            self.sources[number].open = open;
        }
        Ok(next)
    }

    fn read_open(
        &mut self,
        source: &mut OpenFile,
        (number, path): (usize, &str),
        limit: Option<(Nanos, usize)>,
        block: &mut Block,
    ) -> Result<SourcePosition, FilterError> {
        loop {
            let OpenFile { reader, done, time, known } = source;
            let shown = reader.shown();
            for index in *done..shown.len() {
                let desc = &shown.descs()[index];
                let next = (*time).max(desc.time);
                if limit.is_some_and(|limit| (next, number) > limit) {
                    return Ok(SourcePosition::At(next));
                }
                if !self.frame((reader, known), (shown, index), number, block)? {
                    return Ok(SourcePosition::Full(next));
                }
                *time = next;
                *done += 1;
            }
            reader.consume(std::mem::take(done));
            match reader.look() {
                Ok(0) if reader.has_pending_work() => return Ok(SourcePosition::Full(*time)),
                Ok(0) => {
                    self.note_changes(reader, path);
                    return Ok(SourcePosition::Ended);
                }
                Ok(_) => {}
                Err(error) => {
                    self.note_changes(reader, path);
                    let error = placed(error, &self.sources[number].parts, reader.compression().is_some());
                    let is_growing = error.is_cut_off() && is_being_written(path);
                    let what = if is_growing { NoteKind::CutOff(error) } else { NoteKind::Unread(error) };
                    self.notes.push(Note { path: path.to_owned(), what });
                    return Ok(SourcePosition::Ended);
                }
            }
        }
    }

    /// Notes the data of the file that a copy would not have.
    fn note_changes(&mut self, reader: &Reader, path: &str) {
        let changes = [NoteKind::LeftOut(reader.left_out()), NoteKind::TimeChanged(reader.times_changed())];
        let happened = |what: &NoteKind| !matches!(what, NoteKind::LeftOut(0) | NoteKind::TimeChanged(0));
        let note = |what| Note { path: path.to_owned(), what };
        self.notes.extend(changes.into_iter().filter(happened).map(note));
    }

    /// Adds a frame if it matches; returns false if the block is full.
    #[inline]
    fn frame(
        &mut self,
        (reader, known): (&Reader, &mut Vec<FileInterface>),
        (shown, place): (Burst<'_>, usize),
        source: usize,
        block: &mut Block,
    ) -> Result<bool, FilterError> {
        let (desc, frame) = (&shown.descs()[place], shown.frame(place));
        let index = usize::from(desc.interface);
        while known.len() <= index {
            let link = reader.interfaces()[known.len()].link;
            let filter = self.filter(link)?;
            self.note_link_mismatch(source, filter);
            known.push((filter, [None; 2]));
        }
        let (filter, numbers) = &mut known[index];
        let filter = self.filters[*filter].1.as_ref().ok();
        let passes = self.span.contains(&desc.time) && filter.is_some_and(|filter| filter.matches(frame, desc.wire));
        if passes {
            let has_note = desc.note != 0;
            let number = &mut numbers[usize::from(has_note)];
            let interface = *number.get_or_insert_with(|| self.interface(&reader.interfaces()[index], has_note));
            if self.totals.frames == self.wanted || !block.push_stored(&Desc { interface, ..*desc }, shown, place) {
                return Ok(false);
            }
            let totals = &mut self.totals;
            totals.frames += 1;
            totals.bytes += u64::from(desc.captured);
            let (first, last) = totals.span.unwrap_or((desc.time, desc.time));
            totals.span = Some((first.min(desc.time), last.max(desc.time)));
        }
        self.totals.looked_at += 1;
        Ok(true)
    }

    /// Notes, once per file and link type, that none of its frames passes.
    fn note_link_mismatch(&mut self, source: usize, filter: usize) {
        let (link, Err(refused)) = &self.filters[filter] else { return };
        let Source { path, unfit, .. } = &mut self.sources[source];
        if !unfit.contains(link) {
            self.totals.left_out += u64::from(unfit.is_empty());
            unfit.push(*link);
            let what = NoteKind::Unfit(LinkType(*link), refused.clone());
            self.notes.push(Note { path: path.clone(), what });
        }
    }

    /// Returns the number of an interface. With several files, equal interfaces become one, without the data specific
    /// to single files; but frames with notes keep the interface that their notes belong to.
    fn interface(&mut self, interface: &Interface, has_notes: bool) -> u16 {
        let keeps_origin = has_notes || self.is_of_one();
        let alike = |known: &Interface| known.origin.is_none() && known == interface;
        let number = match self.interfaces.iter().position(alike).filter(|_| !keeps_origin) {
            Some(number) => number,
            None => {
                let origin = interface.origin.clone().filter(|_| keeps_origin);
                self.interfaces.push(Interface { origin, ..interface.clone() });
                self.interfaces.len() - 1
            }
        };
        // Only comments can exceed this: later ones are then attributed to the last interface.
        u16::try_from(number).unwrap_or(u16::MAX)
    }
}

/// Returns whether a recorder is still writing a file: then it has another name, or is locked.
fn is_being_written(path: &str) -> bool {
    let is_locked = |file: File| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    path.ends_with(PARTIAL_ENDING) || open_regular(path).is_ok_and(is_locked)
}

/// Converts the position of an error to one in the file, since data between the ranges was not read. In compressed data
/// the position refers to the decompressed parts, because the size of the skipped ones is unknown.
fn placed(mut error: ReadError, parts: &Parts, is_compressed: bool) -> ReadError {
    use ReadError::{CutOff, Damaged, Decompression, Io, Unsupported};
    let is_outer = matches!(error, Decompression { .. });
    let (CutOff { name, offset, .. }
    | Damaged { name, offset, .. }
    | Unsupported { name, offset, .. }
    | Io { name, offset, .. }
    | Decompression { name, offset, .. }) = &mut error
    else {
        return error;
    };
    if is_compressed && !is_outer {
        if parts.ranges.len() > 1 {
            name.push_str(" (decompressed parts only)");
        }
        return error;
    }
    let mut before = 0;
    let mut skipped = 0;
    for (Range { start, end }, frames) in parts.ranges.iter().zip(&parts.skipped) {
        skipped = *frames;
        // The end of a range belongs to it, unless another range follows.
        if *offset < before + (end - start) || parts.ranges.last().is_some_and(|last| last.end == *end) {
            *offset = start + (*offset - before);
            break;
        }
        before += end - start;
    }
    if let CutOff { frames, .. } | Damaged { frames, .. } | Unsupported { frames, .. } = &mut error {
        *frames += skipped;
    }
    error
}

/// Opens a regular file, and returns its identity.
fn open(path: &str) -> io::Result<(Arc<File>, Id)> {
    let file = open_regular(path)?;
    let data = file.metadata()?;
    Ok((Arc::new(file), (data.dev(), data.ino())))
}
