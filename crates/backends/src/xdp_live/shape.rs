//! What of a frame is constant and what has to be computed each time.

use super::number::{Number, numbers};
use linerate_generate::stream::{Checksum, ChecksumKind, Stream, Variant};
use linerate_wire::Crc32c;

/// Checksums over what changes, each in a register of its own: those of a tunnel in a tunnel.
pub const MOST_SUMS: usize = 4;

/// One length of a stream's frames, taken apart.
#[derive(Debug)]
pub struct Shape {
    /// The frame with everything constant in it; 0 where something is computed.
    pub bytes: Vec<u8>,
    /// Numbers that change; none overlaps another.
    pub numbers: Vec<Number>,
    /// In which checksums each of them counts.
    pub counts: Vec<Vec<Weight>>,
    /// Checksums over numbers that change, in the order in which they are computed.
    pub sums: Vec<Sum>,
}

/// A checksum that changes.
#[derive(Debug)]
pub struct Sum {
    pub offset: usize,
    /// Of all that is constant.
    pub constant: u16,
    pub no_zero: bool,
    /// In which later ones it counts.
    pub counts: Vec<Weight>,
    /// The greatest sum there can be before it is folded.
    pub most: u64,
}

/// That a number is a part of a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    /// Which of [`Shape::sums`].
    pub sum: usize,
    /// Its last byte is the upper one of a 16-bit word: it counts 256 times.
    ///
    /// 65536 is 1 in one's complement (modulo 65535), so a number of any width counts as it is, or 256 times.
    pub shifted: bool,
}

type Parts<'a> = &'a [(usize, usize)];

impl Shape {
    /// Takes a variant apart, of a stream that sends so many frames at most.
    ///
    /// # Errors
    /// What is in it cannot be computed by a program, or does not fit its frame.
    pub fn of(stream: &Stream, variant: &Variant, frames: u64) -> Result<Shape, String> {
        let mut bytes = variant.frame.clone();
        check_parts(variant)?;
        let numbers = numbers(stream, variant, frames, &mut bytes)?;
        let mut changing: Vec<(usize, usize)> = numbers.iter().map(|number| (number.offset, number.width)).collect();
        let mut sums: Vec<(Sum, Parts<'_>)> = Vec::new();
        for checksum in &variant.checksums {
            let is_covered = |at: usize| checksum.parts.iter().any(|(first, end)| (*first..*end).contains(&at));
            let changes = changing.iter().any(|(at, width)| (*at..at + width).any(is_covered));
            match checksum.kind {
                ChecksumKind::Internet { plus, no_zero } if changes => {
                    bytes[checksum.offset..checksum.offset + 2].fill(0);
                    let constant = sum(&bytes, &checksum.parts, plus);
                    changing.push((checksum.offset, 2));
                    let sum = Sum { offset: checksum.offset, constant, no_zero, counts: Vec::new(), most: 0 };
                    sums.push((sum, &checksum.parts));
                }
                ChecksumKind::Crc32c if changes => return Err("CRC32c over bytes that change".into()),
                _ => write_constant(checksum, &mut bytes),
            }
        }
        if sums.len() > MOST_SUMS {
            return Err(format!("{} checksums over bytes that change in one frame, {MOST_SUMS} at most", sums.len()));
        }
        let covers: Vec<Parts<'_>> = sums.iter().map(|(_, parts)| *parts).collect();
        let counts = numbers.iter().map(|number| weights(&covers, number.offset, number.width)).collect();
        let sums = sums.iter().enumerate().map(|(index, (sum, _))| {
            // Its own bytes count as 0 in itself, and earlier ones were computed before it was.
            let later = weights(&covers, sum.offset, 2).into_iter().filter(|weight| weight.sum > index);
            Sum { counts: later.collect(), ..*sum }
        });
        let mut shape = Shape { bytes, counts, sums: sums.collect(), numbers };
        shape.bound();
        Ok(shape)
    }

    /// Finds how large sums become.
    fn bound(&mut self) {
        let mut most: Vec<u64> = self.sums.iter().map(|sum| sum.constant.into()).collect();
        let mut add = |weights: &[Weight], width: usize| {
            for weight in weights {
                let halves = if width > 4 { 2 * u64::from(u32::MAX) } else { (1 << (8 * width)) - 1 };
                most[weight.sum] += if weight.shifted { halves << 8 } else { halves };
            }
        };
        for (number, counts) in self.numbers.iter().zip(&self.counts) {
            add(counts, number.width);
        }
        for sum in &self.sums {
            add(&sum.counts, 2);
        }
        for (sum, most) in self.sums.iter_mut().zip(most) {
            sum.most = most;
        }
    }
}

fn check_parts(variant: &Variant) -> Result<(), String> {
    let length = variant.frame.len();
    let parts = variant.checksums.iter().flat_map(|checksum| &checksum.parts);
    for (first, end) in parts {
        if first > end || *end > length {
            return Err(format!("a checksum over bytes {first} to {end} of a frame of {length}"));
        }
    }
    Ok(())
}

/// Writes a checksum over what never changes.
fn write_constant(checksum: &Checksum, bytes: &mut [u8]) {
    match checksum.kind {
        ChecksumKind::Internet { plus, no_zero } => {
            bytes[checksum.offset..checksum.offset + 2].fill(0);
            let sum = sum(bytes, &checksum.parts, plus);
            let sum = if no_zero && sum == 0xffff { 0xffff } else { !sum };
            bytes[checksum.offset..checksum.offset + 2].copy_from_slice(&sum.to_be_bytes());
        }
        ChecksumKind::Crc32c => {
            bytes[checksum.offset..checksum.offset + 4].fill(0);
            let crc = checksum.parts.iter().fold(Crc32c::NEW, |crc, (first, end)| crc.with(&bytes[*first..*end]));
            bytes[checksum.offset..checksum.offset + 4].copy_from_slice(&crc.value().to_le_bytes());
        }
    }
}

/// In which checksums a number counts.
fn weights(covers: &[Parts<'_>], offset: usize, width: usize) -> Vec<Weight> {
    let mut found = Vec::new();
    for (sum, parts) in covers.iter().enumerate() {
        for (first, _) in parts.iter().filter(|(first, end)| (*first..*end).contains(&offset)) {
            found.push(Weight { sum, shifted: (offset + width - first) % 2 == 1 });
        }
    }
    found
}

/// The one's complement sum of parts of a frame, in 16 bits.
fn sum(bytes: &[u8], parts: Parts<'_>, plus: u16) -> u16 {
    let words = parts.iter().flat_map(|(first, end)| bytes[*first..*end].chunks(2));
    let mut sum = words.fold(u64::from(plus), |sum, pair| {
        sum + u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))
    });
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
