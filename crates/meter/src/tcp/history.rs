//! Packed letters of the connection history.

use super::History;
use crate::pages::{self, Pages};

/// Events that have a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Letter {
    Syn = 1,
    SynAck,
    Ack,
    Data,
    Fin,
    Rst,
    BadChecksum,
    Gap,
    Again,
    ZeroWindow,
    FinRst,
    SynEnd,
}

/// Indexed by number.
const LETTERS: [u8; 13] = *b" shadfrcgtwiq";
/// Letters that fit in the record, each with four bits of number and one for the side.
const ROOM: u32 = 12;
const BITS: u32 = 5;
const SIDE: u8 = 16;

/// Maximum number of letters beyond those in the record: for each side eight that occur once, and four that occur at
/// each power of ten of a counter.
const MORE: usize = 2 * (8 + 4 * 10) - ROOM as usize;

/// Letters that did not fit in their record.
#[derive(Default)]
pub(crate) struct Histories(Pages<ExtraLetters>);

/// Letters of one record.
#[derive(Clone)]
struct ExtraLetters {
    count: u8,
    codes: [u8; MORE],
}

/// Maximum number of bytes per record.
pub(crate) const RARE_BYTES: usize = pages::bytes::<ExtraLetters>();

impl Default for ExtraLetters {
    fn default() -> Self {
        ExtraLetters { count: 0, codes: [0; MORE] }
    }
}

impl ExtraLetters {
    fn codes(&self) -> &[u8] {
        &self.codes[..usize::from(self.count)]
    }
}

impl Histories {
    /// Adds a letter, even if it is present already.
    pub(super) fn add(&mut self, record: u32, packed: &mut u64, side: usize, letter: Letter) {
        let code = letter as u8 | if side == 1 { SIDE } else { 0 };
        let count = (u64::BITS - packed.leading_zeros()).div_ceil(BITS);
        if count < ROOM {
            *packed |= u64::from(code) << (count * BITS);
        } else {
            let more = self.0.at(record);
            if let Some(place) = more.codes.get_mut(usize::from(more.count)) {
                *place = code;
                more.count += 1;
            }
        }
    }

    /// Adds a letter that occurs once per side.
    pub(super) fn add_once(&mut self, record: u32, packed: &mut u64, side: usize, letter: Letter) {
        let code = letter as u8 | if side == 1 { SIDE } else { 0 };
        let more = self.0.get(record).is_some_and(|more| more.codes().contains(&code));
        if !more && !codes(*packed).any(|found| found == code) {
            self.add(record, packed, side, letter);
        }
    }

    /// Removes and returns all letters, those of the side `originator` in upper case.
    pub(super) fn take(&mut self, record: u32, packed: u64, originator: usize) -> History {
        let more = self.0.take(record);
        let letter = |code: u8| {
            let letter = LETTERS[usize::from(code & !SIDE) % LETTERS.len()];
            let is_originator = usize::from(code & SIDE != 0) == originator;
            char::from(if is_originator { letter.to_ascii_uppercase() } else { letter })
        };
        History(codes(packed).chain(more.codes().iter().copied()).map(letter).collect())
    }
}

fn codes(packed: u64) -> impl Iterator<Item = u8> {
    (0..ROOM).map(move |place| (packed >> (place * BITS)) as u8 & 31).take_while(|code| *code != 0)
}

/// Returns whether a letter is repeated at this number of occurrences: the 1st, 10th, 100th ...
pub(crate) fn is_repeated_at(times: u32) -> bool {
    times > 0 && 10u32.pow(times.ilog10()) == times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_beyond_the_packed_word_are_recorded() {
        let (mut histories, mut packed) = (Histories::default(), 0);
        for round in 0..30 {
            histories.add(7, &mut packed, round % 2, Letter::SynEnd);
            histories.add_once(7, &mut packed, 1, Letter::Rst);
        }
        histories.add_once(7, &mut packed, 0, Letter::Rst);
        histories.add_once(7, &mut packed, 0, Letter::Rst);
        let all = histories.take(7, packed, 1).0;
        assert_eq!((all.len(), &all[..4], &all[30..]), (32, "qRQq", "Qr"));
        assert_eq!(histories.take(7, 0, 1).0, "");
        for times in 0..200 {
            histories.add(8, &mut packed, times % 2, Letter::Gap);
        }
        assert_eq!(histories.take(8, packed, 0).0.len(), ROOM as usize + MORE, "the maximum");
    }

    #[test]
    fn repetitions_count_at_powers_of_ten() {
        let repeated: Vec<u32> =
            (0..=u32::MAX).step_by(1).take(100_001).filter(|times| is_repeated_at(*times)).collect();
        assert_eq!(repeated, [1, 10, 100, 1000, 10_000, 100_000]);
    }
}
