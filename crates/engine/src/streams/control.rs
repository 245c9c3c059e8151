//! Telling streams something while they run: rates, pause, resume, stop, start.
//!
//! A command takes effect at a time of the schedule that no sender has reached: each reads commands behind its clock and before it takes
//! frames, and says first how far it is going to take them. So all do the same behind the same frame, whoever is put aside when.

use super::book::Book;
pub use super::book::{Refused, State, StreamState};
use super::watch::StreamWatch;
use crate::transmit::Places;
use linerate_burst::Nanos;
use linerate_generate::stream::StreamSet;
use linerate_generate::{Action, Command, News, Traffic, Which};
use linerate_port::LiveControl;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// So far ahead of the senders a command takes effect, in nanoseconds: time for each of them to read it.
const LEAD: u64 = 2_000_000;
/// How long to wait for what streams were sent so far.
const SENDERS_TELL: Duration = Duration::from_millis(200);

/// Tells the streams of a set something, from any thread. All of its copies are one.
///
/// ```
/// use linerate_engine::streams::Control;
/// use linerate_generate::{Action, Rate};
/// # use linerate_generate::{stream::*, trailer::Key};
/// # let variants = vec![Variant { frame: vec![0; 60], ..Variant::default() }];
/// # let stream = Stream { name: "voip".into(), id: 0, link: linerate_wire::Link::Ethernet, variants, size: Selector::ONE,
/// #     selectors: vec![], rate: Rate::Frames(1e6), shape: Shape::Even, count: Some(10), next: Next::Following, span: Default::default(), mark: Mark::None };
/// # let set = StreamSet { streams: vec![stream], order: Order::Interleaved, rate: None, key: Key::default() };
/// let control = Control::new(&set);
/// let told = control.tell("vo*", Action::Rate(Rate::Frames(500.0)))?;
/// # let port = linerate_backends::open_tx(&linerate_port::Spec::parse("null:x")?, &Default::default())?;
/// # let run = Default::default();
/// // In a thread of its own:
/// linerate_engine::Streams::controlled(&set, port, &control)?.run(&run);
/// assert!(control.wait(told, std::time::Duration::from_secs(1)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Control(Arc<Shared>);

/// Something that streams were told, to be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// From when on, in nanoseconds from the start of the run.
    pub at: u64,
    /// How many commands there were by then, this one included.
    number: u64,
}

#[derive(Debug)]
struct Shared {
    names: Box<[String]>,
    /// Commands so far.
    told: AtomicU64,
    /// Whether the run goes on when all streams have ended.
    stays: AtomicBool,
    /// Where streams come and go one by one: what each is doing.
    places: Option<Arc<Places>>,
    /// Where the port makes their frames: what can be told them.
    live: OnceLock<Arc<dyn LiveControl>>,
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug)]
struct Inner {
    /// Commands that some sender has not read, and how many came before them.
    commands: VecDeque<Command>,
    read: u64,
    senders: Vec<Sending>,
    /// The time of the last command that was to be done as soon as may be.
    latest: u64,
    is_over: bool,
    /// Of a set of streams.
    book: Option<Book>,
}

/// How far a sender is.
#[derive(Debug, Default)]
struct Sending {
    /// No frame due later has been taken, in nanoseconds of the schedule.
    taken: Arc<AtomicU64>,
    /// Commands read, and up to which time they were obeyed.
    read: u64,
    obeyed: Option<u64>,
    /// And how many.
    done: u64,
    /// Streams that it has sent to their end.
    ended: HashSet<u32>,
}

/// The ear of one sender.
pub(super) struct Listener {
    control: Control,
    sender: usize,
    taken: Arc<AtomicU64>,
    read: u64,
    obeyed: u64,
}

impl Control {
    /// Of a set whose streams run from the beginning.
    pub fn new(set: &StreamSet) -> Self {
        let names = set.streams.iter().map(|stream| stream.name.clone()).collect();
        Control::of(names, Some(Book::new(set)), None)
    }

    /// Of streams that come and go: the run goes on whatever they do.
    pub(crate) fn coming(places: Arc<Places>) -> Self {
        let control = Control::of(Box::default(), None, Some(places));
        control.stay();
        control
    }

    fn of(names: Box<[String]>, book: Option<Book>, places: Option<Arc<Places>>) -> Self {
        let inner = Inner { commands: VecDeque::new(), read: 0, senders: Vec::new(), latest: 0, is_over: false, book };
        Control(Arc::new(Shared {
            names,
            told: AtomicU64::new(0),
            stays: AtomicBool::new(false),
            places,
            live: OnceLock::new(),
            inner: Mutex::new(inner),
            changed: Condvar::new(),
        }))
    }

    /// The run does not end when all streams have ended: they may be started again. Whoever wants it to end requests that.
    pub fn stay(&self) {
        self.0.stays.store(true, Ordering::Relaxed);
    }

    /// Tells the streams that a pattern names (`*` any characters, `?` one), as soon as their senders are sure to hear it: within
    /// about 2 ms. Before the run begins, that is its beginning.
    pub fn tell(&self, pattern: &str, action: Action) -> Result<Told, Refused> {
        self.tell_which(&self.named(pattern)?, action)
    }

    /// Tells these streams, as soon as may be.
    pub fn tell_which(&self, which: &Which, action: Action) -> Result<Told, Refused> {
        self.command(which, action, None)
    }

    /// Tells these streams what to do so long after the run has begun.
    ///
    /// # Errors
    /// That time is over, too.
    pub fn tell_at(&self, at: Duration, which: &Which, action: Action) -> Result<Told, Refused> {
        self.command(which, action, Some(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The streams of a pattern.
    pub fn named(&self, pattern: &str) -> Result<Which, Refused> {
        let which = Which::named(pattern, self.0.names.iter().map(String::as_str));
        if which.is_none() { Err(Refused::Nobody(pattern.to_owned())) } else { Ok(which) }
    }

    /// Waits until all senders have done what they were told: what a stopped stream has sent is final then, and
    /// [`StreamWatch`] says it. False where that has not come within `limit`; true behind the end of the run.
    pub fn wait(&self, told: Told, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut inner = self.lock();
        while !inner.is_done(told) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            inner = self.0.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// How each stream is, in the order of the set, with what it has sent.
    pub fn states(&self, watch: &StreamWatch) -> Vec<StreamState> {
        let sent = watch.sent_now(SENDERS_TELL);
        let inner = self.lock();
        let is_sent = !inner.senders.is_empty();
        let has_ended =
            |place: usize| is_sent && inner.senders.iter().all(|sender| sender.ended.contains(&(place as u32)));
        inner.book.as_ref().map(|book| book.states(&sent, has_ended)).unwrap_or_default()
    }

    /// Names of the streams.
    pub fn names(&self) -> &[String] {
        &self.0.names
    }

    /// The place in the set of the stream whose trailers have or had this number.
    pub fn place_of(&self, number: u32) -> Option<usize> {
        self.lock().book.as_ref()?.place_of(number)
    }

    /// The numbers in trailers that the stream at a place had so far, the present one last.
    pub fn numbers_of(&self, place: usize) -> Vec<u32> {
        self.lock().book.as_ref().map(|book| book.numbers_of(place)).unwrap_or_default()
    }

    /// Frames by the numbers that streams have or had in trailers, from frames that each stream has sent in all, by its place: what a
    /// [`Check`](linerate_generate::Check) is told.
    pub fn by_number(&self, sent: &[u64]) -> Vec<u64> {
        self.lock().book.as_ref().map(|book| book.by_number(sent)).unwrap_or_default()
    }

    /// Whether the run is over.
    pub fn is_over(&self) -> bool {
        self.lock().is_over
    }

    fn command(&self, which: &Which, action: Action, at: Option<u64>) -> Result<Told, Refused> {
        let mut inner = self.lock();
        if inner.is_over {
            return Err(Refused::Over);
        }
        if let Some(live) = self.0.live.get() {
            let asked = Command { at: 0, which: which.clone(), action: action.clone() };
            live.check(&asked).map_err(Refused::Unable)?;
        }
        let senders = inner.senders.len();
        let action = match &mut inner.book {
            Some(book) => book.prepare(which, action, senders, at.is_some())?,
            None => action,
        };
        // First that there will be something, then how far senders are: whoever goes farther sees that there is, and waits for the lock.
        let number = self.0.told.fetch_add(1, Ordering::SeqCst) + 1;
        let taken = inner.senders.iter().map(|sender| sender.taken.load(Ordering::SeqCst)).max();
        // Each is behind the one before, though the schedule may stand still: so it shows whether it was done.
        let soonest = taken.filter(|_| senders > 0).map_or(0, |taken| taken.saturating_add(LEAD).max(inner.latest + 1));
        inner.latest = if at.is_none() { soonest } else { inner.latest };
        let command = match at {
            Some(at) if at < soonest && senders > 0 => {
                self.0.told.fetch_sub(1, Ordering::SeqCst);
                return Err(Refused::Past(Duration::from_nanos(soonest)));
            }
            at => Command { at: at.unwrap_or(soonest), which: which.clone(), action },
        };
        inner.book.iter_mut().for_each(|book| book.told(&command));
        let told = Told { at: command.at, number };
        inner.commands.push_back(command);
        // A sender may have nothing else to do.
        self.0.changed.notify_all();
        Ok(told)
    }

    /// The port makes the frames. Streams can be told from now on what that can do.
    ///
    /// # Errors
    /// They were told something else before.
    pub(super) fn made_by(&self, live: &Arc<dyn LiveControl>) -> Result<(), String> {
        let inner = self.lock();
        inner.commands.iter().try_for_each(|command| live.check(command))?;
        self.0.live.get_or_init(|| Arc::clone(live));
        Ok(())
    }

    /// So many senders begin.
    pub(super) fn listen(&self, senders: usize) -> Vec<Listener> {
        let mut inner = self.lock();
        let first = inner.senders.len();
        let listeners = (first..first + senders).map(|sender| {
            let taken = Arc::new(AtomicU64::new(0));
            inner.senders.push(Sending { taken: Arc::clone(&taken), ..Sending::default() });
            Listener { control: self.clone(), sender, taken, read: 0, obeyed: 0 }
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
    fn is_done(&self, told: Told) -> bool {
        // Whoever comes and goes is told everything as soon as may be: one after the other.
        let is_done = |sender: &Sending| match self.book {
            Some(_) => sender.obeyed >= Some(told.at),
            None => sender.done >= told.number,
        };
        self.is_over || !self.senders.is_empty() && self.senders.iter().all(is_done)
    }

    /// Commands that all have read are gone.
    fn forget(&mut self) {
        let read = self.senders.iter().map(|sender| sender.read).min().unwrap_or(0);
        while self.read < read && self.commands.pop_front().is_some() {
            self.read += 1;
        }
    }
}

impl Listener {
    /// Frames due up to `elapsed` are to be taken: hears first what streams are told. Says whether there was something.
    #[inline]
    pub(super) fn hear(&mut self, elapsed: u64, tell: impl FnMut(Command)) -> bool {
        self.taken.store(elapsed, Ordering::SeqCst);
        if self.control.0.told.load(Ordering::SeqCst) == self.read {
            return false;
        }
        self.read(elapsed, tell);
        true
    }

    #[cold]
    fn read(&mut self, elapsed: u64, mut tell: impl FnMut(Command)) {
        let mut inner = self.control.lock();
        let passed = (self.read - inner.read) as usize;
        for command in inner.commands.iter().skip(passed) {
            // A sender that is alone need not agree with others, and may have rested: what begins is not late.
            let at = if self.control.0.places.is_some() { command.at.max(elapsed) } else { command.at };
            tell(Command { at, ..command.clone() });
            self.read += 1;
        }
        inner.senders[self.sender].read = self.read;
        inner.forget();
    }

    /// Whether the run goes on though there is nothing to send.
    pub(super) fn waits(&self, traffic: &Traffic) -> bool {
        traffic.is_waiting() || self.control.0.stays.load(Ordering::Relaxed)
    }

    /// What each stream is doing, where they come and go.
    pub(super) fn places(&self) -> Option<Arc<Places>> {
        self.control.0.places.clone()
    }

    /// Waits until streams are told something, or for so long.
    pub(super) fn rest(&self, limit: Duration) {
        let inner = self.control.lock();
        if self.control.0.told.load(Ordering::SeqCst) == self.read {
            drop(self.control.0.changed.wait_timeout(inner, limit));
        }
    }

    /// Nothing can be taken: does what streams are told all the same.
    pub(super) fn stand(&mut self, traffic: &mut Traffic, now: Nanos) {
        if self.control.0.told.load(Ordering::SeqCst) != self.read {
            self.read(self.taken.load(Ordering::SeqCst), |command| traffic.tell(command));
        }
        let latest = self.control.lock().latest;
        traffic.stand(self.taken.load(Ordering::SeqCst).saturating_add(LEAD).max(latest), now);
    }

    /// Whether something was done that whoever told it does not know of.
    #[inline]
    pub(super) fn has_obeyed(&self, commands: u64) -> bool {
        commands != self.obeyed
    }

    /// Says what was done: so many commands, the last at this time.
    #[cold]
    pub(super) fn tell(&mut self, commands: u64, until: Option<u64>) {
        self.obeyed = commands;
        let mut inner = self.control.lock();
        let sender = &mut inner.senders[self.sender];
        (sender.obeyed, sender.done) = (until, commands);
        inner.book.iter_mut().for_each(|book| book.done(until.unwrap_or(0)));
        drop(inner);
        self.control.0.changed.notify_all();
    }

    /// Says what became of streams, which had sent so much by then.
    #[cold]
    pub(super) fn report(&mut self, news: impl Iterator<Item = News>, sent: &[u64]) {
        let mut inner = self.control.lock();
        let Inner { senders, book, .. } = &mut *inner;
        let ended = &mut senders[self.sender].ended;
        for news in news {
            match news {
                News::Ended { stream } => drop(ended.insert(stream)),
                News::Begun { stream, number } => {
                    ended.remove(&stream);
                    book.iter_mut().for_each(|book| book.begun(stream, number, sent[stream as usize]));
                }
            }
        }
    }
}

impl Drop for Listener {
    /// Nobody waits for this sender any more.
    fn drop(&mut self) {
        let mut inner = self.control.lock();
        let sender = &mut inner.senders[self.sender];
        (sender.read, sender.obeyed, sender.done) = (u64::MAX, Some(u64::MAX), u64::MAX);
        self.taken.store(0, Ordering::SeqCst);
        inner.is_over |= inner.senders.iter().all(|sender| sender.obeyed == Some(u64::MAX));
        inner.forget();
        drop(inner);
        self.control.0.changed.notify_all();
    }
}
