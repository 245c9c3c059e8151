//! Streams that come and go one by one, while the others of the port are sent.
//!
//! A port with a schedule of its own ([`streams`](crate::streams)) whose streams are told to begin, hold on, go on and end, each as
//! [`Control`] tells streams something: at a time of the schedule, behind the same frame. So what one is told touches no other,
//! and no number of its own frames is left out.

use crate::control::{Progress, Stop};
use crate::streams::{Control, Run, Streams};
use crate::timing::LATE;
use linerate_burst::Desc;
use linerate_generate::stream::{Stream, Wrong};
use linerate_generate::trailer::Key;
use linerate_generate::{Action, Batch, Rate, Which};
use linerate_port::TxPort;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How long it is waited for that streams do what they are told: a port that takes nothing for so long is given up before.
const PATIENCE: Duration = Duration::from_secs(20);

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

/// A stream from its beginning to its end: what it has sent, to be read at any time.
#[derive(Debug, Default)]
pub struct Sending {
    frames: AtomicU64,
    bytes: AtomicU64,
    late: AtomicU64,
    /// After how many nanoseconds a packet is late.
    late_after: u64,
    /// When its first frames and its latest were handed to the port, UTC nanoseconds; 0 before.
    times: [AtomicU64; 2],
    doing: AtomicU8,
    /// Its place among the streams of its port, as long as it is sent.
    place: u32,
}

/// A port whose streams are commanded. Dropped, it ends.
pub struct Transmitter {
    control: Control,
    places: Arc<Places>,
    progress: Arc<Progress>,
    stop: Stop,
    failure: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<()>>,
}

/// The streams that are sent, each at a place.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    taken: Vec<Option<Arc<Sending>>>,
    free: Vec<u32>,
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

    /// Packets that were handed to the port late.
    pub fn late(&self) -> u64 {
        self.late.load(Ordering::Acquire)
    }

    /// When its first frames and its latest were handed to the port, in UTC nanoseconds.
    pub fn times(&self) -> Option<(u64, u64)> {
        let [first, last] = [&self.times[0], &self.times[1]].map(|time| time.load(Ordering::Acquire));
        (first > 0).then_some((first, last))
    }

    /// What it is doing.
    pub fn doing(&self) -> Doing {
        match self.doing.load(Ordering::Acquire) {
            1 => Doing::Started,
            2 => Doing::Paused,
            _ => Doing::Stopped,
        }
    }

    /// These were handed to the port, by the one thread that does, each so many nanoseconds after it was due.
    pub(crate) fn add(&self, frames: &[Desc], late: impl Fn(&Desc) -> u64) {
        let late = frames.iter().filter(|desc| late(desc) > self.late_after).count() as u64;
        if late > 0 {
            self.late.fetch_add(late, Ordering::Release);
        }
        let bytes: u64 = frames.iter().map(|desc| u64::from(desc.wire)).sum();
        let now = crate::clock::now().0;
        if self.frames() == 0 {
            self.times[0].store(now, Ordering::Release);
        }
        self.times[1].store(now, Ordering::Release);
        self.bytes.fetch_add(bytes, Ordering::Release);
        self.frames.fetch_add(frames.len() as u64, Ordering::Release);
    }

    /// Unless it has ended meanwhile.
    fn turn(&self, from: Doing, to: Doing) {
        let _ = self.doing.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire);
    }
}

impl Places {
    /// The stream at a place.
    pub(crate) fn at(&self, place: u32) -> Option<Arc<Sending>> {
        self.table().taken.get(place as usize).cloned().flatten()
    }

    /// These have ended, and their last frames have left.
    pub(crate) fn leave(&self, places: impl Iterator<Item = u32>) {
        let mut table = self.table();
        for place in places {
            if let Some(sending) = table.taken.get_mut(place as usize).and_then(Option::take) {
                sending.doing.store(Doing::Stopped as u8, Ordering::Release);
                table.free.push(place);
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Gives a new stream a place.
    fn enter(&mut self, late_after: Duration) -> Arc<Sending> {
        let place = self.free.pop().unwrap_or(self.taken.len() as u32);
        let doing = AtomicU8::new(Doing::Started as u8);
        let late_after = u64::try_from(late_after.as_nanos()).unwrap_or(u64::MAX);
        let sending = Arc::new(Sending { place, doing, late_after, ..Sending::default() });
        if place as usize == self.taken.len() {
            self.taken.push(None);
        }
        self.taken[place as usize] = Some(Arc::clone(&sending));
        sending
    }

    /// Whether a stream has a place: it may be another's by now.
    fn has(&self, sending: &Arc<Sending>) -> bool {
        let at = self.taken.get(sending.place as usize).and_then(Option::as_ref);
        at.is_some_and(|at| Arc::ptr_eq(at, sending))
    }
}

impl Transmitter {
    /// Starts the thread that has the port.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub fn start(port: TxPort) -> std::io::Result<Self> {
        let (places, run) = (Arc::<Places>::default(), Run::default());
        let control = Control::coming(Arc::clone(&places));
        let (progress, stop) = (Arc::clone(&run.progress), run.stop.clone());
        let failure = Arc::new(Mutex::new(None));
        let (streams, told, all) = (Streams::coming(port, &control), Arc::clone(&failure), Arc::clone(&places));
        let thread = Builder::new().name("transmit".into()).spawn(move || {
            let failed = streams.run(&run).failure.map(|failure| failure.to_string());
            *told.lock().unwrap_or_else(PoisonError::into_inner) = failed;
            let places = all.table().taken.len() as u32;
            all.leave(0..places);
        })?;
        Ok(Transmitter { control, places, progress, stop, failure, thread: Some(thread) })
    }

    /// Has streams begin, together, and says in the same order what to call them by. From then on trailers of all have this key.
    ///
    /// # Errors
    /// A stream that is wrong; then none begins.
    pub fn begin(&self, streams: Vec<Stream>, key: Key) -> Result<Vec<Arc<Sending>>, Wrong> {
        self.begin_batch(streams, key, LATE, Batch::new)
    }

    /// The same of streams whose packets count as late after another time than [`LATE`].
    ///
    /// # Errors
    /// A stream that is wrong; then none begins.
    pub fn begin_late_after(
        &self,
        streams: Vec<Stream>,
        key: Key,
        late_after: Duration,
    ) -> Result<Vec<Arc<Sending>>, Wrong> {
        self.begin_batch(streams, key, late_after, Batch::new)
    }

    /// The same of streams that follow one another as each says; they end together, and are told all together what they are told.
    ///
    /// # Errors
    /// A stream that is wrong; then none begins.
    pub fn begin_sequence(&self, streams: Vec<Stream>, key: Key) -> Result<Vec<Arc<Sending>>, Wrong> {
        self.begin_batch(streams, key, LATE, Batch::sequence)
    }

    fn begin_batch(
        &self,
        streams: Vec<Stream>,
        key: Key,
        late_after: Duration,
        batch: impl FnOnce(Vec<Stream>, Key) -> Result<Batch, Wrong>,
    ) -> Result<Vec<Arc<Sending>>, Wrong> {
        if let Some((index, top)) = streams.iter().enumerate().find(|(_, stream)| stream.rate == Rate::Top) {
            let what = "at top speed it would keep the others waiting: give it a rate".to_owned();
            return Err(Wrong::Stream { index, name: top.name.clone(), what });
        }
        let count = streams.len();
        let batch = Arc::new(batch(streams, key)?);
        let mut table = self.places.table();
        let mut all: Vec<Arc<Sending>> = (0..count).map(|_| table.enter(late_after)).collect();
        // Commands name places in ascending order.
        all.sort_unstable_by_key(|sending| sending.place);
        let which = Which::Some(all.iter().map(|sending| sending.place).collect());
        let refused = self.control.tell_which(&which, Action::Begin(batch)).is_err();
        drop(table);
        if refused {
            // The port sends no more, and has left its failure.
            self.places.leave(all.iter().map(|sending| sending.place));
        }
        Ok(all)
    }

    /// Ends streams; their counts are final when this returns.
    pub fn end<'a>(&self, streams: impl IntoIterator<Item = &'a Arc<Sending>>) {
        self.tell(streams.into_iter().map(|sending| (sending, ())), |_| Action::Stop);
    }

    /// Has streams hold on.
    pub fn hold<'a>(&self, streams: impl IntoIterator<Item = &'a Arc<Sending>>) {
        for held in self.tell(streams.into_iter().map(|sending| (sending, ())), |_| Action::Pause) {
            held.turn(Doing::Started, Doing::Paused);
        }
    }

    /// Has streams go on that hold on.
    pub fn go_on<'a>(&self, streams: impl IntoIterator<Item = &'a Arc<Sending>>) {
        for held in self.tell(streams.into_iter().map(|sending| (sending, ())), |_| Action::Resume) {
            held.turn(Doing::Paused, Doing::Started);
        }
    }

    /// Has streams go each at another rate.
    pub fn pace<'a>(&self, streams: impl IntoIterator<Item = (&'a Arc<Sending>, Rate)>) {
        self.tell(streams, |rates| Action::Rates(rates.into()));
    }

    /// How many streams are sent, or hold on.
    pub fn active(&self) -> usize {
        let table = self.places.table();
        table.taken.len() - table.free.len()
    }

    /// What the port has sent: frames, and their bytes without FCS.
    pub fn sent(&self) -> (u64, u64) {
        (self.progress.frames.load(Ordering::Acquire), self.progress.bytes.load(Ordering::Acquire))
    }

    /// Why the port sends no more, if it does not.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells those that are sent something, and waits until they do it; says who that is.
    fn tell<'a, T>(
        &self,
        streams: impl IntoIterator<Item = (&'a Arc<Sending>, T)>,
        action: impl FnOnce(Vec<T>) -> Action,
    ) -> Vec<Arc<Sending>> {
        let table = self.places.table();
        let mut all: Vec<_> = streams.into_iter().filter(|(sending, _)| table.has(sending)).collect();
        // Commands name each place once, in ascending order.
        all.sort_by_key(|(sending, _)| sending.place);
        all.dedup_by_key(|(sending, _)| sending.place);
        let (all, values): (Vec<Arc<Sending>>, Vec<T>) =
            all.into_iter().map(|(sending, value)| (Arc::clone(sending), value)).unzip();
        let which = Which::Some(all.iter().map(|sending| sending.place).collect());
        let told = if all.is_empty() { None } else { self.control.tell_which(&which, action(values)).ok() };
        drop(table);
        if let Some(told) = told {
            self.control.wait(told, PATIENCE);
        }
        all
    }
}

impl Drop for Transmitter {
    fn drop(&mut self) {
        self.stop.hurry();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
