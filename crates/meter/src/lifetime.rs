//! Start, end and eviction of records.

use crate::expire::STRETCH;
use crate::facts::Facts;
use crate::flow::{Direction, EndReason, Flow, Quality, Records};
use crate::key::{Wide, is_icmp};
use crate::meter::Meter;
use crate::record::{CONTINUED, Cold, Hot, SYN, WideRecord, state_of};
use crate::table::NONE;
use crate::tcp;
use linerate_headers::registry;
use linerate_names::Names;
use std::sync::Arc;

/// Number of records examined to find one to evict.
const CANDIDATES: usize = 32;

/// State carried over from a record that the active timeout ended.
#[derive(Clone)]
pub(crate) struct PreviousRecord {
    originator: usize,
    direction: u8,
    /// FIN and RST, as bits of the state: a connection closed in that record is still closed.
    ends: u8,
    tcp: Option<tcp::Record>,
    names: Option<Arc<Names>>,
}

impl Meter {
    /// Returns the state to carry over when this record ends before its flow does.
    pub(crate) fn before(&self, record: u32) -> PreviousRecord {
        let hot = &self.hot[record as usize];
        let originator = hot.originator();
        let (direction, ends) = (hot.direction(), hot.ends_seen());
        let names = self.names.as_ref().and_then(|names| names.of(record));
        PreviousRecord { originator, direction, ends, tcp: self.tcp.carried(record, originator), names }
    }

    /// Creates a record for the flow of this packet, which is not counted in it yet.
    pub(crate) fn begin(
        &mut self,
        facts: &Facts,
        wide: &Wide,
        before: Option<PreviousRecord>,
        records: &mut dyn Records,
    ) -> u32 {
        let state = match &before {
            Some(PreviousRecord { originator, direction, ends, .. }) => {
                state_of(*originator, *direction) | CONTINUED | ends
            }
            None => state_of(facts.sides()[0], 0),
        };
        if self.free == NONE && self.hot.len() == self.max_flows {
            self.evict(records);
        }
        let hot = Hot::new(facts, state, self.clock.coarse(facts.time));
        let record = self.free;
        let record = if record == NONE {
            self.hot.push(hot);
            self.cold.push(Cold::NONE);
            self.hot.len() as u32 - 1
        } else {
            self.free = self.hot[record as usize].ends as u32;
            self.hot[record as usize] = hot;
            self.cold[record as usize] = Cold::NONE;
            record
        };
        if facts.words.is_wide() {
            // Memory is allocated as records are created: all of it at once would stall a live port.
            if self.wide.is_empty() {
                self.wide.reserve_exact(self.max_flows);
            }
            self.wide.resize(self.wide.len().max(record as usize + 1), WideRecord::default());
            self.wide[record as usize] = WideRecord { key: *wide, ..WideRecord::default() };
        }
        if let Some(stats) = &mut self.stats {
            stats.begin(record);
        }
        let (tcp, known) = before.map_or((None, None), |before| (before.tcp, before.names));
        self.tcp.begin(record, tcp);
        if let Some(names) = &mut self.names {
            let is_wanted = names.begin(record, facts, wide, known);
            self.hot[record as usize].want_name(is_wanted);
        }
        self.table.insert(facts.hash, record);
        self.flows += 1;
        self.crowd[record as usize / STRETCH] += 1;
        self.counts.begun += 1;
        self.counts.most_flows = self.counts.most_flows.max(self.flows);
        record
    }

    /// Ends a flow: its record is exported and freed.
    pub(crate) fn end(&mut self, record: u32, reason: EndReason, records: &mut dyn Records) {
        let flow = self.flow_of(record, reason);
        let is_flood = reason == EndReason::Evicted && self.aggregate && flow.packets() == 1 && flow.tunnel.is_none();
        if is_flood {
            self.counts.aggregated += 1;
            self.flood.add(&flow);
        } else {
            records.take(&flow);
        }
        self.counts.ended[reason as usize] += 1;
        let words = self.hot[record as usize].words();
        let key = if words.is_wide() { self.wide[record as usize].key } else { Wide::default() };
        let hash = self.hash(words, &key);
        self.table.remove(hash, record);
        self.spills.forget(record);
        self.hot[record as usize] = Hot::free(self.free);
        self.free = record;
        self.flows -= 1;
        self.crowd[record as usize / STRETCH] -= 1;
    }

    /// Evicts one flow: a one-packet flow if there is one nearby, of these the one that is idle for longest.
    fn evict(&mut self, records: &mut dyn Records) {
        let count = self.hot.len();
        let candidates = (self.victim..self.victim + CANDIDATES.min(count)).map(|place| place % count);
        let rank = |place: &usize| (!self.hot[*place].is_one_packet(), self.cold[*place].ended(&self.hot[*place]));
        let victim = candidates.min_by_key(rank).unwrap_or(0);
        self.victim = (self.victim + CANDIDATES) % count;
        self.end(victim as u32, EndReason::Evicted, records);
    }

    fn flow_of(&mut self, record: u32, end: EndReason) -> Flow {
        let (hot, cold) = (&self.hot[record as usize], &self.cold[record as usize]);
        let words = hot.words();
        // Without a complete header no segment can be reported.
        let has_header = hot.ways.iter().any(|way| way.flags != 0) || cold.qualities() & Quality::TRUNCATED.0 == 0;
        let is_tcp = words.protocol() == registry::TCP && has_header;
        let tcp = self.tcp.end(record, hot.originator()).filter(|_| is_tcp);
        let wide = if words.is_wide() { self.wide[record as usize] } else { WideRecord::default() };
        let (originator, protocol) = (hot.originator(), words.protocol());
        let mut ends = words.both_ends(&wide.key);
        ends.rotate_left(originator);
        if is_icmp(protocol) {
            let [kind, code] = ends[0].port.to_be_bytes();
            (ends[0].port, ends[1].port) = (kind.into(), code.into());
        }
        let (mut macs, mut rare) = self.encapsulations.take(record);
        macs.iter_mut().for_each(|macs| macs.rotate_left(originator));
        rare.labels.rotate_left(originator);
        rare.teids.rotate_left(originator);
        let mut sides = [0, 1].map(|side| cold.side(hot, side, &self.spills, record));
        let stats = self.stats.as_mut().map(|stats| stats.end(record, hot, &sides, cold.began()));
        sides.rotate_left(originator);
        let mut names = self.names.as_mut().and_then(|names| names.end(record));
        if originator != 0
            && let Some(names) = names.as_mut().filter(|names| names.has_directions())
        {
            Arc::make_mut(names).turn();
        }
        let is_continued = hot.state() & CONTINUED != 0;
        let flags = sides[0].tcp_flags | sides[1].tcp_flags;
        let mut quality = Quality(cold.qualities());
        for (is_so, bit) in [
            (protocol == registry::TCP && flags & SYN == 0 && !is_continued, Quality::MIDSTREAM),
            (sides.iter().any(|side| side.packets == 0), Quality::ONE_WAY),
            (is_continued, Quality::CONTINUED),
            (end == EndReason::Evicted, Quality::EVICTED),
        ] {
            quality.0 |= if is_so { bit.0 } else { 0 };
        }
        Flow {
            id: self.general.id(words, &wide.key),
            ends,
            protocol,
            vlans: [words.vlan(), wide.key.inner_vlan.max(rare.inner_vlan)],
            tunnel: wide.key.tunnel(wide.parent),
            sides,
            end,
            direction: Direction::from_bits(hot.direction()),
            quality,
            extensions: wide.extensions,
            flows: 1,
            macs,
            mpls: rare.labels,
            teids: rare.teids,
            tcp,
            stats,
            names,
            exporter: None,
        }
    }
}
