//! Writes the classic format: the records of a block unchanged, with nanoseconds, or copied with microseconds.

use super::{Counts, Failure, Format, put};
use crate::file::Output;
use crate::origin::Origin;
use crate::pcap;
use linerate_burst::block::{RECORD_HEADER, View};
use linerate_burst::{Desc, Flags, Interface, LinkType, Nanos};
use std::ops::Range;

/// Latest time that a pcap file can hold.
const LAST_TIME: Nanos = Nanos((u32::MAX as u64 + 1) * 1_000_000_000 - 1);

/// Properties that a pcap file has for all frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub link: LinkType,
    /// Bytes of FCS.
    pub fcs: u8,
}

impl Kind {
    pub(super) fn of(interface: &Interface) -> Self {
        let fcs = Origin::of(interface).map_or(0, |origin| origin.fcs);
        Kind { link: interface.link, fcs }
    }

    pub(super) fn is_held(self) -> bool {
        pcap::holds(self.link) && self.fcs.is_multiple_of(2)
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.fcs {
            0 => write!(f, "{}", self.link),
            bytes => write!(f, "{} with {bytes} bytes of FCS", self.link),
        }
    }
}

/// A pcap file in progress.
pub(super) struct Records {
    /// True to write microseconds.
    micros: bool,
    /// Longest captured length in bytes, if not 0.
    pub snap: u32,
    /// Kind of the frames, once known.
    kind: Option<Kind>,
    begun: bool,
    /// Records whose times were changed.
    scratch: Vec<u8>,
    /// Kinds of the interfaces of the views.
    kinds: Vec<Kind>,
}

impl Records {
    pub(super) fn new(micros: bool) -> Self {
        Records { micros, snap: 0, kind: None, begun: false, scratch: Vec::new(), kinds: Vec::new() }
    }

    /// Returns the state for the next file, with frames of the same kind.
    pub(super) fn for_next_file(&self) -> Self {
        Records { kind: self.kind, kinds: self.kinds.clone(), snap: self.snap, ..Records::new(self.micros) }
    }

    /// Returns the number of headers written.
    pub(super) fn described(&self) -> u64 {
        u64::from(self.begun)
    }

    pub(super) fn format(&self) -> Format {
        if self.micros { Format::PcapMicros } else { Format::Pcap }
    }

    pub(super) fn is_begun(&self) -> bool {
        self.begun
    }

    /// Writes the header, unless written.
    pub(super) fn begin(&mut self, output: &mut Output, counts: &mut Counts, kind: Kind) -> Result<(), Failure> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        let kind = *self.kind.get_or_insert(kind);
        let mut header = pcap::file_header(kind.link, kind.fcs);
        if self.micros {
            header[..4].copy_from_slice(&pcap::MAGIC_MICROS.to_ne_bytes());
        }
        if self.snap > 0 {
            header[16..20].copy_from_slice(&self.snap.to_ne_bytes());
        }
        put(output, &header, counts, 0, |_| 0)
    }

    /// Writes the frames of the file's kind, which is that of the first one; in one piece if all are. Frames before
    /// one of another kind are written, unless the file was not started yet: it then stays unchanged.
    pub(super) fn write(&mut self, output: &mut Output, counts: &mut Counts, view: View<'_>) -> Result<(), Failure> {
        let descs = view.burst().descs();
        self.kinds.extend(view.interfaces.iter().skip(self.kinds.len()).map(Kind::of));
        let Some(kind) = self.kind.or_else(|| descs.first().map(|desc| self.kind_of(desc))) else { return Ok(()) };
        let fitting = match self.all_fit(kind, descs) {
            true => descs.len(),
            false => descs.iter().take_while(|desc| self.fits(kind, desc)).count(),
        };
        let other = descs.get(fitting).map(|desc| self.kind_of(desc));
        if other.is_none() || self.begun {
            self.begin(output, counts, kind)?;
            self.put_records(output, counts, view, 0..fitting)?;
        }
        let Some(other) = other else { return Ok(()) };
        if self.begun {
            // Ends the compressed stream.
            let _ = output.finish();
        } else {
            output.remove_new();
        }
        Err(Failure::of_kind(kind, other, counts.written))
    }

    /// Returns whether all frames certainly fit: interfaces of one kind, and no frame with its own FCS.
    fn all_fit(&self, kind: Kind, descs: &[Desc]) -> bool {
        let flags = descs.iter().fold(Flags::NONE, |flags, desc| flags | desc.flags);
        kind.is_held() && !flags.intersects(Flags::FCS) && self.kinds.iter().all(|own| *own == kind)
    }

    /// Returns whether a file of a kind can hold a frame. One shorter than an FCS has none.
    fn fits(&self, kind: Kind, desc: &Desc) -> bool {
        let own = self.kind_of(desc);
        let is_short = own.link == kind.link && own.fcs == 0 && desc.wire < u32::from(kind.fcs);
        kind.is_held() && (own == kind || is_short)
    }

    /// Returns the kind of a frame. Views have the interface of each of their frames; a missing one would be Ethernet.
    fn kind_of(&self, desc: &Desc) -> Kind {
        let kind = self.kinds.get(usize::from(desc.interface)).copied();
        let kind = kind.unwrap_or(Kind { link: LinkType::ETHERNET, fcs: 0 });
        if desc.fcs() == 0 { kind } else { Kind { fcs: desc.fcs() as u8, ..kind } }
    }

    fn put_records(
        &mut self,
        output: &mut Output,
        counts: &mut Counts,
        view: View<'_>,
        run: Range<usize>,
    ) -> Result<(), Failure> {
        let descs = &view.burst().descs()[run.clone()];
        let Some(first) = descs.first().map(|desc| desc.offset) else { return Ok(()) };
        let end_of = |frames: usize| match frames.checked_sub(1).and_then(|last| descs.get(last)) {
            Some(last) => (last.offset + last.stored() - first) as usize + RECORD_HEADER,
            None => 0,
        };
        counts.beyond += descs.iter().map(|desc| u64::from(desc.time > LAST_TIME)).sum::<u64>();
        let records = view.records(run.clone());
        if !self.micros {
            return put(output, records, counts, descs.len(), end_of);
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(records);
        for desc in descs {
            let micros = (desc.time.subsec() / 1000).to_ne_bytes();
            let at = (desc.offset - first) as usize + 4;
            self.scratch[at..at + 4].copy_from_slice(&micros);
        }
        put(output, &self.scratch, counts, descs.len(), end_of)
    }
}
