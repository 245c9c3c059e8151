//! Which stream the next frame is of, how many there are, and how far apart they are.

use linerate_generate::Rate;
use linerate_generate::stream::{Next, Order, Shape, Stream, StreamSet};

/// Streams of one program.
pub const MOST_STREAMS: usize = 64;
/// Passes of a sequence that are followed to find its end before it runs.
const FOLLOWED: usize = 100_000;

/// The order of a set's frames.
#[derive(Debug)]
pub struct Turns {
    pub kind: Kind,
    /// Frames in all; `u64::MAX` without end, or where it shows only when they are sent.
    pub limit: u64,
    /// What follows a frame of each stream.
    pub paces: Vec<Pace>,
}

/// How streams follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// There is one.
    One,
    /// They take turns; with `same` until the end, else each until it has sent its frames.
    Round { same: bool },
    /// One after the other.
    Sequence,
}

/// The gap behind the frames of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub rate: Rate,
    /// The gap lies behind a frame of each stream.
    pub by_round: bool,
    /// After so many frames there are so many nanoseconds more.
    pub burst: Option<(u64, u64)>,
}

impl Turns {
    /// Of a set.
    ///
    /// # Errors
    /// An order or times that programs do not keep, or a set that is wrong.
    pub fn of(set: &StreamSet) -> Result<Turns, String> {
        let streams = &set.streams;
        if streams.is_empty() || streams.len() > MOST_STREAMS {
            return Err(format!("{} streams, where a program has 1 to {MOST_STREAMS}", streams.len()));
        }
        let kind = match (streams.len(), set.order) {
            (1, _) => Kind::One,
            (_, Order::Sequential) => Kind::Sequence,
            (_, Order::Interleaved) => {
                Kind::Round { same: streams.iter().all(|stream| stream.count == streams[0].count) }
            }
        };
        let limit = match kind {
            Kind::One if set.order == Order::Sequential => limit_of_one(&streams[0])?,
            Kind::One => streams[0].count.unwrap_or(u64::MAX),
            Kind::Round { .. } => {
                streams.iter().map(|stream| stream.count.unwrap_or(u64::MAX)).fold(0, u64::saturating_add)
            }
            Kind::Sequence => limit_of_sequence(streams)?,
        };
        let paces = match (kind, set.order, set.rate) {
            (Kind::Round { .. }, ..) => paces_of_round(set)?,
            // Interleaved: a stream's own times decide on nothing but its turns where there is a rate of all.
            (Kind::One, Order::Interleaved, Some(rate)) => vec![Pace { rate, by_round: false, burst: None }],
            _ => streams.iter().map(|stream| pace(stream, set.rate)).collect::<Result<_, _>>()?,
        };
        Ok(Turns { kind, limit, paces })
    }

    /// How many frames a stream of the set sends at most.
    pub fn most_of(&self, stream: &Stream, set: &StreamSet) -> u64 {
        let jumps = |stream: &Stream| matches!(stream.next, Next::Goto { .. });
        match self.kind {
            Kind::One => self.limit,
            Kind::Sequence if set.streams.iter().any(jumps) => u64::MAX,
            Kind::Round { .. } | Kind::Sequence => stream.count.unwrap_or(u64::MAX),
        }
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

fn limit_of_one(stream: &Stream) -> Result<u64, String> {
    let count = stream.count.unwrap_or(u64::MAX);
    match stream.next {
        Next::Following | Next::Stop => Ok(count),
        Next::Goto { stream: 0, times: None } => Ok(if count == 0 { 0 } else { u64::MAX }),
        Next::Goto { stream: 0, times: Some(times) } => Ok(count.saturating_mul(times.saturating_add(1))),
        Next::Goto { stream: other, .. } => Err(format!("stream {:?} goes to stream {other} of 1", stream.name)),
    }
}

/// The frames of a whole sequence.
fn limit_of_sequence(streams: &[Stream]) -> Result<u64, String> {
    for stream in streams {
        match stream.next {
            Next::Goto { stream: to, .. } if to >= streams.len() => {
                return Err(format!("stream {:?} goes to stream {to} of {}", stream.name, streams.len()));
            }
            _ if stream.count == Some(0) => {
                return Err(format!("stream {:?} of a sequence sends no frame", stream.name));
            }
            _ => {}
        }
    }
    let times = |stream: &Stream| match stream.next {
        Next::Goto { times: Some(times), .. } => times,
        _ => 0,
    };
    let mut left: Vec<u64> = streams.iter().map(times).collect();
    let (mut at, mut frames) = (0, 0u64);
    for _ in 0..FOLLOWED {
        let Some(stream) = streams.get(at) else { return Ok(frames) };
        let Some(count) = stream.count else { return Ok(u64::MAX) };
        frames = frames.saturating_add(count);
        at = match stream.next {
            Next::Following => at + 1,
            Next::Stop => return Ok(frames),
            Next::Goto { stream: to, times: None } => to,
            Next::Goto { stream: to, .. } if left[at] > 0 => {
                left[at] -= 1;
                to
            }
            Next::Goto { .. } => {
                left[at] = times(stream);
                at + 1
            }
        };
    }
    Ok(u64::MAX)
}

fn pace(stream: &Stream, common: Option<Rate>) -> Result<Pace, String> {
    let burst = match stream.shape {
        Shape::Even => None,
        Shape::Bursts { frames, gap } => Some((frames.max(1), gap)),
        Shape::Poisson { .. } => return Err(format!("stream {:?} has the gaps of a Poisson process", stream.name)),
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
