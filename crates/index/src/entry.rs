//! Entries of an index, and the queries that they answer.

use crate::bloom;
use crate::layout::{
    CHECKSUM, ENTRY_HEADER, ENTRY_MAGIC, Form, LONGEST_ENTRY, SET_HEADER, SetKind, checksum, u16_at, u32_at, u64_at,
};
use linerate_burst::Nanos;
use std::ops::Range;

/// The description of a part of a capture file. Its checksum was correct, but its contents are not trusted.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// The part, as a range of bytes of the file.
    pub part: Range<u64>,
    /// Number of frames in it.
    pub frames: u64,
    /// Least and greatest time of a frame.
    pub times: (Nanos, Nanos),
    /// The 8 bytes of the file at the position of the first record's time.
    pub mark: [u8; 8],
    /// Flags, such as [`DESCRIBED`](crate::layout::DESCRIBED).
    pub flags: u32,
    sets: [Option<(Form, &'a [u8])>; SetKind::Addresses as usize + 1],
}

/// A condition on a frame: a set has a value `v` for which `v & mask` is in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Query {
    /// Values of 32 bits or less.
    Value {
        /// The set.
        kind: SetKind,
        /// Relevant bits.
        mask: u32,
        /// Least value.
        least: u32,
        /// Greatest value.
        greatest: u32,
    },
    /// An IPv6 address, with these words known.
    Ipv6([Option<u32>; 4]),
}

impl std::hash::Hash for SetKind {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (*self as u8).hash(state);
    }
}

/// Returns the length in bytes of the entry that begins like this; `None` if it is not an entry.
pub fn length(begin: &[u8]) -> Option<usize> {
    let length = u32_at(begin, 4) as usize;
    let fits = (ENTRY_HEADER + CHECKSUM..=LONGEST_ENTRY).contains(&length) && length.is_multiple_of(8);
    (begin.len() >= 8 && u32_at(begin, 0) == ENTRY_MAGIC && fits).then_some(length)
}

impl<'a> Entry<'a> {
    /// Parses the entry in all of these bytes; `None` if their length or checksum is wrong.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        if length(bytes)? != bytes.len() {
            return None;
        }
        let (content, sum) = bytes.split_at(bytes.len() - CHECKSUM);
        if checksum(content) != u64_at(sum, 0) {
            return None;
        }
        let mut mark = [0; 8];
        mark.copy_from_slice(&content[48..56]);
        let mut entry = Entry {
            part: u64_at(content, 8)..u64_at(content, 16),
            frames: u64_at(content, 24),
            times: (Nanos(u64_at(content, 32)), Nanos(u64_at(content, 40))),
            mark,
            flags: u32_at(content, 56),
            sets: [None; 9],
        };
        let mut rest = &content[ENTRY_HEADER..];
        for _ in 0..u32_at(content, 60) {
            let head = rest.get(..SET_HEADER)?;
            let length = u32_at(head, 4) as usize;
            let values = rest.get(SET_HEADER..)?.get(..length)?;
            // Additions of later versions are skipped.
            if let (Some(kind), Some(form)) = (SetKind::of(head[0]), Form::of(head[1]))
                && holds(kind, form, values)
            {
                entry.sets[kind as usize] = Some((form, values));
            }
            rest = rest.get(SET_HEADER + length.next_multiple_of(8)..)?;
        }
        (entry.part.start <= entry.part.end).then_some(entry)
    }

    /// Returns whether a flag is set.
    pub fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns the link types of its frames; `None` if they may be any.
    pub fn links(&self) -> Option<impl Iterator<Item = u16> + use<'a>> {
        let (_, values) = self.sets[SetKind::Links as usize].filter(|(form, _)| *form == Form::List)?;
        Some(values.chunks_exact(2).map(|value| u16_at(value, 0)))
    }

    /// Returns whether a frame of the part may satisfy the query: true if unknown.
    pub fn may_have(&self, query: Query) -> bool {
        let set = |kind: SetKind| self.sets[kind as usize];
        match query {
            Query::Value { kind: SetKind::Ipv4, mask, least, greatest } => {
                match (set(SetKind::Ipv4), set(SetKind::Addresses)) {
                    (Some((Form::List, values)), _) => any_word(values, mask, least, greatest),
                    (_, Some((Form::Bloom, bits))) if mask == u32::MAX && least == greatest => {
                        bloom::may_hold(bits, bloom::of_ipv4(least))
                    }
                    _ => true,
                }
            }
            Query::Value { kind, mask, least, greatest } => match set(kind) {
                Some((Form::List, values)) if kind.width() == 2 => any_half(values, mask, least, greatest),
                Some((Form::Bits, bits)) => any_bit(bits, mask, least, greatest),
                _ => true,
            },
            Query::Ipv6(words) => match (set(SetKind::Ipv6), set(SetKind::Addresses)) {
                (Some((Form::List, values)), _) => values.chunks_exact(16).any(|value| {
                    // The most significant word is last.
                    words.iter().zip([12, 8, 4, 0]).all(|(word, at)| word.is_none_or(|word| u32_at(value, at) == word))
                }),
                (_, Some((Form::Bloom, bits))) => match words {
                    [Some(a), Some(b), Some(c), Some(d)] => {
                        let address = [a, b, c, d].into_iter().fold(0, |sum: u128, word| sum << 32 | u128::from(word));
                        bloom::may_hold(bits, bloom::of_ipv6(address))
                    }
                    _ => true,
                },
                _ => true,
            },
        }
    }
}

/// Returns whether values of this length are valid for such a set.
fn holds(kind: SetKind, form: Form, values: &[u8]) -> bool {
    match form {
        Form::List => values.len().is_multiple_of(kind.width()) && kind != SetKind::Addresses,
        // One bit per possible value: with fewer, values beyond them would wrongly be answered with no.
        Form::Bits => match kind {
            SetKind::Protocols => values.len() == 32,
            SetKind::Vlans => values.len() == 512,
            SetKind::Ports => values.len() == 8192,
            _ => false,
        },
        Form::Bloom => kind == SetKind::Addresses && !values.is_empty() && values.len().is_multiple_of(bloom::BLOCK),
    }
}

fn any_half(values: &[u8], mask: u32, least: u32, greatest: u32) -> bool {
    let is_in = |value: &[u8; 2]| is_between(u32::from(u16::from_le_bytes(*value)) & mask, least, greatest);
    any(values.as_chunks().0, is_in)
}

fn any_word(values: &[u8], mask: u32, least: u32, greatest: u32) -> bool {
    any(values.as_chunks().0, |value| is_between(u32::from_le_bytes(*value) & mask, least, greatest))
}

#[inline]
fn is_between(value: u32, least: u32, greatest: u32) -> bool {
    value.wrapping_sub(least) <= greatest - least
}

/// Returns whether any value matches. Checks 256 at a time without an early exit, so that the compiler can vectorise
/// it.
#[inline]
fn any<const N: usize>(values: &[[u8; N]], is_it: impl Fn(&[u8; N]) -> bool) -> bool {
    values.chunks(256).any(|some| some.iter().fold(false, |found, value| found | is_it(value)))
}

fn any_bit(bits: &[u8], mask: u32, least: u32, greatest: u32) -> bool {
    let is_set = |value: u32| bits.get(value as usize / 8).is_some_and(|byte| byte & (1 << (value % 8)) != 0);
    if least == greatest && mask >= bits.len() as u32 * 8 - 1 {
        return is_set(least);
    }
    (0..bits.len() as u32 * 8).any(|value| (least..=greatest).contains(&(value & mask)) && is_set(value))
}
