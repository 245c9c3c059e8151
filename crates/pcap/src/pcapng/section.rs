//! Reads a section: its byte order, interfaces and frames.

use super::block::{self, Order};
use super::budget::Budget;
use super::option::{KnownOption, READ, are_complete, copy, options, text};
use super::packet::{self, InterfaceFormat};
use super::time::Clock;
use super::{statistics, tables};
use crate::error::{Fault, Step};
use crate::input::LONGEST_RECORD;
use crate::origin::{Notes, Origin};
use crate::pcap::link_type;
use linerate_burst::{Desc, Interface, Nanos, StampSource};
use std::sync::Arc;

pub(super) const IF_NAME: u16 = 2;
pub(super) const IF_DESCRIPTION: u16 = 3;
pub(super) const IF_TSRESOL: u16 = 9;
pub(crate) const IF_FCSLEN: u16 = 13;
const IF_TSOFFSET: u16 = 14;

/// Microseconds, the default of an interface.
const DEFAULT_RESOLUTION: u8 = 6;

/// Options of a section header that are kept: hardware, operating system, application.
const KEPT_OF_SECTION: [KnownOption; 3] = [(2, 1), (3, 1), (4, 1)];

/// Known options of an interface: name, description, addresses (IPv4, IPv6, MAC, EUI), speed, resolution and offset of
/// times, time zone, filter, operating system, FCS length, hardware, speeds out and in, time zone name.
const KEPT_OF_INTERFACE: [KnownOption; 17] = [
    (IF_NAME, 1),
    (IF_DESCRIPTION, 1),
    (4, 1),
    (5, 1),
    (6, 1),
    (7, 1),
    (8, 8),
    (IF_TSRESOL, READ),
    (10, 4),
    (11, 1),
    (12, 1),
    (IF_FCSLEN, 1),
    (IF_TSOFFSET, READ),
    (15, 1),
    (16, 8),
    (17, 8),
    (18, 1),
];

/// Known options of statistics: times and counts.
const READ_OF_STATISTICS: [KnownOption; 7] =
    [(2, READ), (3, READ), (4, READ), (5, READ), (6, READ), (7, READ), (8, READ)];

/// State of the section at the cursor, and of the file so far.
#[derive(Debug)]
pub(crate) struct Section {
    order: Order,
    lanes: Vec<InterfaceFormat>,
    last: Nanos,
    /// Interfaces of all sections so far.
    pub interfaces: Vec<Interface>,
    /// Further metadata of each interface.
    pub origins: Vec<Arc<Origin>>,
    /// Number of blocks that others depend on.
    pub described: u64,
    /// Frames whose times cannot be represented.
    pub times_changed: u64,
    options: Arc<Vec<u8>>,
    notes: Arc<Notes>,
    budget: Budget,
}

/// Returns whether a block without a frame is parsed, and must therefore fit the buffer.
#[inline]
fn is_kept(kind: u32) -> bool {
    kind == block::STATISTICS || tables::is_one(kind)
}

/// Enough for the files of a year, one per hour, concatenated. Even without metadata, this many use half of the budget
/// of a file.
const MOST_INTERFACES: usize = 8192;

/// Memory of an interface without metadata, from here to the written file.
const EACH_INTERFACE: usize = 1 << 10;

/// Number of copies of an interface name: the reader, the run, its sinks, their file, the report.
const COPIES_OF_NAMES: usize = 5;

impl Section {
    /// Returns the state before the first section header.
    pub(crate) fn new() -> Self {
        let order = Order { swapped: false };
        Section {
            order,
            lanes: Vec::new(),
            last: Nanos::ZERO,
            interfaces: Vec::new(),
            times_changed: 0,
            origins: Vec::new(),
            described: 0,
            options: Arc::default(),
            notes: Arc::default(),
            budget: Budget::default(),
        }
    }

    /// Returns the number of metadata items left out.
    pub(crate) fn left_out(&self) -> u64 {
        self.budget.left_out()
    }

    /// Appends a desc for each complete frame from `at`, until `descs` is at its capacity.
    pub(crate) fn parse_blocks(&mut self, bytes: &[u8], at: &mut usize, descs: &mut Vec<Desc>) -> Step {
        loop {
            let order = self.order;
            // One copy of the loop per byte order, so that the order is constant in it.
            let step = if order.swapped {
                self.walk(Order { swapped: true }, bytes, at, descs)
            } else {
                self.walk(Order { swapped: false }, bytes, at, descs)
            };
            match step {
                Ok(Some(step)) => return step,
                Ok(None) => {}
                Err(fault) => return Step::Stop(fault),
            }
        }
    }

    /// Parses blocks up to the next section header of another byte order, which returns `None`.
    #[inline(always)]
    fn walk(
        &mut self,
        order: Order,
        bytes: &[u8],
        cursor: &mut usize,
        descs: &mut Vec<Desc>,
    ) -> Result<Option<Step>, Fault> {
        while descs.len() < descs.capacity() {
            let at = *cursor;
            let rest = bytes.get(at..).unwrap_or_default();
            let Some(head) = rest.first_chunk::<12>() else {
                return Ok(Some(Step::Need(12)));
            };
            let kind = order.u32([head[0], head[1], head[2], head[3]]);
            if kind == block::ENHANCED_PACKET
                && let Some((desc, length)) = packet::plain(rest, at, order, &self.lanes)
            {
                self.last = desc.time;
                descs.push(desc);
                *cursor += length;
                continue;
            }
            if kind == block::SECTION_HEADER {
                match self.section_header(rest)? {
                    Ok(length) => *cursor += length,
                    Err(need) => return Ok(Some(Step::Need(need))),
                }
                if self.order != order {
                    return Ok(None);
                }
                continue;
            }
            let length = order.u32([head[4], head[5], head[6], head[7]]);
            let known =
                matches!(kind, block::ENHANCED_PACKET | block::INTERFACE | block::SIMPLE_PACKET | block::PACKET);
            let length = block::checked_length(length, known)?;
            if !(known || is_kept(kind) && length <= LONGEST_RECORD) {
                self.budget.count_omitted(1);
                return Ok(Some(Step::Skip(length as u64)));
            }
            let Some(whole) = rest.get(..length) else {
                return Ok(Some(Step::Need(length)));
            };
            let body = block::body(whole, order)?;
            if !known {
                self.store_block(kind, body, order);
            } else if kind == block::INTERFACE {
                self.interface(body, order)?;
            } else {
                descs.push(self.packet(kind, body, at + block::HEAD, order)?);
            }
            *cursor += length;
        }
        Ok(Some(Step::Full))
    }

    #[inline(always)]
    fn packet(&mut self, kind: u32, body: &[u8], at: usize, order: Order) -> Result<Desc, Fault> {
        let mut desc = match kind {
            block::ENHANCED_PACKET => packet::enhanced(body, at, order, &self.lanes)?,
            block::PACKET => packet::obsolete(body, at, order, &self.lanes)?,
            _ => {
                self.described += 1;
                packet::simple(body, at, order, &self.lanes, self.last)?
            }
        };
        let drops = if kind == block::PACKET { packet::drops(body, order) } else { 0 };
        if desc.note != 0 || drops > 0 {
            let fcs = self.lane_of(&desc).map_or(0, |lane| lane.fcs);
            self.budget.count_omitted(packet::store_options(&mut desc, body, order, &self.notes, (fcs, drops)));
        }
        if matches!(desc.time, Nanos::ZERO | Nanos::MAX) && kind != block::SIMPLE_PACKET {
            let is_changed = |lane: &InterfaceFormat| packet::is_time_changed(body, order, lane.clock);
            self.times_changed += u64::from(self.lane_of(&desc).is_some_and(is_changed));
        }
        self.last = desc.time;
        Ok(desc)
    }

    #[cold]
    fn lane_of(&self, desc: &Desc) -> Option<&InterfaceFormat> {
        self.lanes.iter().find(|lane| lane.index == desc.interface)
    }

    /// Stores a block with metadata for other files.
    #[cold]
    fn store_block(&mut self, kind: u32, body: &[u8], order: Order) {
        if kind == block::STATISTICS {
            return self.statistics(body, order);
        }
        self.described += 1;
        let (block, invalid) = tables::copy(kind, body, order);
        self.budget.count_omitted(invalid);
        if let Some(block) = block.filter(|block| self.budget.take(block.len())) {
            self.notes.push_table(block);
        }
    }

    /// Starts a new section. Returns the length of its header, or as an inner error the number of bytes needed.
    #[cold]
    fn section_header(&mut self, rest: &[u8]) -> Result<Result<usize, usize>, Fault> {
        let Some(head) = rest.first_chunk::<12>() else {
            return Ok(Err(12));
        };
        let Some(order) = Order::of_section(head) else {
            return Err(Fault::damaged("section header without the byte-order magic"));
        };
        let length = block::checked_length(order.u32([head[4], head[5], head[6], head[7]]), true)?;
        let Some(whole) = rest.get(..length) else {
            return Ok(Err(length));
        };
        let body = block::body(whole, order)?;
        let version = body.get(4..8).and_then(|bytes| bytes.first_chunk::<4>());
        match version.map(|bytes| (order.u16([bytes[0], bytes[1]]), order.u16([bytes[2], bytes[3]]))) {
            // 1.2 is read as 1.0, as libpcap and Wireshark do; other versions do not exist.
            Some((1, 0 | 2)) => {}
            Some((major, minor)) => {
                return Err(Fault::Unsupported(format!("pcapng version {major}.{minor}; expected 1.0 or 1.2")));
            }
            None => return Err(Fault::damaged("section header is too short")),
        }
        // The metadata of a section without interfaces is unused.
        if Arc::strong_count(&self.options) == 1 {
            self.release(self.options.len());
        }
        // After magic, version and length of the section.
        self.options = Arc::new(self.keep(body.get(16..).unwrap_or_default(), order, &KEPT_OF_SECTION));
        self.order = order;
        self.described += 1;
        self.lanes.clear();
        Ok(Ok(length))
    }

    fn interface(&mut self, body: &[u8], order: Order) -> Result<(), Fault> {
        let Some(([link, _], snap, rest)) = body.split_first_chunk::<8>().map(|(fixed, rest)| {
            let [a, b, c, d, e, f, g, h] = *fixed;
            ([order.u16([a, b]), order.u16([c, d])], order.u32([e, f, g, h]), rest)
        }) else {
            return Err(Fault::damaged("interface description block is too short"));
        };
        if self.interfaces.len() == MOST_INTERFACES {
            return Err(Fault::Unsupported(format!("more than {MOST_INTERFACES} interfaces in one file")));
        }
        if !are_complete(rest, order) {
            return Err(Fault::damaged("interface description block with an option longer than the block"));
        }
        let mut interface = Interface::new("", link_type(link), StampSource::File);
        interface.snap = snap;
        let (mut name, mut description) = (String::new(), String::new());
        let (mut resolution, mut offset, mut fcs) = (DEFAULT_RESOLUTION, 0, 0);
        for (code, value) in options(rest, order) {
            match (code, value) {
                (IF_NAME, _) => name = text(value),
                (IF_DESCRIPTION, _) => description = text(value),
                (IF_TSRESOL, [value]) => resolution = *value,
                (IF_FCSLEN, [value]) => fcs = *value,
                (IF_TSOFFSET, [a, b, c, d, e, f, g, h]) => {
                    offset = order.u64([*a, *b, *c, *d, *e, *f, *g, *h]) as i64;
                }
                // Times would be wrong.
                (IF_TSRESOL | IF_TSOFFSET, _) => {
                    let (option, bytes) = if code == IF_TSRESOL { ("if_tsresol", 1) } else { ("if_tsoffset", 8) };
                    let length = value.len();
                    return Err(Fault::damaged(format!("{option} of {length} bytes in an interface, not {bytes}")));
                }
                _ => {}
            }
        }
        self.described += 1;
        self.budget.charge(EACH_INTERFACE);
        let letters = name.len() + description.len();
        if letters > 0 && self.budget.take(COPIES_OF_NAMES * letters) {
            (interface.name, interface.description) = (name, description);
        }
        let kept = self.keep(rest, order, &KEPT_OF_INTERFACE);
        let origin = Arc::new(Origin::new(&self.options, kept, &self.notes, fcs));
        interface.origin = Some(origin.clone());
        let lane =
            InterfaceFormat { index: self.interfaces.len() as u16, clock: Clock::new(resolution, offset), snap, fcs };
        self.lanes.push(lane);
        self.interfaces.push(interface);
        self.origins.push(origin);
        Ok(())
    }

    /// Stores the statistics of an interface; those of an unknown one are ignored.
    fn statistics(&mut self, body: &[u8], order: Order) {
        let found = order.words::<1>(body).zip(body.get(12..)).and_then(|([id], rest)| {
            let lane = self.lanes.get(id as usize).copied()?;
            Some((rest, lane, self.origins.get(usize::from(lane.index)).cloned()?))
        });
        let Some((rest, lane, origin)) = found else { return self.budget.count_omitted(1) };
        // They replace those read before.
        if let Some(earlier) = origin.take_statistics() {
            self.release(earlier.comments.len());
        }
        let mut statistics = statistics::parse(rest, order, lane.clock);
        statistics.comments = self.keep(rest, order, &READ_OF_STATISTICS);
        origin.set_statistics(statistics);
    }

    /// Copies options to keep; empty if none are kept, or the budget is exhausted.
    fn keep(&mut self, bytes: &[u8], order: Order, kept: &[KnownOption]) -> Vec<u8> {
        let mut found = Vec::new();
        self.budget.count_omitted(copy(bytes, order, kept, &mut found));
        if found.is_empty() || !self.budget.take(found.len()) {
            return Vec::new();
        }
        found.shrink_to_fit();
        found
    }

    /// Releases the budget of dropped options.
    fn release(&mut self, bytes: usize) {
        if bytes > 0 {
            self.budget.release(bytes);
        }
    }
}
