//! Frame sizes, FCS included: one, several in turn, random, or a mix.

use super::syntax::split;
use super::value::call;
use crate::rate::FCS;
use crate::stream::{Alias, IndexSelection, Selector};
use crate::text_error::TextError;
use std::sync::Arc;

/// Sizes of the frames of a stream.
#[derive(Clone, Debug)]
pub enum Sizes {
    /// The length of layers and payload, and at least this number of bytes, FCS included.
    Natural(usize),
    /// Listed sizes, FCS included, not empty, and the selector of the list index of frame n.
    Of(Vec<usize>, Selector),
}

/// Smallest Ethernet frame, FCS included (IEEE 802.3 clause 4.4.2).
pub const SMALLEST: usize = 64;
/// Longest frame supported.
pub const LONGEST: usize = 65_535 + FCS as usize;

/// Mix that most testers call IMIX: of twelve frames seven of 64 bytes, four of 594, one of 1518, spread evenly.
const IMIX: [usize; 12] = [64, 594, 64, 64, 594, 64, 1518, 64, 594, 64, 594, 64];

/// Letters of an IMIX genome, from `a` on (RFC 6985 section 3).
const GENOME: [usize; 9] = [64, 128, 256, 512, 1024, 1280, 1518, 2112, 9216];

/// Help text on valid sizes.
const LEGAL: &str =
    "expected 64, 64..1518, 64..1518/100, random(64..1518), [64:7, 594:4, 1518:1], imix, or genome(aabg)";

/// Parses sizes. `seed` is the seed of random ones.
///
/// # Errors
/// If the text is not one of the forms of [`Sizes`], or a size is out of range.
pub fn sizes(text: &str, seed: u64) -> Result<Sizes, TextError> {
    let trimmed = text.trim();
    if trimmed == "imix" {
        return Ok(in_turn(IMIX.to_vec()));
    }
    if let Some(letters) = call(trimmed, "genome") {
        let letter = |letter: char| GENOME.get((letter as usize).wrapping_sub('a' as usize)).copied();
        let list: Option<Vec<usize>> = letters.trim().chars().map(letter).collect();
        let list = list.filter(|list| (1..=4096).contains(&list.len()));
        let wrong = || {
            TextError::at(
                text,
                letters,
                "invalid genome; expected 1 to 4096 of the letters a (64) b (128) c (256) d (512) e (1024) f (1280) g (1518) h (2112) i (9216)",
            )
        };
        return Ok(in_turn(list.ok_or_else(wrong)?));
    }
    if let Some(range) = call(trimmed, "random") {
        let list = range_of(text, range)?;
        let count = list.len() as u64;
        return Ok(Sizes::Of(list, Selector { count, pick: IndexSelection::Random { seed } }));
    }
    if let Some(inside) = trimmed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return weighted(text, inside, seed);
    }
    Ok(in_turn(range_of(text, trimmed)?))
}

fn in_turn(list: Vec<usize>) -> Sizes {
    let count = list.len() as u64;
    Sizes::Of(list, Selector { count, pick: IndexSelection::InTurn { every: 1 } })
}

fn weighted(text: &str, inside: &str, seed: u64) -> Result<Sizes, TextError> {
    let (mut list, mut weights) = (Vec::new(), Vec::new());
    for item in split(text, inside, ',')? {
        let (size, weight) = item.split_once(':').unwrap_or((item, "1"));
        list.push(one(text, size)?);
        weights.push(weight.trim().parse::<f64>().map_err(|_| TextError::at(text, item, LEGAL))?);
    }
    if !inside.contains(':') {
        return Ok(in_turn(list));
    }
    let table = Alias::new(&weights)
        .ok_or_else(|| TextError::at(text, inside, "invalid weights; expected numbers from 0 on, not all 0"))?;
    let count = list.len() as u64;
    Ok(Sizes::Of(list, Selector { count, pick: IndexSelection::Weighted { table: Arc::new(table), seed } }))
}

/// Parses one size, or `start..end/step`, up or down.
fn range_of(text: &str, part: &str) -> Result<Vec<usize>, TextError> {
    let Some((start, rest)) = part.split_once("..") else { return Ok(vec![one(text, part)?]) };
    let (end, step) = rest.split_once('/').unwrap_or((rest, "1"));
    let (start, end) = (one(text, start)?, one(text, end)?);
    let step = step.trim().parse().ok().filter(|step| *step > 0);
    let step: usize = step
        .ok_or_else(|| TextError::at(text, part, "invalid step; expected 1 or more (start above end counts down)"))?;
    let count = start.abs_diff(end) / step + 1;
    let at = |index| if start <= end { start + index * step } else { start - index * step };
    Ok((0..count).map(at).collect())
}

fn one(text: &str, part: &str) -> Result<usize, TextError> {
    let size: usize = part.trim().parse().map_err(|_| TextError::at(text, part, LEGAL))?;
    if !(FCS as usize + 1..=LONGEST).contains(&size) {
        let what = format!("invalid frame size; expected 5 to {LONGEST} bytes, FCS included");
        return Err(TextError::at(text, part, what));
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(text: &str, count: u64) -> Vec<usize> {
        let Sizes::Of(list, selector) = sizes(text, 7).unwrap_or_else(|wrong| panic!("{text}: {wrong}")) else {
            panic!("{text} is natural")
        };
        (0..count).map(|n| list[selector.at(n) as usize]).collect()
    }

    #[test]
    fn sizes_are_parsed_as_users_write_them() {
        assert_eq!(first("64", 2), [64, 64]);
        assert_eq!(first("64..70/3", 4), [64, 67, 70, 64]);
        assert_eq!(first("70..64/5", 3), [70, 65, 70]);
        assert_eq!(first("genome(aag)", 4), [64, 64, 1518, 64]);
        assert_eq!(first("[64, 128]", 3), [64, 128, 64]);
        assert!(first("random(64..65)", 100).iter().all(|size| [64, 65].contains(size)));
        let mut mix = first("imix", 12);
        mix.sort_unstable();
        assert_eq!(mix, [[64; 7].as_slice(), &[594; 4], &[1518]].concat());
        let weighted = first("[64:7, 594:4, 1518:1]", 12_000);
        let share = weighted.iter().filter(|size| **size == 64).count();
        assert!((6_700..7_300).contains(&share), "{share}");
    }

    #[test]
    fn errors_name_valid_sizes() {
        for (wrong, expected) in [
            ("", "expected 64"),
            ("x", "expected 64"),
            ("4", "5 to"),
            ("70000", "5 to"),
            ("64..", "expected 64"),
            ("64..128/0", "1 or more"),
            ("[64:x]", "expected 64"),
            ("[64:0]", "not all 0"),
            ("genome()", "letters"),
            ("genome(az)", "letters"),
        ] {
            let error = sizes(wrong, 0).unwrap_err();
            assert!(error.what.contains(expected), "{wrong}: {error}");
        }
    }
}
