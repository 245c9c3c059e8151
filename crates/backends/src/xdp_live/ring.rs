//! Frames in memory that a program copies into live frames: frames written by this process, or received by another
//! program.

use super::emit;
use super::interface::{LEAST_FRAME, MOST_BYTES};
use super::loaded_program::LoadedProgram;
use super::shared_state::{LiveCounts, MADE, OWN, State, at};
use crate::ebpf::{Alu, Assembler, Insn, JumpCondition, Reg, Size, TooFar, helper};
use crate::sys::area::Area;
use crate::sys::bpf::Map;
use crate::sys::bpf_live::Bytes;
use std::io;

/// Frames per call: enough that the cost of the call itself, some 40 us, is negligible.
pub(crate) const FRAMES: usize = 4096;
const MEMORY: usize = 4 << 20;
/// Bytes after the last valid offset of a frame, which programs may read.
const BEHIND: usize = 4096;

/// Words: next frame, end, length of the frames that the kernel makes; then per frame its offset (upper half) and its
/// length.
const NEXT: usize = OWN;
const END: usize = OWN + 1;
const LONGEST: usize = OWN + 2;
const PLACES: usize = OWN + 3;

/// Frames queued and not sent yet.
pub(crate) struct Ring {
    machine: LoadedProgram,
    state: State,
    /// Own memory; `None` if frames lie in the memory of another program.
    memory: Option<Bytes>,
    used: usize,
    frames: usize,
    /// Frames among these that a call has handled.
    done: usize,
    longest: usize,
    bytes: u64,
}

impl Ring {
    /// Creates an empty ring for an interface, with its own memory.
    pub(crate) fn new(devmap: &Map) -> io::Result<Self> {
        let memory = Bytes::new(MEMORY + BEHIND)?;
        Ring::with(devmap, (memory.raw(), MEMORY), Some(memory))
    }

    /// Creates an empty ring for an interface, for frames in an area.
    pub(crate) fn over(devmap: &Map, area: &Area) -> io::Result<Self> {
        Ring::with(devmap, (area.raw(), area.layout().total() - BEHIND), None)
    }

    fn with(devmap: &Map, source: (i32, usize), memory: Option<Bytes>) -> io::Result<Self> {
        let state = State::new(PLACES - OWN + FRAMES)?;
        let program = program(state.raw(), devmap.raw(), source).map_err(io::Error::other)?;
        let machine = LoadedProgram::new(&program, &state)?;
        Ok(Ring { machine, state, memory, used: 0, frames: 0, done: 0, longest: 0, bytes: 0 })
    }

    /// Finds the longest live frame that the kernel makes, by trying.
    pub(crate) fn longest_live(&self) -> usize {
        let frame = [0u8; MOST_BYTES];
        // The ring is empty: the program drops each frame.
        let lengths: Vec<usize> = (LEAST_FRAME..=MOST_BYTES).collect();
        let refused = |length: &usize| self.machine.run(&frame[..*length], 1, false).is_err();
        LEAST_FRAME + lengths.partition_point(|length| !refused(length)) - 1
    }

    /// Copies a frame of 14 to [`MOST_BYTES`] bytes; false if the ring is full.
    pub(crate) fn push(&mut self, frame: &[u8]) -> bool {
        let Some(memory) = self.memory.as_mut().filter(|_| self.frames < FRAMES) else { return false };
        if self.used + frame.len() > MEMORY {
            return false;
        }
        memory.write(self.used, frame);
        let place = self.used;
        self.used += frame.len().next_multiple_of(8);
        self.push_placed(place, frame.len())
    }

    /// Queues a frame of 14 to [`MOST_BYTES`] bytes in place, until it is sent; false if the ring is full.
    pub(crate) fn push_placed(&mut self, place: usize, length: usize) -> bool {
        debug_assert!((LEAST_FRAME..=MOST_BYTES).contains(&length));
        if self.frames == FRAMES {
            return false;
        }
        self.state.set(PLACES + self.frames, (place as u64) << 32 | length as u64);
        self.frames += 1;
        self.longest = self.longest.max(length);
        self.bytes += length as u64;
        true
    }

    /// Returns the number of frames that are not sent yet.
    pub(crate) fn waiting(&self) -> usize {
        self.frames - self.done
    }

    /// Returns the bytes of all frames queued since the ring was empty.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the counts of all frames so far.
    pub(crate) fn counts(&self) -> LiveCounts {
        self.state.counts()
    }

    /// Returns the shared words.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Discards unsent frames.
    pub(crate) fn clear(&mut self) {
        (self.used, self.frames, self.done, self.longest, self.bytes) = (0, 0, 0, 0, 0);
    }

    /// Sends all queued frames and empties the ring. After an error the rest stays queued.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let frame = [0u8; MOST_BYTES];
        self.state.set(LONGEST, self.longest as u64);
        self.state.set(END, self.frames as u64);
        while self.waiting() > 0 {
            self.state.set(NEXT, self.done as u64);
            let result = self.machine.run(&frame[..self.longest], self.waiting() as u32, false);
            self.done = self.state.get(NEXT) as usize;
            match result {
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                result => result?,
            }
        }
        self.clear();
        Ok(())
    }
}

/// Returns the program that sends frame NEXT of the memory, and advances NEXT.
fn program(words: i32, devmap: i32, (memory, length): (i32, usize)) -> Result<Vec<Insn>, TooFar> {
    let mut asm = Assembler::new();
    let exits = emit::begin(&mut asm, words);
    asm.load(Size::B8, Reg::R9, Reg::R7, at(NEXT));
    asm.load(Size::B8, Reg::R1, Reg::R7, at(END));
    asm.jump_if(JumpCondition::Ge, Reg::R9, Reg::R1, exits.drop);
    // Whatever happens to this frame, the next run handles another.
    asm.mov(Reg::R1, Reg::R9);
    asm.alu(Alu::Add, Reg::R1, 1);
    asm.store(Size::B8, Reg::R7, at(NEXT), Reg::R1);
    emit::redirect(&mut asm, devmap, &exits);
    asm.alu(Alu::And, Reg::R9, FRAMES as i32 - 1);
    asm.alu(Alu::Lsh, Reg::R9, 3);
    asm.alu(Alu::Add, Reg::R9, Reg::R7);
    asm.load(Size::B4, Reg::R8, Reg::R9, at(PLACES));
    asm.load(Size::B4, Reg::R9, Reg::R9, at(PLACES) + 4);
    // Bounds that the verifier needs.
    asm.jump_if(JumpCondition::Lt, Reg::R8, LEAST_FRAME as i32, exits.failed);
    asm.jump_if(JumpCondition::Gt, Reg::R8, MOST_BYTES as i32, exits.failed);
    asm.jump_if(JumpCondition::Gt, Reg::R9, length as i32, exits.failed);
    let whole = asm.label();
    asm.load(Size::B8, Reg::R1, Reg::R7, at(LONGEST));
    asm.jump_if(JumpCondition::Eq, Reg::R1, Reg::R8, whole);
    asm.mov(Reg::R2, Reg::R8);
    asm.alu(Alu::Sub, Reg::R2, Reg::R1);
    asm.mov(Reg::R1, Reg::R6);
    asm.call(helper::ADJUST_TAIL);
    asm.jump_if(JumpCondition::Ne, Reg::R0, 0, exits.failed);
    asm.place(whole);
    asm.mov(Reg::R1, Reg::R6);
    asm.mov(Reg::R2, 0);
    asm.map_value(Reg::R3, memory, 0);
    asm.alu(Alu::Add, Reg::R3, Reg::R9);
    asm.mov(Reg::R4, Reg::R8);
    asm.call(helper::STORE_BYTES);
    asm.jump_if(JumpCondition::Ne, Reg::R0, 0, exits.failed);
    asm.load(Size::B8, Reg::R8, Reg::R7, at(MADE));
    emit::send(&mut asm, Reg::R8);
    emit::exits(&mut asm, &exits);
    asm.finish()
}
