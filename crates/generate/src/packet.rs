//! Packets as one line of text, converted to the frames of a stream.
//!
//! `eth/ip(dst=10.0.0.1..10.0.0.9)/udp(dport=53)/payload("hello")`: layers separated by slashes, fields in parentheses.
//! Values not given are computed (lengths, checksums, next-header fields) or defaults; given values are kept, right or
//! wrong. A field with several values makes a stream of different frames. See `docs/streams.md`.
//!
//! ```
//! use linerate_generate::packet::{Setup, frames};
//! let made = frames("ip(dst=10.0.0.1..10.0.0.9)/udp(dport=53)/payload(\"hello\")", &Setup::default())?;
//! assert_eq!((made.variants.len(), made.variants[0].frame.len()), (1, 60));
//! assert_eq!((made.selectors.len(), made.selectors[0].count), (1, 9));
//! assert_eq!(made.variants[0].checksums.len(), 2, "of UDP and of IP");
//! # Ok::<(), linerate_generate::TextError>(())
//! ```

mod express;
mod field_positions;
mod payload;
mod selectors;
mod size;
mod stack;
mod syntax;
mod value;

pub use express::express;
pub use size::{LONGEST, SMALLEST, Sizes, sizes};
pub(crate) use syntax::place;

use crate::rate::{FCS, Rate};
use crate::stream::{Checksum, Fill, Mark, Next, Selector, Shape, Stream, Variant};
use crate::text_error::TextError;
use crate::trailer;
use field_positions::FieldPositions;
use linerate_burst::MAX_FRAME;
use linerate_headers::build::Frame;
use linerate_headers::coverage::{self, HeaderSpan};
use linerate_headers::{Layers, Link, dissect};
use payload::Filler;
use stack::Stack;

/// Reads a frame of a capture file by its name and number (from 1).
pub use stack::Files;

/// Options besides the text.
#[derive(Clone)]
pub struct Setup<'a> {
    /// Link type of the frames, unless the first header determines it.
    pub link: Link,
    /// Frame sizes.
    pub sizes: Sizes,
    /// Identification at the receiver.
    pub mark: Mark,
    /// Seed of all random values.
    pub seed: u64,
    /// Reader of frames in files.
    pub files: Files<'a>,
}

/// Frames of a stream.
#[derive(Clone, Debug)]
pub struct Frames {
    /// Link type: that of the setup, unless the first header determines another.
    pub link: Link,
    /// Variants, one per length.
    pub variants: Vec<Variant>,
    /// Selector of the variant of frame n.
    pub size: Selector,
    /// Selectors of the changing fields.
    pub selectors: Vec<Selector>,
}

impl Frames {
    /// Returns an endless stream of these frames, evenly one per second, identified by `mark`.
    pub fn stream(self, id: u32, mark: Mark) -> Stream {
        let Frames { link, variants, size, selectors } = self;
        Stream {
            name: format!("packet{}", id.saturating_add(1)),
            id,
            link,
            variants,
            size,
            selectors,
            rate: Rate::Frames(1.0),
            shape: Shape::Even,
            count: None,
            next: Next::Following,
            span: Default::default(),
            mark,
        }
    }
}

impl Default for Setup<'_> {
    /// Ethernet frames of 64 bytes or more, without trailers, no files.
    fn default() -> Self {
        let files = &|name: &str, _| Err(format!("{name}: files are not supported here"));
        Setup { link: Link::Ethernet, sizes: Sizes::Natural(SMALLEST), mark: Mark::None, seed: 0, files }
    }
}

/// Makes the frames that a text describes.
///
/// # Errors
/// If the text is not a packet, or the packet cannot be built or does not fit into its size: names the wrong part of
/// the text, and the remedy.
pub fn frames(text: &str, setup: &Setup<'_>) -> Result<Frames, TextError> {
    let stack = Stack::read(text, setup.link, setup.files)?;
    let headers = stack.made()?;
    let headers: Vec<_> = headers.iter().map(AsRef::as_ref).collect();
    let bare = Frame::new(&headers, &[]);
    let length = bare.length().map_err(|error| stack.unbuilt(error))?;
    let mut maker = FrameBuilder { text, stack: &stack, setup, headers: length, places: FieldPositions::default() };
    let (sizes, size) = maker.sizes();
    if sizes.iter().sum::<usize>() > MOST_BYTES {
        let what = format!("{} sizes exceed {MOST_BYTES} bytes in total; use a step", sizes.len());
        return Err(maker.wrong_size(what));
    }
    if let Some(length) = sizes.iter().find(|length| !(1..=MAX_FRAME).contains(*length)) {
        return Err(maker.wrong_size(format!("invalid frame length {length}; expected 1 to {MAX_FRAME} bytes")));
    }
    let first = maker.build(&bare, sizes.first().copied().unwrap_or(length))?;
    maker.places = FieldPositions::find(text, &stack, &first.placed, &first.bytes, setup.seed)?;
    let mut variants = Vec::new();
    for size in sizes {
        variants.push(maker.variant(maker.build(&bare, size)?)?);
    }
    Ok(Frames { link: stack.link(setup.link), variants, size, selectors: maker.places.selectors })
}

/// Maximum memory of the frames of a stream, one of each length.
const MOST_BYTES: usize = 64 << 20;

struct FrameBuilder<'a> {
    text: &'a str,
    stack: &'a Stack<'a>,
    setup: &'a Setup<'a>,
    /// Length of all headers in bytes.
    headers: usize,
    places: FieldPositions<'a>,
}

/// Frame of one length, before any changes.
struct BaseFrame {
    bytes: Vec<u8>,
    placed: Vec<HeaderSpan>,
    /// Start and end of the payload.
    payload: (usize, usize),
}

impl FrameBuilder<'_> {
    /// Returns the captured lengths, and the selector of a frame's length.
    fn sizes(&self) -> (Vec<usize>, Selector) {
        match &self.setup.sizes {
            Sizes::Of(sizes, selector) => (sizes.iter().map(|size| size - FCS as usize).collect(), selector.clone()),
            Sizes::Natural(least) => {
                let payload = &self.stack.payload;
                let trailed = payload.bytes.len() + self.trailer();
                let fixed = self.headers + self.stack.padding.len();
                // Other links have no minimum frame length, so no padding is needed.
                let is_exact = payload.has_length && self.stack.link(self.setup.link) != Link::Ethernet;
                let least = if is_exact { 0 } else { *least };
                let length = match self.stack.whole {
                    true => fixed + payload.bytes.len(),
                    false => (fixed + payload.natural().max(trailed)).max(least.saturating_sub(FCS as usize)),
                };
                (vec![length], Selector::ONE)
            }
        }
    }

    /// Returns an error about the requested size, or about the packet if none was requested.
    fn wrong_size(&self, what: String) -> TextError {
        let of_size = matches!(self.setup.sizes, Sizes::Of(..));
        TextError { of_size, ..TextError::at(self.text, self.text, what) }
    }

    /// Returns the length of the trailer in bytes.
    fn trailer(&self) -> usize {
        if self.setup.mark == Mark::Trailer { trailer::LEN } else { 0 }
    }

    fn build(&self, bare: &Frame<'_>, length: usize) -> Result<BaseFrame, TextError> {
        let (stack, size) = (self.stack, length + FCS as usize);
        let fixed = self.headers + stack.padding.len();
        let need = fixed + stack.payload.bytes.len() + if stack.whole { 0 } else { self.trailer() };
        if length < need {
            let parts = match self.trailer() {
                0 => "",
                _ => " with a trailer of 16 (check = \"count\" needs none)",
            };
            let what =
                format!("frames of {size} bytes are too small: this packet needs {}{parts}", need + FCS as usize);
            return Err(self.wrong_size(what));
        }
        // Without a requested size, a payload has its own length, and Ethernet pads the frame after the packet. A
        // trailer is at the end of both.
        let is_exact = matches!(self.setup.sizes, Sizes::Natural(_)) && stack.payload.has_length && self.trailer() == 0;
        let room = if is_exact { stack.payload.natural().min(length - fixed) } else { length - fixed };
        let payload = stack.payload.make(room, self.setup.seed);
        let frame = Frame { payload: &payload, ..*bare };
        let mut bytes = frame.to_vec().map_err(|error| stack.unbuilt(error))?;
        let mut placed = frame.placed().map_err(|error| stack.unbuilt(error))?;
        let mut payload = (self.headers, bytes.len());
        bytes.extend(&stack.padding);
        bytes.resize(length, 0);
        if stack.whole {
            let mut layers = Layers::new();
            dissect(self.setup.link, &bytes, &mut layers);
            placed = coverage::placed(&bytes, &layers);
            let start = layers.as_slice().last().map_or(0, |layer| layer.end() as usize);
            payload = (start, start + layers.payload(&bytes).len());
        }
        Ok(BaseFrame { bytes, placed, payload })
    }

    fn variant(&self, built: BaseFrame) -> Result<Variant, TextError> {
        let BaseFrame { mut bytes, placed, payload: (start, end) } = built;
        let wrong = |what: String| TextError::at(self.text, self.text, what);
        let trailer = match self.trailer() {
            0 => None,
            length if end - start < length => {
                return Err(self.wrong_size(format!(
                    "the payload has {} bytes, but the trailer needs 16; use longer frames or check = \"count\"",
                    end - start
                )));
            }
            length => Some(end - length),
        };
        let noise = self.stack.payload.filler == Filler::Noise;
        let from = start + self.stack.payload.bytes.len();
        let fill = Fill { offset: from, length: trailer.unwrap_or(end).saturating_sub(from), seed: self.setup.seed };
        let fills: Vec<Fill> = if noise && fill.length > 0 { vec![fill] } else { Vec::new() };
        for (bits, value) in &self.places.constants {
            bits.write(*value, &mut bytes);
        }
        let changes = self.places.changes(&bytes).map_err(wrong)?;
        let mut checksums = coverage::checksums(&bytes, &placed);
        checksums.retain(|sum| !self.places.touches(sum.offset, sum.length()));
        if !self.stack.whole || !self.places.is_empty() || trailer.is_some() {
            checksums.iter().for_each(|sum| sum.fill(&mut bytes));
        }
        let mut taken: Vec<(usize, usize)> = fills.iter().map(|fill| (fill.offset, fill.length)).collect();
        taken.extend(trailer.map(|at| (at, trailer::LEN)));
        if let Some(name) = self.places.overlap(&taken) {
            let what = format!("{name} overlaps another changing field, noise or the trailer");
            return Err(TextError::at(self.text, name, what));
        }
        taken.extend(changes.iter().map(|change| (change.offset, change.width)));
        let checksums = affected(checksums, &taken);
        Ok(Variant { frame: bytes, changes, fills, checksums, trailer })
    }
}

/// Returns the checksums over changing bytes: `places`, and other checksums that change.
fn affected(all: Vec<Checksum>, places: &[(usize, usize)]) -> Vec<Checksum> {
    let mut changing = places.to_vec();
    let mut kept = Vec::new();
    for sum in all {
        let covers = |&(at, length): &(usize, usize)| {
            sum.parts.iter().any(|&(start, end)| at < end && start < at + length) && at != sum.offset
        };
        if changing.iter().any(covers) {
            changing.push((sum.offset, sum.length()));
            kept.push(sum);
        }
    }
    kept
}
