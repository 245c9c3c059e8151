//! Instructions after a frame: the next stream, and the next due time.

use super::*;
use crate::ebpf::Alu;
use crate::xdp_live::index::count_up;
use linerate_generate::stream::Next;
use linerate_port::LATE;

impl Program<'_> {
    /// Selects the next stream. Uses R0, R1, R4 and R5.
    pub(super) fn turn(&self, asm: &mut Assembler, index: usize) {
        if self.is_one() && self.commanded.is_none() {
            return;
        }
        asm.alu(Alu::Add, Reg::R8, 1);
        set(asm, NUMBERS + index, Reg::R8);
        match self.turns.kind {
            Kind::One => {}
            Kind::Round => {
                asm.load(Size::B8, Reg::R0, Reg::R7, at(AFTER + index));
                set(asm, TURN, Reg::R0);
                if let Some(count) = self.set.streams[index].count {
                    leave(asm, index, count);
                }
            }
            Kind::Sequence => self.follow(asm, index),
        }
    }

    /// Selects the following stream, or the end, after the last frame of a pass. Uses R0 and R1.
    fn follow(&self, asm: &mut Assembler, index: usize) {
        let stream = &self.set.streams[index];
        let Some(count) = stream.count else { return };
        let (goes, done) = (asm.label(), asm.label());
        count_up(asm, PASS + index, count, done);
        let behind = |asm: &mut Assembler| match index + 1 {
            next if next < self.set.streams.len() && stream.next != Next::Stop => set(asm, TURN, next as i32),
            _ => {
                asm.load(Size::B8, Reg::R0, Reg::R7, at(MADE));
                asm.alu(Alu::Add, Reg::R0, 1);
                set(asm, LIMIT, Reg::R0);
            }
        };
        match stream.next {
            Next::Goto { stream: to, times } => {
                if let Some(times) = times {
                    count_up(asm, JUMPS + index, times.wrapping_add(1), goes);
                    behind(asm);
                    asm.jump(done);
                }
                asm.place(goes);
                set(asm, TURN, to as i32);
            }
            Next::Following | Next::Stop => behind(asm),
        }
        asm.place(done);
    }

    /// Computes the due time of the next frame, with the gap in R2 and R3. Uses R0, R1, R4 and R9.
    pub(super) fn advance(&self, asm: &mut Assembler, index: usize) {
        let (pace, done) = (&self.turns.paces[index], asm.label());
        match self.commanded {
            Some(_) if pace.burst.is_none() => {
                let paced = asm.label();
                asm.mov(Reg::R0, Reg::R2);
                asm.alu(Alu::Or, Reg::R0, Reg::R3);
                asm.jump_if(JumpCondition::Ne, Reg::R0, 0, paced);
                asm.load(Size::B8, Reg::R0, Reg::R7, at(DUE));
                asm.jump_if(JumpCondition::Eq, Reg::R0, 0, done);
                set(asm, DUE, Reg::R9);
                set(asm, FRACTION, 0);
                asm.jump(done);
                asm.place(paced);
            }
            Some(_) => {}
            None if !self.turns.is_paced() => return,
            None if pace.is_top() => {
                set(asm, DUE, Reg::R9);
                return set(asm, FRACTION, 0);
            }
            None => {}
        }
        if pace.by_round {
            let ends = asm.label();
            asm.load(Size::B8, Reg::R0, Reg::R7, at(TURN));
            asm.jump_if(JumpCondition::Le, Reg::R0, index as i32, ends);
            asm.mov(Reg::R2, 0);
            asm.mov(Reg::R3, 0);
            asm.place(ends);
        }
        if let Some((frames, gap)) = pace.burst {
            let within = asm.label();
            count_up(asm, BURST + index, frames, within);
            emit::add_constant(asm, Reg::R2, gap, Reg::R1);
            asm.place(within);
        }
        asm.load(Size::B8, Reg::R4, Reg::R7, at(DUE));
        asm.alu(Alu::Sub, Reg::R9, Reg::R4);
        let (within, less, on_time) = (asm.label(), asm.label(), asm.label());
        asm.load(Size::B8, Reg::R1, Reg::R7, at(BOUND));
        asm.jump_if(JumpCondition::Le, Reg::R9, Reg::R1, within);
        asm.mov(Reg::R0, Reg::R9);
        asm.alu(Alu::Sub, Reg::R0, Reg::R1);
        asm.alu(Alu::Add, Reg::R4, Reg::R0);
        asm.mov(Reg::R9, Reg::R1);
        emit::add(asm, SHIFTED, Reg::R0);
        asm.place(within);
        asm.jump_if(JumpCondition::Le, Reg::R9, LATE.as_nanos() as i32, on_time);
        emit::add(asm, LATE_FRAMES, 1);
        asm.place(on_time);
        emit::add(asm, LATE_SUM, Reg::R9);
        asm.load(Size::B8, Reg::R1, Reg::R7, at(LATE_MAX));
        asm.jump_if(JumpCondition::Le, Reg::R9, Reg::R1, less);
        set(asm, LATE_MAX, Reg::R9);
        asm.place(less);
        asm.load(Size::B8, Reg::R1, Reg::R7, at(FRACTION));
        asm.alu(Alu::Add, Reg::R1, Reg::R3);
        asm.alu32(Alu::Mov, Reg::R3, Reg::R1);
        set(asm, FRACTION, Reg::R3);
        asm.alu(Alu::Rsh, Reg::R1, 32);
        asm.alu(Alu::Add, Reg::R4, Reg::R1);
        asm.alu(Alu::Add, Reg::R4, Reg::R2);
        set(asm, DUE, Reg::R4);
        asm.place(done);
    }
}

/// Removes a stream that has sent its frames from the turns. Uses R0, R1, R4 and R5.
fn leave(asm: &mut Assembler, index: usize, count: u64) {
    let stays = asm.label();
    asm.mov64(Reg::R1, count);
    asm.jump_if(JumpCondition::Lt, Reg::R8, Reg::R1, stays);
    asm.load(Size::B8, Reg::R1, Reg::R7, at(BEFORE + index));
    for (of, word, value) in [(Reg::R1, AFTER, Reg::R0), (Reg::R0, BEFORE, Reg::R1)] {
        asm.mov(Reg::R4, of);
        asm.alu(Alu::And, Reg::R4, MOST_STREAMS as i32 - 1);
        asm.alu(Alu::Lsh, Reg::R4, 3);
        asm.mov(Reg::R5, Reg::R7);
        asm.alu(Alu::Add, Reg::R5, Reg::R4);
        asm.store(Size::B8, Reg::R5, at(word), value);
    }
    asm.place(stays);
}
