//! A receiver that only counts: an XDP program on an interface, for tests and benchmarks of senders.

use crate::ebpf::{Alu, Assembler, Insn, JumpCondition, Reg, Size, TooFar, helper};
use crate::inventory::find;
use crate::netns::within;
use crate::sys::bpf::{Demands, Link, Mode, Program, Words};
use crate::sys::bpf_live::Bytes;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

/// Action on counted frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountAction {
    /// Drop: the fastest receiver.
    Drop,
    /// Overwrite every other frame completely and drop it, and pass the rest to the host: the worst that receivers do
    /// to memory, and the appearance of the next frames in that memory.
    OverwriteHalf,
    /// Pass to the host.
    Pass,
}

/// Counts the frames that an interface receives; detached on drop.
#[derive(Debug)]
pub struct FrameCounter {
    _link: Link,
    _program: Program,
    _garbage: Bytes,
    words: Words,
}

/// Processors counted separately, so that none waits for another; a cache line each.
const PROCESSORS: usize = 1024;
const LINE: usize = 8;
/// Longest frame that is overwritten.
const LONGEST: usize = 4096;
/// Action numbers (linux/bpf.h).
const DROP: i32 = 1;
const PASS: i32 = 2;

impl FrameCounter {
    /// Attaches to an interface (of a network namespace), in the driver.
    pub fn attach(netns: Option<&str>, interface: &str, then: CountAction) -> io::Result<Self> {
        let (words, mut garbage) = (Words::new(PROCESSORS * LINE)?, Bytes::new(LONGEST)?);
        garbage.write(0, &[0xee; LONGEST]);
        let insns = program(words.raw(), garbage.raw(), then).map_err(io::Error::other)?;
        // With `frags` a veth accepts any MTU.
        let program = Program::load(&insns, Demands { frags: true, ..Demands::default() })?;
        let link = within(netns, || Link::attach(&program, find(interface)?.index, Mode::Native))?;
        Ok(FrameCounter { _link: link, _program: program, _garbage: garbage, words })
    }

    /// Returns the number of frames so far.
    pub fn frames(&self) -> u64 {
        (0..PROCESSORS).map(|processor| self.words.word(processor * LINE).load(Relaxed)).sum()
    }
}

fn program(words: i32, garbage: i32, then: CountAction) -> Result<Vec<Insn>, TooFar> {
    let mut asm = Assembler::new();
    let (end, pass) = (asm.label(), asm.label());
    asm.mov(Reg::R6, Reg::R1);
    asm.call(helper::PROCESSOR);
    asm.alu(Alu::And, Reg::R0, PROCESSORS as i32 - 1);
    asm.alu(Alu::Mul, Reg::R0, (LINE * 8) as i32);
    asm.map_value(Reg::R1, words, 0);
    asm.alu(Alu::Add, Reg::R1, Reg::R0);
    asm.load(Size::B8, Reg::R2, Reg::R1, 0);
    asm.alu(Alu::Add, Reg::R2, 1);
    asm.store(Size::B8, Reg::R1, 0, Reg::R2);
    if then == CountAction::OverwriteHalf {
        asm.alu(Alu::And, Reg::R2, 1);
        asm.jump_if(JumpCondition::Eq, Reg::R2, 0, pass);
        // struct xdp_md: data, data_end.
        asm.load(Size::B4, Reg::R4, Reg::R6, 4);
        asm.load(Size::B4, Reg::R1, Reg::R6, 0);
        asm.alu(Alu::Sub, Reg::R4, Reg::R1);
        asm.jump_if(JumpCondition::Lt, Reg::R4, 1, end);
        asm.jump_if(JumpCondition::Gt, Reg::R4, LONGEST as i32, end);
        asm.mov(Reg::R1, Reg::R6);
        asm.mov(Reg::R2, 0);
        asm.map_value(Reg::R3, garbage, 0);
        asm.call(helper::STORE_BYTES);
    }
    asm.place(end);
    asm.mov(Reg::R0, if then == CountAction::Pass { PASS } else { DROP });
    asm.exit();
    if then == CountAction::OverwriteHalf {
        asm.place(pass);
        asm.mov(Reg::R0, PASS);
        asm.exit();
    }
    asm.finish()
}
