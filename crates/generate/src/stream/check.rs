//! Validation of a set of streams.

use super::{
    Change, Checksum, IndexSelection, Map, Mark, Next, Order, Selector, Shape, Span, Stream, StreamSet, Variant,
};
use crate::{Rate, trailer};
use linerate_burst::MAX_FRAME;
use std::collections::HashMap;

/// One more than the highest stream number in trailers.
pub const IDS: u32 = 1 << 24;

/// Error in a set of streams.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// Error in the whole set.
    #[error("{0}")]
    Set(String),
    /// Error in one stream.
    #[error("stream {name:?}: {what}")]
    Stream {
        /// Index of the stream, from 0.
        index: usize,
        /// Name given by the user.
        name: String,
        /// Problem and remedy.
        what: String,
    },
}

impl StreamSet {
    /// Returns the first error. If there are none, [`Stream::frame`] and everything else made of this set cannot fail.
    pub fn check(&self) -> Result<(), StreamError> {
        if self.streams.is_empty() {
            return Err(StreamError::Set("no streams; at least one is needed".to_owned()));
        }
        if let Some(rate) = self.rate {
            check_rate(&rate).map_err(StreamError::Set)?;
        }
        let mut ids = HashMap::new();
        for (index, stream) in self.streams.iter().enumerate() {
            let wrong = |what| StreamError::Stream { index, name: stream.name.clone(), what };
            stream.check(self.streams.len()).map_err(wrong)?;
            if stream.link != self.streams[0].link {
                let first = &self.streams[0].name;
                return Err(wrong(format!("its link type differs from that of stream {first:?}; a port takes one")));
            }
            if let Some(other) = ids.insert(stream.id, index) {
                let what = format!("its number {} is that of stream {:?}", stream.id, self.streams[other].name);
                return Err(wrong(what));
            }
        }
        self.check_spans()?;
        self.check_speeds()
    }

    /// Start and end times need streams with times of their own.
    fn check_spans(&self) -> Result<(), StreamError> {
        let Some(index) = self.streams.iter().position(|stream| stream.span != Span::ALWAYS) else { return Ok(()) };
        let what = match (self.order, self.rate) {
            (Order::Sequential, _) => "a start or end time needs interleaved streams; sequential ones end by count",
            (_, Some(_)) => "a start or end time needs a rate per stream, not a common rate",
            _ if self.streams.iter().any(|stream| stream.rate == Rate::Top) => {
                "a start or end time needs a rate; set one other than \"max\""
            }
            _ => return Ok(()),
        };
        Err(StreamError::Stream { index, name: self.streams[index].name.clone(), what: what.to_owned() })
    }

    /// Rejects interleaved streams without a rate among others with one: they would starve the others.
    fn check_speeds(&self) -> Result<(), StreamError> {
        let top = self.streams.iter().find(|stream| stream.rate == Rate::Top);
        let paced = self.streams.iter().find(|stream| stream.rate != Rate::Top);
        match (self.order, top, paced) {
            (Order::Interleaved, Some(top), Some(paced)) => Err(StreamError::Set(format!(
                "stream {:?} has rate \"max\" and {:?} another rate; interleaved streams need all a rate or all \"max\"",
                top.name, paced.name
            ))),
            _ => Ok(()),
        }
    }
}

/// Checks the positions of the frames of a recording.
fn check_places(places: &[f64]) -> Result<(), String> {
    let is_right = places.first() == Some(&0.0) && places.is_sorted();
    // NaN is not sorted either.
    if is_right && places.last().is_some_and(|last| *last <= places.len() as f64) {
        return Ok(());
    }
    Err("invalid positions of a recording; they must begin at 0, not decrease, and end within its gaps".to_owned())
}

fn check_rate(rate: &Rate) -> Result<(), String> {
    match rate {
        Rate::Frames(number) | Rate::Bits(number, _) if !(number.is_finite() && *number > 0.0) => {
            Err(format!("invalid rate {number}; expected a number above 0"))
        }
        _ => Ok(()),
    }
}

impl Stream {
    fn check(&self, streams: usize) -> Result<(), String> {
        if self.id >= IDS {
            return Err(format!("its number {} is too high; expected one below {IDS}", self.id));
        }
        if self.count == Some(0) {
            return Err("count is 0; remove the stream or set count to 1 or more".to_owned());
        }
        check_rate(&self.rate)?;
        match &self.shape {
            Shape::Bursts { frames: 0, .. } => return Err("a burst needs at least one frame".to_owned()),
            Shape::Poisson { .. } if self.rate == Rate::Top => return Err("a Poisson process needs a rate".to_owned()),
            Shape::Recorded(_) if !matches!(self.rate, Rate::Frames(_)) => {
                return Err("a recording needs a rate in packets per second, such as 10kpps".to_owned());
            }
            Shape::Recorded(places) => check_places(places)?,
            _ => {}
        }
        match self.next {
            Next::Goto { stream, .. } if stream >= streams => {
                return Err(format!(
                    "goto stream number {stream}: no such stream; expected one from 0 to below {streams}"
                ));
            }
            _ => {}
        }
        if self.variants.is_empty() || self.size.count != self.variants.len() as u64 {
            let variants = self.variants.len();
            return Err(format!("its size selects from {} lengths, but it has {variants}", self.size.count));
        }
        check_selector(&self.size).map_err(|what| format!("size: {what}"))?;
        for (index, selector) in self.selectors.iter().enumerate() {
            check_selector(selector).map_err(|what| format!("selector {index}: {what}"))?;
        }
        for variant in &self.variants {
            let of = |what| format!("frame of {} bytes: {what}", variant.frame.len());
            variant.check(self.selectors.len()).map_err(of)?;
            if variant.trailer.is_some() != (self.mark == Mark::Trailer) {
                return Err(of("its mark needs a trailer in all frames or in none".to_owned()));
            }
        }
        Ok(())
    }
}

fn check_selector(selector: &Selector) -> Result<(), String> {
    match &selector.pick {
        IndexSelection::InTurn { every: 0 } => Err("each index for 0 frames; expected 1 or more".to_owned()),
        IndexSelection::Weighted { table, .. } if table.rows().len() as u64 != selector.count => {
            Err(format!("{} weights for {} indices", table.rows().len(), selector.count))
        }
        _ => Ok(()),
    }
}

impl Variant {
    fn check(&self, selectors: usize) -> Result<(), String> {
        if self.frame.is_empty() || self.frame.len() > MAX_FRAME {
            return Err(format!("invalid length; expected 1 to {MAX_FRAME} bytes"));
        }
        for change in &self.changes {
            change.check(selectors).map_err(|what| format!("field at byte {}: {what}", change.offset))?;
        }
        let places = self.places();
        self.check_places(&places)?;
        for (index, checksum) in self.checksums.iter().enumerate() {
            let of = |what| format!("checksum at byte {}: {what}", checksum.offset);
            self.check_parts(checksum, &places).map_err(of)?;
            for later in &self.checksums[index + 1..] {
                if checksum.parts.iter().any(|(first, end)| (*first..*end).contains(&later.offset)) {
                    return Err(of(format!("it covers the one at byte {}, which must come first", later.offset)));
                }
            }
        }
        Ok(())
    }

    /// Returns all parts that change.
    fn places(&self) -> Vec<ChangingPart> {
        let changes =
            self.changes.iter().map(|change| ChangingPart::new("field", change.offset, change.width, change.mask));
        let fills = self.fills.iter().map(|fill| ChangingPart::new("fill", fill.offset, fill.length, u128::MAX));
        let checksums =
            self.checksums.iter().map(|sum| ChangingPart::new("checksum", sum.offset, sum.length(), u128::MAX));
        let trailer = self.trailer.iter().map(|at| ChangingPart::new("trailer", *at, trailer::LEN, u128::MAX));
        changes.chain(fills).chain(checksums).chain(trailer).collect()
    }

    /// Checks that they are inside the frame, and that no bit is in two of them.
    fn check_places(&self, places: &[ChangingPart]) -> Result<(), String> {
        let mut taken = vec![0u8; self.frame.len()];
        for place in places {
            let Some(bytes) = taken.get_mut(place.first..place.end) else {
                return Err(format!("{} at byte {} extends beyond the end", place.what, place.first));
            };
            let length = bytes.len();
            for (index, byte) in bytes.iter_mut().enumerate() {
                let bits = if length > 16 { 0xff } else { (place.mask >> (8 * (length - 1 - index))) as u8 };
                if *byte & bits != 0 {
                    return Err(format!("{} at byte {} overlaps another part", place.what, place.first));
                }
                *byte |= bits;
            }
        }
        Ok(())
    }

    /// Checks that ranges are in order and inside the frame, and that each changing part is wholly inside or outside of
    /// a range.
    fn check_parts(&self, checksum: &Checksum, places: &[ChangingPart]) -> Result<(), String> {
        let mut from = 0;
        for (first, end) in &checksum.parts {
            if *first < from || end < first || *end > self.frame.len() {
                return Err(format!("part {first} to {end} is out of order or extends beyond the end"));
            }
            from = *end;
            for place in places {
                let outside = place.end <= *first || *end <= place.first;
                let inside = *first <= place.first && place.end <= *end;
                if !outside && !inside {
                    let ChangingPart { what, first: at, .. } = place;
                    return Err(format!("part {first} to {end} ends within the {what} at byte {at}"));
                }
            }
        }
        Ok(())
    }
}

/// Changing bytes of a frame; up to 16 bytes, only the bits of the mask.
struct ChangingPart {
    what: &'static str,
    first: usize,
    end: usize,
    mask: u128,
}

impl ChangingPart {
    fn new(what: &'static str, offset: usize, length: usize, mask: u128) -> Self {
        ChangingPart { what, first: offset, end: offset.saturating_add(length), mask }
    }
}

impl Change {
    fn check(&self, selectors: usize) -> Result<(), String> {
        if !(1..=16).contains(&self.width) {
            return Err(format!("{} bytes wide; expected 1 to 16", self.width));
        }
        let run = self.mask.checked_shr(self.mask.trailing_zeros()).unwrap_or(0);
        let outside = self.mask.checked_shr(8 * self.width as u32).unwrap_or(0);
        if run == 0 || run & run.wrapping_add(1) != 0 || outside != 0 {
            return Err(format!(
                "mask {:#x}: invalid; expected one run of bits within {} bytes",
                self.mask, self.width
            ));
        }
        if self.selector >= selectors {
            return Err(format!("it uses selector {}, but only {selectors} exist", self.selector));
        }
        match &self.map {
            Map::Range { divide: 0, .. } => Err("its index is divided by 0; expected 1 or more".to_owned()),
            Map::List(values) if values.is_empty() => Err("the list is empty; at least one value is needed".to_owned()),
            _ => Ok(()),
        }
    }
}
