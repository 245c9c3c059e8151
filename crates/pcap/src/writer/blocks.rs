//! Writes pcapng: interfaces as they appear, frames with their metadata, statistics at the end.

use super::{Counts, Failure, put, shorter};
use crate::file::Output;
use crate::origin::{Notes, Origin, Statistics};
use crate::pcapng::Encoder;
use crate::statistics;
use linerate_burst::block::View;
use linerate_burst::{Desc, Flags, Interface, Ledger, LinkType, Nanos, StampSource};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A pcapng file in progress.
pub(super) struct Blocks {
    encoder: Encoder,
    /// Comments on the section.
    pub comments: Vec<String>,
    begun: bool,
    /// Longest captured length in bytes, if not 0.
    pub snap: u32,
    /// Sections of input files whose comments are in the file, by the address of their options, which stay in memory
    /// as long as the interfaces.
    sections: HashSet<usize>,
    /// Files that interfaces come from, and the number of their tables already written.
    files: Vec<(Arc<Notes>, usize)>,
    /// For each interface of the view, its index in the file.
    ids: Vec<Option<u32>>,
    /// Number of interfaces of the view processed.
    known: usize,
    /// Interfaces in the file.
    seen: Vec<InterfaceTimes>,
    /// End of each frame in the encoder's bytes.
    ends: Vec<usize>,
    /// Options of one frame.
    note: Vec<u8>,
}

/// An interface in the file, and the times of the frames written.
struct InterfaceTimes {
    name: String,
    origin: Option<Arc<Origin>>,
    /// True if its frames come from a file; those out of order there are not late here.
    from_file: bool,
    /// FCS length in its description.
    fcs: u32,
    first: Nanos,
    last: Nanos,
}

impl Blocks {
    pub(super) fn new() -> Self {
        Blocks {
            encoder: Encoder::new(),
            comments: Vec::new(),
            begun: false,
            snap: 0,
            sections: HashSet::new(),
            files: Vec::new(),
            ids: Vec::new(),
            known: 0,
            seen: Vec::new(),
            ends: Vec::new(),
            note: Vec::new(),
        }
    }

    /// Returns the state for the next file: with the user's comments, and nothing written.
    pub(super) fn for_next_file(&self) -> Self {
        Blocks { comments: self.comments.clone(), snap: self.snap, ..Blocks::new() }
    }

    /// Returns the number of blocks without frames written.
    pub(super) fn described(&self) -> u64 {
        let tables: usize = self.files.iter().map(|(_, written)| written).sum();
        u64::from(self.begun) + (self.seen.len() + tables) as u64
    }

    /// Writes the section header, unless written. If all `interfaces` come from one pcapng file, the header has the
    /// metadata of its first section; from several, it has the comments of all of those.
    pub(super) fn begin(
        &mut self,
        output: &mut Output,
        counts: &mut Counts,
        interfaces: &[Interface],
    ) -> Result<(), Failure> {
        if self.begun {
            return Ok(());
        }
        self.push_section(interfaces);
        self.write_out(output, counts)
    }

    fn push_section(&mut self, interfaces: &[Interface]) {
        self.begun = true;
        let origins: Vec<_> = interfaces.iter().map(Origin::of).collect();
        let mut sections = Vec::new();
        for origin in origins.iter().flatten() {
            if self.is_new_file(origin) && self.is_new_section(origin) {
                sections.push(Arc::clone(&origin.section));
            }
        }
        match &sections[..] {
            [only] if origins.iter().all(Option::is_some) => {
                self.encoder.section_header(Some(only), &[], &self.comments);
            }
            several => {
                let mut comments = Vec::new();
                several.iter().for_each(|section| self.encoder.comments(section, &mut comments));
                // The host that copies files is not the one that captured them.
                let are_files = interfaces.iter().all(|interface| interface.stamp == StampSource::File);
                let kept = (are_files && !interfaces.is_empty()).then_some(&[][..]);
                self.encoder.section_header(kept, &comments, &self.comments);
            }
        }
    }

    pub(super) fn write(&mut self, output: &mut Output, counts: &mut Counts, view: View<'_>) -> Result<(), Failure> {
        if !self.begun {
            self.push_section(view.interfaces);
        }
        self.push_interfaces_of_files(output, counts, view.interfaces)?;
        self.push_tables(output, counts)?;
        for (index, (desc, frame)) in view.burst().iter().enumerate() {
            let has_fcs = desc.flags.intersects(Flags::FCS);
            let stored = if has_fcs { view.burst().stored(index) } else { frame };
            let id = self.id(view.interfaces, desc.interface);
            let seen = &mut self.seen[id as usize];
            seen.first = seen.first.min(desc.time);
            seen.last = seen.last.max(desc.time);
            let fcs = if has_fcs && desc.fcs() != seen.fcs { desc.fcs() } else { 0 };
            if desc.note != 0 || desc.flags.contains(Flags::LATE) {
                counts.forgotten += u64::from(!self.push_special(id, desc, stored, fcs));
            } else {
                self.encoder.frame(id, desc, stored, fcs, &[]);
            }
            self.ends.push(self.encoder.bytes().len());
            self.write_pieces(output, counts)?;
        }
        self.write_out(output, counts)
    }

    /// Appends a frame with comments, or a late one; false if its comments were dropped.
    #[cold]
    fn push_special(&mut self, id: u32, desc: &Desc, stored: &[u8], fcs: u32) -> bool {
        let seen = &self.seen[id as usize];
        self.note.clear();
        let is_known = seen.origin.as_ref().is_none_or(|origin| origin.notes.append(desc, &mut self.note));
        let flags = if seen.from_file { desc.flags.without(Flags::LATE) } else { desc.flags };
        self.encoder.frame(id, &Desc { flags, ..*desc }, stored, fcs, &self.note);
        is_known
    }

    /// Writes all interfaces of input files, including those without frames.
    fn push_interfaces_of_files(
        &mut self,
        output: &mut Output,
        counts: &mut Counts,
        interfaces: &[Interface],
    ) -> Result<(), Failure> {
        for index in self.known..interfaces.len() {
            if interfaces[index].origin.is_some() {
                self.id(interfaces, index as u16);
                self.write_pieces(output, counts)?;
            }
        }
        self.known = interfaces.len();
        Ok(())
    }

    /// Writes these interfaces if the file has none: programs refuse files without.
    pub(super) fn push_interfaces(
        &mut self,
        output: &mut Output,
        counts: &mut Counts,
        interfaces: &[Interface],
    ) -> Result<(), Failure> {
        if self.seen.is_empty() {
            (0..interfaces.len()).for_each(|index| _ = self.id(interfaces, index as u16));
        }
        self.write_out(output, counts)
    }

    /// Writes names and secrets read from input files since the last time; those that a frame needs precede it.
    fn push_tables(&mut self, output: &mut Output, counts: &mut Counts) -> Result<(), Failure> {
        for file in 0..self.files.len() {
            let (notes, written) = &mut self.files[file];
            let tables = notes.tables(*written);
            *written += tables.len();
            for table in tables {
                self.encoder.whole(&table);
                self.write_pieces(output, counts)?;
            }
        }
        Ok(())
    }

    /// Returns the index in the file of an interface of the view; writes it if needed.
    #[inline]
    fn id(&mut self, interfaces: &[Interface], index: u16) -> u32 {
        match self.ids.get(usize::from(index)) {
            Some(Some(id)) => *id,
            _ => self.new_id(interfaces, usize::from(index)),
        }
    }

    #[cold]
    fn new_id(&mut self, interfaces: &[Interface], index: usize) -> u32 {
        let unnamed = Interface::new("", LinkType::ETHERNET, StampSource::File);
        let interface = interfaces.get(index).unwrap_or(&unnamed);
        let id = self.seen.len() as u32;
        let origin = Origin::of(interface);
        let mut comments = Vec::new();
        if let Some(origin) = &origin {
            self.is_new_file(origin);
            // The header is already written: attach comments of a later section to its first interface.
            if self.is_new_section(origin) {
                self.encoder.comments(&origin.section, &mut comments);
            }
        }
        self.encoder.interface(interface, shorter(self.snap, interface.snap), origin.as_deref(), &comments);
        let (name, from_file) = (interface.name.clone(), interface.stamp == StampSource::File);
        let fcs = origin.as_ref().map_or(0, |origin| u32::from(origin.fcs));
        self.seen.push(InterfaceTimes { name, origin, from_file, fcs, first: Nanos::MAX, last: Nanos::ZERO });
        if self.ids.len() <= index {
            self.ids.resize(index + 1, None);
        }
        self.ids[index] = Some(id);
        id
    }

    /// Records the input file of an interface; returns whether it is new.
    fn is_new_file(&mut self, origin: &Origin) -> bool {
        let is_new = !self.files.iter().any(|(notes, _)| Arc::ptr_eq(notes, &origin.notes));
        if is_new {
            self.files.push((Arc::clone(&origin.notes), 0));
        }
        is_new
    }

    fn is_new_section(&mut self, origin: &Origin) -> bool {
        self.sections.insert(Arc::as_ptr(&origin.section).addr())
    }

    /// Writes the statistics of all interfaces: those of the file that an interface was read from, else those of the
    /// ledger of this file; and the ledger of the `run` as a comment.
    pub(super) fn end(
        &mut self,
        output: &mut Output,
        counts: &mut Counts,
        run: &Ledger,
        own: &Ledger,
    ) -> Result<(), Failure> {
        self.push_tables(output, counts)?;
        let mut comment = statistics::text(run);
        let mut uses: HashMap<&str, usize> = HashMap::new();
        self.seen.iter().for_each(|seen| *uses.entry(&seen.name).or_default() += 1);
        let shared: Vec<bool> = self.seen.iter().map(|seen| uses[seen.name.as_str()] > 1).collect();
        for (id, shared) in shared.into_iter().enumerate() {
            let seen = &self.seen[id];
            let name = if shared { "" } else { &seen.name };
            let read = seen.origin.as_ref().and_then(|origin| origin.statistics());
            let mut statistics = read.unwrap_or_else(|| statistics::of_interface(own, name));
            if seen.first <= seen.last {
                statistics.first.get_or_insert(seen.first);
                statistics.last.get_or_insert(seen.last);
            }
            if statistics != Statistics::default() || !comment.is_empty() {
                let time = statistics.last.unwrap_or(seen.last);
                self.encoder.statistics(id as u32, time, &statistics, &std::mem::take(&mut comment));
            }
            self.write_pieces(output, counts)?;
        }
        self.write_out(output, counts)
    }

    /// Writes the encoded bytes once they amount to a piece.
    #[inline]
    fn write_pieces(&mut self, output: &mut Output, counts: &mut Counts) -> Result<(), Failure> {
        if self.encoder.bytes().len() >= output.piece() { self.write_out(output, counts) } else { Ok(()) }
    }

    fn write_out(&mut self, output: &mut Output, counts: &mut Counts) -> Result<(), Failure> {
        let end_of = |frames: usize| frames.checked_sub(1).map_or(0, |last| self.ends[last]);
        let result = put(output, self.encoder.bytes(), counts, self.ends.len(), end_of);
        self.ends.clear();
        self.encoder.clear();
        result
    }
}
