//! Streams analysed once: the constant bytes of their frames, and the changing ones as functions of the frame number.
//!
//! [`Stream::frame`] defines a frame by making it; fast emitters make frames from this plan instead:
//! [`render`](crate::render) in columns in memory, and the port `xdp-live` in a program that the kernel runs. Both only
//! emit; all analysis of a set is done here.
//!
//! ```text
//!   StreamSet, checked
//!      │ Plan::of                                         │ Turns::of (timeline)
//!      ▼                                                  ▼
//!   stream: selectors  frame n ──> index               the next stream,
//!      │    in turn, drawn, weighted                   the gap after each frame,
//!      │                                               the total number of frames
//!      └─ layout, one for each length
//!           template  │ eth │ ip ... 00 src dst │ udp sport .. 00 │ payload │  0 where something changes
//!           fields    index ──term──> number of 1 to 8 bytes, under a mask ─┐
//!           fills     noise of n                                            ├─ covers ──> sums
//!           trailer   stream, n, time, check                               ─┘
//!           sums      of the template; changes are added, then folded (RFC 1624), an inner one before an outer one
//!      │                                                  │
//!      ▼                                                  ▼
//!   render: a loop over all frames of a burst          xdp-live: instructions
//!   for each field, or frame by frame                  for each field, a branch for each layout
//! ```
//!
//! The analysis simplifies the work of both emitters: constant fields are part of the template; a field of more than
//! eight bytes is two numbers, if neither carries into the other; an index in turn that is divided or taken modulo is
//! another index in turn, and equal indices are merged.

mod term;

pub use term::{Term, Wide};

use crate::stream::{Checksum, ChecksumKind, Fill, Next, Order, Selector, Stream, StreamSet, Variant, put};
use crate::trailer;
use linerate_headers::Sum as Sum16;
use std::ops::Range;

/// Alignment of templates in bytes.
pub const GRAIN: usize = 64;

/// Maximum number of frames of a stream: ten million per second for two hundred years.
const MOST_FRAMES: u64 = 1 << 56;

/// Streams of a set. Flat, so that streams in turn touch little memory.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Streams in the order of the set.
    pub streams: Vec<Lengths>,
    /// Layouts of all streams.
    pub layouts: Vec<Layout>,
    /// See [`Layout::template`].
    pub templates: Vec<u8>,
    /// Selectors in use; no two of a stream are equal.
    pub selectors: Vec<Selector>,
    /// See [`Layout::fields`].
    pub fields: Vec<Field>,
    /// See [`Layout::fills`].
    pub fills: Vec<(Fill, SumRange)>,
    /// See [`Layout::sums`].
    pub sums: Vec<Sum>,
    covers: Vec<CoveringSum>,
}

/// Layouts of one stream, one per frame length.
#[derive(Clone, Debug)]
pub struct Lengths {
    /// Range in [`Plan::layouts`].
    pub layouts: Range<usize>,
    /// Range in [`Plan::selectors`].
    pub selectors: Range<usize>,
    /// Selector of the layout, if the stream has several.
    pub size: Option<usize>,
}

/// Frames of one length.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Frame with 0 in all changing bits, padded to whole [`GRAIN`]s.
    pub template: Range<usize>,
    /// Bytes of the frame.
    pub length: u32,
    /// Changing fields, ordered by selector.
    pub fields: Range<usize>,
    /// Fills with noise.
    pub fills: Range<usize>,
    /// Checksums over changing bytes, an inner one before an outer one that covers it.
    pub sums: Range<usize>,
    /// Trailer, if present.
    pub trailer: Option<TrailerPosition>,
}

/// Position and stream number of a trailer.
#[derive(Clone, Debug)]
pub struct TrailerPosition {
    /// Offset of its first byte.
    pub offset: usize,
    /// Stream number.
    pub stream: u32,
    /// Checksums that cover it, each of its two words as a number.
    pub covers: SumRange,
}

/// Changing number.
#[derive(Clone, Debug)]
pub struct Field {
    /// Index into [`Plan::selectors`].
    pub selector: u32,
    /// Maps an index to the number.
    pub term: Term,
    /// Position in the frame.
    pub place: FieldPosition,
    /// Checksums that cover it.
    pub covers: SumRange,
}

/// Bytes that a number is written to.
#[derive(Clone, Copy, Debug)]
pub struct FieldPosition {
    /// Offset of the first byte.
    pub offset: u32,
    /// Number of bytes: 1 to 8.
    pub width: u32,
    /// Bits of the number in them, in network byte order; the others stay.
    pub mask: u64,
}

/// Checksum over changing bytes.
#[derive(Clone, Debug)]
pub struct Sum {
    /// Offset in the frame.
    pub offset: usize,
    /// Algorithm.
    pub kind: SumKind,
    /// Sum over the constant bytes, in 16 bits.
    pub base: u16,
    /// Checksums that cover it.
    pub covers: SumRange,
}

/// Algorithm of a checksum.
#[derive(Clone, Debug)]
pub enum SumKind {
    /// Internet checksum.
    Internet {
        /// True if 0 is written as 0xffff.
        no_zero: bool,
    },
    /// CRC32c, computed over the whole packet.
    Crc32c(Checksum),
}

/// Range of checksums of a layout that cover a number: see [`Plan::covering`].
#[derive(Clone, Copy, Debug)]
pub struct SumRange {
    first: u32,
    end: u32,
}

/// Checksum of the same layout that covers a number.
#[derive(Clone, Copy, Debug)]
pub struct CoveringSum {
    /// Index of the checksum in the layout.
    pub sum: u32,
    /// Shift of numbers before they are added: 8 if their last byte is the first of a 16-bit word. 65536 is 1 in one's
    /// complement (modulo 65535), so otherwise a number of any width counts as it is.
    pub shift: u32,
}

impl Plan {
    /// Analyses a set that was checked.
    pub fn of(set: &StreamSet) -> Self {
        let mut plan = Plan::default();
        let jumps = set.streams.iter().any(|stream| matches!(stream.next, Next::Goto { .. }));
        for stream in &set.streams {
            // In a sequence a stream may be entered again.
            let count = stream.count.filter(|_| set.order == Order::Interleaved || !jumps);
            plan.add(stream, count.unwrap_or(MOST_FRAMES).min(MOST_FRAMES));
        }
        plan
    }

    /// Copies a stream of another plan to a place. Places without a stream have no frames.
    pub(crate) fn put(&mut self, place: usize, other: &Plan, stream: &Lengths) {
        let (first, selectors) = (self.layouts.len(), self.selectors.len());
        let by = |selector: usize| selector - stream.selectors.start + selectors;
        self.selectors.extend_from_slice(&other.selectors[stream.selectors.clone()]);
        for layout in &other.layouts[stream.layouts.clone()] {
            let (fields, fills, sums) = (self.fields.len(), self.fills.len(), self.sums.len());
            for field in &other.fields[layout.fields.clone()] {
                let (selector, covers) = (by(field.selector as usize) as u32, self.covers_of(other, field.covers));
                self.fields.push(Field { selector, covers, ..field.clone() });
            }
            for (fill, covers) in &other.fills[layout.fills.clone()] {
                let covers = self.covers_of(other, *covers);
                self.fills.push((fill.clone(), covers));
            }
            for sum in &other.sums[layout.sums.clone()] {
                let covers = self.covers_of(other, sum.covers);
                self.sums.push(Sum { covers, ..sum.clone() });
            }
            let mark =
                |mark: &TrailerPosition| TrailerPosition { covers: self.covers_of(other, mark.covers), ..mark.clone() };
            let trailer = layout.trailer.as_ref().map(mark);
            let start = self.templates.len();
            self.templates.extend_from_slice(&other.templates[layout.template.clone()]);
            let template = start..self.templates.len();
            let (fields, fills, sums) = (fields..self.fields.len(), fills..self.fills.len(), sums..self.sums.len());
            self.layouts.push(Layout { template, length: layout.length, fields, fills, sums, trailer });
        }
        if self.streams.len() <= place {
            self.streams.resize(place + 1, Lengths { layouts: 0..0, selectors: 0..0, size: None });
        }
        let (layouts, selectors) = (first..self.layouts.len(), selectors..self.selectors.len());
        self.streams[place] = Lengths { layouts, selectors, size: stream.size.map(by) };
    }

    fn covers_of(&mut self, other: &Plan, covers: SumRange) -> SumRange {
        let first = self.covers.len() as u32;
        self.covers.extend_from_slice(other.covering(covers));
        SumRange { first, end: self.covers.len() as u32 }
    }

    /// Returns the template of a layout's frames.
    pub fn template(&self, layout: &Layout) -> &[u8] {
        &self.templates[layout.template.start..][..layout.length as usize]
    }

    /// Returns the checksums that cover a number.
    pub fn covering(&self, covers: SumRange) -> &[CoveringSum] {
        &self.covers[covers.first as usize..covers.end as usize]
    }

    fn add(&mut self, stream: &Stream, frames: u64) {
        let (layouts, selectors) = (self.layouts.len(), self.selectors.len());
        for variant in &stream.variants {
            let layout = self.layout(stream, variant, frames, selectors);
            self.layouts.push(layout);
        }
        let size = (stream.variants.len() > 1).then(|| self.selector(stream.size.clone(), selectors));
        self.streams.push(Lengths {
            layouts: layouts..self.layouts.len(),
            selectors: selectors..self.selectors.len(),
            size,
        });
    }

    /// Returns the index of a selector, adding it unless it is among those from `first` on.
    fn selector(&mut self, selector: Selector, first: usize) -> usize {
        let known = self.selectors[first..].iter().position(|known| *known == selector);
        known.map_or_else(
            || {
                self.selectors.push(selector);
                self.selectors.len() - 1
            },
            |known| first + known,
        )
    }

    fn layout(&mut self, stream: &Stream, variant: &Variant, frames: u64, selectors: usize) -> Layout {
        let mut template = variant.frame.clone();
        let (mut moving, mut numbers) = (Vec::new(), Vec::new());
        for change in &variant.changes {
            for (place, selector, term) in term::numbers(change, &stream.selectors[change.selector], frames) {
                let constant = term.constant(&selector, frames, place.mask);
                place.write(constant.unwrap_or(0), &mut template);
                if constant.is_none() {
                    moving.push((place.offset as usize, place.width as usize));
                    numbers.push((place, self.selector(selector, selectors), term));
                }
            }
        }
        moving.extend(variant.fills.iter().map(|fill| (fill.offset, fill.length)));
        moving.extend(variant.trailer.map(|at| (at, trailer::LEN)));
        let sums = still(variant, moving, &mut template);
        numbers.sort_by_key(|(_, selector, _)| *selector);
        let (fields, fills, first_sum) = (self.fields.len(), self.fills.len(), self.sums.len());
        for (place, selector, term) in numbers {
            let covers = self.covers(place.offset as usize, place.width as usize, &sums, 0);
            self.fields.push(Field { selector: selector as u32, term, place, covers });
        }
        for fill in &variant.fills {
            let covers = self.covers(fill.offset, 0, &sums, 0);
            self.fills.push((fill.clone(), covers));
        }
        let mark = |offset| TrailerPosition { offset, stream: stream.id, covers: self.covers(offset, 0, &sums, 0) };
        let trailer = variant.trailer.map(mark);
        for (index, sum) in sums.iter().enumerate() {
            // Its own bytes count as 0 in itself, and earlier checksums are computed before it.
            let covers = self.covers(sum.offset, 0, &sums, index + 1);
            let (base, kind) = match sum.kind {
                ChecksumKind::Internet { plus, no_zero } => {
                    let parts = sum.parts.iter().map(|(first, end)| &template[*first..*end]);
                    (parts.fold(Sum16::ZERO.with_word(plus), Sum16::with).folded(), SumKind::Internet { no_zero })
                }
                ChecksumKind::Crc32c => (0, SumKind::Crc32c((*sum).clone())),
            };
            self.sums.push(Sum { offset: sum.offset, kind, base, covers });
        }
        let start = self.templates.len();
        self.templates.extend_from_slice(&template);
        self.templates.resize(self.templates.len().next_multiple_of(GRAIN), 0);
        Layout {
            template: start..self.templates.len(),
            length: template.len() as u32,
            fields: fields..self.fields.len(),
            fills: fills..self.fills.len(),
            sums: first_sum..self.sums.len(),
            trailer,
        }
    }

    /// Returns the checksums from index `from` on that cover a number; the width of whole 16-bit words may be 0.
    fn covers(&mut self, offset: usize, width: usize, sums: &[&Checksum], from: usize) -> SumRange {
        let first = self.covers.len() as u32;
        for (index, sum) in sums.iter().enumerate().skip(from) {
            let part = sum.parts.iter().find(|(first, end)| (*first..*end).contains(&offset));
            if let (Some((start, _)), ChecksumKind::Internet { .. }) = (part, sum.kind) {
                self.covers.push(CoveringSum { sum: index as u32, shift: 8 * ((offset + width - start) as u32 & 1) });
            }
        }
        SumRange { first, end: self.covers.len() as u32 }
    }
}

impl FieldPosition {
    /// Returns the place of a number that ends before byte `end`.
    fn before(end: usize, width: usize, mask: u64) -> Self {
        FieldPosition { offset: (end - width) as u32, width: width as u32, mask }
    }

    /// Writes a number that is shifted to the mask.
    fn write(&self, number: u64, frame: &mut [u8]) {
        let bytes = &mut frame[self.offset as usize..][..self.width as usize];
        put(bytes, self.mask.into(), (number >> self.mask.trailing_zeros()).into());
    }
}

/// Clears the changing bytes (`moving`) and the checksums over them, which are returned; computes the other checksums.
fn still<'a>(variant: &'a Variant, mut moving: Vec<(usize, usize)>, template: &mut [u8]) -> Vec<&'a Checksum> {
    let fills = variant.fills.iter().map(|fill| (fill.offset, fill.length));
    for (offset, length) in fills.chain(variant.trailer.map(|at| (at, trailer::LEN))) {
        template[offset..offset + length].fill(0);
    }
    let mut sums = Vec::new();
    for sum in &variant.checksums {
        let covers = |place: &(usize, usize)| sum.parts.iter().any(|(first, end)| (*first..*end).contains(&place.0));
        if moving.iter().any(covers) {
            template[sum.offset..sum.offset + sum.length()].fill(0);
            moving.push((sum.offset, sum.length()));
            sums.push(sum);
        } else {
            sum.fill(template);
        }
    }
    sums
}
