//! Frames of a set of streams as bursts, when they are due: fast, and equal to
//! [`Stream::frame`](crate::stream::Stream::frame).
//!
//! The frames of a burst that have one layout ([`plan`](crate::plan)) are made together: the template is copied unless
//! it is already in place, then each changing field is written to all of them in a loop of its own. Checksums are not
//! computed over frames: the changed numbers are added to the sum of the template, which is computed once (RFC 1624).

mod arithmetic;
mod cached;
mod column;
mod groups;
mod on_demand;
mod row;

use crate::plan::Plan;
use crate::stream::{StreamError, StreamSet};
use crate::trailer::Key;
use crate::{Action, Command, Run, SenderPart, StreamEvent, Timeline};
use cached::Kept;
use column::FRAMES;
use linerate_burst::{Burst, Desc, MisplacedDesc, Nanos};
use on_demand::Fresh;

/// Frames that one sender of a set of streams has to send.
///
/// ```
/// # use linerate_generate::{SenderPart, Traffic, stream::*, trailer::Key, Rate};
/// # use linerate_burst::Nanos;
/// # let variants = vec![Variant { frame: vec![0; 60], ..Variant::default() }];
/// # let stream = Stream { name: "one".into(), id: 0, link: linerate_headers::Link::Ethernet, variants, size: Selector::ONE,
/// #     selectors: vec![], rate: Rate::Frames(1e6), shape: Shape::Even, count: Some(10), next: Next::Following, span: Default::default(), mark: Mark::None };
/// # let set = StreamSet { streams: vec![stream], order: Order::Sequential, rate: None, key: Key::default() };
/// let mut traffic = Traffic::new(&set, SenderPart::WHOLE)?;
/// let burst = traffic.offer(2_000, Nanos(1_700_000_000_000_000_000)).unwrap();
/// assert_eq!(burst.len(), 3, "a frame each microsecond, the first one at 0");
/// traffic.consume(3);
/// assert_eq!((traffic.next_due(), traffic.sent_per_stream()), (Some(3_000), &[3][..]));
/// # Ok::<(), StreamError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Traffic {
    timeline: Timeline,
    frames: Source,
    /// At the maximum rate frames have the time at which they are made, otherwise their due time.
    paced: bool,
    /// Maximum number of frames per burst.
    room: usize,
    /// Start of the run, UTC.
    start: Option<Nanos>,
    /// The current offer: its runs, descriptors and number of frames.
    runs: Vec<Run>,
    descs: Vec<Desc>,
    made: usize,
    /// Number of frames consumed, the run of the next one, and the frames left of that run.
    consumed: usize,
    run: usize,
    left: u64,
    sent: Vec<u64>,
    news: Vec<StreamEvent>,
}

#[derive(Clone, Debug)]
enum Source {
    Fresh(Box<Fresh>),
    Kept(Kept),
}

impl Traffic {
    /// Checks a set and creates the traffic of one part of it.
    pub fn new(set: &StreamSet, part: SenderPart) -> Result<Self, StreamError> {
        let timeline = Timeline::new(set, part)?;
        let fresh = Fresh::new(set);
        let room = fresh.room();
        Ok(Traffic::of(set, timeline, Source::Fresh(Box::new(fresh)), room))
    }

    /// Like [`Traffic::new`], for streams that accept [commands](Traffic::command).
    pub fn commanded(set: &StreamSet, part: SenderPart) -> Result<Self, StreamError> {
        Ok(Traffic { timeline: Timeline::commanded(set, part, u64::MAX)?, ..Traffic::new(set, part)? })
    }

    /// Like [`Traffic::new`], with frames that are made only once: frame n of a stream repeats its frame `n % frames`.
    /// They may take 1 GiB; streams with trailers are an error.
    pub fn kept(set: &StreamSet, part: SenderPart, frames: u64) -> Result<Self, StreamError> {
        let frames = frames.max(1);
        let timeline = Timeline::cycling(set, part, frames)?;
        let kept = Kept::new(set, frames)?;
        Ok(Traffic::of(set, timeline, Source::Kept(kept), FRAMES))
    }

    /// Like [`Traffic::kept`], for streams that accept [commands](Traffic::command).
    pub fn commanded_kept(set: &StreamSet, part: SenderPart, frames: u64) -> Result<Self, StreamError> {
        let timeline = Timeline::commanded(set, part, frames.max(1))?;
        Ok(Traffic { timeline, ..Traffic::kept(set, part, frames)? })
    }

    /// Creates traffic without streams yet: they [begin](Action::Begin) by commands. A burst has at most `room` frames.
    pub fn coming(room: usize) -> Self {
        let room = room.clamp(1, FRAMES);
        let fresh = Fresh::of(Plan::default(), Key::default(), room);
        Traffic::with(0, Timeline::coming(), Source::Fresh(Box::new(fresh)), room)
    }

    fn of(set: &StreamSet, timeline: Timeline, frames: Source, room: usize) -> Self {
        Traffic::with(set.streams.len(), timeline, frames, room)
    }

    fn with(streams: usize, timeline: Timeline, frames: Source, room: usize) -> Self {
        Traffic {
            paced: timeline.is_paced(),
            timeline,
            frames,
            room,
            start: None,
            runs: Vec::with_capacity(room),
            descs: vec![Desc::new(Nanos::ZERO, 0, 0); room],
            made: 0,
            consumed: 0,
            run: 0,
            left: 0,
            sent: vec![0; streams],
            news: Vec::new(),
        }
    }

    /// Queues a command. Senders of the other parts of the set must get the same command. No frames may have been
    /// offered for the command's time or later. Has no effect on streams that do not accept commands.
    pub fn command(&mut self, command: Command) {
        self.timeline.command(command);
    }

    /// Returns the number of commands applied: the last and all later offers reflect them; all frames before were
    /// consumed.
    pub fn applied(&self) -> u64 {
        self.timeline.applied()
    }

    /// Returns the time of the last command applied; `None` if none was.
    pub fn applied_until(&self) -> Option<u64> {
        self.timeline.applied_until()
    }

    /// Drains the events of streams up to the last offer, in order.
    pub fn news(&mut self) -> Vec<StreamEvent> {
        std::mem::take(&mut self.news)
    }

    /// Returns whether there are events.
    pub fn has_events(&self) -> bool {
        !self.news.is_empty()
    }

    /// Applies commands due by `until` although the frames offered cannot be sent. These are offered again, except
    /// frames of streams that end; frames due before a command are postponed. Has no effect on parts of a set, which
    /// must stay in step.
    pub fn stand(&mut self, until: u64, now: Nanos) {
        let (applied, ended) = (self.timeline.applied(), self.timeline.stand(until));
        if self.timeline.applied() == applied {
            return;
        }
        self.runs.drain(..self.run.min(self.runs.len()));
        if let Some(run) = self.runs.first_mut() {
            let gone = run.count - self.left;
            run.first.number = run.first.number.wrapping_add(gone.wrapping_mul(run.step));
            run.count = self.left;
        }
        let is_to_end = |run: &Run| ended.iter().any(|which| which.nth(run.first.stream as usize).is_some());
        self.runs.retain(|run| run.count > 0 && !is_to_end(run));
        self.made = self.runs.iter().map(|run| run.count as usize).sum();
        self.learn();
        self.make(now);
    }

    /// Returns the streams with frames that were offered and not consumed.
    pub fn pending_streams(&self) -> impl Iterator<Item = u32> {
        self.runs.iter().skip(self.run).map(|run| run.first.stream)
    }

    /// Returns whether more frames may become due after a command.
    pub fn is_waiting(&self) -> bool {
        self.timeline.is_waiting()
    }

    /// Sets the maximum number of frames per burst, at least 1: the fewer, the closer to sending they are made.
    /// Initially, and at most, it is 256, or fewer for long frames.
    pub fn set_room(&mut self, frames: usize) {
        let most = match &self.frames {
            Source::Fresh(fresh) => fresh.room(),
            Source::Kept(_) => FRAMES,
        };
        self.room = frames.clamp(1, most);
    }

    /// Offers the frames that are due `elapsed` nanoseconds after the start, up to a full burst, at `now` (UTC). Frames
    /// offered and not consumed are offered again unchanged. Trailers hold `now`; descriptors hold the due time, or
    /// `now` at the maximum rate.
    ///
    /// # Errors
    /// If a frame is outside of the memory: a bug here. Calling again does not help.
    pub fn offer(&mut self, elapsed: u64, now: Nanos) -> Result<Burst<'_>, MisplacedDesc> {
        if self.consumed == self.made {
            self.refill(elapsed, now);
        }
        let memory = match &self.frames {
            Source::Fresh(fresh) => fresh.memory(),
            Source::Kept(kept) => kept.memory(),
        };
        let burst = Burst::over(memory, &self.descs[self.consumed..self.made]);
        debug_assert!(burst.is_ok(), "{burst:?} of {} bytes", memory.len());
        burst
    }

    /// Returns the first `frames` of the last offer, grouped by runs of one stream.
    pub fn by_stream(&self, frames: usize) -> impl Iterator<Item = (u32, &[Desc])> {
        let (mut descs, mut left) = (&self.descs[self.consumed..self.made.min(self.consumed + frames)], self.left);
        self.runs.iter().skip(self.run).map_while(move |run| {
            let count = if left > 0 { left } else { run.count };
            let (own, rest) = descs.split_at(descs.len().min(count as usize));
            (descs, left) = (rest, 0);
            (!own.is_empty()).then_some((run.first.stream, own))
        })
    }

    /// Marks the first `frames` of the last offer as sent.
    pub fn consume(&mut self, frames: usize) {
        let mut frames = frames.min(self.made - self.consumed);
        self.consumed += frames;
        while let Some(run) = self.runs.get(self.run) {
            let now = self.left.min(frames as u64);
            self.sent[run.first.stream as usize] += now;
            frames -= now as usize;
            self.left -= now;
            if self.left > 0 {
                return;
            }
            self.run += 1;
            self.left = self.runs.get(self.run).map_or(0, |run| run.count);
        }
    }

    /// Returns the due time of the first frame not consumed, or of the next command if earlier, in nanoseconds from the
    /// start; `None` after the last frame, and while streams wait for a command.
    pub fn next_due(&self) -> Option<u64> {
        let next = self.runs.get(self.run).map(|run| run.first.due);
        next.or_else(|| self.timeline.next_due())
    }

    /// Returns whether frames have due times.
    pub fn is_paced(&self) -> bool {
        self.paced
    }

    /// Returns whether all frames were consumed.
    pub fn is_over(&self) -> bool {
        self.next_due().is_none() && !self.is_waiting()
    }

    /// Returns the number of frames consumed per stream.
    pub fn sent_per_stream(&self) -> &[u64] {
        &self.sent
    }

    fn refill(&mut self, elapsed: u64, now: Nanos) {
        self.runs.clear();
        let applied = self.timeline.applied();
        self.made = self.timeline.take(elapsed, self.room, &mut self.runs);
        if self.timeline.applied() != applied {
            self.learn();
        }
        self.news.extend(self.timeline.news());
        self.start.get_or_insert(Nanos(now.0.saturating_sub(elapsed)));
        self.make(now);
    }

    /// Updates the streams after commands.
    fn learn(&mut self) {
        self.paced = self.timeline.is_paced();
        for command in self.timeline.arrived() {
            let Action::Begin(batch) = &command.action else { continue };
            let streams = batch.plan.streams.len();
            let places = command.which.places(streams).max().map_or(0, |place| place + 1);
            self.sent.resize(self.sent.len().max(places), 0);
            // Kept frames are only of streams known from the start.
            if let Source::Fresh(fresh) = &mut self.frames {
                fresh.receive(command.which.places(streams), &batch.plan, batch.key);
            }
        }
        let first = self.news.len();
        self.news.extend(self.timeline.news());
        for news in &self.news[first..] {
            // Kept frames have no trailers.
            if let (Source::Fresh(fresh), StreamEvent::Begun { stream, number: Some(number) }) =
                (&mut self.frames, *news)
            {
                fresh.renumber(stream, number);
            }
        }
    }

    /// Makes the frames of the runs.
    fn make(&mut self, now: Nanos) {
        (self.consumed, self.run, self.left) = (0, 0, self.runs.first().map_or(0, |run| run.count));
        let start = self.start.unwrap_or(now);
        match &mut self.frames {
            Source::Fresh(fresh) => fresh.make(&self.runs, now, &mut self.descs),
            Source::Kept(kept) => kept.show(&self.runs, now, &mut self.descs),
        }
        let descs = &mut self.descs[..self.made];
        if self.paced {
            let slots = self.runs.iter().flat_map(|run| run.slots());
            let due = |due| Nanos(start.0.saturating_add(due));
            descs.iter_mut().zip(slots).for_each(|(desc, slot)| desc.time = due(slot.due));
        } else {
            descs.iter_mut().for_each(|desc| desc.time = now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rate;
    use crate::stream::{Mark, Next, Order, Selector, Shape, Stream, Variant};
    use crate::trailer::Key;

    #[test]
    fn frame_without_memory_is_an_error() {
        let stream = Stream {
            name: "one".into(),
            id: 0,
            link: linerate_headers::Link::Ethernet,
            variants: vec![Variant { frame: vec![0; 60], ..Variant::default() }],
            size: Selector::ONE,
            selectors: Vec::new(),
            rate: Rate::Frames(1e6),
            shape: Shape::Even,
            count: Some(10),
            next: Next::Following,
            span: Default::default(),
            mark: Mark::None,
        };
        let set = StreamSet { streams: vec![stream], order: Order::Sequential, rate: None, key: Key::default() };
        let mut traffic = Traffic::new(&set, SenderPart::WHOLE).unwrap();
        assert_eq!(traffic.offer(2_000, Nanos(1)).unwrap().len(), 3);
        traffic.descs[1].offset = u32::MAX - 60;
        let offered = std::panic::catch_unwind(move || traffic.offer(2_000, Nanos(1)).map(|burst| burst.len()));
        // Debug builds panic.
        assert!(if cfg!(debug_assertions) { offered.is_err() } else { offered.unwrap().is_err() });
    }
}
