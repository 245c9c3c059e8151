//! Writing the classic format: the records of a block as they lie, which have nanoseconds, or copied with
//! microseconds.

use super::{Counts, Failure, Format, put};
use crate::file::Output;
use crate::pcap;
use linerate_burst::block::{RECORD_HEADER, View};
use linerate_burst::{Desc, Interface, LinkType, Nanos};
use std::ops::Range;

/// The last second that a pcap file can hold, to its end.
const LAST_TIME: Nanos = Nanos((u32::MAX as u64 + 1) * 1_000_000_000 - 1);

/// A pcap file in the making.
pub(super) struct Records {
    /// Whether times are written in microseconds.
    micros: bool,
    /// The link type, once it is known.
    link: Option<LinkType>,
    begun: bool,
    /// Records whose times were changed.
    scratch: Vec<u8>,
}

impl Records {
    pub fn new(micros: bool) -> Self {
        Records { micros, link: None, begun: false, scratch: Vec::new() }
    }

    /// The same for a new file, which has the same link type.
    pub fn anew(&self) -> Self {
        Records { link: self.link, ..Records::new(self.micros) }
    }

    /// How many headers are written.
    pub fn described(&self) -> u64 {
        u64::from(self.begun)
    }

    pub fn format(&self) -> Format {
        if self.micros { Format::PcapMicros } else { Format::Pcap }
    }

    /// Writes the header, unless that was done.
    pub fn begin(&mut self, output: &mut Output, counts: &mut Counts, link: LinkType) -> Result<(), Failure> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        let link = *self.link.get_or_insert(link);
        let mut header = pcap::file_header(link);
        if self.micros {
            header[..4].copy_from_slice(&pcap::MAGIC_MICROS.to_ne_bytes());
        }
        put(output, &header, counts, 0, |_| 0)
    }

    /// Writes the frames of the link type that the file began with, which is the first that it can have; in one piece
    /// where all are.
    pub fn write(&mut self, output: &mut Output, counts: &mut Counts, view: View<'_>) -> Result<(), Failure> {
        let descs = view.burst().descs();
        let link = |desc: &Desc| link_of(view.interfaces, desc);
        if !self.begun
            && let Some(link) = descs.iter().map(link).find(|link| pcap::holds(*link))
        {
            self.begin(output, counts, link)?;
        }
        let fits = |desc: &Desc| Some(link(desc)) == self.link;
        let mut at = 0;
        let mut runs = Vec::new();
        while at < descs.len() {
            let run = descs[at..].iter().take_while(|desc| fits(desc)).count();
            let others = descs[at + run..].iter().take_while(|desc| !fits(desc));
            let (mixed, unknown): (Vec<&Desc>, Vec<&Desc>) = others.partition(|desc| pcap::holds(link(desc)));
            runs.push(at..at + run);
            counts.mixed += mixed.len() as u64;
            counts.unknown += unknown.len() as u64;
            at += run + mixed.len() + unknown.len();
        }
        runs.into_iter().try_for_each(|run| self.put_records(output, counts, view, run))
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
            Some(last) => (last.offset + last.captured - first) as usize + RECORD_HEADER,
            None => 0,
        };
        counts.beyond += descs.iter().filter(|desc| desc.time > LAST_TIME).count() as u64;
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

/// The link type of a frame. Views hold the interface of each of their frames; one that did not would
/// be Ethernet.
fn link_of(interfaces: &[Interface], desc: &Desc) -> LinkType {
    interfaces.get(usize::from(desc.interface)).map_or(LinkType::ETHERNET, |interface| interface.link)
}
