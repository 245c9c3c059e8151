//! Memory layout of a flow at level `stats` besides its record: one cache line per direction, a list of its first
//! packets, and rarely used parts.

use super::Stats;
use super::line::{Line, LineOverflow};
use super::packets::Packets;
use crate::facts::Facts;
use crate::flow::Side;
use crate::key::is_icmp;
use crate::pages::{self, Pages};
use crate::record::{Hot, SYN};
use linerate_burst::{prefetch_many, resident};

/// Bytes of a flow with `packets` first packets.
pub(crate) const fn bytes(packets: usize) -> usize {
    size_of::<[Line; 2]>() + size_of::<HeaderStats>() + packets * size_of::<u64>()
}

/// Maximum number of bytes of line overflow per record.
pub(crate) const CARRIED_BYTES: usize = pages::bytes::<[LineOverflow; 2]>();

/// Statistics of all records, by their number.
pub(crate) struct StatsRecords {
    lines: Vec<[Line; 2]>,
    rare: Vec<HeaderStats>,
    packets: Packets,
    carried: Pages<[LineOverflow; 2]>,
}

/// Fields that the first packet of each direction sets, and few others touch.
#[derive(Clone, Copy, Default)]
struct HeaderStats {
    options: [u64; 2],
    windows: [u16; 2],
    syn_bytes: [u16; 2],
    ip_flags: [u8; 2],
}

/// Returns whether a packet counts in histograms and is listed: it has payload, or is ICMP, which has content without.
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

    /// Starts a record: a freed one, or a new one.
    pub(crate) fn begin(&mut self, record: u32) {
        if record as usize == self.lines.len() {
            self.lines.push([Line::NONE; 2]);
            self.rare.push(HeaderStats::default());
            self.packets.grow();
        } else {
            self.lines[record as usize] = [Line::NONE; 2];
            self.rare[record as usize] = HeaderStats::default();
        }
    }

    /// Prefetches the memory that a packet touches, and for the first one of its direction the rest.
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

    /// Counts a packet; `gap` is its distance after all earlier ones of its direction, ns, if there were any.
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

    /// Records the fields of the first packet of a direction, or of its first SYN.
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

    /// Returns the statistics of a record that ends; `sides` are its directions, `began` its start, ns.
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
