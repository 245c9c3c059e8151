//! Running streams: the calls, the schedule, and control from another thread.

use super::commands::{Readiness, StreamCommands};
use super::interface::{Interface, LEAST_FRAME};
use super::loaded_program::LoadedProgram;
use super::program::{BOUND, BYTES, DUE, LATE_FRAMES, LATE_MAX, LATE_SUM, Maps, NUMBERS, Program, SHIFTED};
use super::shared_state::{LIMIT, LiveCounts, MADE, OFFSET, STOP, State};
use crate::program_clock::{monotonic, utc_offset};
use crate::sys::bpf::Map;
use crate::sys::bpf_live::Bytes;
use crate::sys::thread::Caller;
use linerate_generate::Command;
use linerate_generate::stream::StreamSet;
use linerate_port::{AppliedCommands, CATCH_UP, LiveControl, LiveProgress, PortError, Sent, Unable};
use std::any::Any;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Frames of the first call, which shows whether the interface takes any.
const FIRST: u64 = 16;
/// Maximum time of one check of the schedule: a call has a number of checks that does not outlast the streams, and the
/// next call covers the rest.
const LOOK_NANOS: u64 = 400;
/// Minimum number of checks per call: about 2 ms.
const LEAST_LOOKS: u64 = 20_000;
/// Frames that may be in flight; a call ends when more were refused.
const UNDER_WAY: u64 = 4096;
/// Interval at which paused streams are checked.
const HELD: Duration = Duration::from_micros(200);

/// A loaded set of streams.
pub(super) struct LoadedStreams {
    machine: LoadedProgram,
    control: Arc<StreamControl>,
    /// A buffer of the greatest length; its contents are overwritten.
    frame: Vec<u8>,
    /// Minimum time between frames, and whether they are paced, for streams without commands.
    gap: (u64, bool),
    _memory: Bytes,
}

#[derive(Debug)]
struct StreamControl {
    state: State,
    /// The thread in a call.
    caller: Mutex<Option<Caller>>,
    /// Length of all frames, if they have the same.
    length: Option<usize>,
    streams: usize,
    /// True if the set has only one stream.
    one: bool,
    /// Commands to the streams, if prepared for them.
    commands: Option<StreamCommands>,
}

impl LoadedStreams {
    /// Loads the program of a set; `is_commanded` if it must accept commands. Call it with the privileges that opening
    /// needed.
    pub(super) fn new(
        set: &StreamSet,
        is_commanded: bool,
        interface: &Interface,
        devmap: &Map,
    ) -> Result<Self, PortError> {
        let broken = |reason: String| PortError::broken(interface.port(), reason);
        let unable = |reason| PortError::Unable { port: interface.port().to_owned(), reason };
        check_lengths(set, interface)?;
        let program = if is_commanded { Program::commanded(set) } else { Program::of(set) };
        let program = program.map_err(|reason| unable(Unable::Make(reason)))?;
        let (machine, state, memory) = load(&program, devmap).map_err(|error| match error.kind() {
            // Longer than the kernel allows.
            io::ErrorKind::ArgumentListTooLong => unable(Unable::Make(error.to_string())),
            _ => broken(format!("cannot load the program of the streams: {error}")),
        })?;
        let streams = set.streams.len();
        let (length, one) = (program.length, program.is_one());
        let commands = StreamCommands::new(&program, set);
        let control = Arc::new(StreamControl { state, caller: Mutex::new(None), length, streams, one, commands });
        let gap = (program.least_gap(), program.turns.is_paced());
        Ok(LoadedStreams { machine, control, frame: vec![0; program.longest], gap, _memory: memory })
    }

    /// Returns the control for use by another thread.
    pub(super) fn control(&self) -> Arc<dyn LiveControl> {
        Arc::clone(&self.control) as Arc<dyn LiveControl>
    }

    /// Returns the progress of the streams.
    pub(super) fn progress(&self) -> LiveProgress {
        self.control.progress()
    }

    /// Returns the counts of their frames.
    pub(super) fn counts(&self) -> LiveCounts {
        self.control.state.counts()
    }

    /// Runs until the streams have ended or are stopped.
    pub(super) fn run(&self, interface: &Interface) -> Result<(), PortError> {
        let state = &self.control.state;
        match &self.control.commands {
            Some(commands) => commands.begin(state, monotonic()),
            None => state.set(DUE, monotonic()),
        }
        self.control.follow_clock();
        self.control.set_caller(Some(Caller::this()));
        let result = self.calls(interface);
        self.control.set_caller(None);
        result
    }

    fn calls(&self, interface: &Interface) -> Result<(), PortError> {
        let (state, commands) = (&self.control.state, self.control.commands.as_ref());
        let mut most = FIRST;
        while state.get(STOP) == 0 {
            if commands.is_some_and(|commands| commands.turn(state, monotonic()) == Readiness::Wait) {
                std::thread::sleep(HELD);
                continue;
            }
            let before = state.counts();
            let left = state.get(LIMIT).saturating_sub(before.made);
            if left == 0 {
                break;
            }
            interface.longest()?;
            let gap = commands.map_or(self.gap, StreamCommands::gap);
            let times = self.times(left, gap).min(most).min(u32::MAX.into());
            if commands.is_some_and(|commands| !commands.enter()) {
                continue;
            }
            let result = self.machine.run(&self.frame, times as u32, gap.1);
            commands.iter().for_each(|commands| commands.leave());
            match result {
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                result => result.map_err(|error| interface.explain(&error))?,
            }
            interface.check_counts(state, before, state.counts())?;
            most = if state.get(MADE) > before.made || most > FIRST { u64::MAX } else { FIRST };
        }
        Ok(())
    }

    /// Returns the number of runs in a call: one per frame, or the number of checks in the remaining time.
    fn times(&self, left: u64, (gap, is_paced): (u64, bool)) -> u64 {
        if !is_paced {
            return left;
        }
        let until = self.control.state.get(DUE).saturating_sub(monotonic());
        let looks = left.saturating_mul(gap).saturating_add(until) / LOOK_NANOS;
        looks.saturating_add(left).max(LEAST_LOOKS)
    }
}

/// Rejects frames that the kernel or the interface does not take.
fn check_lengths(set: &StreamSet, interface: &Interface) -> Result<(), PortError> {
    let longest = interface.longest()?;
    for variant in set.streams.iter().flat_map(|stream| &stream.variants) {
        let (length, most) = (variant.frame.len(), interface.longest_live());
        if length > most {
            let reason = Unable::TooLong { length, most };
            return Err(PortError::Unable { port: interface.port().to_owned(), reason });
        }
        let reason = if length < LEAST_FRAME {
            format!("frame of {length} bytes is shorter than an Ethernet header of {LEAST_FRAME} bytes")
        } else if !Interface::fits(&variant.frame, longest) {
            format!("frames of {length} bytes exceed the interface's MTU")
        } else {
            continue;
        };
        return Err(PortError::broken(interface.port(), reason));
    }
    Ok(())
}

fn load(program: &Program<'_>, devmap: &Map) -> io::Result<(LoadedProgram, State, Bytes)> {
    let (state, mut memory) = (State::new(program.words)?, Bytes::new(program.memory.len().max(8))?);
    memory.write(0, &program.memory);
    program.initial().iter().for_each(|(word, value)| state.set(*word, *value));
    state.set(BOUND, CATCH_UP.as_nanos() as u64);
    let maps = Maps { words: state.raw(), devmap: devmap.raw(), memory: memory.raw() };
    let instructions = program.instructions(maps).map_err(io::Error::other)?;
    Ok((LoadedProgram::new(&instructions, &state)?, state, memory))
}

impl StreamControl {
    fn set_caller(&self, caller: Option<Caller>) {
        *self.caller.lock().unwrap_or_else(PoisonError::into_inner) = caller;
    }

    /// Interrupts the call. The calling thread cannot end during this: it waits for the lock first.
    fn interrupt(&self) {
        if let Some(caller) = *self.caller.lock().unwrap_or_else(PoisonError::into_inner) {
            caller.interrupt();
        }
    }

    /// Updates the offset between UTC and the time since boot, which changes only when the clock is set.
    fn follow_clock(&self) {
        self.state.set(OFFSET, utc_offset(self.state.get(OFFSET)));
    }

    /// Returns the bytes of frames that were sent. The driver does not report which frames it dropped: they are assumed
    /// to have the mean length.
    fn bytes(&self, counts: LiveCounts) -> u64 {
        match self.length {
            Some(length) => counts.sent * length as u64,
            None => {
                let bytes = u128::from(self.state.get(BYTES)) * u128::from(counts.sent);
                (bytes / u128::from(counts.made.max(1))) as u64
            }
        }
    }
}

impl LiveControl for StreamControl {
    fn progress(&self) -> LiveProgress {
        let counts = self.state.counts();
        LiveProgress {
            sent: Sent { frames: counts.sent, bytes: self.bytes(counts) },
            late_max: Duration::from_nanos(self.state.get(LATE_MAX)),
            late_mean: Duration::from_nanos(self.state.get(LATE_SUM) / counts.made.max(1)),
            late: self.state.get(LATE_FRAMES),
            shifted: Duration::from_nanos(self.state.get(SHIFTED)),
        }
    }

    fn made(&self) -> Vec<u64> {
        if let Some(commands) = &self.commands {
            return commands.made(&self.state);
        }
        let word = |stream| if self.one { MADE } else { NUMBERS + stream };
        (0..self.streams).map(|stream| self.state.get(word(stream))).collect()
    }

    fn look(&self) -> Duration {
        self.follow_clock();
        let looked = self.commands.as_ref().map(|commands| commands.look(&self.state, monotonic()));
        let (again, is_to_end) = looked.unwrap_or((Duration::MAX, false));
        let counts = self.state.counts();
        let has_ended = counts.made >= self.state.get(LIMIT);
        if is_to_end || has_ended || counts.refused() > UNDER_WAY || counts.failed > 0 || self.state.is_rejected() {
            self.interrupt();
        }
        again
    }

    fn stop(&self) {
        self.state.set(STOP, 1);
        self.interrupt();
    }

    fn resume(&self) {
        self.state.set(STOP, 0);
    }

    fn elapsed(&self) -> Duration {
        self.commands.as_ref().map_or(Duration::ZERO, |commands| commands.elapsed(monotonic()))
    }

    fn check(&self, command: &dyn Any) -> Result<(), String> {
        match (&self.commands, command.downcast_ref::<Command>()) {
            (Some(commands), Some(command)) => commands.check(&self.state, command),
            (None, _) => Err("these streams were prepared without commands".into()),
            (_, None) => Err("not a command for streams".into()),
        }
    }

    fn command(&self, command: &dyn Any) {
        if let (Some(commands), Some(command)) = (&self.commands, command.downcast_ref::<Command>()) {
            commands.command(command.clone());
        }
    }

    fn done(&self) -> AppliedCommands {
        self.commands.as_ref().map_or_else(AppliedCommands::default, |commands| commands.done(&self.state))
    }
}
