//! Searches several files for frames that pass a filter, in time order.
//!
//! The order is that of the merge: by the greatest time so far in a file, then by the file. A file is open from its
//! first frame that may match to its last one, so that a folder of thousands has few open at a time.

mod source;

use crate::parts::IndexFault;
use crate::plan::Plan;
use linerate_burst::{Block, Interface, LinkType, Nanos};
use linerate_filter::{Filter, FilterError};
use linerate_pcap::ReadError;
use source::{Id, Source, SourcePosition};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Progress of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files examined.
    pub files: u64,
    /// Number of them read in full because they have no usable index.
    pub without_index: u64,
    /// Number of them with frames of a link type that the filter text does not fit.
    pub left_out: u64,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// Bytes read of them so far; what was read twice counts once.
    pub read_bytes: u64,
    /// Parts described by indexes.
    pub parts: u64,
    /// Number of parts that may match.
    pub parts_read: u64,
    /// Frames examined by the filter.
    pub looked_at: u64,
    /// Frames found.
    pub frames: u64,
    /// Captured bytes of the frames found.
    pub bytes: u64,
    /// Times of the first and the last frame found.
    pub span: Option<(Nanos, Nanos)>,
}

/// A note about a file.
#[derive(Debug)]
pub struct Note {
    /// The file.
    pub path: String,
    /// The note.
    pub what: NoteKind,
}

/// The types of notes.
#[derive(Debug)]
pub enum NoteKind {
    /// The file has no index.
    NoIndex,
    /// The index is not used.
    Unused(IndexFault),
    /// The file disappeared before it was read.
    Gone,
    /// The file ends inside a record, and is being written.
    CutOff(ReadError),
    /// This many items of the file other than packets are not kept.
    LeftOut(u64),
    /// This many packets have a different time than in the file, which cannot be represented.
    TimeChanged(u64),
    /// The file cannot be read, or not to its end.
    Unread(ReadError),
    /// The file cannot be opened.
    Unopened(io::Error),
    /// The filter text does not fit frames of a link type that the file has: none of them passes.
    Unfit(LinkType, FilterError),
}

impl NoteKind {
    /// Returns whether matching frames may be missing.
    pub fn is_failure(&self) -> bool {
        matches!(self, NoteKind::Unread(_) | NoteKind::Unopened(_) | NoteKind::Unfit(..))
    }
}

/// A search in files.
pub struct Search {
    text: String,
    span: RangeInclusive<Nanos>,
    plan: Plan,
    sources: Vec<Source>,
    /// Identities of all files added.
    seen: HashSet<Id>,
    /// The next source: by time, then by number.
    order: BinaryHeap<Reverse<(Nanos, usize)>>,
    filters: Vec<(u16, Result<Filter, FilterError>)>,
    /// Interfaces of the frames found.
    interfaces: Vec<Interface>,
    totals: Totals,
    /// Limit on `totals.frames`.
    wanted: u64,
    notes: Vec<Note>,
    /// Bytes read from all files.
    read: Arc<AtomicU64>,
}

impl Search {
    /// Returns a search for frames that pass a filter text (libpcap compiles it when frames are read) and are in the
    /// time span.
    pub fn new(text: &str, span: RangeInclusive<Nanos>) -> Self {
        Search {
            text: text.to_owned(),
            span,
            plan: Plan::new(text),
            sources: Vec::new(),
            seen: HashSet::new(),
            order: BinaryHeap::new(),
            filters: Vec::new(),
            interfaces: Vec::new(),
            totals: Totals::default(),
            wanted: 0,
            notes: Vec::new(),
            read: Arc::default(),
        }
    }

    /// Adds a file, with its index if it has one: its matching parts are determined now. A file already added under
    /// another name is not searched twice.
    pub fn add(&mut self, path: &str) {
        let Search { span, seen, plan, totals, notes, read, .. } = self;
        let source = Source::find(path, seen, span, plan, totals, notes, read);
        let unfit = plan.take_unfit();
        let links = unfit.iter().map(|(link, _)| *link).collect();
        let note = |(link, refused)| Note { path: path.to_owned(), what: NoteKind::Unfit(LinkType(link), refused) };
        totals.left_out += u64::from(!unfit.is_empty());
        notes.extend(unfit.into_iter().map(note));
        let Some(mut source) = source else { return };
        source.unfit = links;
        self.order.push(Reverse((source.begin(), self.sources.len())));
        self.sources.push(source);
    }

    /// Puts the next matching frames into an empty block, at most `most` of them; returns false once there are none
    /// left. [`interfaces`](Search::interfaces) has their interfaces. May return true with an empty block, so that the
    /// caller can do other work.
    ///
    /// # Errors
    /// If libpcap is missing, or there are more interfaces than a capture can have.
    pub fn fill(&mut self, block: &mut Block, most: u64) -> Result<bool, FilterError> {
        self.wanted = self.totals.frames.saturating_add(most);
        while let Some(Reverse((_, number))) = self.order.pop() {
            let limit = self.order.peek().map(|Reverse(next)| *next);
            match self.read(number, limit, block)? {
                SourcePosition::At(time) => self.order.push(Reverse((time, number))),
                SourcePosition::Full(time) => {
                    self.order.push(Reverse((time, number)));
                    return Ok(true);
                }
                SourcePosition::Ended => {}
            }
        }
        Ok(!block.is_empty())
    }

    /// Returns the interfaces that the frames' descs refer to. The list grows, entries never change.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Returns the progress so far.
    pub fn totals(&self) -> Totals {
        // The begin of a file without an index is read twice.
        let read_bytes = self.read.load(Ordering::Relaxed).min(self.totals.file_bytes);
        Totals { read_bytes, ..self.totals.clone() }
    }

    /// Returns the notes since the last call.
    pub fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// Returns whether only one file is searched: then its data about interfaces stays with them.
    fn is_of_one(&self) -> bool {
        self.sources.len() == 1
    }

    /// Returns the number of the filter for a link type.
    fn filter(&mut self, link: LinkType) -> Result<usize, FilterError> {
        if let Some(number) = self.filters.iter().position(|(of, _)| *of == link.0) {
            return Ok(number);
        }
        let filter = match Filter::compile(&self.text, link.0) {
            Err(other) if !matches!(other, FilterError::Refused { .. }) => return Err(other),
            filter => filter,
        };
        self.filters.push((link.0, filter));
        Ok(self.filters.len() - 1)
    }
}
