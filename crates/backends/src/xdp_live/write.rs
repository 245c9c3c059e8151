//! Instructions that write one frame.
//!
//! Straight-line: constant bytes as constants, then each number that changes, then the checksums as the constant sum
//! plus the changes (RFC 1624). Every byte is written for every frame, because a page is recycled with whatever its
//! receiver left in it.

use super::emit::{Memory, add_constant, keep, modulo, operate};
use super::index::{Index, SLOTS, draw, draw_from, fold_down, scale, shift_right, stack};
use super::shared_state::{OFFSET, at};
use crate::ebpf::{Alu, Assembler, JumpCondition, Label, Reg, Size, helper};
use linerate_generate::plan::{CoveringSum, Field, Layout, Plan, Sum, SumKind, SumRange, Term};
use linerate_generate::stream::Fill;
use linerate_generate::trailer::{FACTORS, Key, SEQUENCE_BITS, TIME_BITS};

/// Above this number constant bytes are copied from memory: a function call costs as much as storing them.
const BY_CONSTANTS: usize = 256;
/// Registers of sums until all their terms are known: those of a tunnel in a tunnel.
const SUMS: [Reg; 4] = [Reg::R2, Reg::R3, Reg::R4, Reg::R5];
/// Stack slot for a value needed later.
const LATER: usize = SLOTS;

/// Writes frames of one layout.
pub(super) struct Writer<'a> {
    pub plan: &'a Plan,
    pub layout: &'a Layout,
    /// Indices of the stream's selectors, and the first selector's number in the plan.
    pub indices: &'a [Index],
    pub first: usize,
    pub memory: &'a mut Memory,
    /// Length of the frames that the kernel makes.
    pub longest: usize,
    pub failed: Label,
    pub key: Key,
    /// Word of the stream's number in trailers, if it can change.
    pub number: Option<usize>,
    /// Upper bound of each sum.
    pub most: [u64; SUMS.len()],
}

impl Writer<'_> {
    /// Writes the frame. Uses R0 to R5; R6 becomes the frame.
    ///
    /// # Errors
    /// A feature that programs do not support.
    pub(super) fn write(&mut self, asm: &mut Assembler) -> Result<(), String> {
        let (plan, layout) = (self.plan, self.layout);
        let sums = &plan.sums[layout.sums.clone()];
        if sums.iter().any(|sum| matches!(sum.kind, SumKind::Crc32c(_))) {
            return Err("CRC32c over bytes that change is not supported".into());
        }
        if sums.len() > SUMS.len() {
            let most = SUMS.len();
            return Err(format!(
                "{} checksums over bytes that change in one frame; at most {most} are supported",
                sums.len()
            ));
        }
        self.begin(asm);
        for (index, sum) in sums.iter().enumerate() {
            asm.mov(SUMS[index], i32::from(sum.base));
            self.most[index] = sum.base.into();
        }
        for field in &plan.fields[layout.fields.clone()] {
            self.value(asm, field)?;
            let (place, width) = (field.place, field.place.width as usize);
            self.count(asm, field.covers, width);
            store(asm, place.offset as usize, width, place.mask != u64::MAX >> (64 - 8 * width));
        }
        for (fill, covers) in &plan.fills[layout.fills.clone()] {
            self.noise(asm, fill, *covers);
        }
        if let Some(mark) = &layout.trailer {
            let number = self.number.ok_or(u64::from(mark.stream) << SEQUENCE_BITS);
            sequence(asm);
            load_number(asm, number);
            asm.alu(Alu::Or, Reg::R0, Reg::R1);
            self.count(asm, mark.covers, 8);
            store(asm, mark.offset, 8, false);
            time_and_check(asm, number, self.key);
            self.count(asm, mark.covers, 8);
            store(asm, mark.offset + 8, 8, false);
        }
        sums.iter().zip(SUMS).enumerate().for_each(|(index, (sum, reg))| self.sum(asm, reg, self.most[index], sum));
        Ok(())
    }

    /// Resizes the live frame, leaves it in R6, and writes the constant bytes.
    fn begin(&mut self, asm: &mut Assembler) {
        let (template, length) = (self.plan.template(self.layout), self.layout.length as usize);
        let constant = self.constant();
        if length < self.longest {
            asm.mov(Reg::R1, Reg::R6);
            asm.mov(Reg::R2, length as i32 - self.longest as i32);
            asm.call(helper::ADJUST_TAIL);
            asm.jump_if(JumpCondition::Ne, Reg::R0, 0, self.failed);
        }
        let copied = constant.iter().filter(|constant| **constant).count() > BY_CONSTANTS;
        if copied {
            asm.mov(Reg::R1, Reg::R6);
            asm.mov(Reg::R2, 0);
            let place = self.memory.place(template);
            asm.map_value(Reg::R3, self.memory.map, place);
            asm.mov(Reg::R4, length as i32);
            asm.call(helper::STORE_BYTES);
            asm.jump_if(JumpCondition::Ne, Reg::R0, 0, self.failed);
        }
        // struct xdp_md: data, data_end.
        asm.load(Size::B4, Reg::R2, Reg::R6, 4);
        asm.load(Size::B4, Reg::R6, Reg::R6, 0);
        asm.mov(Reg::R1, Reg::R6);
        asm.alu(Alu::Add, Reg::R1, length as i32);
        asm.jump_if(JumpCondition::Gt, Reg::R1, Reg::R2, self.failed);
        if !copied {
            store_constants(asm, template, &constant);
        }
    }

    /// Returns which bytes are constant: neither a number nor a checksum writes them completely.
    fn constant(&self) -> Vec<bool> {
        let (plan, layout) = (self.plan, self.layout);
        let mut constant = vec![true; layout.length as usize];
        let fields = plan.fields[layout.fields.clone()].iter().map(|field| &field.place);
        let whole = fields.filter(|place| place.mask == u64::MAX >> (64 - 8 * place.width));
        let fields = whole.map(|place| (place.offset as usize, place.width as usize));
        let fills = plan.fills[layout.fills.clone()].iter().map(|(fill, _)| (fill.offset, fill.length));
        let sums = plan.sums[layout.sums.clone()].iter().map(|sum| (sum.offset, 2));
        let trailer = layout.trailer.iter().map(|mark| (mark.offset, 16));
        for (offset, width) in fields.chain(fills).chain(sums).chain(trailer) {
            constant[offset..offset + width].fill(false);
        }
        constant
    }

    /// Leaves the number of a field in R0. Uses R1.
    fn value(&mut self, asm: &mut Assembler, field: &Field) -> Result<(), String> {
        self.indices[field.selector as usize - self.first].load(asm);
        match &field.term {
            Term::Linear { start, step } => linear(asm, *start, *step),
            Term::Divided { start, step, divide, modulo: by } => {
                match divide.is_power_of_two() {
                    true => shift_right(asm, divide.trailing_zeros()),
                    false => operate(asm, Alu::Div, *divide),
                }
                if *by > 0 {
                    modulo(asm, *by);
                }
                linear(asm, *start, *step);
            }
            Term::Table(values) => {
                let (rows, count) = (values.len(), self.plan.selectors[field.selector as usize].count);
                if !(1..=rows as u64).contains(&count) {
                    modulo(asm, rows as u64);
                }
                let place =
                    self.memory.place(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
                self.memory.row(asm, Reg::R0, place, rows, self.failed);
                asm.load(Size::B8, Reg::R0, Reg::R1, 0);
            }
            Term::Scaled { start, span, seed, shift } => {
                draw(asm, *seed);
                scale(asm, *span);
                shifted(asm, *start, *shift);
            }
            Term::Masked { start, mask, seed, shift } => {
                draw(asm, *seed);
                keep(asm, *mask);
                shifted(asm, *start, *shift);
            }
            Term::Wide(wide) => return Err(wide.why.clone()),
        }
        keep(asm, field.place.mask);
        Ok(())
    }

    /// Writes noise, word by word from a seed of this frame.
    fn noise(&mut self, asm: &mut Assembler, fill: &Fill, covers: SumRange) {
        asm.mov(Reg::R0, Reg::R8);
        draw(asm, fill.seed);
        asm.store(Size::B8, Reg::Fp, stack(LATER), Reg::R0);
        for (first, word) in (0..fill.length).step_by(8).zip(0..) {
            let width = (fill.length - first).min(8);
            if word > 0 {
                asm.load(Size::B8, Reg::R0, Reg::Fp, stack(LATER));
            }
            draw_from(asm, word);
            if width < 8 {
                keep(asm, u64::MAX << (64 - 8 * width));
            }
            self.count(asm, covers, 8);
            shift_right(asm, 64 - 8 * width as u32);
            store(asm, fill.offset + first, width, false);
        }
    }

    /// Folds a sum and writes the checksum.
    fn sum(&mut self, asm: &mut Assembler, reg: Reg, mut most: u64, sum: &Sum) {
        asm.mov(Reg::R0, reg);
        while most > 0xffff {
            let shift = if most > 1 << 40 { 32 } else { 16 };
            asm.mov(Reg::R1, Reg::R0);
            asm.alu(Alu::Rsh, Reg::R1, shift);
            keep(asm, (1 << shift) - 1);
            asm.alu(Alu::Add, Reg::R0, Reg::R1);
            // If the upper bits are one less, the lower bits may have any value.
            let (upper, mask) = (most >> shift, (1 << shift) - 1);
            most = if upper == 0 { most } else { (upper + (most & mask)).max(upper - 1 + mask) };
        }
        asm.alu(Alu::Xor, Reg::R0, 0xffff);
        if matches!(sum.kind, SumKind::Internet { no_zero: true }) {
            let other = asm.label();
            asm.jump_if(JumpCondition::Ne, Reg::R0, 0, other);
            asm.mov(Reg::R0, 0xffff);
            asm.place(other);
        }
        self.count(asm, sum.covers, 2);
        store(asm, sum.offset, 2, false);
    }

    /// Adds R0, a number of `width` bytes, to the sums that it counts in. Uses R1.
    fn count(&mut self, asm: &mut Assembler, covers: SumRange, width: usize) {
        for CoveringSum { sum, shift } in self.plan.covering(covers) {
            let reg = SUMS[*sum as usize];
            let halves = if width > 4 { 2 * u64::from(u32::MAX) } else { (1 << (8 * width)) - 1 };
            self.most[*sum as usize] += halves << shift;
            if width <= 4 && *shift == 0 {
                asm.alu(Alu::Add, reg, Reg::R0);
                continue;
            }
            let add = |asm: &mut Assembler| {
                if *shift > 0 {
                    asm.alu(Alu::Lsh, Reg::R1, *shift as i32);
                }
                asm.alu(Alu::Add, reg, Reg::R1);
            };
            if width > 4 {
                asm.mov(Reg::R1, Reg::R0);
                asm.alu(Alu::Rsh, Reg::R1, 32);
                add(asm);
            }
            asm.alu32(Alu::Mov, Reg::R1, Reg::R0);
            add(asm);
        }
    }
}

/// Writes constant bytes: eight at a time where a sign-extended constant holds them, else four.
fn store_constants(asm: &mut Assembler, template: &[u8], constant: &[bool]) {
    let mut place = 0;
    while place < template.len() {
        if !constant[place] {
            place += 1;
            continue;
        }
        let rest = &template[place..];
        let eight = rest.first_chunk::<8>().map(|bytes| i64::from_le_bytes(*bytes)).map(i32::try_from);
        let (size, value) = match (eight, rest) {
            (Some(Ok(value)), _) => (Size::B8, value),
            (_, [a, b, c, d, ..]) => (Size::B4, i32::from_le_bytes([*a, *b, *c, *d])),
            (_, [a, b, ..]) => (Size::B2, i32::from(u16::from_le_bytes([*a, *b]))),
            (_, rest) => (Size::B1, i32::from(rest[0])),
        };
        asm.store(size, Reg::R6, place as i16, value);
        place += size.bytes();
    }
}

/// `R0 = start + step * R0`. Uses R1.
fn linear(asm: &mut Assembler, start: u64, step: u64) {
    match i32::try_from(step as i64) {
        Ok(1) => {}
        Ok(step) => asm.alu(Alu::Mul, Reg::R0, step),
        Err(_) => operate(asm, Alu::Mul, step),
    }
    add_constant(asm, Reg::R0, start, Reg::R1);
}

/// `R0 = start + R0 << shift`. Uses R1.
fn shifted(asm: &mut Assembler, start: u64, shift: u32) {
    add_constant(asm, Reg::R0, start, Reg::R1);
    if shift > 0 {
        asm.alu(Alu::Lsh, Reg::R0, shift as i32);
    }
}

/// Leaves the frame's number in R0, in the form of trailers.
fn sequence(asm: &mut Assembler) {
    asm.mov(Reg::R0, Reg::R8);
    asm.alu(Alu::Lsh, Reg::R0, 64 - SEQUENCE_BITS as i32);
    asm.alu(Alu::Rsh, Reg::R0, 64 - SEQUENCE_BITS as i32);
}

/// Leaves a stream's number in R1, in the form of trailers: from its word, or the constant.
fn load_number(asm: &mut Assembler, number: Result<usize, u64>) {
    match number {
        Ok(word) => asm.load(Size::B8, Reg::R1, Reg::R7, at(word)),
        Err(number) => asm.mov64(Reg::R1, number),
    }
}

/// Leaves time and check of a trailer in R0 ([`check`](linerate_generate::trailer::check)). Uses R1.
fn time_and_check(asm: &mut Assembler, number: Result<usize, u64>, key: Key) {
    let shift = 64 - TIME_BITS as i32;
    sequence(asm);
    load_number(asm, number.map_err(|number| number ^ key.0));
    asm.alu(Alu::Xor, Reg::R0, Reg::R1);
    if number.is_ok() {
        asm.mov64(Reg::R1, key.0);
        asm.alu(Alu::Xor, Reg::R0, Reg::R1);
    }
    operate(asm, Alu::Mul, FACTORS[0]);
    fold_down(asm, 32);
    asm.load(Size::B8, Reg::R1, Reg::R7, at(OFFSET));
    asm.alu(Alu::Add, Reg::R1, Reg::R9);
    asm.alu(Alu::Lsh, Reg::R1, shift);
    asm.store(Size::B8, Reg::Fp, stack(LATER), Reg::R1);
    asm.alu(Alu::Rsh, Reg::R1, shift);
    asm.alu(Alu::Xor, Reg::R0, Reg::R1);
    operate(asm, Alu::Mul, FACTORS[1]);
    fold_down(asm, 29);
    operate(asm, Alu::Mul, FACTORS[2]);
    asm.alu(Alu::Rsh, Reg::R0, 64 - shift);
    asm.load(Size::B8, Reg::R1, Reg::Fp, stack(LATER));
    asm.alu(Alu::Or, Reg::R0, Reg::R1);
}

/// Writes R0, a number of `width` bytes, to the frame; with `among` it is merged with the bits outside its mask. Uses
/// R1.
fn store(asm: &mut Assembler, offset: usize, width: usize, among: bool) {
    let whole = |size: &Size| size.bytes() == width && !among;
    if let Some(size) = [Size::B1, Size::B2, Size::B4, Size::B8].into_iter().find(whole) {
        if width > 1 {
            asm.to_be(Reg::R0, 8 * width as i32);
        }
        return asm.store(size, Reg::R6, offset as i16, Reg::R0);
    }
    if width < 8 {
        asm.alu(Alu::Lsh, Reg::R0, 64 - 8 * width as i32);
    }
    asm.to_be(Reg::R0, 64);
    let mut done = 0;
    for size in [Size::B8, Size::B4, Size::B2, Size::B1] {
        if width & size.bytes() == 0 {
            continue;
        }
        let place = (offset + done) as i16;
        if among {
            asm.load(size, Reg::R1, Reg::R6, place);
            asm.alu(Alu::Or, Reg::R1, Reg::R0);
            asm.store(size, Reg::R6, place, Reg::R1);
        } else {
            asm.store(size, Reg::R6, place, Reg::R0);
        }
        done += size.bytes();
        if done < width {
            asm.alu(Alu::Rsh, Reg::R0, 8 * size.bytes() as i32);
        }
    }
}
