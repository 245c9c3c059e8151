//! What streams are told while they run: how fast, pause, resume, stop, start.
//!
//! A command has a time of the run's schedule, in nanoseconds from its start, and everybody who sends a part of the streams gets all of
//! them before the schedule reaches it: so each does the same behind the same frame, and nobody waits for anybody. Frames due
//! before that time are as if there were no command. From it on:
//!
//! - **rate**: what is left of the gap at that time is longer or shorter by as much as whole gaps are; a gap between bursts stays;
//! - **pause** and **resume**: everything of the stream is due so much later as the pause was long. Its numbers go on;
//! - **stop**: no further frame;
//! - **start** of what was stopped, or has ended: the stream begins anew with its frame 0, under another number in trailers, so that
//!   late frames of before are not taken for repeated ones;
//! - **begin**: another stream is sent at that place, from its frame 0 on.
//!
//! Streams that are not named keep their times. Those of a set with one rate for all together keep them too: what each has of it is
//! its own from the first command on.

use crate::Rate;
use crate::timeline::Batch;
use std::sync::Arc;

/// Something that streams are told.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// From when on, in nanoseconds from the start of the run.
    pub at: u64,
    /// Who.
    pub which: Which,
    /// What.
    pub action: Action,
}

/// Which streams of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// Each.
    All,
    /// Those at these places of the set, ascending.
    Some(Arc<[u32]>),
}

/// What streams can be told.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Go at this rate; where all of a set are told whose streams share one, all together.
    Rate(Rate),
    /// Go each at its own of these, in the order of the places that are named.
    Rates(Arc<[Rate]>),
    /// Go so many times as fast.
    Scale(f64),
    /// Send nothing until resumed.
    Pause,
    /// Go on, if paused.
    Resume,
    /// Send nothing until started.
    Stop,
    /// Begin anew, if stopped or at the end. With the numbers in trailers, of each stream that is named; empty where they stay.
    Start(Arc<[u32]>),
    /// These are sent at the places that are named, in their order, and what was sent there has ended.
    Begin(Arc<Batch>),
}

impl Action {
    /// The number in trailers of a stream that is started, the `nth` of those named; `None` where it stays.
    pub(crate) fn number(&self, nth: usize) -> Option<u32> {
        if let Action::Start(numbers) = self { numbers.get(nth).copied() } else { None }
    }
}

impl Which {
    /// The streams of these names that a pattern fits: `*` stands for any characters, `?` for one.
    pub fn named<'a>(pattern: &str, names: impl Iterator<Item = &'a str>) -> Which {
        let (mut places, mut streams) = (Vec::new(), 0);
        for (place, name) in names.enumerate() {
            streams += 1;
            if fits(pattern.as_bytes(), name.as_bytes()) {
                places.push(place as u32);
            }
        }
        if places.len() == streams { Which::All } else { Which::Some(places.into()) }
    }

    /// Their places in a set of so many.
    pub fn places(&self, streams: usize) -> impl Iterator<Item = usize> + '_ {
        let all = if *self == Which::All { 0..streams } else { 0..0 };
        let some = if let Which::Some(places) = self { &places[..] } else { &[] };
        all.chain(some.iter().map(|place| *place as usize))
    }

    /// Which of those that are named is at a place.
    pub fn nth(&self, place: usize) -> Option<usize> {
        match self {
            Which::All => Some(place),
            Which::Some(places) => places.binary_search(&u32::try_from(place).ok()?).ok(),
        }
    }

    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        matches!(self, Which::Some(places) if places.is_empty())
    }
}

/// Whether a text is as a pattern says: on a mismatch the last `*` takes one character more.
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
        let named = |pattern| Which::named(pattern, names.into_iter());
        assert_eq!(named("*"), Which::All);
        assert_eq!(named("video*"), Which::Some([1, 2].into()));
        assert_eq!(named("video?"), Which::Some([1].into()));
        assert_eq!(named("bulk"), Which::Some([3].into()));
        assert!(named("v").is_none());
        assert_eq!(named("*i*").places(4).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(Which::All.places(2).collect::<Vec<_>>(), [0, 1]);
    }

    /// As the words say, by trying everything.
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
        fn patterns_fit_what_they_say(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(fits(pattern.as_bytes(), text.as_bytes()), plainly(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
