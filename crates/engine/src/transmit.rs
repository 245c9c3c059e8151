//! Streams that begin, hold on, go on and end one by one, while the others of the port are sent.
//!
//! A thread has the port, and a schedule for each stream: frames are due by times of the stream's own, which go on as fast as its rate
//! was changed to, and not at all while it holds on. So a change touches no other stream, and no number of the stream's own frames is
//! left out. The next frame is that of the stream which is due first. Commands are taken up between two bursts, within
//! 10 ms.

mod work;

use self::work::Work;
use crate::control::{Progress, Stop};
use crate::died::survive;
use crate::sender::{Limits, Sender};
use linerate_generate::stream::{Mark, StreamSet, Wrong};
use linerate_generate::{Part, Traffic};
use linerate_port::TxPort;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Sender as Commands, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Frames with the time in them are made so many at a time at most.
const MARKED_ROOM: usize = 32;

/// What a stream is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Doing {
    /// Nothing: it has not begun, or has ended and its last frame has left.
    Stopped,
    /// It sends.
    Started,
    /// It holds on.
    Paused,
}

/// What a stream has sent, to be read at any time.
#[derive(Debug, Default)]
pub struct Sending {
    frames: AtomicU64,
    bytes: AtomicU64,
    doing: AtomicU8,
}

/// A stream that is to begin.
pub struct Beginning {
    /// Which one it is, for commands.
    pub slot: usize,
    /// A set of this stream alone.
    pub set: StreamSet,
    /// From now to its first frame.
    pub delay: Duration,
    /// For how long it is sent from its first frame on; `None`: as long as it has frames.
    pub span: Option<Duration>,
    /// Where its figures go.
    pub sending: Arc<Sending>,
}

/// A port whose streams are commanded. Dropped, it ends.
pub struct Transmitter {
    commands: Commands<Command>,
    progress: Arc<Progress>,
    stop: Stop,
    failure: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<()>>,
}

enum Command {
    Begin(Vec<(Beginning, Traffic)>),
    /// The slots, or all; the answer comes when their last frame has left.
    End(Vec<usize>, Commands<()>),
    Hold(Vec<usize>, Commands<()>),
    GoOn(Vec<usize>, Commands<()>),
    /// Times of the stream go on so many times as fast as they did at the beginning.
    Pace(usize, f64, Commands<()>),
}

impl Sending {
    /// Frames that were handed to the port.
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Acquire)
    }

    /// Their bytes, without FCS.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// What it is doing.
    pub fn doing(&self) -> Doing {
        match self.doing.load(Ordering::Acquire) {
            1 => Doing::Started,
            2 => Doing::Paused,
            _ => Doing::Stopped,
        }
    }

    fn set(&self, doing: Doing) {
        self.doing.store(doing as u8, Ordering::Release);
    }
}

impl Transmitter {
    /// Starts the thread that has the port.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub fn start(port: TxPort) -> std::io::Result<Self> {
        let (commands, taken) = channel();
        let (progress, stop) = (Progress::new(), Stop::new());
        let failure = Arc::new(Mutex::new(None));
        let limits = Limits { duration: None, stop: stop.clone(), progress: Arc::clone(&progress), at_once: false };
        let told = Arc::clone(&failure);
        let name = port.name.clone();
        let thread = Builder::new().name("transmit".into()).spawn(move || {
            let mut work = Work::new(Sender::new(vec![port], limits), taken, Arc::clone(&told));
            // Finer waits (prctl(2), PR_SET_TIMERSLACK).
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            if let Err(died) = survive(|| work.run()) {
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{name}: {died}"));
                work.give_up();
            }
        })?;
        Ok(Transmitter { commands, progress, stop, failure, thread: Some(thread) })
    }

    /// Has streams begin, together. One whose slot is in use ends first.
    ///
    /// # Errors
    /// A set that is wrong; then none begins.
    pub fn begin(&self, all: Vec<Beginning>) -> Result<(), Wrong> {
        let mut ready = Vec::with_capacity(all.len());
        for beginning in all {
            beginning.set.check()?;
            let mut traffic = Traffic::new(&beginning.set, Part::WHOLE)?;
            if beginning.set.streams.iter().any(|stream| stream.mark == Mark::Trailer) {
                traffic.set_room(MARKED_ROOM);
            }
            ready.push((beginning, traffic));
        }
        for (beginning, _) in &ready {
            beginning.sending.set(Doing::Started);
        }
        // A thread that is gone has left its failure.
        let _ = self.commands.send(Command::Begin(ready));
        Ok(())
    }

    /// Ends streams; their counts are final when this returns.
    pub fn end(&self, slots: Vec<usize>) {
        self.ask(|answer| Command::End(slots, answer));
    }

    /// Has streams hold on.
    pub fn hold(&self, slots: Vec<usize>) {
        self.ask(|answer| Command::Hold(slots, answer));
    }

    /// Has streams go on that hold on.
    pub fn go_on(&self, slots: Vec<usize>) {
        self.ask(|answer| Command::GoOn(slots, answer));
    }

    /// Has the times of a stream go on so many times as fast as those of its set.
    pub fn pace(&self, slot: usize, factor: f64) {
        self.ask(|answer| Command::Pace(slot, factor, answer));
    }

    /// What the port has sent: frames, and their bytes without FCS.
    pub fn sent(&self) -> (u64, u64) {
        (self.progress.frames.load(Ordering::Acquire), self.progress.bytes.load(Ordering::Acquire))
    }

    /// Why the port sends no more, if it does not.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn ask(&self, command: impl FnOnce(Commands<()>) -> Command) {
        let (answer, answered) = channel();
        if self.commands.send(command(answer)).is_ok() {
            let _ = answered.recv();
        }
    }
}

impl Drop for Transmitter {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
