//! Which index each selector of a stream has in the next frame.
//!
//! Indices in turn are counted in words, so that nothing is divided; where a frame's number says all in its bits, no
//! word is needed. Random ones are drawn at the beginning of a frame and lie on the stack.

use super::emit::{add_constant, keep, modulo, operate};
use super::memory::Memory;
use super::words::at;
use crate::ebpf::{Alu, Assembler, Label, Reg, Size, When};
use linerate_generate::stream::{Alias, Pick, Selector};

/// The increment of SplitMix64, and the factors of its finalizer.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
const FACTORS: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];
/// Slots of eight bytes on the stack for indices.
pub const SLOTS: usize = 56;

/// The selectors of one stream. The frame's number is in R8.
#[derive(Debug)]
pub struct Selectors {
    found: Vec<Place>,
}

/// Where an index comes from.
#[derive(Debug)]
enum Place {
    Zero,
    /// Bits of the frame's number.
    Bits {
        shift: u32,
        mask: u64,
    },
    /// A word, and how it goes on.
    Word(Counter),
    /// A slot of the stack, drawn for each frame.
    Drawn {
        slot: usize,
        count: u64,
        seed: u64,
        alias: Option<(i32, u64)>,
    },
}

/// An index in turn.
#[derive(Debug)]
struct Counter {
    word: usize,
    count: u64,
    /// Frames for each, and the word that counts them where there are several.
    every: (u64, usize),
    derived: Vec<Derived>,
}

/// An index divided and taken modulo, counted along.
#[derive(Debug)]
struct Derived {
    word: usize,
    divide: (u64, usize),
    modulo: u64,
}

impl Selectors {
    /// `used`: the selectors that anything follows, each with what divides it (divisor, modulo). Words are taken from
    /// `words` on.
    pub fn of(
        selectors: &[&Selector],
        used: &[(usize, (u64, u64))],
        words: &mut usize,
        memory: &mut Memory,
    ) -> Result<Self, String> {
        let mut slots = 0;
        let mut found = Vec::new();
        for (index, selector) in selectors.iter().enumerate() {
            let reductions: Vec<(u64, u64)> =
                used.iter().filter(|(of, _)| *of == index).map(|(_, reduction)| *reduction).collect();
            found.push(if reductions.is_empty() || selector.count == 1 {
                Place::Zero
            } else {
                Place::of(selector, &reductions, words, &mut slots, memory)
            });
        }
        if slots > SLOTS {
            return Err(format!("{slots} random selectors in one stream, {SLOTS} at most"));
        }
        Ok(Selectors { found })
    }

    /// Draws what is random. Uses R0 to R5.
    pub fn draw(&self, asm: &mut Assembler, memory: i32, failed: Label) {
        for place in &self.found {
            let Place::Drawn { slot, count, seed, alias } = place else { continue };
            asm.mov(Reg::R0, Reg::R8);
            draw(asm, *seed);
            match alias {
                Some(table) => pick(asm, memory, *table, failed),
                None => scale(asm, *count),
            }
            asm.store(Size::B8, Reg::Fp, stack(*slot), Reg::R0);
        }
    }

    /// Leaves an index in R0, divided and taken modulo. Uses R1.
    pub fn index(&self, asm: &mut Assembler, selector: usize, reduction: (u64, u64)) {
        match &self.found[selector] {
            Place::Zero => return asm.mov(Reg::R0, 0),
            Place::Bits { shift, mask } => {
                asm.mov(Reg::R0, Reg::R8);
                shift_right(asm, *shift);
                keep(asm, *mask);
            }
            Place::Word(counter) => {
                let derived = counter.derived.iter().find(|one| (one.divide.0, one.modulo) == reduction);
                asm.load(Size::B8, Reg::R0, Reg::R7, at(derived.map_or(counter.word, |one| one.word)));
                if derived.is_some() {
                    return;
                }
            }
            Place::Drawn { slot, .. } => asm.load(Size::B8, Reg::R0, Reg::Fp, stack(*slot)),
        }
        let (divide, by) = reduction;
        if divide.is_power_of_two() {
            shift_right(asm, divide.trailing_zeros());
        } else {
            operate(asm, Alu::Div, divide);
        }
        if by != 0 {
            modulo(asm, by);
        }
    }

    /// Goes on to the next frame. Uses R0 and R1.
    pub fn step(&self, asm: &mut Assembler) {
        for place in &self.found {
            let Place::Word(counter) = place else { continue };
            let stays = asm.label();
            if counter.every.0 > 1 {
                count_up(asm, counter.every.1, counter.every.0, Some(stays));
            }
            let wraps = asm.label();
            asm.load(Size::B8, Reg::R0, Reg::R7, at(counter.word));
            asm.alu(Alu::Add, Reg::R0, 1);
            jump_if_equal(asm, counter.count, wraps);
            asm.store(Size::B8, Reg::R7, at(counter.word), Reg::R0);
            for derived in &counter.derived {
                let same = asm.label();
                if derived.divide.0 > 1 {
                    count_up(asm, derived.divide.1, derived.divide.0, Some(same));
                }
                count_up(asm, derived.word, derived.modulo, None);
                asm.place(same);
            }
            asm.jump(stays);
            asm.place(wraps);
            asm.store(Size::B8, Reg::R7, at(counter.word), 0);
            for derived in &counter.derived {
                asm.store(Size::B8, Reg::R7, at(derived.word), 0);
                if derived.divide.0 > 1 {
                    asm.store(Size::B8, Reg::R7, at(derived.divide.1), 0);
                }
            }
            asm.place(stays);
        }
    }
}

impl Place {
    fn of(
        selector: &Selector,
        reductions: &[(u64, u64)],
        words: &mut usize,
        slots: &mut usize,
        memory: &mut Memory,
    ) -> Place {
        let count = selector.count;
        let mut drawn = |seed, alias| {
            *slots += 1;
            Place::Drawn { slot: *slots - 1, count, seed, alias }
        };
        let every = match &selector.pick {
            Pick::InTurn { every } => (*every).max(1),
            Pick::Random { seed } => return drawn(*seed, None),
            Pick::Weighted { table, seed } => return drawn(*seed, Some(place_alias(table, memory))),
        };
        let is_easy = |number: u64| number == 0 || number.is_power_of_two();
        let mut hard: Vec<(u64, u64)> =
            reductions.iter().copied().filter(|(divide, by)| !is_easy(*divide) || !is_easy(*by)).collect();
        hard.sort_unstable();
        hard.dedup();
        if is_easy(count) && is_easy(every) && hard.is_empty() {
            return Place::Bits { shift: every.trailing_zeros(), mask: count.wrapping_sub(1) };
        }
        let mut take = |is_needed: bool| {
            *words += usize::from(is_needed);
            *words - 1
        };
        let word = take(true);
        let every = (every, take(every > 1));
        let derived = hard.into_iter().map(|(divide, modulo)| Derived {
            word: take(true),
            divide: (divide, take(divide > 1)),
            modulo,
        });
        Place::Word(Counter { word, count, every, derived: derived.collect() })
    }
}

fn place_alias(table: &Alias, memory: &mut Memory) -> (i32, u64) {
    let rows = table.rows().iter().flat_map(|(below, other)| [below.to_le_bytes(), other.to_le_bytes()]);
    (memory.place(&rows.flatten().collect::<Vec<u8>>()), table.rows().len() as u64)
}

/// Where a slot lies from the frame pointer.
pub fn stack(slot: usize) -> i16 {
    -8 * (slot as i16 + 1)
}

/// R0 becomes output number R0 of SplitMix64 from a seed. Uses R1.
pub fn draw(asm: &mut Assembler, seed: u64) {
    asm.mov64(Reg::R1, GOLDEN);
    asm.alu(Alu::Mul, Reg::R0, Reg::R1);
    add_constant(asm, Reg::R0, seed.wrapping_add(GOLDEN), Reg::R1);
    finish_draw(asm);
}

/// R0 becomes output `number` of SplitMix64 from a seed in R0. Uses R1.
pub fn draw_from(asm: &mut Assembler, number: u64) {
    add_constant(asm, Reg::R0, number.wrapping_add(1).wrapping_mul(GOLDEN), Reg::R1);
    finish_draw(asm);
}

fn finish_draw(asm: &mut Assembler) {
    for (shift, factor) in [30, 27].into_iter().zip(FACTORS) {
        fold_down(asm, shift);
        asm.mov64(Reg::R1, factor);
        asm.alu(Alu::Mul, Reg::R0, Reg::R1);
    }
    fold_down(asm, 31);
}

/// `R0 ^= R0 >> shift`. Uses R1.
pub fn fold_down(asm: &mut Assembler, shift: i32) {
    asm.mov(Reg::R1, Reg::R0);
    asm.alu(Alu::Rsh, Reg::R1, shift);
    asm.alu(Alu::Xor, Reg::R0, Reg::R1);
}

/// A draw in R0 becomes one of `count` (0: 2^64). Uses R1.
pub fn scale(asm: &mut Assembler, count: u64) {
    match count {
        0 => {}
        1..=0xffff_ffff if count.is_power_of_two() => shift_right(asm, 64 - count.trailing_zeros()),
        1..=0xffff_ffff => {
            asm.alu(Alu::Rsh, Reg::R0, 32);
            operate(asm, Alu::Mul, count);
            asm.alu(Alu::Rsh, Reg::R0, 32);
        }
        _ => modulo(asm, count),
    }
}

/// A draw in R0 becomes what an alias table says. Uses R1 to R5.
fn pick(asm: &mut Assembler, memory: i32, (place, rows): (i32, u64), failed: Label) {
    asm.alu32(Alu::Mov, Reg::R3, Reg::R0);
    asm.alu(Alu::Rsh, Reg::R0, 32);
    asm.alu(Alu::Mul, Reg::R0, rows as i32);
    asm.alu(Alu::Rsh, Reg::R0, 32);
    // For the verifier of some kernels; it never is.
    asm.jump_if(When::Ge, Reg::R0, rows as i32, failed);
    asm.mov(Reg::R4, Reg::R0);
    asm.alu(Alu::Lsh, Reg::R4, 3);
    asm.map_value(Reg::R1, memory, place);
    asm.alu(Alu::Add, Reg::R1, Reg::R4);
    asm.load(Size::B4, Reg::R5, Reg::R1, 0);
    asm.load(Size::B4, Reg::R2, Reg::R1, 4);
    // All bits where the draw is below; a jump would be guessed wrong half of the time.
    asm.alu(Alu::Sub, Reg::R3, Reg::R5);
    asm.alu(Alu::Rsh, Reg::R3, 63);
    asm.mov(Reg::R1, 0);
    asm.alu(Alu::Sub, Reg::R1, Reg::R3);
    asm.alu(Alu::Xor, Reg::R0, Reg::R2);
    asm.alu(Alu::And, Reg::R0, Reg::R1);
    asm.alu(Alu::Xor, Reg::R0, Reg::R2);
}

/// One more in a word, and 0 at `end` (0: never); until then to `below`, where that is given. Uses R0 and R1.
fn count_up(asm: &mut Assembler, word: usize, end: u64, below: Option<Label>) {
    let (wraps, done) = (asm.label(), asm.label());
    asm.load(Size::B8, Reg::R0, Reg::R7, at(word));
    asm.alu(Alu::Add, Reg::R0, 1);
    jump_if_equal(asm, end, wraps);
    asm.store(Size::B8, Reg::R7, at(word), Reg::R0);
    asm.jump(below.unwrap_or(done));
    asm.place(wraps);
    asm.store(Size::B8, Reg::R7, at(word), 0);
    asm.place(done);
}

/// Goes to a label if R0 is `value`. Uses R1.
fn jump_if_equal(asm: &mut Assembler, value: u64, to: Label) {
    match i32::try_from(value as i64) {
        Ok(value) => asm.jump_if(When::Eq, Reg::R0, value, to),
        Err(_) => {
            asm.mov64(Reg::R1, value);
            asm.jump_if(When::Eq, Reg::R0, Reg::R1, to);
        }
    }
}

fn shift_right(asm: &mut Assembler, by: u32) {
    match by {
        0 => {}
        // A shift by 64 is one by 0.
        64.. => asm.mov(Reg::R0, 0),
        _ => asm.alu(Alu::Rsh, Reg::R0, by as i32),
    }
}
