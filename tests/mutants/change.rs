//! Changes to capture files: what hostile and broken ones have in them.
// All changes have one shape, whether or not they change the length.
#![allow(clippy::ptr_arg)]

use super::dice::Dice;
use super::pieces::{Piece, Pieces};
use super::seeds::Seed;
use super::wrap::{gzip, zstd};

/// One of the seeds with a few changes, of at most so many bytes (before it is compressed); and what it is made of.
pub(crate) fn mutant(seeds: &[Seed], dice: &mut Dice, most: usize) -> (Vec<u8>, String) {
    let seed = dice.of(seeds);
    let mut file = seed.read(most);
    let mut told = seed.name.clone();
    for _ in 0..1 + dice.size(4) {
        let (name, change) = dice.of(CHANGES);
        change(&mut file, dice, most);
        told += &format!(", {name}");
        if dice.one_in(12) {
            let other = dice.of(seeds);
            file.extend(other.read(most));
            told += &format!(", then {}", other.name);
        }
        file.truncate(most);
    }
    if dice.one_in(8) {
        let (name, wrap) = *dice.of(&[("gzip", gzip as fn(&[u8]) -> Vec<u8>), ("zstd", zstd)]);
        told += &format!(", in {name}");
        file = wrap(&file);
        if dice.one_in(3) {
            flip(&mut file, dice, most);
            told += ", bits";
        }
    }
    (file, told)
}

type Change = fn(&mut Vec<u8>, &mut Dice, usize);

const CHANGES: &[(&str, Change)] = &[
    ("bits", flip),
    ("bits of a header", flip_in_header),
    ("cut off", cut),
    ("a length", set_length),
    ("lengths", set_lengths),
    ("a short length", set_short),
    ("words the other way round", swap_bytes),
    ("bytes again", repeat_bytes),
    ("pieces again", repeat_pieces),
    ("a piece in a piece", nest),
    ("pieces elsewhere", reorder),
    ("pieces left out", leave_out),
    ("times far away", throw_times),
    ("times of their own", scatter_times),
    ("another link", set_link),
    ("zeros", put_zeros),
];

/// What lengths say that are wrong.
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

/// The same wrong length in many pieces.
fn set_lengths(file: &mut Vec<u8>, dice: &mut Dice, _: usize) {
    let pieces = Pieces::of(file);
    let (which, value, every) = (dice.below(4), *dice.of(&EXTREMES), 1 + dice.below(5));
    for piece in pieces.all.iter().skip(dice.below(3)).step_by(every) {
        if let Some(at) = piece.lengths.get(which) {
            pieces.put(file, piece.at + at, value);
        }
    }
}

/// Two bytes somewhere, as options have them.
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

/// Put in elsewhere, or written over what is there.
fn repeat_bytes(file: &mut Vec<u8>, dice: &mut Dice, most: usize) {
    let from = dice.below(file.len());
    let part = file[from..].iter().copied().take(1 + dice.size(most / 4)).collect::<Vec<_>>();
    let to = dice.below(file.len());
    let end = if dice.one_in(2) { to } else { file.len().min(to + part.len()) };
    file.splice(to..end, part);
}

/// Once, or until the file is full.
fn repeat_pieces(file: &mut Vec<u8>, dice: &mut Dice, most: usize) {
    let pieces = Pieces::of(file);
    let Some((first, end)) = run(&pieces, dice) else { return };
    let part = file[first..end].to_vec();
    let room = most.saturating_sub(file.len());
    let times = if dice.one_in(3) { dice.size(room / part.len().max(1)) } else { 1 };
    let to = pick(&pieces, dice).map_or(0, |piece| piece.at);
    file.splice(to..to, part.repeat(times));
}

/// Where the bytes of another one should be, which may be told to be so much longer.
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

fn leave_out(file: &mut Vec<u8>, dice: &mut Dice, _: usize) {
    if let Some((first, end)) = run(&Pieces::of(file), dice) {
        file.drain(first..end);
    }
}

/// Of one piece, or from one on of all.
fn throw_times(file: &mut Vec<u8>, dice: &mut Dice, _: usize) {
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

/// Each piece by a distance of its own.
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

/// First byte and end of some pieces in a row.
fn run(pieces: &Pieces, dice: &mut Dice) -> Option<(usize, usize)> {
    let first = dice.below(pieces.all.len());
    let last = first + dice.size(pieces.all.len().saturating_sub(first + 1));
    let last = pieces.all.get(last)?;
    Some((pieces.all[first].at, last.at + last.length))
}
