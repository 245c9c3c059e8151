//! What of a template is constant and what has to be computed for each frame.

use crate::live::{Template, Value};

/// A template taken apart.
#[derive(Debug)]
pub struct Shape {
    /// The frame with everything constant in it; 0 where something is computed.
    pub bytes: Vec<u8>,
    /// Numbers that change.
    pub numbers: Vec<Number>,
    /// Checksums over numbers that change, in the order in which they are computed.
    pub sums: Vec<Sum>,
}

/// A number that changes, and where it counts.
#[derive(Debug)]
pub struct Number {
    pub offset: usize,
    pub width: usize,
    pub value: Value,
    pub counts: Vec<Weight>,
}

/// A checksum that changes.
#[derive(Debug)]
pub struct Sum {
    pub offset: usize,
    /// Of all that is constant.
    pub constant: u16,
    pub no_zero: bool,
    pub counts: Vec<Weight>,
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

impl Shape {
    /// Takes a template of a checked plan apart.
    pub fn of(template: &Template) -> Shape {
        let mut bytes = template.frame.clone();
        let mut changing = Vec::new();
        for field in &template.fields {
            let place = &mut bytes[field.offset..field.offset + field.width];
            match field.value {
                Value::Fixed(value) => place.copy_from_slice(&value.to_be_bytes()[8 - field.width..]),
                _ => {
                    place.fill(0);
                    changing.push((field.offset, field.width));
                }
            }
        }
        let mut sums: Vec<(Sum, &[(usize, usize)])> = Vec::new();
        for checksum in &template.checksums {
            bytes[checksum.offset..checksum.offset + 2].fill(0);
            let constant = sum(&bytes, &checksum.parts, checksum.plus);
            let parts = &checksum.parts;
            if changing.iter().any(|(at, _)| parts.iter().any(|(first, end)| (*first..*end).contains(at))) {
                changing.push((checksum.offset, 2));
                let sum = Sum { offset: checksum.offset, constant, no_zero: checksum.no_zero, counts: Vec::new() };
                sums.push((sum, parts));
            } else {
                let value = if checksum.no_zero && constant == 0xffff { 0xffff } else { !constant };
                bytes[checksum.offset..checksum.offset + 2].copy_from_slice(&value.to_be_bytes());
            }
        }
        let covers: Vec<&[(usize, usize)]> = sums.iter().map(|(_, parts)| *parts).collect();
        let numbers = template.fields.iter().filter(|field| !matches!(field.value, Value::Fixed(_)));
        let numbers = numbers.map(|field| Number {
            offset: field.offset,
            width: field.width,
            value: field.value,
            counts: weights(&covers, field.offset, field.width),
        });
        let numbers = numbers.collect();
        let sums = sums.iter().enumerate().map(|(index, (sum, _))| {
            // Its own bytes count as 0 in itself, and an earlier one does not cover it.
            let later = weights(&covers, sum.offset, 2).into_iter().filter(|weight| weight.sum > index);
            Sum { counts: later.collect(), ..*sum }
        });
        let sums = sums.collect();
        Shape { bytes, numbers, sums }
    }
}

/// In which checksums a number counts.
fn weights(covers: &[&[(usize, usize)]], offset: usize, width: usize) -> Vec<Weight> {
    let mut found = Vec::new();
    for (sum, parts) in covers.iter().enumerate() {
        for (first, _) in parts.iter().filter(|(first, end)| (*first..*end).contains(&offset)) {
            found.push(Weight { sum, shifted: (offset + width - first) % 2 == 1 });
        }
    }
    found
}

/// The one's complement sum of parts of a frame, in 16 bits.
fn sum(bytes: &[u8], parts: &[(usize, usize)], plus: u16) -> u16 {
    let words = parts.iter().flat_map(|(first, end)| bytes[*first..*end].chunks(2));
    let mut sum = words.fold(u64::from(plus), |sum, pair| {
        sum + u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))
    });
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
