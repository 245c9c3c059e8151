//! Frames of several files that pass a filter, in order of time.
//!
//! The order is that of the merge: by the greatest time so far in a file, then by the file. A file is open from its first frame
//! that may be asked for to its last one, so that a folder of thousands has few open at a time.

mod source;

use crate::parts::Unusable;
use crate::plan::Plan;
use linerate_burst::{Block, Interface, LinkType, Nanos};
use linerate_filter::{Filter, FilterError};
use linerate_record::ReadError;
use source::{Id, Next, Source};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::io;
use std::ops::RangeInclusive;

/// What became of a search so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files that were looked at, and their bytes.
    pub files: u64,
    /// Of these, read in full for want of an index.
    pub without_index: u64,
    /// Of these, with frames of a link type that the filter text does not fit.
    pub left_out: u64,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// Bytes that were, or will be, read of them.
    pub read_bytes: u64,
    /// Parts that indexes tell of, and those that may hold what is asked for.
    pub parts: u64,
    /// Of these.
    pub parts_read: u64,
    /// Frames that went through the filter.
    pub looked_at: u64,
    /// Frames found, and their captured bytes.
    pub frames: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Times of the first and the last one.
    pub span: Option<(Nanos, Nanos)>,
}

/// What is worth saying of a file.
#[derive(Debug)]
pub struct Note {
    /// The file.
    pub path: String,
    /// What about it.
    pub what: What,
}

/// What there is to say.
#[derive(Debug)]
pub enum What {
    /// It has no index.
    NoIndex,
    /// Its index is not used.
    Unused(Unusable),
    /// It went away before anything of it was read.
    Gone,
    /// It ends inside a record, and is being written.
    CutOff(ReadError),
    /// So many things that it says beside packets are not kept.
    LeftOut(u64),
    /// So many packets have another time than the file says, which cannot be told.
    TimeChanged(u64),
    /// It cannot be read, or not to its end.
    Unread(ReadError),
    /// It cannot be opened.
    Unopened(io::Error),
    /// The filter text does not fit frames of a link type that the file has: none of them passes.
    Unfit(LinkType, FilterError),
}

impl What {
    /// Whether frames that were asked for may be missing.
    pub fn is_failure(&self) -> bool {
        matches!(self, What::Unread(_) | What::Unopened(_) | What::Unfit(..))
    }
}

/// A search in files.
pub struct Search {
    text: String,
    span: RangeInclusive<Nanos>,
    plan: Plan,
    sources: Vec<Source>,
    /// All files that were added.
    seen: HashSet<Id>,
    /// Which source is next: by time, then by number.
    order: BinaryHeap<Reverse<(Nanos, usize)>>,
    filters: Vec<(u16, Result<Filter, FilterError>)>,
    /// All interfaces of frames that were found.
    interfaces: Vec<Interface>,
    totals: Totals,
    /// As many as that.
    wanted: u64,
    notes: Vec<Note>,
}

impl Search {
    /// For frames that pass a filter text (libpcap is asked whether it is one when frames come) and are of that time.
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
        }
    }

    /// Adds a file, with its index if it has one: what may be in it is found now. One that was added under another name is not
    /// searched twice.
    pub fn add(&mut self, path: &str) {
        let Search { span, seen, plan, totals, notes, .. } = self;
        let source = Source::find(path, seen, span, plan, totals, notes);
        let unfit = plan.take_unfit();
        let links = unfit.iter().map(|(link, _)| *link).collect();
        let note = |(link, refused)| Note { path: path.to_owned(), what: What::Unfit(LinkType(link), refused) };
        totals.left_out += u64::from(!unfit.is_empty());
        notes.extend(unfit.into_iter().map(note));
        let Some(mut source) = source else { return };
        source.unfit = links;
        self.order.push(Reverse((source.begin(), self.sources.len())));
        self.sources.push(source);
    }

    /// Puts the next frames that are found into a block, which is empty, `most` of them; false once there are none. What they
    /// are of is in [`interfaces`](Search::interfaces). Comes back now and then with none, so that its caller can look up.
    ///
    /// # Errors
    /// There is no libpcap; there are more interfaces than a capture has.
    pub fn fill(&mut self, block: &mut Block, most: u64) -> Result<bool, FilterError> {
        self.wanted = self.totals.frames.saturating_add(most);
        while let Some(Reverse((_, number))) = self.order.pop() {
            let limit = self.order.peek().map(|Reverse(next)| *next);
            match self.read(number, limit, block)? {
                Next::At(time) => self.order.push(Reverse((time, number))),
                Next::Full(time) => {
                    self.order.push(Reverse((time, number)));
                    return Ok(true);
                }
                Next::Ended => {}
            }
        }
        Ok(!block.is_empty())
    }

    /// The interfaces that frames in blocks point to; grows, never changes otherwise.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// What became of it so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// What there is to say since the last time.
    pub fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// Whether frames of one file alone are found: what it says of its interfaces then stays with them.
    fn is_of_one(&self) -> bool {
        self.sources.len() == 1
    }

    /// The number of the filter for a link type.
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
