//! The receiver: accounts for every frame of every stream, by the trailers.
//!
//! Frames are processed in the order of the burst: the caller must pass them in order of arrival. For up to 32 frames
//! the trailers are read first and the memory of their streams is prefetched, then they are counted: with 100,000
//! streams that memory is in no cache.
//!
//! A frame is one of these, and counted as such:
//!
//! - *received*: it has a trailer with a valid check. *Corrupted* too if a checksum over it is wrong; no checksum
//!   covers MAC addresses and tags, which routers rewrite.
//! - *counted*: it has no trailer and matches one of the streams without trailers;
//! - *damaged*: no trailer, but ours: a checksum or a length in it is wrong, and it has a length of our frames (or no
//!   checksum covers the trailer, which is valid but for one bit). Its stream is unknown, which counts it as lost;
//! - *cut*: its end was not captured; *over the limit*: its stream has no memory;
//! - *foreign*: anything else.
//!
//! Within a stream a frame is *duplicated* if it was received before, else *reordered* if one with a greater number was
//! received before (RFC 4737, section 3.3); the *extent* is the number of those. This is known for the last 1,024
//! numbers: a frame from before these is *stale*, which is neither, and does not make up for the loss of that number.
//!
//! During a run, numbers not received below the highest number of their stream are *missing*, later *lost* (`loss_timeout`).
//!
//! - `stream`: the state of one stream; `streams`: all of them; `histogram`: latencies; `verify`: checksums;
//! - `matcher`: streams without trailers; `damage`: lost trailers; `completion`: streams that ended; [`report`]: results.

mod completion;
mod damage;
mod gaps;
mod histogram;
mod loss_timeout;
mod matcher;
pub mod report;
mod set;
mod stream;
mod streams;
mod verify;

pub use completion::{NUMBERS, StreamProgress};
pub use histogram::LIMIT;
pub use loss_timeout::{AGE, TURN};
pub use matcher::Matcher;
pub use report::{CheckSummary, Delay, FrameCounts, GapError, Pace, Report, StreamRow};
pub use stream::WINDOW;

use self::damage::Damage;
use self::gaps::Gaps;
use self::loss_timeout::Ages;
use self::matcher::Matchers;
use self::report::CountedStream;
use self::stream::{Arrival, Change};
use self::streams::Streams;
use self::verify::{Verdict, verify};
use crate::answer;
use crate::trailer::{Key, LEN, Tail, Trailer};
use linerate_burst::{Burst, Desc, Flags, FrameIndex, prefetch};
use linerate_headers::{Layers, Link};
use std::collections::BTreeMap;

/// Options of a [`Check`].
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Maximum number of streams with trailers to keep in memory: see [`Options::most_bytes`].
    pub streams: usize,
    /// Verify the checksums of frames with a trailer too.
    pub verify: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { streams: 1 << 16, verify: true }
    }
}

impl Options {
    /// Returns the maximum memory of the streams in bytes: anyone can forge trailers of any stream.
    pub fn most_bytes(&self) -> usize {
        streams::most_bytes(self.streams)
    }
}

/// Counts over all streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames examined.
    pub frames: u64,
    /// Their bytes on the wire, without FCS.
    pub bytes: u64,
    /// Frames with a trailer.
    pub received: u64,
    /// Frames of streams without trailers.
    pub counted: u64,
    /// Sequence numbers below the highest of their stream that were not received, or not yet.
    pub missing: u64,
    /// Missing frames that are lost by now.
    pub lost: u64,
    /// Frames received before.
    pub duplicated: u64,
    /// Frames received after one with a greater number.
    pub reordered: u64,
    /// Frames too old to know whether they were received before.
    pub stale: u64,
    /// Frames with a wrong checksum.
    pub corrupted: u64,
    /// Frames of ours that lost their trailer.
    pub damaged: u64,
    /// Frames whose end was not captured.
    pub cut: u64,
    /// Frames with a trailer, of streams above [`Options::streams`].
    pub over_limit: u64,
}

impl Totals {
    /// Returns the number of frames that are not ours.
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

/// Counts of all streams so far.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// Totals; `lost` is the sum over all streams.
    pub totals: Totals,
    /// Each stream with frames sent or received, ordered by number.
    pub rows: Vec<LiveRow>,
}

/// Counts of one stream so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveRow {
    /// Stream number.
    pub stream: u32,
    /// Frames received, duplicates included.
    pub received: u64,
    /// Frames lost by now.
    pub lost: u64,
}

/// Receiver that accounts for the frames of all streams.
#[derive(Debug)]
pub struct Check {
    key: Key,
    verify: bool,
    streams: Streams,
    matchers: Matchers,
    counted: BTreeMap<u32, CountedStream>,
    damage: Damage,
    totals: Totals,
    layers: Layers,
    /// Set where all gaps are expected to be equal.
    gaps: Option<Gaps>,
    ages: Ages,
    /// Requests of the last burst; `None` unless requests are to be answered.
    questions: Option<Vec<Vec<u8>>>,
}

/// Maximum requests kept per burst; requesters retry.
const QUESTIONS: usize = 256;
/// Frames whose trailers are read before they are counted.
const BATCH: usize = 32;
/// Prefetch distance in frames.
const AHEAD: usize = 8;

impl Check {
    /// Creates an empty account.
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

    /// Expects all frames together to be `nanos` nanoseconds apart, and measures the error.
    pub fn expect_gap(&mut self, nanos: f64) {
        self.gaps = Some(Gaps::new(nanos));
    }

    /// Counts frames without a trailer that match `matcher` as those of stream `id`. A stream may have several
    /// matchers.
    pub fn count_only(&mut self, id: u32, matcher: Matcher) {
        self.counted.entry(id).or_default();
        self.matchers.add(id, matcher);
    }

    /// Keeps frames that are not ours and may be requests, for [`questions`](Check::questions).
    pub fn keep_requests(&mut self) {
        self.questions.get_or_insert_default();
    }

    /// Drains the frames that may be requests, received since the last call; if there were many, only the first are
    /// kept.
    pub fn questions(&mut self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.questions.iter_mut().flat_map(|kept| kept.drain(..))
    }

    /// Processes frames in order of arrival. `links` holds the link type of each interface, by the interface number in
    /// descriptors; `None` where it is unknown: such a frame can only have a trailer at its end.
    pub fn take(&mut self, burst: Burst<'_>, links: &[Option<Link>]) {
        let last = burst.len().saturating_sub(1);
        self.take_all(burst.len(), |index| {
            burst.prefetch((index + AHEAD).min(last));
            (&burst.descs()[index], burst.frame(index), links)
        });
    }

    /// Processes frames of several queues in this order. Each queue has its own `links`.
    ///
    /// # Panics
    /// If a pick is out of range.
    pub fn take_picks(&mut self, bursts: &[Burst<'_>], picks: &[FrameIndex], links: &[&[Option<Link>]]) {
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

    /// Returns the number of frames that are ours so far.
    #[inline]
    pub fn ours(&self) -> u64 {
        self.totals.received + self.totals.counted
    }

    /// Returns the counts so far.
    pub fn totals(&self) -> Totals {
        let lost = self.totals.missing - self.ages.young();
        Totals { damaged: self.damage.count(), lost, ..self.totals }
    }

    /// Advances time by one [`TURN`].
    pub fn turn(&mut self) {
        self.ages.turn();
    }

    /// Returns the counts so far, and the losses by now. `sent` holds the frames that each stream had sent [`AGE`] ago,
    /// by its number, if that is known.
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

    /// Returns the number of streams with trailers.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Returns the memory of these streams in bytes.
    pub fn memory(&self) -> usize {
        self.streams.memory()
    }

    /// Returns the report over all streams. `sent` holds the frames that each has sent, by its number, if known;
    /// otherwise losses are known only up to the highest sequence number.
    pub fn report<'a>(&'a self, sent: Option<&'a [u64]>) -> Report<'a> {
        Report::new(self, sent)
    }

    /// Returns the stream slot and arrival data of a frame; `None` if it belongs to no stream.
    #[inline(always)]
    fn look(&mut self, desc: &Desc, frame: &[u8], link: Option<Link>) -> Option<(u32, Arrival)> {
        let tail = match link {
            Some(link) => Tail::of(link, frame, &mut self.layers),
            None => Tail { packet: None, end: frame.len() },
        };
        let link = link.unwrap_or(Link::Ethernet);
        let trailer = tail.bytes(frame).and_then(|bytes| Trailer::read(bytes, &self.key));
        let Some(trailer) = trailer else {
            self.keep_request(desc, frame);
            return self.look_again(desc, frame, link, &tail);
        };
        self.damage.note(frame.len(), tail.end);
        let corrupted = self.verify
            && (desc.flags.contains(Flags::DAMAGED)
                || verify(link, frame, &tail, desc.flags, &mut self.layers) == Verdict::Wrong);
        self.arrive(desc, &trailer, corrupted)
    }

    /// Finds the stream and prefetches its memory.
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

    /// Keeps a frame without a trailer that may be a request.
    fn keep_request(&mut self, desc: &Desc, frame: &[u8]) {
        if let Some(kept) = &mut self.questions
            && kept.len() < QUESTIONS
            && !desc.is_truncated()
            && answer::may_be_request(frame)
        {
            kept.push(frame.to_vec());
        }
    }

    /// Classifies a frame without a valid trailer.
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
                // The length itself may be wrong.
                let trailer = frame.last_chunk::<LEN>().and_then(|bytes| Trailer::read(bytes, &self.key));
                if trailer.is_none() {
                    self.damage.suspect(frame.len(), tail.end);
                }
                self.arrive(desc, &trailer?, true)
            }
            Verdict::Open => {
                let corrected = Trailer::repair(tail.bytes(frame)?, &self.key)?;
                if self.streams.get(corrected.stream).is_some() {
                    self.damage.certain();
                }
                None
            }
        }
    }
}
