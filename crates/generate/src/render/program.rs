//! The streams of a set, prepared for making frames: what never changes is done once.

use crate::stream::{Change, Checksum, ChecksumKind, Fill, Map, Selector, Stream, StreamSet, Variant};
use crate::trailer;
use std::ops::Range;
use std::sync::Arc;

/// Templates and frames lie at multiples of this, in bytes.
pub(super) const GRAIN: usize = 64;

/// All variants of all streams. Flat, so that streams in turn touch little memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Programs {
    pub variants: Vec<Program>,
    pub streams: Vec<Sizes>,
    pub templates: Vec<u8>,
    pub selectors: Vec<Selector>,
    pub fields: Vec<Field>,
    pub fills: Vec<(Fill, Covers)>,
    pub sums: Vec<Sum>,
    pub covers: Vec<Cover>,
}

/// The variants of a stream: the first one, and which a frame has, where there are more.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    pub first: u32,
    pub size: Option<Selector>,
}

/// How the frames of one variant are made.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// The frame with 0 in everything that changes, filled up to whole [`GRAIN`]s.
    pub template: Range<usize>,
    /// Bytes of the frame.
    pub length: u32,
    pub fields: Range<usize>,
    pub fills: Range<usize>,
    pub sums: Range<usize>,
    pub trailer: Option<Mark>,
}

/// Where a trailer lies, and whose it is.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub offset: usize,
    pub stream: u64,
    pub covers: Covers,
}

/// A field that changes, as one or two runs of at most 8 bytes.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub selector: u32,
    pub map: Values,
    pub place: Place,
    /// The upper bytes of a wide field, whose values then are those of `Values::Wide`.
    pub upper: Option<Box<Place>>,
}

/// Bytes that a value goes to.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub offset: u32,
    pub width: u32,
    /// Its bits in the bytes.
    pub mask: u64,
    pub covers: Covers,
}

/// What an index means.
#[derive(Clone, Debug)]
pub(super) enum Values {
    /// `start + step * index`, shifted.
    Count { start: u64, step: u64, shift: u32 },
    /// The same of an index divided and taken modulo first.
    Divide { start: u64, step: u64, shift: u32, divide: u64, modulo: u64 },
    /// One of these, shifted and masked.
    List(Arc<[u64]>),
    /// Drawn from so many (0: 2^64), and `start` more; shifted.
    Scatter { start: u64, span: u64, seed: u64, shift: u32 },
    /// Anything else.
    Wide(Box<Wide>),
}

/// Values to be shifted and masked in 128 bits.
#[derive(Clone, Debug)]
pub(super) struct Wide {
    pub map: Map,
    pub shift: u32,
    pub mask: u128,
}

/// Which of [`Programs::covers`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Covers {
    first: u32,
    end: u32,
}

/// A checksum of the same variant that covers something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cover {
    /// Which of the variant's.
    pub sum: u32,
    /// Numbers are shifted by this before they are added: 8 where their last byte is the first of a 16-bit word.
    pub shift: u32,
}

/// A checksum over something that changes.
#[derive(Clone, Debug)]
pub(super) struct Sum {
    pub offset: usize,
    pub kind: SumKind,
    /// The sum over what does not change, not folded.
    pub base: u64,
    pub covers: Covers,
}

#[derive(Clone, Debug)]
pub(super) enum SumKind {
    /// Written as 0xffff for 0, or not.
    Internet { no_zero: bool },
    /// To be computed over the whole.
    Crc32c(Checksum),
}

impl Programs {
    /// Of a set that was checked.
    pub fn of(set: &StreamSet) -> Self {
        let mut programs = Programs::default();
        set.streams.iter().for_each(|stream| programs.add(stream));
        programs
    }

    /// Bytes from one frame to the next where each may be the longest.
    pub fn stride(&self) -> usize {
        self.variants.iter().map(|variant| variant.template.len()).max().unwrap_or(GRAIN)
    }

    /// The checksums that cover something.
    pub fn covering(&self, covers: Covers) -> &[Cover] {
        &self.covers[covers.first as usize..covers.end as usize]
    }

    /// The most checksums that one variant has.
    pub fn most_sums(&self) -> usize {
        self.variants.iter().map(|variant| variant.sums.len()).max().unwrap_or(0)
    }

    fn add(&mut self, stream: &Stream) {
        let size = (stream.variants.len() > 1).then(|| stream.size.clone());
        self.streams.push(Sizes { first: self.variants.len() as u32, size });
        let selectors = self.selectors.len();
        self.selectors.extend_from_slice(&stream.selectors);
        for variant in &stream.variants {
            let program = self.program(stream, variant, selectors);
            self.variants.push(program);
        }
    }

    fn program(&mut self, stream: &Stream, variant: &Variant, selectors: usize) -> Program {
        let (template, sums) = still(variant);
        let (templates, fields, fills) = (self.templates.len(), self.fields.len(), self.fills.len());
        let first_sum = self.sums.len();
        let mut changes: Vec<&Change> = variant.changes.iter().collect();
        changes.sort_by_key(|change| change.selector);
        for change in changes {
            let field = self.field(stream, change, selectors, &sums);
            self.fields.push(field);
        }
        for fill in &variant.fills {
            let covers = self.covers(fill.offset, fill.offset, &sums, 0);
            self.fills.push((fill.clone(), covers));
        }
        let mark = |offset| Mark { offset, stream: stream.id.into(), covers: self.covers(offset, offset, &sums, 0) };
        let trailer = variant.trailer.map(mark);
        for (index, sum) in sums.iter().enumerate() {
            let covers = self.covers(sum.offset, sum.offset, &sums, index + 1);
            let (base, kind) = match sum.kind {
                ChecksumKind::Internet { plus, no_zero } => {
                    (u64::from(plus) + words(&template, &sum.parts), SumKind::Internet { no_zero })
                }
                ChecksumKind::Crc32c => (0, SumKind::Crc32c((*sum).clone())),
            };
            self.sums.push(Sum { offset: sum.offset, kind, base, covers });
        }
        self.templates.extend_from_slice(&template);
        self.templates.resize(self.templates.len().next_multiple_of(GRAIN), 0);
        Program {
            template: templates..self.templates.len(),
            length: template.len() as u32,
            fields: fields..self.fields.len(),
            fills: fills..self.fills.len(),
            sums: first_sum..self.sums.len(),
            trailer,
        }
    }

    fn field(&mut self, stream: &Stream, change: &Change, selectors: usize, sums: &[&Checksum]) -> Field {
        // Bytes that the mask leaves alone at either end are no part of it.
        let behind = change.mask.trailing_zeros() as usize / 8;
        let mask = change.mask >> (8 * behind);
        let width = (u128::BITS - mask.leading_zeros()).div_ceil(8) as usize;
        let end = change.offset + change.width - behind;
        let mut place = |end: usize, width: usize, mask: u64| Place {
            offset: (end - width) as u32,
            width: width as u32,
            mask,
            covers: self.covers(end - width, end, sums, 0),
        };
        let (lower, upper) = match width {
            0..=8 => (place(end, width, mask as u64), None),
            _ => (place(end, 8, mask as u64), Some(Box::new(place(end - 8, width - 8, (mask >> 64) as u64)))),
        };
        let shift = mask.trailing_zeros();
        let map = match upper {
            None => narrow(&change.map, stream.selectors[change.selector].count, shift, mask as u64),
            Some(_) => Values::Wide(Box::new(Wide { map: change.map.clone(), shift, mask })),
        };
        Field { selector: (selectors + change.selector) as u32, map, place: lower, upper }
    }

    /// The checksums from number `from` on that cover a number which begins at `offset` and ends at `end`.
    fn covers(&mut self, offset: usize, end: usize, sums: &[&Checksum], from: usize) -> Covers {
        let first = self.covers.len() as u32;
        for (index, sum) in sums.iter().enumerate().skip(from) {
            let part = sum.parts.iter().find(|(first, end)| (*first..*end).contains(&offset));
            if let (Some((start, _)), ChecksumKind::Internet { .. }) = (part, sum.kind) {
                self.covers.push(Cover { sum: index as u32, shift: 8 * ((end - start) as u32 & 1) });
            }
        }
        Covers { first, end: self.covers.len() as u32 }
    }
}

/// The template of a variant, with 0 in all that changes and the checksums over what does not, and the other checksums.
fn still(variant: &Variant) -> (Vec<u8>, Vec<&Checksum>) {
    let mut template = variant.frame.clone();
    let mut moving = Vec::new();
    for change in &variant.changes {
        let bytes = &mut template[change.offset..change.offset + change.width];
        for (byte, mask) in bytes.iter_mut().zip(&change.mask.to_be_bytes()[16 - change.width..]) {
            *byte &= !mask;
        }
        moving.push((change.offset, change.width));
    }
    let fills = variant.fills.iter().map(|fill| (fill.offset, fill.length));
    for (offset, length) in fills.chain(variant.trailer.map(|at| (at, trailer::LEN))) {
        template[offset..offset + length].fill(0);
        moving.push((offset, length));
    }
    let mut sums = Vec::new();
    for sum in &variant.checksums {
        let covers = |place: &(usize, usize)| sum.parts.iter().any(|(first, end)| (*first..*end).contains(&place.0));
        if moving.iter().any(covers) {
            template[sum.offset..sum.offset + sum.kind.width()].fill(0);
            moving.push((sum.offset, sum.kind.width()));
            sums.push(sum);
        } else {
            sum.write(&mut template);
        }
    }
    (template, sums)
}

/// The sum of the 16-bit words of these parts, unfolded.
fn words(frame: &[u8], parts: &[(usize, usize)]) -> u64 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
    parts.iter().map(|(first, end)| frame[*first..*end].chunks(2).map(word).sum::<u64>()).sum()
}

/// What the indices of a selector with `count` of them mean, in 64 bits: where no more are kept, no more are needed.
fn narrow(map: &Map, count: u64, shift: u32, mask: u64) -> Values {
    match map {
        Map::Range { start, step, divide, modulo } => {
            let (start, step) = (*start as u64, *step as u64);
            let whole = *modulo == 0 || (1..=*modulo).contains(&count);
            match *divide {
                1 if whole => Values::Count { start, step, shift },
                divide => Values::Divide { start, step, shift, divide, modulo: *modulo },
            }
        }
        Map::List(values) => Values::List(values.iter().map(|value| (*value as u64) << shift & mask).collect()),
        // Of 2^128 values the lower half is any of 2^64.
        Map::Scatter { start, span, seed } if *span <= u128::from(u64::MAX) => {
            Values::Scatter { start: *start as u64, span: *span as u64, seed: *seed, shift }
        }
        Map::Scatter { .. } => Values::Wide(Box::new(Wide { map: map.clone(), shift, mask: mask.into() })),
    }
}
