//! The order and times of a set as a rule that derives each frame from the one before, where such a rule exists.

use super::sequence::Sequence;
use crate::Rate;
use crate::stream::{Next, Order, Shape, Span, Stream, StreamSet};

/// Order of a set's frames.
#[derive(Clone, Debug)]
pub struct Turns {
    /// Kind of order.
    pub kind: Kind,
    /// Total number of frames; `u64::MAX` if endless or unknown in advance.
    pub frames: u64,
    /// Gap after a frame of each stream.
    pub paces: Vec<Pace>,
}

/// Order of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One stream, which ends after its last frame.
    One,
    /// Streams take turns, each until it has sent its frames.
    Round,
    /// One after the other, by [`Stream::next`].
    Sequence,
}

/// Gap after the frames of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Rate.
    pub rate: Rate,
    /// True if the gap follows a frame of each stream.
    pub by_round: bool,
    /// Number of frames in a burst, and the extra gap after it in nanoseconds.
    pub burst: Option<(u64, u64)>,
}

impl Turns {
    /// Derives the rule of a set that was checked.
    ///
    /// # Errors
    /// The reason why only the [`Timeline`](super::Timeline) keeps its order or its times.
    pub fn of(set: &StreamSet) -> Result<Turns, String> {
        let streams = &set.streams;
        if let Some(stream) = streams.iter().find(|stream| stream.span != Span::ALWAYS) {
            return Err(format!("stream {:?} has its own start or end time", stream.name));
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
            // With a common rate a stream's own times only decide its turns.
            (Order::Interleaved, _, Some(rate)) => vec![Pace { rate, by_round: false, burst: None }],
            _ => streams.iter().map(|stream| pace(stream, set.rate)).collect::<Result<_, _>>()?,
        };
        Ok(Turns { kind, frames: frames.unwrap_or(u64::MAX), paces })
    }

    /// Returns whether frames have due times; else they are sent as fast as the port can.
    pub fn is_paced(&self) -> bool {
        self.paces.iter().any(|pace| !pace.is_top())
    }
}

impl Pace {
    /// Returns whether frames are sent as fast as the port can.
    pub fn is_top(&self) -> bool {
        self.rate == Rate::Top && self.burst.is_none()
    }
}

fn pace(stream: &Stream, common: Option<Rate>) -> Result<Pace, String> {
    let burst = match stream.shape {
        Shape::Even => None,
        Shape::Bursts { frames, gap } => Some((frames, gap)),
        Shape::Poisson { .. } => return Err(format!("stream {:?} has Poisson gaps", stream.name)),
        Shape::Recorded(_) => return Err(format!("stream {:?} has recorded gaps", stream.name)),
    };
    Ok(Pace { rate: common.unwrap_or(stream.rate), by_round: false, burst })
}

fn paces_of_round(set: &StreamSet) -> Result<Vec<Pace>, String> {
    let first = &set.streams[0];
    if let Some(stream) = set.streams.iter().find(|stream| stream.shape != Shape::Even) {
        return Err(format!("stream {:?} is interleaved with others and has uneven gaps", stream.name));
    }
    if let Some(stream) = set.streams.iter().find(|stream| stream.rate != first.rate) {
        return Err(format!("interleaved streams {:?} and {:?} have different rates", first.name, stream.name));
    }
    let mut lengths = set.streams.iter().flat_map(|stream| &stream.variants).map(|variant| variant.frame.len());
    let length = lengths.next();
    if matches!(first.rate, Rate::Bits(..)) && lengths.any(|other| Some(other) != length) {
        return Err("interleaved streams have a bit rate and different frame lengths".into());
    }
    let pace = Pace { rate: set.rate.unwrap_or(first.rate), by_round: set.rate.is_none(), burst: None };
    Ok(vec![pace; set.streams.len()])
}
