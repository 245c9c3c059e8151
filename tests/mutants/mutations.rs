//! Changes to capture files, as found in hostile and broken files.
// All changes have one shape, whether or not they change the length.
#![allow(clippy::ptr_arg)]

use super::file_blocks::{Piece, Pieces};
use super::random::Dice;
use super::seeds::Seed;
use super::wrap::{gzip, zstd};

/// Returns a seed with a few changes, of at most `most` bytes (before compression), and its description.
pub(crate) fn mutant(seeds: &[Seed], dice: &mut Dice, most: usize) -> (Vec<u8>, String) {
    let seed = dice.of(seeds);
    let mut file = seed.read(most);
    let mut description = seed.name.clone();
    for _ in 0..1 + dice.size(4) {
        let (name, change) = dice.of(CHANGES);
        change(&mut file, dice, most);
        description += &format!(", {name}");
        if dice.one_in(12) {
            let other = dice.of(seeds);
            file.extend(other.read(most));
            description += &format!(", then {}", other.name);
        }
        file.truncate(most);
    }
    if dice.one_in(8) {
        let (name, wrap) = *dice.of(&[("gzip", gzip as fn(&[u8]) -> Vec<u8>), ("zstd", zstd)]);
        description += &format!(", in {name}");
        file = wrap(&file);
        if dice.one_in(3) {
            flip(&mut file, dice, most);
            description += ", bits";
        }
    }
    (file, description)
}

type Change = fn(&mut Vec<u8>, &mut Dice, usize);

const CHANGES: &[(&str, Change)] = &[
    ("bits", flip),
    ("bits of a header", flip_in_header),
    ("cut off", cut),
    ("a length", set_length),
    ("lengths", set_lengths),
    ("a short length", set_short),
    ("byte-swapped words", swap_bytes),
    ("repeated bytes", repeat_bytes),
    ("repeated pieces", repeat_pieces),
    ("nested pieces", nest),
    ("moved pieces", reorder),
    ("removed pieces", remove_pieces),
    ("distant times", shift_times),
    ("scattered times", scatter_times),
    ("another link type", set_link),
    ("zeros", put_zeros),
];

/// Typical invalid lengths.
const EXTREMES: [u32; 14] =
    [0, 1, 2, 3, 4, 8, 12, 16, 0xffff, 0x4_0000, 0x4_0001, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];

fn flip(file: &mut Vec<u8>, dice: &mut Dice, _: usize) {
    for _ in 0..1 + dice.size(64) {
        let at = dice.below(file.len());
        if let Some(byte) = file.get_mut(at) {
            *byte ^= 1 << dice.below(8);
        }
    }
}

fn flip_in_header(file: &mut Vec<u8>, dice: &mut Dice, _: usize) {
    let pieces = Pieces::of(file);
    let Some(piece) = pick(&pieces, dice) else { return };
    for _ in 0..1 + dice.below(4) {
        file[piece.at + dice.below(piece.length.min(48))] ^= 1 << dice.below(8);
    }
}

fn cut(file: &mut Vec<u8>, dice: &mut Dice, _: usize) {
    let most = file.len();
    let length = if dice.one_in(4) { most - dice.below(most.min(64)) } else { dice.below(most) };
    file.truncate(length);
}

fn set_length(file: &mut Vec<u8>, dice: &mut Dice, _: usize) {
    let pieces = Pieces::of(file);
    let Some(piece) = pick(&pieces, dice) else { return };
    let at = piece.at + dice.of(&piece.lengths);
    let Some(old) = pieces.word(file, at) else { return };
    let near = old.wrapping_add_signed(*dice.of(&[-4, -1, 1, 4, 12, 32]));
    let (extreme, rest) = (*dice.of(&EXTREMES), (file.len() - at) as u32);
    pieces.put(file, at, *dice.of(&[near, near, extreme, extreme, rest, rest + 1, old.swap_bytes()]));
}

/// Sets the same invalid length in many pieces.
fn set_lengths(file: &mut Vec<u8>, dice: &mut Dice, _: usize) {
    let pieces = Pieces::of(file);
    let (which, value, every) = (dice.below(4), *dice.of(&EXTREMES), 1 + dice.below(5));
    for piece in pieces.all.iter().skip(dice.below(3)).step_by(every) {
        if let Some(at) = piece.lengths.get(which) {
            pieces.put(file, piece.at + at, value);
        }
    }
}

/// Sets two bytes, such as an option length.
fn set_short(file: &mut Vec<u8>, dice: &mut Dice, _: usize) {
    let pieces = Pieces::of(file);
    let Some(piece) = pick(&pieces, dice) else { return };
    let at = piece.at + dice.below(piece.length) / 2 * 2;
    let value = *dice.of(&[0u16, 1, 3, 4, 0x7fff, 0xfffc, 0xffff]);
    if let Some(place) = file.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

fn swap_bytes(file: &mut Vec<u8>, dice: &mut Dice, _: usize) {
    let pieces = Pieces::of(file);
    let Some(piece) = pick(&pieces, dice) else { return };
    let words = if dice.one_in(2) { 1 } else { 1 + dice.below(piece.length / 4) };
    let first = piece.at + dice.below(piece.length.min(32)) / 4 * 4;
    for at in (first..).step_by(4).take(words) {
        if let Some(word) = file.get_mut(at..at + 4) {
            word.reverse();
        }
    }
}

/// Inserts a copy of bytes elsewhere, or overwrites bytes with it.
fn repeat_bytes(file: &mut Vec<u8>, dice: &mut Dice, most: usize) {
    let from = dice.below(file.len());
    let part = file[from..].iter().copied().take(1 + dice.size(most / 4)).collect::<Vec<_>>();
    let to = dice.below(file.len());
    let end = if dice.one_in(2) { to } else { file.len().min(to + part.len()) };
    file.splice(to..end, part);
}

/// Repeats pieces once, or until the file is full.
fn repeat_pieces(file: &mut Vec<u8>, dice: &mut Dice, most: usize) {
    let pieces = Pieces::of(file);
    let Some((first, end)) = run(&pieces, dice) else { return };
    let part = file[first..end].to_vec();
    let room = most.saturating_sub(file.len());
    let times = if dice.one_in(3) { dice.size(room / part.len().max(1)) } else { 1 };
    let to = pick(&pieces, dice).map_or(0, |piece| piece.at);
    file.splice(to..to, part.repeat(times));
}

/// Inserts pieces into another piece, and lengthens that one in half of the cases.
fn nest(file: &mut Vec<u8>, dice: &mut Dice, most: usize) {
    let pieces = Pieces::of(file);
    let (Some((first, end)), Some(outer)) = (run(&pieces, dice), pick(&pieces, dice)) else { return };
    let part = file[first..end].to_vec();
    if file.len() + part.len() > most {
        return;
    }
    if dice.one_in(2) {
        for at in outer.lengths.iter().filter(|at| **at == 4 || outer.length == **at + 4) {
            pieces.put(file, outer.at + at, (outer.length + part.len()) as u32);
        }
    }
    let to = outer.at + dice.below(outer.length) / 4 * 4;
    file.splice(to..to, part);
}

fn reorder(file: &mut Vec<u8>, dice: &mut Dice, _: usize) {
    let Some((first, end)) = run(&Pieces::of(file), dice) else { return };
    let part: Vec<u8> = file.drain(first..end).collect();
    let to = pick(&Pieces::of(file), dice).map_or(0, |piece| piece.at);
    file.splice(to..to, part);
}

fn remove_pieces(file: &mut Vec<u8>, dice: &mut Dice, _: usize) {
    if let Some((first, end)) = run(&Pieces::of(file), dice) {
        file.drain(first..end);
    }
}

/// Shifts the times of one piece, or of all pieces from one on.
fn shift_times(file: &mut Vec<u8>, dice: &mut Dice, _: usize) {
    let pieces = Pieces::of(file);
    let from = dice.below(pieces.all.len());
    let count = if dice.one_in(2) { 1 } else { pieces.all.len() };
    let (which, sum) = (dice.below(2), 1u32 << dice.below(32));
    let value = (!dice.one_in(2)).then(|| *dice.of(&[0, 1, 0x7fff_ffff, 0x8000_0000, 999_999_999, 0xffff_ffff]));
    for piece in pieces.all.iter().skip(from).take(count) {
        let Some(at) = piece.times.get(which).map(|at| piece.at + at) else { continue };
        let old = pieces.word(file, at).unwrap_or_default();
        pieces.put(file, at, value.unwrap_or(old.wrapping_add(sum)));
    }
}

/// Shifts the times of each piece by its own distance.
fn scatter_times(file: &mut Vec<u8>, dice: &mut Dice, _: usize) {
    let pieces = Pieces::of(file);
    let which = dice.below(2);
    for piece in &pieces.all {
        let Some(at) = piece.times.get(which).map(|at| piece.at + at) else { continue };
        let old = pieces.word(file, at).unwrap_or_default();
        let by = dice.size(u32::MAX as usize) as u32;
        pieces.put(file, at, if dice.one_in(2) { old.wrapping_add(by) } else { old.wrapping_sub(by) });
    }
}

fn set_link(file: &mut Vec<u8>, dice: &mut Dice, _: usize) {
    let link = *dice.of(&[0u32, 1, 12, 14, 101, 104, 105, 113, 127, 228, 229, 276, 147, 0xffff, 0x1_0001]);
    let pieces = Pieces::of(file);
    let is_interface = |piece: &&Piece| pieces.word(file, piece.at) == Some(1);
    let at = match file.first() {
        Some(0x0a) => pieces.all.iter().find(is_interface).map(|piece| piece.at + 8),
        _ => Some(20),
    };
    if let Some(at) = at {
        pieces.put(file, at, link);
    }
}

fn put_zeros(file: &mut Vec<u8>, dice: &mut Dice, most: usize) {
    let (to, count) = (dice.below(file.len()), dice.size(most / 2));
    file.splice(to..to, vec![0; count]);
}

fn pick(pieces: &Pieces, dice: &mut Dice) -> Option<Piece> {
    let piece = pieces.all.get(dice.below(pieces.all.len()))?;
    (piece.length > 0).then(|| piece.clone())
}

/// Returns the start and end of some consecutive pieces.
fn run(pieces: &Pieces, dice: &mut Dice) -> Option<(usize, usize)> {
    let first = dice.below(pieces.all.len());
    let last = first + dice.size(pieces.all.len().saturating_sub(first + 1));
    let last = pieces.all.get(last)?;
    Some((pieces.all[first].at, last.at + last.length))
}
