//! The meter: from bursts to flows.
//!
//! Each packet takes four steps, interleaved with those of others (`pipeline`), so that the processor fetches the
//! memory of many packets at the same time instead of waiting for each.

mod slow_path;
mod state;

use crate::config::{CLASSES, Config, Level, Timeouts, class_of};
use crate::counts::Counts;
use crate::encapsulation::{Encapsulation, Encapsulations};
use crate::expire::{AT_TICK, Clock, Limit, STRETCH, WHEN_TOLD};
use crate::facts::{self, Facts, FrameDecoder, Packet};
use crate::flood::Flood;
use crate::flow::{EndReason, Records};
use crate::flow_names::{FlowNames, Place};
use crate::fragments::Fragments;
use crate::hash::Keyed;
use crate::key::{KEY_BITS, VLAN_BITS, Wide, Words};
use crate::pipeline::{Extra, Group, Pipeline, Slot};
use crate::record::{Cold, Hot, SYN, Spills, WideRecord, age};
use crate::stats::records::StatsRecords;
use crate::table::{NONE, Table};
use crate::tcp::Connections;
use linerate_burst::{Burst, Desc, Nanos, prefetch_many, resident};
use linerate_headers::Link;

/// Meters the frames of one thread.
pub struct Meter {
    pub(crate) hot: Vec<Hot>,
    pub(crate) cold: Vec<Cold>,
    /// Up to the last record that needs it.
    pub(crate) wide: Vec<WideRecord>,
    /// Number of flows in each stretch of records.
    pub(crate) crowd: Vec<u8>,
    pub(crate) tcp: Connections,
    /// At level `stats`.
    pub(crate) stats: Option<StatsRecords>,
    pub(crate) table: Table,
    pub(crate) max_flows: usize,
    /// The first free record, which links to the next.
    pub(crate) free: u32,
    pub(crate) flows: u64,
    pub(crate) spills: Spills,
    pub(crate) keyed: Keyed,
    /// Mask of the key bits in use.
    pub(crate) mask: u64,
    pub(crate) limits: Box<[Limit; 256]>,
    pub(crate) clock: Clock,
    pub(crate) general: FrameDecoder,
    pub(crate) encapsulations: Encapsulations,
    /// If configured.
    pub(crate) names: Option<FlowNames>,
    outer: bool,
    plain: bool,
    pub(crate) fragments: Fragments,
    pub(crate) flood: Flood,
    pub(crate) aggregate: bool,
    /// Place to search for a flow to evict.
    pub(crate) victim: usize,
    pub(crate) counts: Counts,
    /// `None` while it is in use.
    pipeline: Option<Pipeline>,
    ready: Vec<Packet>,
}

/// Result of counting a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CountResult {
    Done,
    /// The packet is of this flow, but needs the slow path.
    Rare,
    OtherFlow,
}

/// Prefetch distance in records when all flows end.
const AHEAD: usize = 16;

impl Meter {
    /// Creates a meter without flows; allocates its memory now.
    pub fn new(config: &Config) -> Self {
        let max_flows = config.max_flows.clamp(1, Config::MOST_FLOWS);
        let checked = |time: Nanos| Nanos(time.0.min(Timeouts::MOST.0));
        let timeouts = config.timeouts.map(|one| Timeouts { idle: checked(one.idle), active: checked(one.active) });
        let clock = Clock::new(&timeouts);
        let limits: [Limit; CLASSES] = timeouts.map(|one| Limit::new(&one, checked(config.linger), &clock));
        Meter {
            hot: resident(max_flows),
            cold: resident(max_flows),
            wide: Vec::new(),
            crowd: vec![0; max_flows.div_ceil(STRETCH)],
            tcp: Connections::new(if config.level >= Level::Tcp { max_flows } else { 0 }),
            stats: (config.level == Level::Stats)
                .then(|| StatsRecords::new(max_flows, config.packets.min(Config::MOST_PACKETS))),
            table: Table::new(max_flows),
            max_flows,
            free: NONE,
            flows: 0,
            spills: Spills::default(),
            keyed: Keyed::new(config.seed),
            mask: if config.vlans { KEY_BITS } else { KEY_BITS & !VLAN_BITS },
            limits: Box::new(std::array::from_fn(|protocol| limits[usize::from(class_of(protocol as u8))])),
            clock,
            general: FrameDecoder::new(config),
            encapsulations: Encapsulations::new(config, max_flows),
            names: FlowNames::new(config.names, max_flows, config.seed),
            outer: config.tunnels == crate::Tunnels::Outer,
            plain: !config.checksums,
            fragments: Fragments::default(),
            flood: Flood::default(),
            aggregate: config.aggregate,
            victim: 0,
            counts: Counts::default(),
            pipeline: None,
            ready: Vec::new(),
        }
    }

    /// Takes frames; `links` has the link type of each interface, if known.
    pub fn take(&mut self, burst: Burst<'_>, links: &[Option<Link>], records: &mut dyn Records) {
        let mut pipeline = self.pipeline.take().unwrap_or_default();
        let has_detail = !self.tcp.is_off() || self.stats.is_some() || self.encapsulations.has_macs();
        let mut next = 0;
        while next < burst.len() {
            let to_tick = self.clock.frames_to_tick();
            let end = burst.len().min(next + to_tick);
            let frames = burst.slice(next..end);
            if has_detail {
                self.take_frames::<true>(&mut pipeline, frames, links, records);
            } else {
                self.take_frames::<false>(&mut pipeline, frames, links, records);
            }
            // The result of a sweep must not depend on the end of a burst, and packets count by the time before it.
            self.drain(&mut pipeline, frames, records);
            if self.clock.tick(end - next) {
                self.sweep(AT_TICK, records);
            }
            next = end;
        }
        self.pipeline = Some(pipeline);
        if let Some(names) = &self.names {
            [self.counts.names_full, self.counts.name_buffer_full] = names.full();
        }
    }

    /// Adds a DNS answer that arrived in a frame before those that are taken next: [`DnsAnswer::of`](crate::DnsAnswer::of).
    pub fn add_dns_answer(&mut self, answer: crate::DnsAnswer) {
        if let Some(names) = &mut self.names {
            names.add_dns_answer(answer);
        }
    }

    /// Sets the time to `now`, from a source that sees more than the frames of this meter, or a clock: ends flows that
    /// are idle. It may be earlier than before.
    pub fn expire(&mut self, now: Nanos, records: &mut dyn Records) {
        if self.clock.set_now(now) {
            self.sweep(WHEN_TOLD, records);
        }
    }

    /// Makes time follow only [`Meter::expire`] from now on, not the frames of this meter.
    pub fn follow(&mut self) {
        self.clock.follows = true;
    }

    /// Ends all flows: `now` is the time of the last frame of all meters of a run.
    pub fn finish(&mut self, now: Nanos, records: &mut dyn Records) {
        let mut ready = std::mem::take(&mut self.ready);
        self.fragments.finish(&mut ready);
        self.account_all(&mut ready, records);
        for record in 0..self.hot.len() as u32 {
            self.prefetch_bucket(record as usize + AHEAD);
            if !self.hot[record as usize].is_free() {
                let reason = self.reason_at(record, now.0).unwrap_or(EndReason::Forced);
                self.end(record, reason, records);
            }
        }
        self.flood.flush(records);
    }

    /// Prefetches the bucket of a record that will end.
    pub(crate) fn prefetch_bucket(&self, record: usize) {
        if let Some(hot) = self.hot.get(record) {
            let wide = self.wide.get(record).map(|wide| wide.key).unwrap_or_default();
            self.table.prefetch(self.hash(hot.words(), &wide));
        }
    }

    /// Runs the first step of each frame's packets, and the later steps of earlier packets.
    fn take_frames<const DETAIL: bool>(
        &mut self,
        pipeline: &mut Pipeline,
        burst: Burst<'_>,
        links: &[Option<Link>],
        records: &mut dyn Records,
    ) {
        if let Some(desc) = burst.descs().first() {
            // Counting needs an approximate time.
            self.clock.begin(desc.time);
        }
        let (mut bytes, mut least, mut most) = (0, u64::MAX, 0);
        for desc in burst.descs() {
            let place = self.clock.time.place(desc.time.0);
            bytes += u64::from(desc.wire);
            least = least.min(place);
            most = most.max(place);
        }
        let mut frames = burst.iter();
        loop {
            let unusual = self.fill::<DETAIL>(pipeline.newest(), (&mut frames, burst.len()), links);
            if pipeline.newest().is_full() {
                self.turn::<DETAIL>(pipeline, burst, records);
            } else if let Some(desc) = unusual {
                let number = burst.len() - frames.len() - 1;
                self.look(pipeline, link_of(links, desc), (burst, number), records);
            } else {
                break;
            }
        }
        self.counts.frames += burst.len() as u64;
        self.counts.bytes += bytes;
        self.clock.see(burst.descs(), (least, most));
    }

    /// Puts the packets of frames into a group until it is full, no frames are left, or a packet needs the slow path,
    /// which is returned.
    #[inline(never)]
    fn fill<'a, const DETAIL: bool>(
        &self,
        group: &mut Group,
        (frames, count): (&mut impl ExactSizeIterator<Item = (&'a Desc, &'a [u8])>, usize),
        links: &[Option<Link>],
    ) -> Option<&'a Desc> {
        let ethernet = Some(Link::Ethernet);
        let is_first = links.first() == Some(&ethernet);
        let (mut packets, mut unusual) = (0, None);
        for (Slot { facts, place, .. }, Extra { wide, encapsulation, .. }) in group.room() {
            let Some((desc, frame)) = frames.next() else { break };
            let is_ethernet = if desc.interface == 0 { is_first } else { link_of(links, desc) == ethernet };
            let is_usual = self.plain
                && is_ethernet
                && facts::usual::<DETAIL>(desc, frame, self.outer, facts, wide)
                // The slow path reads the options of a SYN.
                && (!DETAIL || self.tcp.is_off() || facts.flags & SYN == 0);
            if !is_usual {
                unusual = Some(desc);
                break;
            }
            if DETAIL && self.encapsulations.has_macs() {
                *encapsulation = Encapsulation::of_ethernet(frame);
                facts.is_encapsulated = true;
            }
            if self.names.is_some() {
                *place = Place::usual(count - frames.len() - 1);
            }
            if DETAIL && self.stats.is_some() && facts.has_segment {
                facts.kinds = facts::usual_kinds(frame);
            }
            facts.hash = self.hash(facts.words, wide);
            packets += 1;
        }
        group.grow(packets);
        unusual
    }

    #[inline(always)]
    pub(crate) fn hash(&self, words: Words, wide: &Wide) -> u64 {
        let words = Words { rest: words.rest & self.mask, ..words };
        if words.is_wide() { self.keyed.wide(words, wide) } else { self.keyed.narrow(words) }
    }

    /// Advances every packet to its next step.
    #[inline(never)]
    pub(crate) fn turn<const DETAIL: bool>(
        &mut self,
        pipeline: &mut Pipeline,
        burst: Burst<'_>,
        records: &mut dyn Records,
    ) {
        for slot in &*pipeline.stage(0).0 {
            self.table.prefetch(slot.facts.hash);
        }
        self.guess(pipeline.stage(1).0);
        self.prefetch_side_data::<DETAIL>(pipeline.stage(2).0);
        let (slots, extras) = pipeline.stage(3);
        self.count_all::<DETAIL>(slots, extras, burst, records);
        pipeline.turn();
    }

    /// Runs all steps of all packets.
    #[inline(never)]
    fn drain(&mut self, pipeline: &mut Pipeline, burst: Burst<'_>, records: &mut dyn Records) {
        while !pipeline.is_empty() {
            self.turn::<true>(pipeline, burst, records);
        }
    }

    /// Looks up the records of packets whose buckets are loaded, and prefetches the lines that every packet touches.
    #[inline(never)]
    fn guess(&self, slots: &mut [Slot]) {
        for slot in &mut *slots {
            slot.guess = self.table.guess(slot.facts.hash);
        }
        for slot in slots {
            if let Some(hot) = self.hot.get(slot.guess as usize) {
                prefetch_many(hot);
            }
            if slot.facts.words.is_wide()
                && let Some(wide) = self.wide.get(slot.guess as usize)
            {
                prefetch_many(wide);
            }
        }
    }

    /// Prefetches the side data of loaded records: for first packets the rarely used parts, and those of levels above
    /// `counters`.
    #[inline(never)]
    fn prefetch_side_data<const DETAIL: bool>(&self, slots: &[Slot]) {
        for Slot { facts, guess, .. } in slots {
            let Some(hot) = self.hot.get(*guess as usize) else { continue };
            if hot.is_first(facts.sides()[0])
                && let Some(cold) = self.cold.get(*guess as usize)
            {
                prefetch_many(cold);
            }
            if DETAIL {
                self.tcp.prefetch(*guess);
                if let Some(stats) = &self.stats {
                    stats.prefetch(*guess, hot, facts);
                }
            }
        }
    }

    /// Counts packets whose memory is loaded.
    #[inline(never)]
    fn count_all<const DETAIL: bool>(
        &mut self,
        slots: &[Slot],
        extras: &[Extra],
        burst: Burst<'_>,
        records: &mut dyn Records,
    ) {
        for (Slot { facts, guess, place }, Extra { wide, encapsulation, network }) in slots.iter().zip(extras) {
            let counted = self.count::<DETAIL>(*guess, facts, wide);
            let record = match counted {
                CountResult::Done => *guess,
                CountResult::Rare => self.account(Some(*guess), facts, wide, records),
                CountResult::OtherFlow => self.search(facts, wide, records),
            };
            if counted != CountResult::Done {
                self.note_encapsulation(record, facts, encapsulation);
            }
            if self.names.is_some() {
                self.read_names(record, facts, (*place, *network), burst);
            }
        }
    }

    /// Counts a packet if it qualifies for the fast path and is of the guessed flow; `DETAIL` enables the levels above
    /// `counters`.
    #[inline(always)]
    pub(crate) fn count<const DETAIL: bool>(&mut self, guess: u32, facts: &Facts, wide: &Wide) -> CountResult {
        let Some(hot) = self.hot.get_mut(guess as usize) else { return CountResult::OtherFlow };
        if !hot.has(facts.words, self.mask) {
            return CountResult::OtherFlow;
        }
        if facts.words.is_wide() && self.wide[guess as usize].key != *wide {
            return CountResult::OtherFlow;
        }
        let limit = &self.limits[usize::from(facts.words.protocol())];
        let coarse = self.clock.coarse(facts.time);
        let before = hot.ways[facts.sides()[0]].seen;
        let is_done =
            self.clock.is_near(facts.time) && hot.count(facts, limit.idle_shifted, coarse, limit.active_coarse);
        if !is_done {
            return CountResult::Rare;
        }
        if DETAIL && facts.has_segment {
            self.tcp.take(guess, facts);
        }
        if DETAIL && let Some(stats) = &mut self.stats {
            let gap = age(facts.time, before) as u64 >> 16;
            stats.count(guess, hot, facts, Some(gap));
        }
        CountResult::Done
    }
}

fn link_of(links: &[Option<Link>], desc: &Desc) -> Option<Link> {
    links.get(usize::from(desc.interface)).copied().flatten()
}
