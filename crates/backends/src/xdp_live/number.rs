//! Numbers of up to eight bytes that change from frame to frame.

use super::term::{Half, Term, most};
use linerate_generate::stream::{Change, ChecksumKind, Fill, Stream, Variant};
use linerate_generate::trailer;

/// Bytes of a number, at most.
const WIDEST: usize = 8;

/// A number in a frame, in network byte order.
#[derive(Debug)]
pub struct Number {
    pub offset: usize,
    /// 1 to 8 bytes.
    pub width: usize,
    pub content: Content,
}

/// What a number is.
#[derive(Debug)]
pub enum Content {
    /// These bits, and others that stay.
    Fields { constant: u64, pieces: Vec<Piece> },
    /// Word `word` of a fill.
    Noise { seed: u64, word: u64 },
    /// Stream and sequence of a trailer.
    Name,
    /// Time and check of a trailer.
    Time,
}

/// A run of bits that follow from an index.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Which selector of the stream.
    pub selector: usize,
    /// The selector's greatest index.
    pub most: u64,
    pub term: Term,
    /// So many lower bits of the term are left out, so many are kept, so far up in the number.
    pub right: u32,
    pub bits: u32,
    pub left: u32,
    /// First and last byte in the frame.
    first: usize,
    last: usize,
}

/// What changes in a variant; its bits become 0 in `bytes`.
///
/// # Errors
/// Things outside of the frame or on top of each other, or cut by the edge of what a checksum covers.
pub fn numbers(stream: &Stream, variant: &Variant, frames: u64, bytes: &mut [u8]) -> Result<Vec<Number>, String> {
    let mut claims = Claims { taken: vec![0; bytes.len()], edges: edges(variant) };
    let mut pieces = Vec::new();
    for change in &variant.changes {
        claims.take_change(change)?;
        pieces.extend(pieces_of(stream, change, frames, &claims.edges)?);
    }
    let mut numbers = Vec::new();
    for fill in &variant.fills {
        let at = claims.take("a fill", fill.offset, fill.length)?;
        numbers.extend(noise(fill));
        bytes[at..at + fill.length].fill(0);
    }
    if let Some(offset) = variant.trailer {
        let at = claims.take("the trailer", offset, trailer::LEN)?;
        numbers.push(Number { offset: at, width: 8, content: Content::Name });
        numbers.push(Number { offset: at + 8, width: 8, content: Content::Time });
        bytes[at..at + trailer::LEN].fill(0);
    }
    for number in &numbers {
        claims.check_whole(number.offset, number.width)?;
    }
    for checksum in &variant.checksums {
        let width = if checksum.kind == ChecksumKind::Crc32c { 4 } else { 2 };
        let at = claims.take("a checksum", checksum.offset, width)?;
        claims.check_whole(at, width)?;
    }
    // What does not change at all is a part of the frame.
    pieces.retain(|piece: &Piece| match piece.term.constant() {
        Some(value) => {
            piece.write(value, bytes);
            false
        }
        None => {
            piece.write(0, bytes);
            true
        }
    });
    pieces.sort_by_key(|piece| piece.first);
    let fields = joined(pieces, bytes)?;
    numbers.extend(fields);
    Ok(numbers)
}

/// Which bits of a frame are spoken for, and where checksums begin and end.
struct Claims {
    taken: Vec<u8>,
    edges: Vec<usize>,
}

impl Claims {
    fn take(&mut self, what: &str, offset: usize, width: usize) -> Result<usize, String> {
        let length = self.taken.len();
        let end = offset.checked_add(width).filter(|end| *end <= length);
        let end = end.ok_or_else(|| format!("{what} at {offset} reaches beyond its frame of {length} bytes"))?;
        (offset..end).try_for_each(|at| self.take_bits(what, at, 0xff)).map(|()| offset)
    }

    fn take_change(&mut self, change: &Change) -> Result<(), String> {
        let Change { offset, width, mask, .. } = *change;
        let is_run =
            mask != 0 && (mask >> mask.trailing_zeros()).wrapping_add(1) & (mask >> mask.trailing_zeros()) == 0;
        if !(1..=16).contains(&width) || !is_run || width < 16 && mask >> (8 * width) != 0 {
            return Err(format!("a field at {offset} of {width} bytes with mask {mask:#x}"));
        }
        if offset.checked_add(width).is_none_or(|end| end > self.taken.len()) {
            return Err(format!("a field at {offset} reaches beyond its frame of {} bytes", self.taken.len()));
        }
        (0..width).try_for_each(|at| self.take_bits("a field", offset + width - 1 - at, (mask >> (8 * at)) as u8))
    }

    fn take_bits(&mut self, what: &str, at: usize, bits: u8) -> Result<(), String> {
        if self.taken[at] & bits != 0 {
            return Err(format!("{what} at {at} overlaps something else that changes"));
        }
        self.taken[at] |= bits;
        Ok(())
    }

    /// A checksum has a number wholly or not at all.
    fn check_whole(&self, offset: usize, width: usize) -> Result<(), String> {
        match self.edges.iter().find(|edge| offset < **edge && **edge < offset + width) {
            Some(edge) => Err(format!("a checksum begins or ends at {edge}, inside of what changes")),
            None => Ok(()),
        }
    }
}

fn edges(variant: &Variant) -> Vec<usize> {
    variant.checksums.iter().flat_map(|checksum| &checksum.parts).flat_map(|(first, end)| [*first, *end]).collect()
}

fn noise(fill: &Fill) -> impl Iterator<Item = Number> + '_ {
    (0..fill.length).step_by(8).zip(0..).map(|(at, word)| Number {
        offset: fill.offset + at,
        width: (fill.length - at).min(8),
        content: Content::Noise { seed: fill.seed, word },
    })
}

/// A change as runs of bits that lie in at most eight bytes each and on one side of every edge.
fn pieces_of(stream: &Stream, change: &Change, frames: u64, edges: &[usize]) -> Result<Vec<Piece>, String> {
    let selector = stream.selectors.get(change.selector).ok_or("a field follows a selector that is not there")?;
    let most = most(selector, frames);
    let (low, bits) = (change.mask.trailing_zeros(), change.mask.count_ones());
    let last = change.offset + change.width - 1 - (low / 8) as usize;
    let piece = |term, right, bits: u32, left: u32, last: usize| {
        let first = last - ((left + bits - 1) / 8) as usize;
        Piece { selector: change.selector, most, term, right, bits, left, first, last }
    };
    let whole = if bits <= 64 {
        vec![piece(Term::of(&change.map, most, Half::Only)?, 0, bits, low % 8, last)]
    } else if low % 8 == 0 {
        let upper = Term::of(&change.map, most, Half::Upper)?;
        let lower = Term::of(&change.map, most, Half::Lower)?;
        vec![piece(lower, 0, 64, 0, last), piece(upper, 0, bits - 64, 0, last - 8)]
    } else {
        return Err(format!("a field of {bits} bits that does not end with a byte"));
    };
    Ok(whole.into_iter().flat_map(|piece| piece.cut(edges)).collect())
}

impl Piece {
    /// Parts of it, where it is too wide or a checksum begins or ends in it.
    fn cut(self, edges: &[usize]) -> Vec<Piece> {
        let inside = |edge: &&usize| self.first < **edge && **edge <= self.last;
        let too_wide = (self.last - self.first >= WIDEST).then(|| self.last + 1 - WIDEST);
        let Some(edge) = edges.iter().find(inside).copied().or(too_wide) else { return vec![self] };
        let bits = 8 * (self.last + 1 - edge) as u32 - self.left;
        let lower = Piece { bits, first: edge, ..self.clone() };
        let upper = Piece { right: self.right + bits, bits: self.bits - bits, left: 0, last: edge - 1, ..self };
        [upper, lower].into_iter().flat_map(|piece| piece.cut(edges)).collect()
    }

    /// Writes what a value of the term means.
    fn write(&self, value: u64, bytes: &mut [u8]) {
        let mask = (u64::MAX >> (64 - self.bits)) << self.left;
        let value = value >> self.right << self.left & mask;
        for (at, byte) in bytes[self.first..=self.last].iter_mut().rev().enumerate() {
            *byte = *byte & !((mask >> (8 * at)) as u8) | (value >> (8 * at)) as u8;
        }
    }
}

/// Pieces that share a byte become one number.
fn joined(pieces: Vec<Piece>, bytes: &mut [u8]) -> Result<Vec<Number>, String> {
    let mut groups: Vec<Vec<Piece>> = Vec::new();
    for piece in pieces {
        let last = groups.last().and_then(|group| group.iter().map(|piece| piece.last).max());
        match (groups.last_mut(), last) {
            (Some(group), Some(last)) if piece.first <= last => group.push(piece),
            _ => groups.push(vec![piece]),
        }
    }
    groups.into_iter().map(|group| join(group, bytes)).collect()
}

fn join(mut pieces: Vec<Piece>, bytes: &mut [u8]) -> Result<Number, String> {
    let offset = pieces[0].first;
    let last = pieces.iter().map(|piece| piece.last).max().unwrap_or(offset);
    let width = last + 1 - offset;
    if width > WIDEST {
        return Err(format!("fields from {offset} to {last} share bytes"));
    }
    for piece in &mut pieces {
        piece.left += 8 * (last - piece.last) as u32;
    }
    let place = &mut bytes[offset..=last];
    let constant = place.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    place.fill(0);
    Ok(Number { offset, width, content: Content::Fields { constant, pieces } })
}
