//! A plan that runs: the calls, the schedule, and what another thread may do meanwhile.

use super::interface::Interface;
use super::machine::Machine;
use super::program::{DUE, LATE_MAX, LATE_SUM, Layout};
use super::words::{Counts, FAILED, LIMIT, MADE, OFFSET, STOP, State};
use crate::backends::sys::bpf::Map;
use crate::backends::sys::bpf_live::Bytes;
use crate::backends::sys::thread::Caller;
use crate::contract::{LiveControl, LiveProgress, PortError, Sent};
use crate::live::Plan;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Frames of the first call, which shows whether the interface takes any.
const FIRST: u64 = 16;
/// Time that a look at the schedule takes at most: a call is made of so many looks that it does not outlast the
/// plan, and the next one covers what is left.
const LOOK_NANOS: u64 = 400;
/// But not of fewer: about 2 ms.
const LEAST_LOOKS: u64 = 20_000;
/// Frames that may be under way; more that were refused end a call.
const UNDER_WAY: u64 = 4096;
/// Words reach so far as instructions can name them.
const MOST_WORDS: usize = 4000;

/// A plan, loaded.
pub struct Planned {
    machine: Machine,
    control: Arc<Control>,
    /// Of the greatest length; what is in it is overwritten.
    frame: Vec<u8>,
    paced: bool,
    /// Mean time from frame to frame.
    gap: u64,
    _copied: Bytes,
}

struct Control {
    state: State,
    /// The thread in a call.
    caller: Mutex<Option<Caller>>,
    /// Length of each template.
    lengths: Vec<u64>,
}

impl Planned {
    /// Loads the program of a plan. Call it with the privileges that opening needed.
    pub fn new(plan: &Plan, interface: &Interface, devmap: &Map) -> Result<Self, PortError> {
        let broken = |reason: String| PortError::broken(interface.port(), reason);
        let checked = plan.check().map_err(|error| broken(error.to_string()))?;
        let longest = interface.longest()?;
        let long = plan.templates.iter().map(|template| &template.frame[..]);
        if let Some(frame) = long.clone().find(|frame| !Interface::fits(frame, longest)) {
            let most = interface.longest_live();
            let reason = if frame.len() > most {
                format!("the kernel makes no frames of {} bytes, {most} at most", frame.len())
            } else {
                format!("frames of {} bytes are longer than the interface's MTU allows", frame.len())
            };
            return Err(broken(reason));
        }
        let layout = Layout::of(checked);
        if layout.words > MOST_WORDS {
            return Err(broken(format!("the plan has more than {MOST_WORDS} stepped fields")));
        }
        let frame = vec![0; checked.longest()];
        let nanos: u64 = plan.templates.iter().map(|template| template.gap.nanos).sum();
        let gap = nanos / plan.templates.len() as u64;
        let lengths = long.map(|frame| frame.len() as u64).collect();
        let loaded = load(&layout, devmap).map_err(|error| broken(format!("cannot load the plan: {error}")))?;
        let (machine, state, copied) = loaded;
        state.set(LIMIT, plan.count.unwrap_or(u64::MAX));
        let control = Arc::new(Control { state, caller: Mutex::new(None), lengths });
        Ok(Planned { machine, control, frame, paced: plan.is_paced(), gap, _copied: copied })
    }

    /// What another thread may use while the plan runs.
    pub fn control(&self) -> Arc<dyn LiveControl> {
        Arc::clone(&self.control) as Arc<dyn LiveControl>
    }

    /// How far it is.
    pub fn progress(&self) -> LiveProgress {
        self.control.progress()
    }

    /// What became of its frames.
    pub fn counts(&self) -> Counts {
        self.control.state.counts()
    }

    /// Runs until the plan has ended or is stopped.
    pub fn run(&self, interface: &Interface) -> Result<(), PortError> {
        let state = &self.control.state;
        state.set(DUE, monotonic());
        self.control.follow_clock();
        self.control.set_caller(Some(Caller::this()));
        let result = self.calls(interface);
        self.control.set_caller(None);
        result
    }

    fn calls(&self, interface: &Interface) -> Result<(), PortError> {
        let state = &self.control.state;
        let mut most = FIRST;
        while state.get(STOP) == 0 {
            let before = state.counts();
            let left = state.get(LIMIT).saturating_sub(before.made);
            if left == 0 {
                break;
            }
            interface.longest()?;
            let times = self.times(left).min(most).min(u32::MAX.into());
            let result = self.machine.run(&self.frame, times as u32, self.paced);
            match result {
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                result => result.map_err(|error| interface.explain(&error))?,
            }
            interface.judge(state, before, state.counts())?;
            most = if state.get(MADE) > before.made || most > FIRST { u64::MAX } else { FIRST };
        }
        Ok(())
    }

    /// How often the program runs in a call: once a frame, or as often as the time that is left has looks.
    fn times(&self, left: u64) -> u64 {
        if !self.paced {
            return left;
        }
        let until = self.control.state.get(DUE).saturating_sub(monotonic());
        let looks = left.saturating_mul(self.gap).saturating_add(until) / LOOK_NANOS;
        looks.saturating_add(left).max(LEAST_LOOKS)
    }
}

fn load(layout: &Layout, devmap: &Map) -> io::Result<(Machine, State, Bytes)> {
    let state = State::new(layout.words)?;
    let mut copied = Bytes::new(layout.copied.len().max(8))?;
    copied.write(0, &layout.copied);
    for (word, value) in &layout.initial {
        state.set(*word, *value);
    }
    let program = layout.program(state.raw(), devmap.raw(), copied.raw()).map_err(io::Error::other)?;
    Ok((Machine::new(&program, &state)?, state, copied))
}

impl Control {
    fn set_caller(&self, caller: Option<Caller>) {
        *self.caller.lock().unwrap_or_else(PoisonError::into_inner) = caller;
    }

    /// The calling thread cannot end meanwhile: it waits for the lock first.
    fn interrupt(&self) {
        if let Some(caller) = *self.caller.lock().unwrap_or_else(PoisonError::into_inner) {
            caller.interrupt();
        }
    }

    /// UTC is the time since boot plus what changes only when somebody sets the clock. Read in this order it is
    /// rather a few nanoseconds too small: no frame is to come from the future.
    fn follow_clock(&self) {
        let utc = nanos(clock_gettime(ClockId::Realtime));
        self.state.set(OFFSET, utc.wrapping_sub(monotonic()));
    }

    /// The bytes of frames that were sent. Which of them the driver dropped it does not say: theirs are taken to
    /// be the mean.
    fn bytes(&self, counts: Counts) -> u64 {
        let (templates, whole) = (self.lengths.len() as u64, self.lengths.iter().sum::<u64>());
        let begun: u64 = self.lengths[..(counts.made % templates) as usize].iter().sum();
        let bytes = u128::from(counts.made / templates) * u128::from(whole) + u128::from(begun);
        (bytes * u128::from(counts.sent) / u128::from(counts.made.max(1))) as u64
    }
}

impl LiveControl for Control {
    fn progress(&self) -> LiveProgress {
        let counts = self.state.counts();
        LiveProgress {
            sent: Sent { frames: counts.sent, bytes: self.bytes(counts) },
            late_max: Duration::from_nanos(self.state.get(LATE_MAX)),
            late_mean: Duration::from_nanos(self.state.get(LATE_SUM) / counts.made.max(1)),
        }
    }

    fn look(&self) {
        self.follow_clock();
        if self.state.counts().refused() > UNDER_WAY || self.state.get(FAILED) > 0 {
            self.interrupt();
        }
    }

    fn stop(&self) {
        self.state.set(STOP, 1);
        self.interrupt();
    }

    fn resume(&self) {
        self.state.set(STOP, 0);
    }
}

/// Time since boot as programs see it.
fn monotonic() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

fn nanos(time: Timespec) -> u64 {
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}
