//! The order and the times of a set as a rule that one frame follows from the one before, where there is such a rule.

use super::sequence::Sequence;
use crate::Rate;
use crate::stream::{Next, Order, Shape, Span, Stream, StreamSet};

/// The order of a set's frames.
#[derive(Clone, Debug)]
pub struct Turns {
    /// Whose turn follows whose.
    pub kind: Kind,
    /// Frames in all; `u64::MAX` without end, or where it shows only when they are sent.
    pub frames: u64,
    /// What follows a frame of each stream.
    pub paces: Vec<Pace>,
}

/// How streams follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// There is one, which ends behind its last frame.
    One,
    /// They take turns, each until it has sent its frames.
    Round,
    /// One after the other, as [`Stream::next`] says.
    Sequence,
}

/// The gap behind the frames of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How fast.
    pub rate: Rate,
    /// The gap lies behind a frame of each stream.
    pub by_round: bool,
    /// After so many frames there are so many nanoseconds more.
    pub burst: Option<(u64, u64)>,
}

impl Turns {
    /// Of a set that was checked.
    ///
    /// # Errors
    /// Why only the [`Timeline`](super::Timeline) keeps its order or its times.
    pub fn of(set: &StreamSet) -> Result<Turns, String> {
        let streams = &set.streams;
        if let Some(stream) = streams.iter().find(|stream| stream.span != Span::ALWAYS) {
            return Err(format!("stream {:?} begins or ends at a time of its own", stream.name));
        }
        let (kind, frames) = match (set.order, &streams[..]) {
            (Order::Sequential, [stream]) if !matches!(stream.next, Next::Goto { .. }) => (Kind::One, stream.count),
            (Order::Sequential, _) => (Kind::Sequence, Sequence::new(set, u64::MAX).frames()),
            (Order::Interleaved, [stream]) => (Kind::One, stream.count),
            (Order::Interleaved, _) => {
                (Kind::Round, streams.iter().try_fold(0u64, |all, stream| all.checked_add(stream.count?)))
            }
        };
        let paces = match (set.order, kind, set.rate) {
            (Order::Interleaved, Kind::Round, _) => paces_of_round(set)?,
            // A stream's own times decide on nothing but its turns where there is a rate of all.
            (Order::Interleaved, _, Some(rate)) => vec![Pace { rate, by_round: false, burst: None }],
            _ => streams.iter().map(|stream| pace(stream, set.rate)).collect::<Result<_, _>>()?,
        };
        Ok(Turns { kind, frames: frames.unwrap_or(u64::MAX), paces })
    }

    /// Whether frames are due at times of their own; else they leave as fast as the port can.
    pub fn is_paced(&self) -> bool {
        self.paces.iter().any(|pace| !pace.is_top())
    }
}

impl Pace {
    /// As fast as the port can.
    pub fn is_top(&self) -> bool {
        self.rate == Rate::Top && self.burst.is_none()
    }
}

fn pace(stream: &Stream, common: Option<Rate>) -> Result<Pace, String> {
    let burst = match stream.shape {
        Shape::Even => None,
        Shape::Bursts { frames, gap } => Some((frames, gap)),
        Shape::Poisson { .. } => return Err(format!("stream {:?} has the gaps of a Poisson process", stream.name)),
        Shape::Recorded(_) => return Err(format!("stream {:?} has the gaps of a recording", stream.name)),
    };
    Ok(Pace { rate: common.unwrap_or(stream.rate), by_round: false, burst })
}

fn paces_of_round(set: &StreamSet) -> Result<Vec<Pace>, String> {
    let first = &set.streams[0];
    if let Some(stream) = set.streams.iter().find(|stream| stream.shape != Shape::Even) {
        return Err(format!("stream {:?} is interleaved with others and not evenly spaced", stream.name));
    }
    if let Some(stream) = set.streams.iter().find(|stream| stream.rate != first.rate) {
        return Err(format!("interleaved streams of different rates, as {:?} and {:?}", first.name, stream.name));
    }
    let mut lengths = set.streams.iter().flat_map(|stream| &stream.variants).map(|variant| variant.frame.len());
    let length = lengths.next();
    if matches!(first.rate, Rate::Bits(..)) && lengths.any(|other| Some(other) != length) {
        return Err("interleaved streams of a rate in bits and frames of different lengths".into());
    }
    let pace = Pace { rate: set.rate.unwrap_or(first.rate), by_round: set.rate.is_none(), burst: None };
    Ok(vec![pace; set.streams.len()])
}
