//! Source of batches: memory, repeatedly, or a thread that reads ahead.

use super::Open;
use super::prepare::{Batch, FramePreparer};
use crate::control::Stop;
use crate::receive::wait::wait_for;
use crate::thread_panic::survive;
use linerate_burst::{Horizon, LinkType, Nanos};
use linerate_port::{PortError, RxPort, RxQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::time::Duration;

/// Number of batches that are read ahead: 128 MiB of frames, a tenth of a second at 10 Gb/s.
const AHEAD: usize = 32;
/// Interval of checking a pipe for input, and for stop requests.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Next item to send.
pub(super) enum NextBatch<'a> {
    Batch(&'a Batch),
    /// No batch is ready.
    Nothing,
    /// The end.
    Ended,
}

/// Batches in the order of the recording, pass after pass.
pub(super) enum Feed {
    /// All in memory; `failure` ends the recording before its time.
    Held {
        batches: Vec<Batch>,
        at: usize,
        passes: Passes,
        failure: Option<PortError>,
    },
    ReadAhead(Box<ReadAhead>),
}

impl Feed {
    /// Waits until as much as possible is ready.
    pub(super) fn fill_up(&self, stop: &Stop) {
        if let Feed::ReadAhead(ahead) = self {
            while !ahead.filled.load(Ordering::Relaxed) && !stop.is_requested() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    pub(super) fn turn(&mut self) -> Result<NextBatch<'_>, PortError> {
        match self {
            Feed::Held { batches, at, passes, failure } => match batches.get(*at).filter(|_| !passes.is_over()) {
                Some(batch) => Ok(NextBatch::Batch(batch)),
                None => failure.take().map_or(Ok(NextBatch::Ended), Err),
            },
            Feed::ReadAhead(ahead) => ahead.turn(),
        }
    }

    /// Advances after the current batch.
    pub(super) fn next(&mut self) {
        match self {
            Feed::Held { batches, at, passes, .. } => {
                let batch = &batches[*at];
                let is_last = batch.ends_pass;
                *at += 1;
                if is_last {
                    *at = 0;
                    passes.end(batches.iter().any(|batch| !batch.block.is_empty()));
                }
            }
            Feed::ReadAhead(ahead) => ahead.return_batch(),
        }
    }
}

/// Remaining passes over the recording.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passes {
    left: u64,
    /// Number of completed passes.
    pub done: u64,
}

impl Passes {
    /// Creates a number of passes, 0: without end.
    pub(super) fn new(loops: u64) -> Self {
        Passes { left: if loops == 0 { u64::MAX } else { loops }, done: 0 }
    }

    pub(super) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Ends a pass; one without a frame ends all, or it would loop forever.
    fn end(&mut self, had_frames: bool) {
        self.done += 1;
        self.left = if had_frames { self.left - 1 } else { 0 };
    }
}

/// The receiving end of a thread that prepares batches.
pub(super) struct ReadAhead {
    batches: Receiver<Result<Batch, PortError>>,
    current: Option<Batch>,
    /// Returns batches to be refilled.
    spare: Sender<Batch>,
    /// True while the thread has nothing to do.
    filled: Arc<AtomicBool>,
    /// Stops the thread while it waits for a pipe.
    over: Stop,
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.over.request();
    }
}

impl ReadAhead {
    fn turn(&mut self) -> Result<NextBatch<'_>, PortError> {
        if self.current.is_none() {
            match self.batches.try_recv() {
                Ok(batch) => self.current = Some(batch?),
                Err(TryRecvError::Empty) => return Ok(NextBatch::Nothing),
                Err(TryRecvError::Disconnected) => return Ok(NextBatch::Ended),
            }
        }
        Ok(self.current.as_ref().map_or(NextBatch::Nothing, NextBatch::Batch))
    }

    fn return_batch(&mut self) {
        if let Some(mut batch) = self.current.take() {
            batch.clear();
            // After the end of the thread the receiver is gone.
            let _ = self.spare.send(batch);
        }
    }
}

/// Source of a pass.
pub(super) enum Stock {
    /// A recording that is read in each pass.
    File(Open),
    /// Frames as they were recorded.
    Held(HeldRecording),
}

/// Starts a thread that prepares `loops` passes (0: without end) from the start.
///
/// # Errors
/// If the thread cannot be started.
pub(super) fn start(stock: Stock, prepare: FramePreparer, loops: u64) -> std::io::Result<Feed> {
    let (sender, batches) = sync_channel(AHEAD);
    let (spare, spares) = channel();
    let (filled, over) = (Arc::new(AtomicBool::new(false)), Stop::new());
    let maker = ReadAheadThread {
        prepare,
        sender,
        spares,
        made: 0,
        batch: Batch::new(),
        had_frames: false,
        filled: Arc::clone(&filled),
        over: over.clone(),
    };
    let (sender, done) = (maker.sender.clone(), Arc::clone(&filled));
    let make = move || {
        if let Err(died) = survive(|| maker.run(stock, Passes::new(loops))) {
            done.store(true, Ordering::Relaxed);
            // The sender may have ended before.
            let _ = sender.send(Err(PortError::broken("replay", died.to_string())));
        }
    };
    std::thread::Builder::new().name("linerate-ahead".into()).spawn(make)?;
    Ok(Feed::ReadAhead(Box::new(ReadAhead { batches, current: None, spare, filled, over })))
}

/// A recording in memory, up to a failure to read it.
pub(super) struct HeldRecording {
    pub batches: Vec<Batch>,
    pub failure: Option<PortError>,
}

/// Reads a recording into memory; returns `None` if that takes more than `most` bytes.
///
/// # Errors
/// If no frame of it can be read.
pub(super) fn hold(
    open: &mut Open,
    prepare: &mut FramePreparer,
    most: u64,
    stop: &Stop,
) -> Result<Option<HeldRecording>, PortError> {
    let mut queue = first_queue(open()?)?;
    let (mut batches, mut bytes) = (vec![Batch::new()], 0);
    prepare.start_pass();
    while !stop.is_requested() {
        let batch = batches.last_mut().expect("there always is one");
        let outcome = match read(&mut *queue, prepare, 0, batch) {
            Err(failure) if batches.iter().any(|batch| !batch.is_empty()) => {
                return Ok(Some(HeldRecording { batches, failure: Some(failure) }));
            }
            outcome => outcome?,
        };
        let batch = batches.last_mut().expect("there always is one");
        match outcome {
            ReadOutcome::Some => {}
            ReadOutcome::Full => {
                bytes += batch.bytes();
                batches.push(Batch::new());
            }
            ReadOutcome::Nothing => pause(&*queue),
            ReadOutcome::Ended => {
                bytes += batch.bytes();
                batch.ends_pass = true;
                return Ok((bytes <= most).then_some(HeldRecording { batches, failure: None }));
            }
        }
        if bytes > most {
            return Ok(None);
        }
    }
    Ok(Some(HeldRecording { batches: Vec::new(), failure: None }))
}

/// Outcome of a read.
enum ReadOutcome {
    Some,
    Full,
    Nothing,
    Ended,
}

/// Reads the next burst of a queue into a batch.
fn read(
    queue: &mut dyn RxQueue,
    prepare: &mut FramePreparer,
    turn: u64,
    batch: &mut Batch,
) -> Result<ReadOutcome, PortError> {
    let head = queue.fill(Nanos::ZERO)?;
    if let Some(other) = head.interfaces.iter().find(|interface| interface.link != LinkType::ETHERNET) {
        let reason = format!("cannot replay frames of {}; expected Ethernet", other.link);
        return Err(PortError::broken("replay", reason));
    }
    let shown = head.burst.len();
    if shown == 0 {
        return Ok(if head.horizon == Horizon::Ended { ReadOutcome::Ended } else { ReadOutcome::Nothing });
    }
    let done = prepare.put(head.burst, turn, batch);
    queue.consume(done);
    Ok(if done < shown { ReadOutcome::Full } else { ReadOutcome::Some })
}

fn pause(queue: &dyn RxQueue) {
    if queue.has_pending_work() {
        return;
    }
    match queue.wake() {
        Some(fd) => wait_for(&[fd], LOOK_AGAIN),
        None => std::thread::sleep(LOOK_AGAIN),
    }
}

/// The thread that reads ahead.
struct ReadAheadThread {
    prepare: FramePreparer,
    sender: SyncSender<Result<Batch, PortError>>,
    spares: Receiver<Batch>,
    /// Number of batches allocated.
    made: usize,
    /// Batch being filled.
    batch: Batch,
    /// True if this pass had a frame.
    had_frames: bool,
    filled: Arc<AtomicBool>,
    over: Stop,
}

/// The receiver has ended.
struct FeedClosed;

impl ReadAheadThread {
    fn run(mut self, mut stock: Stock, mut passes: Passes) {
        while !passes.is_over() {
            self.prepare.start_pass();
            self.had_frames = false;
            let result = match &mut stock {
                Stock::File(open) => self.read(open, passes.done),
                Stock::Held(held) => match (self.copy(&held.batches, passes.done), held.failure.take()) {
                    (Ok(()), Some(failure)) => Err(failure),
                    (done, _) => Ok(done),
                },
            };
            match result {
                Ok(Ok(())) => {}
                Ok(Err(FeedClosed)) => break,
                Err(error) => {
                    let _ = self.send_batch().map(|()| self.sender.send(Err(error)));
                    break;
                }
            }
            self.had_frames |= !self.batch.block.is_empty();
            passes.end(self.had_frames);
            self.batch.ends_pass = true;
            if self.send_batch().is_err() {
                break;
            }
        }
        self.filled.store(true, Ordering::Relaxed);
    }

    fn read(&mut self, open: &mut Open, turn: u64) -> Result<Result<(), FeedClosed>, PortError> {
        let mut queue = first_queue(open()?)?;
        while !self.over.is_requested() {
            match read(&mut *queue, &mut self.prepare, turn, &mut self.batch)? {
                ReadOutcome::Some => {}
                ReadOutcome::Ended => return Ok(Ok(())),
                ReadOutcome::Full => {
                    if self.send_batch().is_err() {
                        return Ok(Err(FeedClosed));
                    }
                }
                ReadOutcome::Nothing => {
                    // Frames of a pipe are not held back.
                    if self.send_batch().is_err() {
                        return Ok(Err(FeedClosed));
                    }
                    self.filled.store(true, Ordering::Relaxed);
                    pause(&*queue);
                }
            }
        }
        Ok(Err(FeedClosed))
    }

    fn copy(&mut self, batches: &[Batch], turn: u64) -> Result<(), FeedClosed> {
        for burst in batches.iter().map(|batch| batch.block.burst()) {
            let mut done = 0;
            while done < burst.len() {
                done += self.prepare.put(burst.slice(done..burst.len()), turn, &mut self.batch);
                if done < burst.len() {
                    self.send_batch()?;
                }
            }
        }
        Ok(())
    }

    /// Passes the batch on and takes another one; waits while all are in use.
    fn send_batch(&mut self) -> Result<(), FeedClosed> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.had_frames |= !self.batch.block.is_empty();
        let next = match self.spares.try_recv() {
            Ok(batch) => batch,
            Err(_) if self.made < AHEAD => {
                self.made += 1;
                Batch::new()
            }
            Err(_) => self.wait_for_spare()?,
        };
        self.sender.send(Ok(std::mem::replace(&mut self.batch, next))).map_err(|_| FeedClosed)
    }

    fn wait_for_spare(&mut self) -> Result<Batch, FeedClosed> {
        self.filled.store(true, Ordering::Relaxed);
        loop {
            match self.spares.recv_timeout(LOOK_AGAIN) {
                Ok(batch) => return Ok(batch),
                Err(RecvTimeoutError::Timeout) if !self.over.is_requested() => {}
                Err(_) => return Err(FeedClosed),
            }
        }
    }
}

fn first_queue(port: RxPort) -> Result<Box<dyn RxQueue>, PortError> {
    let RxPort { name, queues, .. } = port;
    queues.into_iter().next().ok_or_else(|| PortError::broken(name, "has no queue"))
}
