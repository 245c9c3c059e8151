//! What a flow occupies at level `stats` beside its record: one cache line for each direction, a list of its first packets,
//! and what few packets touch.

use super::Stats;
use super::line::{Carried, Line};
use super::packets::Packets;
use crate::facts::Facts;
use crate::flow::Side;
use crate::key::is_icmp;
use crate::pages::{self, Pages};
use crate::record::{Hot, SYN};
use linerate_burst::{prefetch_many, resident};

/// Bytes of a flow, with so many first packets.
pub(crate) const fn bytes(packets: usize) -> usize {
    size_of::<[Line; 2]>() + size_of::<Rare>() + packets * size_of::<u64>()
}

/// The most bytes of what does not fit into lines, for each record.
pub(crate) const CARRIED_BYTES: usize = pages::bytes::<[Carried; 2]>();

/// Of all records, by their number.
pub(crate) struct StatsRecords {
    lines: Vec<[Line; 2]>,
    rare: Vec<Rare>,
    packets: Packets,
    carried: Pages<[Carried; 2]>,
}

/// What the first packet of each way sets, and few others touch.
#[derive(Clone, Copy, Default)]
struct Rare {
    options: [u64; 2],
    windows: [u16; 2],
    syn_bytes: [u16; 2],
    ip_flags: [u8; 2],
}

/// Whether a packet counts in histograms and is listed: it has payload, or is of ICMP, which says something without.
#[inline(always)]
pub(super) fn has_content(facts: &Facts) -> bool {
    facts.payload > 0 || is_icmp(facts.words.protocol())
}

impl StatsRecords {
    pub(crate) fn new(records: usize, packets: usize) -> Self {
        StatsRecords {
            lines: resident(records),
            rare: resident(records),
            packets: Packets::new(records, packets),
            carried: Pages::default(),
        }
    }

    /// A record begins: one that was free, or a new one.
    pub(crate) fn begin(&mut self, record: u32) {
        if record as usize == self.lines.len() {
            self.lines.push([Line::NONE; 2]);
            self.rare.push(Rare::default());
            self.packets.grow();
        } else {
            self.lines[record as usize] = [Line::NONE; 2];
            self.rare[record as usize] = Rare::default();
        }
    }

    /// Asks for what a packet touches, and of the first one that way for the rest.
    #[inline(always)]
    pub(crate) fn prefetch(&self, record: u32, hot: &Hot, facts: &Facts) {
        if let Some(lines) = self.lines.get(record as usize) {
            prefetch_many(&lines[facts.sides()[0]]);
        }
        self.packets.prefetch(record, hot.listed());
        if hot.is_first(facts.sides()[0])
            && let Some(rare) = self.rare.get(record as usize)
        {
            prefetch_many(rare);
        }
    }

    /// Counts a packet; `gap` is how much later it came than those before it that way, ns, if there were any.
    #[inline(always)]
    pub(crate) fn count(&mut self, record: u32, hot: &mut Hot, facts: &Facts, gap: Option<u64>) {
        let [side, _] = facts.sides();
        let line = &mut self.lines[record as usize][side];
        line.count(facts, gap, || &mut self.carried.at(record)[side]);
        if has_content(facts) {
            hot.set_listed(self.packets.list(record, hot.listed(), facts));
        }
        if !line.knows(facts.kinds) {
            self.rare[record as usize].options[side] |= facts.kinds;
        }
    }

    /// Notes what the first packet of a way, or its first SYN, says.
    pub(crate) fn note(&mut self, record: u32, facts: &Facts, is_first: bool) {
        let [side, _] = facts.sides();
        let rare = &mut self.rare[record as usize];
        if is_first {
            rare.windows[side] = facts.segment.window;
            rare.ip_flags[side] = facts.ip_flags;
        }
        if facts.flags & SYN != 0 && rare.syn_bytes[side] == 0 {
            rare.syn_bytes[side] = u16::try_from(facts.packet).unwrap_or(u16::MAX);
        }
    }

    /// What a record says that ends; `sides` are its ways, `began` when it did, ns.
    pub(crate) fn end(&mut self, record: u32, hot: &Hot, sides: &[Side; 2], began: u64) -> Stats {
        let (lines, rare) = (&self.lines[record as usize], &self.rare[record as usize]);
        let carried = self.carried.take(record);
        let mut stats = [0, 1].map(|side| super::StatsSide {
            ip_flags: rare.ip_flags[side],
            first_window: rare.windows[side],
            tcp_options: rare.options[side],
            syn_bytes: rare.syn_bytes[side],
            ..lines[side].side(&carried[side], &sides[side])
        });
        stats.rotate_left(hot.originator());
        Stats { sides: stats, packets: self.packets.of(record, hot.listed(), began, hot.originator()) }
    }
}
