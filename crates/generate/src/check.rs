//! The receiver: accounts for every frame of every stream, by the trailers.
//!
//! What a burst brings is looked at in the order of the burst, so whoever calls says what the order of arrival is. Of up to 32
//! frames the trailers are read first and the memory of their streams is asked for, then they are counted: with 100,000
//! streams that memory is in no cache.
//!
//! A frame is one of these, and counted as such:
//!
//! - *received*: it has a trailer with a right check. *Corrupted* too if a checksum over it is wrong; what is under MAC
//!   addresses and tags no checksum covers, and no router keeps.
//! - *counted*: it has none, and is as one of the streams without trailers should be;
//! - *damaged*: it has none, but is ours: a checksum or a length in it is wrong, and it is as long as one of ours (or, without
//!   any checksum over the trailer: the trailer is right but for one bit). Which stream it was of is not known, where it is lost;
//! - *cut*: its end was not captured; *over the limit*: of a stream that there is no memory for;
//! - *foreign*: anything else.
//!
//! Within a stream a frame is *duplicated* if it had come before, else *reordered* if one with a greater number had come before
//! (RFC 4737, section 3.3); the *extent* is how many of those there were. This is known of the last 1,024 numbers: a frame from
//! before these is *stale*, which is neither, and does not make up for the loss of that number.
//!
//! While a run lasts, what did not come is *missing* below the highest number of its stream, and *lost* once that is old enough
//! (`ages`).
//!
//! - `stream`: what is known of one; `streams`: all of them; `histogram`: latencies; `matcher`: streams without trailers;
//! - `verify`: checksums; `damage`: frames that lost their trailer; `ended`: streams that have ended; [`report`]: what came of all.

mod ages;
mod damage;
mod ended;
mod gaps;
mod histogram;
mod matcher;
pub mod report;
mod stream;
mod streams;
mod verify;

pub use ages::{AGE, TURN};
pub use ended::{Came, NUMBERS};
pub use histogram::LIMIT;
pub use matcher::Matcher;
pub use report::{Delay, FrameCounts, GapError, Pace, Report, StreamRow, Summary};
pub use stream::WINDOW;

use self::ages::Ages;
use self::damage::Damage;
use self::gaps::Gaps;
use self::matcher::Matchers;
use self::report::Counted;
use self::stream::{Arrival, Change};
use self::streams::Streams;
use self::verify::{Verdict, verify};
use crate::answer;
use crate::trailer::{Key, LEN, Tail, Trailer};
use linerate_burst::{Burst, Desc, Flags, Pick, prefetch};
use linerate_wire::{Layers, Link};
use std::collections::BTreeMap;

/// What to check.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The most streams with trailers that there is memory for: see [`Options::most_bytes`].
    pub streams: usize,
    /// Whether the checksums of frames with a trailer are verified too.
    pub verify: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { streams: 1 << 16, verify: true }
    }
}

impl Options {
    /// The most bytes of memory that the streams take: anybody can make trailers of any stream.
    pub fn most_bytes(&self) -> usize {
        streams::most_bytes(self.streams)
    }
}

/// What was counted of all streams together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames that were looked at.
    pub frames: u64,
    /// Their bytes on the wire, without FCS.
    pub bytes: u64,
    /// Frames with a trailer.
    pub received: u64,
    /// Frames of streams without trailers.
    pub counted: u64,
    /// Sequence numbers below the highest of their stream that did not come, or not yet.
    pub missing: u64,
    /// Those of them that are lost by now.
    pub lost: u64,
    /// Frames that had come before.
    pub duplicated: u64,
    /// Frames that came after one with a greater number.
    pub reordered: u64,
    /// Frames from so long ago that it is not known whether they had come before.
    pub stale: u64,
    /// Frames with a wrong checksum.
    pub corrupted: u64,
    /// Frames of ours that lost their trailer.
    pub damaged: u64,
    /// Frames whose end was not captured.
    pub cut: u64,
    /// Frames with a trailer, of streams that there is no memory for.
    pub over_limit: u64,
}

impl Totals {
    /// Frames that are not ours.
    pub fn foreign(&self) -> u64 {
        self.frames - self.received - self.counted - self.damaged - self.cut - self.over_limit
    }

    fn add(&mut self, change: &Change, arrival: &Arrival) {
        self.missing = self.missing.wrapping_add_signed(change.missing);
        self.duplicated += u64::from(change.duplicated);
        self.reordered += u64::from(change.reordered);
        self.stale += u64::from(change.stale);
        self.corrupted += u64::from(arrival.corrupted);
    }
}

/// What came so far of all streams.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// What was counted; `lost` of all streams.
    pub totals: Totals,
    /// Each stream of which anything was sent or came, by their numbers.
    pub rows: Vec<LiveRow>,
}

/// What came so far of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveRow {
    /// Its number.
    pub stream: u32,
    /// Frames that came, repeated ones included.
    pub received: u64,
    /// Frames that are lost by now.
    pub lost: u64,
}

/// The receiver's account.
#[derive(Debug)]
pub struct Check {
    key: Key,
    verify: bool,
    streams: Streams,
    matchers: Matchers,
    counted: BTreeMap<u32, Counted>,
    damage: Damage,
    totals: Totals,
    layers: Layers,
    /// Where all gaps should be the same.
    gaps: Option<Gaps>,
    ages: Ages,
    /// Where questions are to be answered: those that came in the last burst.
    questions: Option<Vec<Vec<u8>>>,
}

/// Questions that are kept of a burst: whoever asks does so again.
const QUESTIONS: usize = 256;
/// Frames whose trailers are read before they are counted.
const BATCH: usize = 32;
/// So many frames ahead the next one is asked for.
const AHEAD: usize = 8;

impl Check {
    /// Nothing came yet.
    pub fn new(key: Key, options: Options) -> Self {
        Check {
            key,
            verify: options.verify,
            streams: Streams::new(options.streams),
            matchers: Matchers::default(),
            counted: BTreeMap::new(),
            damage: Damage::new(),
            totals: Totals::default(),
            layers: Layers::new(),
            gaps: None,
            ages: Ages::new(),
            questions: None,
        }
    }

    /// All frames together should come so many nanoseconds apart: by how much they do not is counted too.
    pub fn expect_gap(&mut self, nanos: f64) {
        self.gaps = Some(Gaps::new(nanos));
    }

    /// Frames without a trailer that `matcher` fits are those of stream `id`, which has none; there may be several for a
    /// stream.
    pub fn count_only(&mut self, id: u32, matcher: Matcher) {
        self.counted.entry(id).or_default();
        self.matchers.add(id, matcher);
    }

    /// Frames that are not ours and may ask for something are kept from now on, for [`questions`](Check::questions).
    pub fn keep_questions(&mut self) {
        self.questions.get_or_insert_default();
    }

    /// Frames that may ask for something, of all taken since the last time; of many the first.
    pub fn questions(&mut self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.questions.iter_mut().flat_map(|kept| kept.drain(..))
    }

    /// Takes frames, in the order in which they came. `links` says how the frames of each interface begin, by the number that
    /// descs have; `None` where that is not known: such a frame may only have a trailer at its end.
    pub fn take(&mut self, burst: Burst<'_>, links: &[Option<Link>]) {
        let last = burst.len().saturating_sub(1);
        self.take_all(burst.len(), |index| {
            burst.prefetch((index + AHEAD).min(last));
            (&burst.descs()[index], burst.frame(index), links)
        });
    }

    /// Takes frames of several queues, in this order. Each has its own `links`.
    ///
    /// # Panics
    /// If a pick names a frame that is not there.
    pub fn take_picks(&mut self, bursts: &[Burst<'_>], picks: &[Pick], links: &[&[Option<Link>]]) {
        self.take_all(picks.len(), |index| {
            let (pick, ahead) = (picks[index], picks[(index + AHEAD).min(picks.len() - 1)]);
            bursts[ahead.lane()].prefetch(ahead.index());
            let burst = bursts[pick.lane()];
            (&burst.descs()[pick.index()], burst.frame(pick.index()), links[pick.lane()])
        });
    }

    #[inline(always)]
    fn take_all<'a>(&mut self, frames: usize, frame: impl Fn(usize) -> (&'a Desc, &'a [u8], &'a [Option<Link>])) {
        let mut batch = [(0, Arrival::default()); BATCH];
        for first in (0..frames).step_by(BATCH) {
            let mut found = 0;
            for index in first..(first + BATCH).min(frames) {
                let (desc, frame, links) = frame(index);
                self.totals.bytes += u64::from(desc.wire);
                let link = links.get(usize::from(desc.interface)).copied().flatten();
                if let Some(one) = self.look(desc, frame, link) {
                    batch[found] = one;
                    found += 1;
                }
            }
            self.totals.received += found as u64;
            for (place, arrival) in &batch[..found] {
                if let Some(change) = self.streams.at(*place).take(arrival, &mut self.ages) {
                    self.totals.add(&change, arrival);
                }
            }
        }
        self.totals.frames += frames as u64;
    }

    /// Frames that are ours, so far.
    #[inline]
    pub fn ours(&self) -> u64 {
        self.totals.received + self.totals.counted
    }

    /// What was counted so far.
    pub fn totals(&self) -> Totals {
        let lost = self.totals.missing - self.ages.young();
        Totals { damaged: self.damage.count(), lost, ..self.totals }
    }

    /// [`TURN`] has passed since the last time.
    pub fn turn(&mut self) {
        self.ages.turn();
    }

    /// What came so far, and what is lost by now. `sent` says how many frames each stream had sent [`AGE`] ago, by its number, where
    /// that is known.
    pub fn live(&mut self, sent: Option<&[u64]>) -> Live {
        let sent = sent.unwrap_or_default();
        let counted = self.counted.last_key_value().map_or(0, |(id, _)| *id as usize + 1);
        let end = self.streams.end().max(sent.len()).max(counted);
        let rows: Vec<LiveRow> = (0..end as u32)
            .filter_map(|stream| {
                let sent = sent.get(stream as usize).copied().unwrap_or(0);
                if let Some(counted) = self.counted.get(&stream) {
                    return Some(counted.live(stream, sent));
                }
                let Some(known) = self.streams.get_mut(stream) else {
                    return (sent > 0).then_some(LiveRow { stream, received: 0, lost: sent });
                };
                known.judge(sent, &mut self.ages);
                Some(LiveRow { stream, received: known.received(), lost: known.lost(&self.ages) })
            })
            .collect();
        Live { totals: Totals { lost: rows.iter().map(|row| row.lost).sum(), ..self.totals() }, rows }
    }

    /// How many streams with trailers there are.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Bytes of memory that these take.
    pub fn memory(&self) -> usize {
        self.streams.memory()
    }

    /// What came of all streams. `sent` says how many frames each has sent, by its number, where that is known: else what did
    /// not come is known up to the highest sequence number alone.
    pub fn report<'a>(&'a self, sent: Option<&'a [u64]>) -> Report<'a> {
        Report::new(self, sent)
    }

    /// The stream of a frame, and what the frame says; `None` where it is of none.
    #[inline(always)]
    fn look(&mut self, desc: &Desc, frame: &[u8], link: Option<Link>) -> Option<(u32, Arrival)> {
        let tail = match link {
            Some(link) => Tail::of(link, frame, &mut self.layers),
            None => Tail { packet: None, end: frame.len() },
        };
        let link = link.unwrap_or(Link::Ethernet);
        let trailer = tail.bytes(frame).and_then(|bytes| Trailer::read(bytes, &self.key));
        let Some(trailer) = trailer else {
            self.overhear(desc, frame);
            return self.look_again(desc, frame, link, &tail);
        };
        self.damage.note(frame.len(), tail.end);
        let corrupted = self.verify
            && (desc.flags.contains(Flags::DAMAGED)
                || verify(link, frame, &tail, desc.flags, &mut self.layers) == Verdict::Wrong);
        self.arrive(desc, &trailer, corrupted)
    }

    /// Finds the stream, and asks for its memory.
    #[inline(always)]
    fn arrive(&mut self, desc: &Desc, trailer: &Trailer, corrupted: bool) -> Option<(u32, Arrival)> {
        let Some(place) = self.streams.place(trailer.stream) else {
            self.totals.over_limit += u64::from(!self.streams.is_gone(trailer.stream));
            return None;
        };
        if let Some(gaps) = &mut self.gaps {
            gaps.add(desc.time.0);
        }
        let latency = trailer.latency(desc.time);
        let (sequence, bucket) = (trailer.sequence, histogram::bucket(latency));
        let stream = self.streams.at(place);
        prefetch(stream);
        prefetch(stream.latencies.place(bucket));
        Some((place, Arrival { sequence, time: desc.time.0, latency, bucket, bytes: desc.wire, corrupted }))
    }

    /// A frame without a trailer may ask for something.
    fn overhear(&mut self, desc: &Desc, frame: &[u8]) {
        if let Some(kept) = &mut self.questions
            && kept.len() < QUESTIONS
            && !desc.is_truncated()
            && answer::may_be_asked(frame)
        {
            kept.push(frame.to_vec());
        }
    }

    /// A frame without a trailer where that should be.
    #[inline(never)]
    fn look_again(&mut self, desc: &Desc, frame: &[u8], link: Link, tail: &Tail) -> Option<(u32, Arrival)> {
        if desc.is_truncated() && (tail.packet.is_none() || tail.end > frame.len()) {
            self.totals.cut += 1;
            return None;
        }
        let verdict = verify(link, frame, tail, desc.flags, &mut self.layers);
        if !self.matchers.is_empty()
            && let Some(id) = self.matchers.find(frame, tail)
        {
            let corrupted = verdict == Verdict::Wrong && self.verify;
            self.counted.entry(id).or_default().add(desc, corrupted);
            self.totals.counted += 1;
            self.totals.corrupted += u64::from(corrupted);
            return None;
        }
        match verdict {
            Verdict::Right => None,
            Verdict::Wrong => {
                // Its length may be what is wrong.
                let trailer = frame.last_chunk::<LEN>().and_then(|bytes| Trailer::read(bytes, &self.key));
                if trailer.is_none() {
                    self.damage.suspect(frame.len(), tail.end);
                }
                self.arrive(desc, &trailer?, true)
            }
            Verdict::Open => {
                let mended = Trailer::mend(tail.bytes(frame)?, &self.key)?;
                if self.streams.get(mended.stream).is_some() {
                    self.damage.certain();
                }
                None
            }
        }
    }
}
