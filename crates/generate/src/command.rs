//! Commands to running streams: rate, pause, resume, stop, start, begin.
//!
//! A command has a time in the run's schedule, in nanoseconds from its start. Every sender of a part of the streams
//! gets all commands before the schedule reaches their times, so each applies them after the same frame without waiting
//! for others. Frames due before that time are not affected. From it on:
//!
//! - **rate**: the rest of the current gap is scaled like whole gaps; a gap between bursts stays;
//! - **pause** and **resume**: everything of the stream is postponed by the length of the pause. Its numbers continue;
//! - **stop**: no further frame;
//! - **start** of a stopped or finished stream: it restarts with frame 0, under another number in trailers, so that
//!   late frames of before do not count as duplicates;
//! - **begin**: another stream is sent at that place, from its frame 0 on.
//!
//! Other streams keep their times. Those of a set with a common rate keep them too: each stream's share becomes its own
//! rate with the first command.

use crate::Rate;
use crate::timeline::Batch;
use std::sync::Arc;

/// Command to running streams.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// Time from which it applies, in nanoseconds from the start of the run.
    pub at: u64,
    /// Streams it applies to.
    pub which: StreamSelection,
    /// Action to take.
    pub action: Action,
}

/// Selection of streams of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamSelection {
    /// All streams.
    All,
    /// Streams at these indices of the set, ascending.
    Some(Arc<[u32]>),
}

/// Action on streams.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Sets this rate; for all streams of a set with a common rate, the common rate.
    Rate(Rate),
    /// Sets these rates, in the order of the selected streams.
    Rates(Arc<[Rate]>),
    /// Multiplies the rate.
    Scale(f64),
    /// Sends nothing until resumed.
    Pause,
    /// Resumes paused streams.
    Resume,
    /// Sends nothing until started.
    Stop,
    /// Restarts stopped or finished streams. Holds the new stream number in trailers for each selected stream; empty to
    /// keep the numbers.
    Start(Arc<[u32]>),
    /// Begins these streams at the selected places, in order; streams there before end.
    Begin(Arc<Batch>),
}

impl Action {
    /// Returns the new number in trailers of the `nth` selected stream; `None` if it stays.
    pub(crate) fn number(&self, nth: usize) -> Option<u32> {
        if let Action::Start(numbers) = self { numbers.get(nth).copied() } else { None }
    }
}

impl StreamSelection {
    /// Selects the streams with names that match a pattern: `*` stands for any characters, `?` for one.
    pub fn named<'a>(pattern: &str, names: impl Iterator<Item = &'a str>) -> StreamSelection {
        let (mut places, mut streams) = (Vec::new(), 0);
        for (place, name) in names.enumerate() {
            streams += 1;
            if fits(pattern.as_bytes(), name.as_bytes()) {
                places.push(place as u32);
            }
        }
        if places.len() == streams { StreamSelection::All } else { StreamSelection::Some(places.into()) }
    }

    /// Returns the selected indices in a set of `streams` streams.
    pub fn places(&self, streams: usize) -> impl Iterator<Item = usize> + '_ {
        let all = if *self == StreamSelection::All { 0..streams } else { 0..0 };
        let some = if let StreamSelection::Some(places) = self { &places[..] } else { &[] };
        all.chain(some.iter().map(|place| *place as usize))
    }

    /// Returns the rank of the stream at `place` among the selected ones.
    pub fn nth(&self, place: usize) -> Option<usize> {
        match self {
            StreamSelection::All => Some(place),
            StreamSelection::Some(places) => places.binary_search(&u32::try_from(place).ok()?).ok(),
        }
    }

    /// Returns whether no stream is selected.
    pub fn is_none(&self) -> bool {
        matches!(self, StreamSelection::Some(places) if places.is_empty())
    }
}

/// Returns whether a text matches a pattern: on a mismatch the last `*` takes one more character.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut star, mut place) = (0, None, 0);
    while place < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, place));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[place] => (at, place) = (at + 1, place + 1),
            _ => {
                let Some((before, taken)) = star else { return false };
                star = Some((before, taken + 1));
                (at, place) = (before + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_name_streams() {
        let names = ["voip", "video1", "video22", "bulk"];
        let named = |pattern| StreamSelection::named(pattern, names.into_iter());
        assert_eq!(named("*"), StreamSelection::All);
        assert_eq!(named("video*"), StreamSelection::Some([1, 2].into()));
        assert_eq!(named("video?"), StreamSelection::Some([1].into()));
        assert_eq!(named("bulk"), StreamSelection::Some([3].into()));
        assert!(named("v").is_none());
        assert_eq!(named("*i*").places(4).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(StreamSelection::All.places(2).collect::<Vec<_>>(), [0, 1]);
    }

    /// Reference implementation, which tries everything.
    fn plainly(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], text) => text.is_empty(),
            ([b'*', rest @ ..], text) => (0..=text.len()).any(|taken| plainly(rest, &text[taken..])),
            ([b'?', rest @ ..], [_, text @ ..]) => plainly(rest, text),
            ([byte, rest @ ..], [first, text @ ..]) => byte == first && plainly(rest, text),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn patterns_match_like_the_reference(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(fits(pattern.as_bytes(), text.as_bytes()), plainly(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
