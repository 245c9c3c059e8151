//! Streams in sequence, among others that are interleaved.
//!
//! One stream of a sequence has a round at a time. When it has sent its frames, the next one takes over that round, due
//! when its predecessor has taken its time, and continues its numbers: like a [sequence](crate::timeline) of its own.

use super::Round;
use super::commands::CommandState;
use crate::command::StreamSelection;
use crate::stream::Next;
use crate::timeline::clock::Clock;
use crate::timeline::{Batch, StreamEvent, UNLIMITED};
use std::sync::Arc;

/// One stream of a sequence.
#[derive(Clone, Debug)]
pub(in crate::timeline) struct Link {
    /// All streams of the sequence in order, and the index of this one.
    members: Arc<[u32]>,
    at: usize,
    next: Next,
    /// Number of jumps since the sequence last continued.
    gone: u64,
    /// Frames per pass.
    count: u64,
    /// Position while others have their turn.
    clock: Clock,
}

impl CommandState {
    /// Links the streams of a batch to a sequence, if it has one.
    pub(super) fn link(&mut self, which: &StreamSelection, batch: &Batch) {
        let members: Arc<[u32]> = which.places(batch.streams.len()).map(|place| place as u32).collect();
        members.iter().for_each(|place| drop(self.links.remove(place)));
        for (at, ((next, (clock, count)), place)) in
            batch.nexts.iter().zip(&batch.streams).zip(&members[..]).enumerate()
        {
            let (members, clock) = (Arc::clone(&members), clock.clone());
            self.links.insert(*place, Link { members, at, next: *next, gone: 0, count: *count, clock });
        }
    }

    /// Returns whether a stream is the first of its sequence; `None` if it is in none.
    pub(super) fn is_first(&self, place: u32) -> Option<bool> {
        self.links.get(&place).map(|link| link.at == 0)
    }

    /// Adds the other streams of the sequences of `ended`, which end with them.
    pub(super) fn unlinked(&mut self, ended: Vec<u32>) -> Vec<u32> {
        let mut all = Vec::new();
        for stream in ended {
            match self.links.get(&stream).map(|link| Arc::clone(&link.members)) {
                Some(members) => all.extend(members.iter().filter(|place| self.links.remove(place).is_some())),
                None => all.push(stream),
            }
        }
        all
    }

    /// Applies the current rates to streams that wait for their turn.
    pub(super) fn pace_links(&mut self) {
        for (place, link) in &mut self.links {
            link.clock.rate = self.origins[*place as usize].rate;
        }
    }
}

impl Round {
    /// Advances by one frame; after the last one of a pass another stream takes over the round, or none.
    pub(super) fn follow(&mut self, commanded: &mut CommandState, news: Option<&mut Vec<StreamEvent>>) {
        self.turn = 0;
        self.clock.advance(1);
        if self.clock.number() < self.ends {
            return;
        }
        let due = self.clock.due();
        let Some(link) = self.members.first().and_then(|place| commanded.links.get_mut(place)) else { return };
        link.clock = self.clock.clone();
        let after = Some(link.at + 1);
        let next = match link.next {
            Next::Goto { stream, times } if times.is_none_or(|times| link.gone < times) => {
                link.gone += u64::from(times.is_some());
                Some(stream)
            }
            Next::Goto { .. } => {
                link.gone = 0;
                after
            }
            Next::Following => after,
            Next::Stop => None,
        };
        let members = Arc::clone(&link.members);
        self.members.clear();
        let Some((place, link)) =
            next.and_then(|next| members.get(next)).and_then(|place| Some((*place, commanded.links.get(place)?)))
        else {
            let ended = members.iter().map(|stream| StreamEvent::Ended { stream: *stream });
            news.into_iter().for_each(|news| news.extend(ended.clone()));
            members.iter().for_each(|place| drop(commanded.links.remove(place)));
            return;
        };
        self.members.push(place);
        self.clock = link.clock.clone();
        self.clock.set_due(due);
        self.ends = if link.count == UNLIMITED { UNLIMITED } else { self.clock.number().saturating_add(link.count) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rate;
    use crate::command::{Action, Command};
    use crate::stream::{Mark, Order, Selector, Shape, Span, Stream, StreamSet, Variant};
    use crate::timeline::{Run, SenderPart, Slot, Timeline};
    use crate::trailer::Key;
    use proptest::prelude::*;

    const MOST: usize = 200;
    const AT: u64 = 5000;

    fn stream(id: u32, (count, rate, shape): (u64, u32, u8), next: Next) -> Stream {
        Stream {
            name: id.to_string(),
            id,
            link: linerate_headers::Link::Ethernet,
            variants: vec![Variant { frame: vec![0; 60], ..Variant::default() }],
            size: Selector::ONE,
            selectors: Vec::new(),
            rate: Rate::Frames(f64::from(rate)),
            shape: if shape == 0 { Shape::Bursts { frames: 2, gap: 700 } } else { Shape::Even },
            count: Some(count),
            next,
            span: Span::ALWAYS,
            mark: Mark::None,
        }
    }

    fn taken(timeline: &mut Timeline) -> Vec<Slot> {
        let mut runs: Vec<Run> = Vec::new();
        while runs.len() < MOST && timeline.take(u64::MAX >> 1, 1, &mut runs) > 0 {}
        runs.iter().flat_map(|run| run.slots()).collect()
    }

    fn begin(timeline: &mut Timeline, at: u64, places: &[u32], batch: Batch) {
        timeline.command(Command {
            at,
            which: StreamSelection::Some(places.into()),
            action: Action::Begin(Arc::new(batch)),
        });
    }

    fn ended(timeline: &mut Timeline) -> usize {
        timeline.news().into_iter().filter(|news| matches!(news, StreamEvent::Ended { .. })).count()
    }

    proptest! {
        /// Streams behave as in a set of their own, with and without another stream.
        #[test]
        fn consecutive_streams_behave_as_in_their_own_set(
            made in proptest::collection::vec(((1u64..5, 100_000u32..1_000_000, 0u8..3), 0u8..6, 0usize..4, 0u64..3), 1..5),
            has_other in any::<bool>(),
        ) {
            let all = made.len();
            let next = |kind: u8, to: usize, times: u64| match kind {
                0 => Next::Stop,
                1 => Next::Goto { stream: to % all, times: None },
                2 | 3 => Next::Goto { stream: to % all, times: Some(times) },
                _ => Next::Following,
            };
            let of = |(id, (form, kind, to, times)): (u32, &(_, u8, usize, u64))| stream(id, *form, next(*kind, *to, *times));
            let streams: Vec<Stream> = (0..).zip(&made).map(of).collect();
            let set = StreamSet { streams: streams.clone(), order: Order::Sequential, rate: None, key: Key::default() };
            let wanted = taken(&mut Timeline::new(&set, SenderPart::WHOLE).unwrap());
            let mut timeline = Timeline::coming();
            let places: Vec<u32> = (0..all as u32).collect();
            begin(&mut timeline, AT, &places, Batch::sequence(streams, Key::default()).unwrap());
            if has_other {
                let other = stream(90, (3, 400_000, 1), Next::Following);
                begin(&mut timeline, AT, &[all as u32], Batch::new(vec![other], Key::default()).unwrap());
            }
            let got = taken(&mut timeline).into_iter().filter(|slot| slot.stream < all as u32);
            let got: Vec<Slot> = got.collect();
            prop_assert!(got.len() + 3 >= wanted.len() && got.len() <= wanted.len(), "{} of {}", got.len(), wanted.len());
            for (got, wanted) in got.iter().zip(&wanted) {
                prop_assert_eq!((got.stream, got.number), (wanted.stream, wanted.number));
                prop_assert!(got.due.abs_diff(wanted.due + AT) <= 1, "{:?} {:?}", got, wanted);
            }
            if wanted.len() < MOST - 3 {
                prop_assert_eq!(ended(&mut timeline), all + usize::from(has_other), "all end together");
            }
        }
    }

    #[test]
    fn all_streams_are_paused_paced_and_stopped_together() {
        let even = (2, 1_000_000, 1);
        let streams = vec![stream(0, even, Next::Following), stream(1, even, Next::Goto { stream: 0, times: None })];
        let mut timeline = Timeline::coming();
        let which = StreamSelection::Some([0, 1].into());
        begin(&mut timeline, 0, &[0, 1], Batch::sequence(streams, Key::default()).unwrap());
        let mut command = |at, action| timeline.command(Command { at, which: which.clone(), action });
        command(4500, Action::Pause);
        command(14_500, Action::Resume);
        command(20_000, Action::Rates([Rate::Frames(500_000.0), Rate::Frames(250_000.0)].into()));
        command(60_000, Action::Stop);
        let mut runs = Vec::new();
        // Every command is applied when it is due.
        (0..70_000).step_by(100).for_each(|elapsed| while timeline.take(elapsed, 1, &mut runs) > 0 {});
        let slots: Vec<Slot> = runs.iter().flat_map(|run| run.slots()).collect();
        let sent: Vec<(u32, u64, u64)> = slots.iter().map(|slot| (slot.stream, slot.number, slot.due)).collect();
        let head = [(0, 0, 0), (0, 1, 1000), (1, 0, 2000), (1, 1, 3000), (0, 2, 4000), (0, 3, 15_000), (1, 2, 16_000)];
        assert_eq!(sent[..7], head);
        let after: Vec<u64> = slots.iter().map(|slot| slot.due).filter(|due| *due >= 22_000).collect();
        assert!(after.windows(2).all(|pair| [2000, 4000].contains(&(pair[1] - pair[0]))), "{after:?}");
        assert!(after.len() > 10 && after.iter().all(|due| *due < 60_000), "{after:?}");
        assert_eq!(ended(&mut timeline), 2);
    }
}
