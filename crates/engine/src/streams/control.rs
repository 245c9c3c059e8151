//! Control of running streams: rates, pause, resume, stop, start.
//!
//! A command takes effect at a time of the schedule that no sender has reached: each reads commands after its clock and
//! before it takes frames, and publishes first how far it is going to take them. So all senders apply it after the same
//! frame, whichever thread is preempted.

use super::stream_table::StreamTable;
pub use super::stream_table::{CommandError, SendState, StreamState};
use super::watch::StreamWatch;
use crate::transmit::StreamSlots;
use linerate_burst::Nanos;
use linerate_generate::stream::StreamSet;
use linerate_generate::{Action, Command, StreamEvent, StreamSelection, Traffic};
use linerate_port::LiveControl;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Lead of a command over the senders, in nanoseconds: time for each of them to read it.
const LEAD: u64 = 2_000_000;
/// Longest wait for the totals that streams have sent.
const SENDERS_PUBLISH: Duration = Duration::from_millis(200);

/// Controls the streams of a set, from any thread. Copies share their state.
///
/// ```
/// use linerate_engine::streams::Control;
/// use linerate_generate::{Action, Rate};
/// # use linerate_generate::{stream::*, trailer::Key};
/// # let variants = vec![Variant { frame: vec![0; 60], ..Variant::default() }];
/// # let stream = Stream { name: "voip".into(), id: 0, link: linerate_headers::Link::Ethernet, variants, size: Selector::ONE,
/// #     selectors: vec![], rate: Rate::Frames(1e6), shape: Shape::Even, count: Some(10), next: Next::Following, span: Default::default(), mark: Mark::None };
/// # let set = StreamSet { streams: vec![stream], order: Order::Interleaved, rate: None, key: Key::default() };
/// let control = Control::new(&set);
/// let change = control.command("vo*", Action::Rate(Rate::Frames(500.0)))?;
/// # let port = linerate_backends::open_tx(&linerate_port::Spec::parse("null:x")?, &Default::default())?;
/// # let run = Default::default();
/// // In a thread of its own:
/// linerate_engine::Streams::controlled(&set, port, &control)?.run(&run);
/// assert!(control.wait(change, std::time::Duration::from_secs(1)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Control(Arc<ControlState>);

/// A command that was accepted, or the reason why not.
pub type CommandResult = Result<AcceptedCommand, CommandError>;

/// A command that was accepted, to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedCommand {
    /// Time at which it takes effect, in nanoseconds from the start of the run.
    pub at: u64,
    /// Number of commands so far, including this one.
    number: u64,
}

#[derive(Debug)]
struct ControlState {
    names: Box<[String]>,
    /// Number of commands so far.
    commanded: AtomicU64,
    /// True if the run continues when all streams have ended.
    stays: AtomicBool,
    /// Status of each stream, if they are added and removed.
    places: Option<Arc<StreamSlots>>,
    /// Control of the port, if it generates the frames.
    live: OnceLock<Arc<dyn LiveControl>>,
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug)]
struct Inner {
    /// Commands that some sender has not read, and the number of commands before them.
    commands: VecDeque<Command>,
    read: u64,
    senders: Vec<SenderPosition>,
    /// Time of the last command without a time of its own.
    latest: u64,
    is_over: bool,
    /// Status of the streams of a set.
    book: Option<StreamTable>,
}

/// Position of a sender.
#[derive(Debug, Default)]
struct SenderPosition {
    /// Schedule time up to which frames have been taken, in nanoseconds.
    taken: Arc<AtomicU64>,
    /// Number of commands read, and the time up to which they were applied.
    read: u64,
    applied: Option<u64>,
    /// Number of commands applied.
    done: u64,
    /// Streams that it has sent completely.
    ended: HashSet<u32>,
}

/// A sender's side of the control.
pub(super) struct SenderControl {
    control: Control,
    sender: usize,
    taken: Arc<AtomicU64>,
    read: u64,
    applied: u64,
}

impl Control {
    /// Creates the control of a set whose streams run from the start.
    pub fn new(set: &StreamSet) -> Self {
        let names = set.streams.iter().map(|stream| stream.name.clone()).collect();
        Control::of(names, Some(StreamTable::new(set)), None)
    }

    /// Creates the control of streams that are added and removed: the run continues without streams.
    pub(crate) fn coming(places: Arc<StreamSlots>) -> Self {
        let control = Control::of(Box::default(), None, Some(places));
        control.stay();
        control
    }

    fn of(names: Box<[String]>, book: Option<StreamTable>, places: Option<Arc<StreamSlots>>) -> Self {
        let inner = Inner { commands: VecDeque::new(), read: 0, senders: Vec::new(), latest: 0, is_over: false, book };
        Control(Arc::new(ControlState {
            names,
            commanded: AtomicU64::new(0),
            stays: AtomicBool::new(false),
            places,
            live: OnceLock::new(),
            inner: Mutex::new(inner),
            changed: Condvar::new(),
        }))
    }

    /// Keeps the run going when all streams have ended, since they may be started again. It must be stopped by request.
    pub fn stay(&self) {
        self.0.stays.store(true, Ordering::Relaxed);
    }

    /// Commands the streams whose names match a pattern (`*` any characters, `?` one), as soon as their senders are
    /// sure to read it: within about 2 ms. Before the run, it takes effect at the start.
    pub fn command(&self, pattern: &str, action: Action) -> CommandResult {
        self.command_streams(&self.named(pattern)?, action)
    }

    /// Commands these streams, as soon as possible.
    pub fn command_streams(&self, which: &StreamSelection, action: Action) -> CommandResult {
        self.enqueue(which, action, None)
    }

    /// Commands these streams at a time after the start of the run; fails if it has passed.
    pub fn command_at(&self, at: Duration, which: &StreamSelection, action: Action) -> CommandResult {
        self.enqueue(which, action, Some(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns the streams that match a pattern.
    pub fn named(&self, pattern: &str) -> Result<StreamSelection, CommandError> {
        let which = StreamSelection::named(pattern, self.0.names.iter().map(String::as_str));
        if which.is_none() { Err(CommandError::NoMatch(pattern.to_owned())) } else { Ok(which) }
    }

    /// Waits until all senders have applied a command: the totals of a stopped stream are final then, and
    /// [`StreamWatch`] has them. Returns false after `limit`; true after the end of the run.
    pub fn wait(&self, change: AcceptedCommand, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut inner = self.lock();
        while !inner.is_done(change) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            inner = self.0.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Returns the state of each stream, in the order of the set, with its totals.
    pub fn states(&self, watch: &StreamWatch) -> Vec<StreamState> {
        let sent = watch.sent_now(SENDERS_PUBLISH);
        let inner = self.lock();
        let is_sent = !inner.senders.is_empty();
        let has_ended =
            |place: usize| is_sent && inner.senders.iter().all(|sender| sender.ended.contains(&(place as u32)));
        inner.book.as_ref().map(|book| book.states(&sent, has_ended)).unwrap_or_default()
    }

    /// Returns the names of the streams.
    pub fn names(&self) -> &[String] {
        &self.0.names
    }

    /// Returns the index in the set of the stream that has or had this number in trailers.
    pub fn place_of(&self, number: u32) -> Option<usize> {
        self.lock().book.as_ref()?.place_of(number)
    }

    /// Returns all numbers that the stream at an index had in trailers, the current one last.
    pub fn numbers_of(&self, place: usize) -> Vec<u32> {
        self.lock().book.as_ref().map(|book| book.numbers_of(place)).unwrap_or_default()
    }

    /// Converts totals by stream index to frames by trailer number, for a [`Check`](linerate_generate::Check).
    pub fn by_number(&self, sent: &[u64]) -> Vec<u64> {
        self.lock().book.as_ref().map(|book| book.by_number(sent)).unwrap_or_default()
    }

    /// Returns whether the run is over.
    pub fn is_over(&self) -> bool {
        self.lock().is_over
    }

    fn enqueue(&self, which: &StreamSelection, action: Action, at: Option<u64>) -> CommandResult {
        let mut inner = self.lock();
        if inner.is_over {
            return Err(CommandError::Over);
        }
        if let Some(live) = self.0.live.get() {
            let asked = Command { at: 0, which: which.clone(), action: action.clone() };
            live.check(&asked).map_err(CommandError::Unable)?;
        }
        let senders = inner.senders.len();
        let action = match &mut inner.book {
            Some(book) => book.prepare(which, action, senders, at.is_some())?,
            None => action,
        };
        // Announced before positions are read: a sender beyond them sees that, and waits for the lock.
        let number = self.0.commanded.fetch_add(1, Ordering::SeqCst) + 1;
        let taken = inner.senders.iter().map(|sender| sender.taken.load(Ordering::SeqCst)).max();
        // Each is later than the previous one, even if the schedule stands still: so its time identifies it as applied.
        let soonest = taken.filter(|_| senders > 0).map_or(0, |taken| taken.saturating_add(LEAD).max(inner.latest + 1));
        inner.latest = if at.is_none() { soonest } else { inner.latest };
        let command = match at {
            Some(at) if at < soonest && senders > 0 => {
                self.0.commanded.fetch_sub(1, Ordering::SeqCst);
                return Err(CommandError::Past(Duration::from_nanos(soonest)));
            }
            at => Command { at: at.unwrap_or(soonest), which: which.clone(), action },
        };
        inner.book.iter_mut().for_each(|book| book.record(&command));
        let change = AcceptedCommand { at: command.at, number };
        inner.commands.push_back(command);
        // An idle sender must wake up.
        self.0.changed.notify_all();
        Ok(change)
    }

    /// Sets the port's control, for a port that generates the frames.
    ///
    /// # Errors
    /// If earlier commands are not supported by it.
    pub(super) fn made_by(&self, live: &Arc<dyn LiveControl>) -> Result<(), String> {
        let inner = self.lock();
        inner.commands.iter().try_for_each(|command| live.check(command))?;
        self.0.live.get_or_init(|| Arc::clone(live));
        Ok(())
    }

    /// Registers senders and returns their listeners.
    pub(super) fn listen(&self, senders: usize) -> Vec<SenderControl> {
        let mut inner = self.lock();
        let first = inner.senders.len();
        let listeners = (first..first + senders).map(|sender| {
            let taken = Arc::new(AtomicU64::new(0));
            inner.senders.push(SenderPosition { taken: Arc::clone(&taken), ..SenderPosition::default() });
            SenderControl { control: self.clone(), sender, taken, read: 0, applied: 0 }
        });
        let listeners = listeners.collect();
        self.0.changed.notify_all();
        listeners
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn is_done(&self, change: AcceptedCommand) -> bool {
        // Streams that are added and removed get all commands as soon as possible, one after the other.
        let is_done = |sender: &SenderPosition| match self.book {
            Some(_) => sender.applied >= Some(change.at),
            None => sender.done >= change.number,
        };
        self.is_over || !self.senders.is_empty() && self.senders.iter().all(is_done)
    }

    /// Removes commands that all senders have read.
    fn forget(&mut self) {
        let read = self.senders.iter().map(|sender| sender.read).min().unwrap_or(0);
        while self.read < read && self.commands.pop_front().is_some() {
            self.read += 1;
        }
    }
}

impl SenderControl {
    /// Announces that frames due up to `elapsed` will be taken, and passes new commands to `apply`. Returns whether
    /// there were any.
    #[inline]
    pub(super) fn receive(&mut self, elapsed: u64, apply: impl FnMut(Command)) -> bool {
        self.taken.store(elapsed, Ordering::SeqCst);
        if self.control.0.commanded.load(Ordering::SeqCst) == self.read {
            return false;
        }
        self.read(elapsed, apply);
        true
    }

    #[cold]
    fn read(&mut self, elapsed: u64, mut apply: impl FnMut(Command)) {
        let mut inner = self.control.lock();
        let passed = (self.read - inner.read) as usize;
        for command in inner.commands.iter().skip(passed) {
            // A sole sender need not agree with others, and may have been idle: a new stream does not start late.
            let at = if self.control.0.places.is_some() { command.at.max(elapsed) } else { command.at };
            apply(Command { at, ..command.clone() });
            self.read += 1;
        }
        inner.senders[self.sender].read = self.read;
        inner.forget();
    }

    /// Returns whether the run continues without frames to send.
    pub(super) fn waits(&self, traffic: &Traffic) -> bool {
        traffic.is_waiting() || self.control.0.stays.load(Ordering::Relaxed)
    }

    /// Returns the states of streams that are added and removed.
    pub(super) fn places(&self) -> Option<Arc<StreamSlots>> {
        self.control.0.places.clone()
    }

    /// Waits for a command, at most for `limit`.
    pub(super) fn rest(&self, limit: Duration) {
        let inner = self.control.lock();
        if self.control.0.commanded.load(Ordering::SeqCst) == self.read {
            drop(self.control.0.changed.wait_timeout(inner, limit));
        }
    }

    /// Applies commands while the port takes no frames.
    pub(super) fn stand(&mut self, traffic: &mut Traffic, now: Nanos) {
        if self.control.0.commanded.load(Ordering::SeqCst) != self.read {
            self.read(self.taken.load(Ordering::SeqCst), |command| traffic.command(command));
        }
        let latest = self.control.lock().latest;
        traffic.stand(self.taken.load(Ordering::SeqCst).saturating_add(LEAD).max(latest), now);
    }

    /// Returns whether commands were applied since the last report.
    #[inline]
    pub(super) fn has_applied(&self, commands: u64) -> bool {
        commands != self.applied
    }

    /// Reports the number of commands applied, and the time of the last one.
    #[cold]
    pub(super) fn publish(&mut self, commands: u64, until: Option<u64>) {
        self.applied = commands;
        let mut inner = self.control.lock();
        let sender = &mut inner.senders[self.sender];
        (sender.applied, sender.done) = (until, commands);
        inner.book.iter_mut().for_each(|book| book.done(until.unwrap_or(0)));
        drop(inner);
        self.control.0.changed.notify_all();
    }

    /// Reports starts and ends of streams, with the totals sent by then.
    #[cold]
    pub(super) fn report(&mut self, news: impl Iterator<Item = StreamEvent>, sent: &[u64]) {
        let mut inner = self.control.lock();
        let Inner { senders, book, .. } = &mut *inner;
        let ended = &mut senders[self.sender].ended;
        for news in news {
            match news {
                StreamEvent::Ended { stream } => drop(ended.insert(stream)),
                StreamEvent::Begun { stream, number } => {
                    ended.remove(&stream);
                    book.iter_mut().for_each(|book| book.begun(stream, number, sent[stream as usize]));
                }
            }
        }
    }
}

impl Drop for SenderControl {
    /// Ends all waits for this sender.
    fn drop(&mut self) {
        let mut inner = self.control.lock();
        let sender = &mut inner.senders[self.sender];
        (sender.read, sender.applied, sender.done) = (u64::MAX, Some(u64::MAX), u64::MAX);
        self.taken.store(0, Ordering::SeqCst);
        inner.is_over |= inner.senders.iter().all(|sender| sender.applied == Some(u64::MAX));
        inner.forget();
        drop(inner);
        self.control.0.changed.notify_all();
    }
}
