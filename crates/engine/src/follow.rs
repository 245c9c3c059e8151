//! Streams of captured TCP traffic, reassembled passively.
//!
//! Frames of several lanes are ordered first, then each is passed to [`Follow`] in place. Its output is written by an
//! [`StreamOutput`]: `files`, a file for each direction with an index; `records`, all streams in one pipe; `conversation`,
//! both directions of one connection as they arrived.

mod conversation;
mod disk;
mod files;
mod index;
mod records;

pub use self::conversation::{Conversation, ConversationFormat};
pub use self::files::{FilesOptions, Gaps, StreamFiles};
pub use self::records::StreamRecords;

use crate::arrival_times::Arrivals;
use crate::consumer::{Consumer, Demand, FrameOrder, Round, RunCounters, RunEnd};
use crate::control::Progress;
use crate::error::ReceiveError;
use crate::select::{Selection, Selector};
use linerate_burst::{Count, FrameIndex, Kind, Nanos, SinkError, Stage};
use linerate_transport::follow::{Config, Counts, Follow, FollowOutcome, Output, StreamInfo, StreamSummary};
use linerate_transport::stream_memory::StreamId;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Default number of streams with most bytes in the report.
const LONGEST: usize = 10;

/// Output of streams.
pub trait StreamOutput: Output + Send {
    /// Flushes buffers, because no packets arrive at the moment.
    fn flush(&mut self);

    /// Returns the reason why nothing more can be written, if any.
    fn failure(&self) -> Option<&SinkError>;

    /// Finishes after the end of all streams.
    ///
    /// # Errors
    /// The first failure.
    fn finish(&mut self) -> Result<(), SinkError>;

    /// Returns the number of files.
    fn files(&self) -> u64 {
        0
    }

    /// Returns notes for the user, after the end.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Discards the data, for a report of streams only.
#[derive(Debug, Default)]
pub struct NullOutput;

impl Output for NullOutput {
    fn begin(&mut self, _: &StreamInfo, _: Nanos) {}

    fn bytes(&mut self, _: StreamId, _: u64, _: &[u8], _: Nanos) -> bool {
        true
    }

    fn gap(&mut self, _: StreamId, _: Range<u64>, _: Nanos) {}

    fn end(&mut self, _: &StreamSummary) {}
}

impl StreamOutput for NullOutput {
    fn flush(&mut self) {}

    fn failure(&self) -> Option<&SinkError> {
        None
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// Follows the selected streams.
pub struct FollowConsumer {
    selector: Selector,
    follow: Follow,
    arrivals: Arrivals,
    out: RankedOutput,
    progress: Arc<Progress>,
    picks: Vec<FrameIndex>,
    taken: Frames,
    bytes: u64,
    notes: Vec<String>,
}

/// Counters of frames.
#[derive(Clone, Copy, Debug, Default)]
struct Frames {
    followed: u64,
    unwritten: u64,
    not_tcp: u64,
    malformed: u64,
    fragments: u64,
    bad_checksum: u64,
    unknown_link: u64,
}

/// Result of following.
#[derive(Clone, Debug)]
pub struct FollowReport {
    /// Counters.
    pub counts: Counts,
    /// Streams with most bytes, in descending order, without their gaps.
    pub longest: Vec<StreamSummary>,
    /// Number of files created.
    pub files: u64,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// An outlet, and the longest streams written to it.
struct RankedOutput {
    out: Box<dyn StreamOutput>,
    longest: Vec<StreamSummary>,
    /// Maximum length of `longest`.
    most: usize,
}

impl Output for RankedOutput {
    fn begin(&mut self, about: &StreamInfo, now: Nanos) {
        self.out.begin(about, now);
    }

    #[inline]
    fn bytes(&mut self, stream: StreamId, offset: u64, bytes: &[u8], now: Nanos) -> bool {
        self.out.bytes(stream, offset, bytes, now)
    }

    fn gap(&mut self, stream: StreamId, gap: Range<u64>, now: Nanos) {
        self.out.gap(stream, gap, now);
    }

    fn end(&mut self, summary: &StreamSummary) {
        self.out.end(summary);
        let rank = |one: &StreamSummary| (u64::MAX - one.tally.bytes, one.about.stream);
        let at = self.longest.partition_point(|one| rank(one) < rank(summary));
        if at < self.most {
            // Without its gaps, which may be millions.
            let StreamSummary { about, other, ending, times, tally, gaps: _, missing_at_end } = *summary;
            self.longest
                .insert(at, StreamSummary { about, other, ending, times, tally, gaps: Vec::new(), missing_at_end });
            self.longest.truncate(self.most);
        }
    }
}

impl FollowConsumer {
    /// Follows selected frames, without the slice; `out` receives the streams.
    pub fn new(config: Config, selection: Selection, out: Box<dyn StreamOutput>) -> Self {
        FollowConsumer {
            selector: Selector::new(Selection { slice: None, ..selection }),
            follow: Follow::new(config),
            arrivals: Arrivals::default(),
            out: RankedOutput { out, longest: Vec::new(), most: LONGEST },
            progress: Progress::new(),
            picks: Vec::new(),
            taken: Frames::default(),
            bytes: 0,
            notes: Vec::new(),
        }
    }

    /// Publishes the totals in `progress`.
    pub fn progress(mut self, progress: Arc<Progress>) -> Self {
        self.progress = progress;
        self
    }

    /// Sets the number of streams in the report; the default is 10.
    pub fn top(mut self, most: usize) -> Self {
        self.out.most = most;
        self
    }

    /// Returns the result after the run.
    pub fn done(self) -> FollowReport {
        let (counts, files) = (self.follow.counts(), self.out.out.files());
        FollowReport { counts, longest: self.out.longest, files, notes: self.notes }
    }

    fn follow(&mut self, round: &Round<'_>) {
        let mut picks = std::mem::take(&mut self.picks);
        for pick in self.selector.choose(round, &mut picks) {
            let (lane, index) = (pick.lane(), pick.index());
            let (burst, links) = (&round.bursts[lane], round.links[lane]);
            let (desc, frame) = (&burst.descs()[index], burst.frame(index));
            self.bytes += u64::from(desc.wire);
            let Some(link) = links.get(usize::from(desc.interface)).copied().flatten() else {
                self.taken.unknown_link += 1;
                continue;
            };
            let taken = self.follow.take(link, desc, frame, &mut self.out);
            *self.taken.of(taken) += 1;
        }
        picks.clear();
        self.picks = picks;
    }

    /// Returns whether the reader of the output has disconnected.
    fn is_unread(&self) -> bool {
        self.out.out.failure().is_some_and(|failure| failure.reason.kind() == ErrorKind::BrokenPipe)
    }
}

impl Frames {
    fn of(&mut self, taken: FollowOutcome) -> &mut u64 {
        match taken {
            FollowOutcome::Followed => &mut self.followed,
            FollowOutcome::Unwritten => &mut self.unwritten,
            FollowOutcome::NotTcp => &mut self.not_tcp,
            FollowOutcome::Malformed => &mut self.malformed,
            FollowOutcome::Fragment => &mut self.fragments,
            FollowOutcome::BadChecksum => &mut self.bad_checksum,
        }
    }

    fn all(&self) -> u64 {
        let Frames { followed, unwritten, not_tcp, malformed, fragments, bad_checksum, unknown_link } = *self;
        followed + unwritten + not_tcp + malformed + fragments + bad_checksum + unknown_link
    }
}

impl Consumer for FollowConsumer {
    fn name(&self) -> &'static str {
        "streams"
    }

    fn order(&self) -> FrameOrder {
        FrameOrder::Merged
    }

    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        let learned = self.selector.learn(round.interfaces);
        self.arrivals.see(round);
        self.follow(round);
        if round.frames() == 0 {
            if round.complete != Nanos::MAX {
                // For a pipe that is the newest time of a frame, which may be wrong.
                let now = self.arrivals.bound(round.complete.min(round.now), round.elapsed);
                self.follow.pause(now, &mut self.out);
            }
            self.out.out.flush();
        }
        learned
    }

    fn look(&mut self, look: &RunCounters<'_>) {
        self.progress.frames.store(self.taken.all(), Ordering::Relaxed);
        self.progress.bytes.store(self.bytes, Ordering::Relaxed);
        self.progress.wire_bytes.store(self.bytes, Ordering::Relaxed);
        self.progress.lost.store(look.queues().lost() + self.taken.unwritten, Ordering::Relaxed);
    }

    fn demand(&self) -> Demand {
        match self.out.out.failure() {
            Some(_) if self.is_unread() => Demand::Enough,
            Some(_) => Demand::Failed,
            None if self.selector.is_full() => Demand::Enough,
            None => Demand::More,
        }
    }

    fn finish(&mut self, end: &mut RunEnd<'_>) {
        let died = end.died.take();
        let is_unread = self.is_unread();
        let mut result = Ok(());
        if died.is_none() {
            self.follow.finish(&mut self.out);
            result = self.out.out.finish();
            self.notes = self.out.out.notes();
        }
        self.selector.counters(end.ledger.account(Stage::Select, ""));
        let selected = end.ledger.account(Stage::Select, "").sum(Kind::Delivered);
        let Frames { followed, unwritten, not_tcp, malformed, fragments, bad_checksum, unknown_link } = self.taken;
        let (unread, unwritten) = if is_unread { (unwritten, 0) } else { (0, unwritten) };
        let counts = self.follow.counts();
        let account = end.ledger.account(Stage::Follow, "");
        account.add(Count::FollowReceived, selected).add(Count::Followed, followed);
        account.add(Count::FollowUnknownLink, unknown_link).add(Count::FollowNotTcp, not_tcp);
        account.add(Count::FollowMalformed, malformed).add(Count::FollowBadChecksum, bad_checksum);
        account.add(Count::FollowFragment, fragments).add(Count::FollowUnwritten, unwritten);
        account.add(Count::FollowUnread, unread).add(Count::FollowGaps, counts.tally.gaps);
        account.add(Count::FollowEvicted, counts.evicted);
        if let Some(died) = died {
            account.add(Count::FollowDied, selected.saturating_sub(self.taken.all()));
            end.fail(died);
        }
        if let Err(error) = result
            && error.reason.kind() != ErrorKind::BrokenPipe
        {
            end.fail(error);
        }
    }
}
