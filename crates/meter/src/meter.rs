//! From bursts to flows.
//!
//! Up to 32 frames at a time go through four steps: find what counts of each, hash it and ask for its bucket; find the
//! record in the bucket and ask for it; count. So the processor fetches what 32 packets need at the same time, instead of
//! waiting for each.

mod unusual;

use crate::config::{CLASSES, Config, Level, Timeouts, class_of};
use crate::counts::Counts;
use crate::encapsulation::{self, Encapsulation, Encapsulations};
use crate::expire::{Clock, Limit};
use crate::facts::{self, Facts, General, Packet};
use crate::flood::Flood;
use crate::flow::{EndReason, Records};
use crate::fragments::Fragments;
use crate::hash::Keyed;
use crate::key::{KEY_BITS, VLAN_BITS, Wide, Words};
use crate::record::{Cold, Hot, SYN, Spills, WideRecord, age};
use crate::stats::records::StatsRecords;
use crate::table::{NONE, Table};
use crate::tcp::Connections;
use linerate_burst::{Burst, Desc, Nanos, prefetch, resident};
use linerate_wire::Link;

/// Meters what one thread sees.
pub struct Meter {
    pub(crate) hot: Vec<Hot>,
    pub(crate) cold: Vec<Cold>,
    /// As many as there can be flows, once there is one that needs it.
    pub(crate) wide: Vec<WideRecord>,
    pub(crate) tcp: Connections,
    /// At level `stats`.
    pub(crate) stats: Option<StatsRecords>,
    pub(crate) table: Table,
    pub(crate) max_flows: usize,
    /// The first free record, which knows the next.
    pub(crate) free: u32,
    pub(crate) flows: u64,
    pub(crate) spills: Spills,
    pub(crate) keyed: Keyed,
    /// What of a key counts.
    pub(crate) mask: u64,
    pub(crate) limits: Box<[Limit; 256]>,
    pub(crate) clock: Clock,
    pub(crate) general: General,
    pub(crate) encapsulations: Encapsulations,
    outer: bool,
    plain: bool,
    pub(crate) fragments: Fragments,
    pub(crate) flood: Flood,
    pub(crate) aggregate: bool,
    /// Where to look for a flow that gives way.
    pub(crate) victim: usize,
    pub(crate) counts: Counts,
    /// Packets whose buckets are on their way, and packets whose records are.
    batch: Batch,
    pending: Batch,
    ready: Vec<Packet>,
}

/// What is known of the packets of one round.
#[derive(Default)]
struct Batch {
    facts: Vec<Facts>,
    wides: Vec<Wide>,
    encapsulations: encapsulation::Round,
    guesses: Vec<u32>,
}

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    Done,
    /// It is of this flow, but not like most.
    Rare,
    OtherFlow,
}

/// Frames of a round: as many as the processor fetches at the same time, and half as many again.
const ROUND: usize = 32;
/// How many packets ahead rare ones are looked for, and what level `tcp` needs is asked for.
const AHEAD: usize = 8;

impl Meter {
    /// Without flows; takes its memory now.
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
            general: General::new(config),
            encapsulations: Encapsulations::new(config, max_flows),
            outer: config.tunnels == crate::Tunnels::Outer,
            plain: !config.checksums,
            fragments: Fragments::default(),
            flood: Flood::default(),
            aggregate: config.aggregate,
            victim: 0,
            counts: Counts::default(),
            batch: Batch::default(),
            pending: Batch::default(),
            ready: Vec::new(),
        }
    }

    /// Takes frames; `links` says what those of each interface begin with, as far as that is known.
    pub fn take(&mut self, burst: Burst<'_>, links: &[Option<Link>], records: &mut dyn Records) {
        let mut next = 0;
        while next < burst.len() {
            let end = burst.len().min(next + ROUND.min(self.clock.frames_to_tick()));
            self.round(burst.slice(next..end), links, records);
            if self.clock.tick(end - next) {
                // What a sweep finds may not depend on where a burst ends.
                self.count_pending(records);
                self.sweep(records);
            }
            next = end;
        }
        self.count_pending(records);
    }

    /// Ends flows that have been quiet for long, as far as packets say that it is now `now`.
    pub fn expire(&mut self, now: Nanos, records: &mut dyn Records) {
        if self.clock.advance(now.0) {
            self.sweep(records);
        }
    }

    /// Ends all flows: `now` is the time of the last frame there is, of all meters of a run.
    pub fn finish(&mut self, now: Nanos, records: &mut dyn Records) {
        let mut ready = std::mem::take(&mut self.ready);
        self.fragments.finish(&mut ready);
        self.account_all(&mut ready, records);
        for record in 0..self.hot.len() as u32 {
            if !self.hot[record as usize].is_free() {
                let reason = self.reason_at(record, now.0).unwrap_or(EndReason::Forced);
                self.end(record, reason, records);
            }
        }
        self.flood.flush(records);
    }

    /// What was counted so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Flows there are.
    pub fn flows(&self) -> u64 {
        self.flows
    }

    /// The greatest time of a frame so far.
    pub fn latest(&self) -> Nanos {
        Nanos(self.clock.latest)
    }

    /// A few frames. Those of the round before are counted while the buckets
    /// of these come, and these in the next round, while their records come.
    fn round(&mut self, burst: Burst<'_>, links: &[Option<Link>], records: &mut dyn Records) {
        self.find_facts(burst, links);
        self.count_pending(records);
        let Batch { facts, guesses, .. } = &mut self.batch;
        guesses.clear();
        for facts in facts.iter() {
            let guess = self.table.guess(facts.hash);
            if let Some(hot) = self.hot.get(guess as usize) {
                prefetch(hot);
            }
            // All at once would be more than the processor waits for at the same time: the others follow one by one.
            if guesses.len() < AHEAD {
                self.tcp.prefetch(guess);
            }
            if facts.words.is_wide()
                && let Some(wide) = self.wide.get(guess as usize)
            {
                prefetch(wide);
            }
            guesses.push(guess);
        }
        std::mem::swap(&mut self.batch, &mut self.pending);
    }

    /// Counts the packets whose records were asked for.
    fn count_pending(&mut self, records: &mut dyn Records) {
        let Batch { mut facts, wides, encapsulations, guesses } = std::mem::take(&mut self.pending);
        if self.stats.is_some() {
            facts.iter().zip(&guesses).take(AHEAD).for_each(|(facts, record)| self.prefetch_stats(*record, facts));
        }
        for (index, (facts_of, guess)) in facts.iter().zip(&guesses).enumerate() {
            if let (Some(later), Some(record)) = (facts.get(index + AHEAD), guesses.get(index + AHEAD)) {
                self.prefetch_cold(*record, later);
                self.tcp.prefetch(*record);
                self.prefetch_stats(*record, later);
            }
            let record = match self.count(*guess, facts_of, &wides) {
                Counted::Done => continue,
                Counted::Rare => self.account(Some(*guess), facts_of, &wides, records),
                Counted::OtherFlow => self.search(facts_of, &wides, records),
            };
            self.note_encapsulation(record, facts_of, &encapsulations);
        }
        facts.clear();
        self.pending = Batch { facts, wides, encapsulations, guesses };
    }

    /// The first step: what counts of each frame, with its bucket asked for.
    #[inline(always)]
    fn find_facts(&mut self, burst: Burst<'_>, links: &[Option<Link>]) {
        self.batch.facts.clear();
        self.batch.wides.clear();
        self.batch.encapsulations.clear();
        let first = links.first().copied().flatten();
        let (mut bytes, mut latest, mut least) = (0, self.clock.latest, u64::MAX);
        for (desc, frame) in burst.iter() {
            bytes += u64::from(desc.wire);
            latest = latest.max(desc.time.0);
            least = least.min(desc.time.0);
            let link = if desc.interface == 0 { first } else { link_of(links, desc) };
            let usual = if self.plain && link == Some(Link::Ethernet) {
                facts::usual(desc, frame, self.outer, &mut self.batch.wides)
            } else {
                None
            };
            match usual {
                // The options of a SYN are read there.
                Some(mut facts) if self.tcp.is_off() || facts.flags & SYN == 0 => {
                    if self.encapsulations.has_macs() {
                        facts.encapsulation = self.batch.encapsulations.push(Encapsulation::of_ethernet(frame));
                    }
                    if self.stats.is_some() && facts.has_segment {
                        facts.kinds = facts::usual_kinds(frame);
                    }
                    self.push(facts);
                }
                _ => self.look(link, desc, frame),
            }
        }
        self.counts.frames += burst.len() as u64;
        self.counts.bytes += bytes;
        self.clock.see(least, latest);
    }

    /// Hashes a packet and asks for its bucket.
    #[inline(always)]
    fn push(&mut self, mut facts: Facts) {
        let words = Words { rest: facts.words.rest & self.mask, ..facts.words };
        facts.hash = if words.is_wide() {
            self.keyed.wide(words, &self.batch.wides[facts.wide])
        } else {
            self.keyed.narrow(words)
        };
        self.table.prefetch(facts.hash);
        self.batch.facts.push(facts);
    }

    /// Asks for what seldom is needed of a record that has come, if this packet is the first one that way.
    #[inline(always)]
    fn prefetch_cold(&self, record: u32, facts: &Facts) {
        if let Some(hot) = self.hot.get(record as usize)
            && hot.is_first(facts.side)
            && let Some(cold) = self.cold.get(record as usize)
        {
            prefetch(cold);
        }
    }

    /// Asks for what level `stats` has of a record that has come.
    #[inline(always)]
    fn prefetch_stats(&self, record: u32, facts: &Facts) {
        if let Some(stats) = &self.stats
            && let Some(hot) = self.hot.get(record as usize)
        {
            stats.prefetch(record, hot, facts);
        }
    }

    /// Counts a packet if it is like most, and of the flow that it was guessed to be of.
    #[inline(always)]
    pub(crate) fn count(&mut self, guess: u32, facts: &Facts, wides: &[Wide]) -> Counted {
        let Some(hot) = self.hot.get_mut(guess as usize) else { return Counted::OtherFlow };
        if !hot.has(facts.words, self.mask) {
            return Counted::OtherFlow;
        }
        if facts.words.is_wide() && self.wide[guess as usize].key != wides[facts.wide] {
            return Counted::OtherFlow;
        }
        let limit = &self.limits[usize::from(facts.words.protocol())];
        let coarse = self.clock.coarse(facts.time);
        let before = hot.ways[facts.side & 1].seen;
        let is_done =
            self.clock.is_near(facts.time) && hot.count(facts, limit.idle_shifted, coarse, limit.active_coarse);
        if !is_done {
            return Counted::Rare;
        }
        if facts.has_segment {
            self.tcp.take(guess, facts);
        }
        if let Some(stats) = &mut self.stats {
            let gap = age(facts.time, before) as u64 >> 16;
            stats.count(guess, hot, facts, Some(gap));
        }
        Counted::Done
    }
}

fn link_of(links: &[Option<Link>], desc: &Desc) -> Option<Link> {
    links.get(usize::from(desc.interface)).copied().flatten()
}
