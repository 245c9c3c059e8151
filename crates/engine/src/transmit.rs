//! Streams that are added and removed one by one while the others of the port are sent.
//!
//! The port has its own schedule ([`streams`](crate::streams)), whose streams are started, paused, resumed and ended by
//! [`Control`] commands: at a time of the schedule, after the same frame. So commands to one stream do not affect any
//! other, and its own sequence numbers stay gapless.

use crate::control::{Progress, Stop};
use crate::streams::{Control, StreamRun, Streams};
use crate::timing::LATE;
use linerate_burst::Desc;
use linerate_generate::stream::{Stream, StreamError};
use linerate_generate::trailer::Key;
use linerate_generate::{Action, Batch, Rate, StreamSelection};
use linerate_port::TxPort;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Longest wait for a command to be applied: a port that takes nothing fails before.
const PATIENCE: Duration = Duration::from_secs(20);

/// State of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TransmitState {
    /// Not started yet, or ended and its last frame has left.
    Stopped,
    /// Sending.
    Started,
    /// Paused.
    Paused,
}

/// Totals of a stream over its lifetime, readable at any time.
#[derive(Debug, Default)]
pub struct StreamTotals {
    frames: AtomicU64,
    bytes: AtomicU64,
    late: AtomicU64,
    /// Delay after which a packet is late, in nanoseconds.
    late_after: u64,
    /// Times at which its first and its latest frames were passed to the port, UTC nanoseconds; 0 before.
    times: [AtomicU64; 2],
    doing: AtomicU8,
    /// Index among the streams of its port while it is sent.
    place: u32,
}

/// A port whose streams are controlled. It stops when dropped.
pub struct Transmitter {
    control: Control,
    places: Arc<StreamSlots>,
    progress: Arc<Progress>,
    stop: Stop,
    failure: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<()>>,
}

/// Streams that are sent, by their indices.
#[derive(Debug, Default)]
pub(crate) struct StreamSlots(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    taken: Vec<Option<Arc<StreamTotals>>>,
    free: Vec<u32>,
}

impl StreamTotals {
    /// Returns the number of frames passed to the port.
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Acquire)
    }

    /// Returns their bytes, without FCS.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Returns the number of packets passed to the port late.
    pub fn late(&self) -> u64 {
        self.late.load(Ordering::Acquire)
    }

    /// Returns the times at which its first and its latest frames were passed to the port, in UTC nanoseconds.
    pub fn times(&self) -> Option<(u64, u64)> {
        let [first, last] = [&self.times[0], &self.times[1]].map(|time| time.load(Ordering::Acquire));
        (first > 0).then_some((first, last))
    }

    /// Returns its state.
    pub fn doing(&self) -> TransmitState {
        match self.doing.load(Ordering::Acquire) {
            1 => TransmitState::Started,
            2 => TransmitState::Paused,
            _ => TransmitState::Stopped,
        }
    }

    /// Records frames passed to the port, by the sending thread; `late` returns the delay after the due time in
    /// nanoseconds.
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

    /// Changes the state, unless the stream has ended.
    fn turn(&self, from: TransmitState, to: TransmitState) {
        let _ = self.doing.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire);
    }
}

impl StreamSlots {
    /// Returns the stream at an index.
    pub(crate) fn at(&self, place: u32) -> Option<Arc<StreamTotals>> {
        self.table().taken.get(place as usize).cloned().flatten()
    }

    /// Removes streams that have ended and whose last frames have left.
    pub(crate) fn leave(&self, places: impl Iterator<Item = u32>) {
        let mut table = self.table();
        for place in places {
            if let Some(sending) = table.taken.get_mut(place as usize).and_then(Option::take) {
                sending.doing.store(TransmitState::Stopped as u8, Ordering::Release);
                table.free.push(place);
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Adds a stream at a free index.
    fn enter(&mut self, late_after: Duration) -> Arc<StreamTotals> {
        let place = self.free.pop().unwrap_or(self.taken.len() as u32);
        let doing = AtomicU8::new(TransmitState::Started as u8);
        let late_after = u64::try_from(late_after.as_nanos()).unwrap_or(u64::MAX);
        let sending = Arc::new(StreamTotals { place, doing, late_after, ..StreamTotals::default() });
        if place as usize == self.taken.len() {
            self.taken.push(None);
        }
        self.taken[place as usize] = Some(Arc::clone(&sending));
        sending
    }

    /// Returns whether a stream still has its index, which may be reused.
    fn has(&self, sending: &Arc<StreamTotals>) -> bool {
        let at = self.taken.get(sending.place as usize).and_then(Option::as_ref);
        at.is_some_and(|at| Arc::ptr_eq(at, sending))
    }
}

impl Transmitter {
    /// Starts the sending thread of the port.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(port: TxPort) -> std::io::Result<Self> {
        let (places, run) = (Arc::<StreamSlots>::default(), StreamRun::default());
        let control = Control::coming(Arc::clone(&places));
        let (progress, stop) = (Arc::clone(&run.progress), run.stop.clone());
        let failure = Arc::new(Mutex::new(None));
        let (streams, reported, all) = (Streams::coming(port, &control), Arc::clone(&failure), Arc::clone(&places));
        let thread = Builder::new().name("transmit".into()).spawn(move || {
            let failed = streams.run(&run).failure.map(|failure| failure.to_string());
            *reported.lock().unwrap_or_else(PoisonError::into_inner) = failed;
            let places = all.table().taken.len() as u32;
            all.leave(0..places);
        })?;
        Ok(Transmitter { control, places, progress, stop, failure, thread: Some(thread) })
    }

    /// Starts streams together, and returns a handle for each in the same order. The trailers of all streams use this
    /// key from then on.
    ///
    /// # Errors
    /// If a stream is invalid; then none is started.
    pub fn begin(&self, streams: Vec<Stream>, key: Key) -> Result<Vec<Arc<StreamTotals>>, StreamError> {
        self.start_batch(streams, key, LATE, Batch::new)
    }

    /// Does the same for streams with another limit than [`LATE`] for late packets.
    ///
    /// # Errors
    /// If a stream is invalid; then none is started.
    pub fn start_with_late_limit(
        &self,
        streams: Vec<Stream>,
        key: Key,
        late_after: Duration,
    ) -> Result<Vec<Arc<StreamTotals>>, StreamError> {
        self.start_batch(streams, key, late_after, Batch::new)
    }

    /// Does the same for a sequence of streams, in the order that each defines; they end together and are controlled
    /// together.
    ///
    /// # Errors
    /// If a stream is invalid; then none is started.
    pub fn start_sequence(&self, streams: Vec<Stream>, key: Key) -> Result<Vec<Arc<StreamTotals>>, StreamError> {
        self.start_batch(streams, key, LATE, Batch::sequence)
    }

    fn start_batch(
        &self,
        streams: Vec<Stream>,
        key: Key,
        late_after: Duration,
        batch: impl FnOnce(Vec<Stream>, Key) -> Result<Batch, StreamError>,
    ) -> Result<Vec<Arc<StreamTotals>>, StreamError> {
        if let Some((index, top)) = streams.iter().enumerate().find(|(_, stream)| stream.rate == Rate::Top) {
            let what = "without a rate it would block the other streams; set a rate".to_owned();
            return Err(StreamError::Stream { index, name: top.name.clone(), what });
        }
        let count = streams.len();
        let batch = Arc::new(batch(streams, key)?);
        let mut table = self.places.table();
        let mut all: Vec<Arc<StreamTotals>> = (0..count).map(|_| table.enter(late_after)).collect();
        // Commands contain indices in ascending order.
        all.sort_unstable_by_key(|sending| sending.place);
        let which = StreamSelection::Some(all.iter().map(|sending| sending.place).collect());
        let refused = self.control.command_streams(&which, Action::Begin(batch)).is_err();
        drop(table);
        if refused {
            // The sender has ended and stored its failure.
            self.places.leave(all.iter().map(|sending| sending.place));
        }
        Ok(all)
    }

    /// Ends streams; their totals are final when this returns.
    pub fn end<'a>(&self, streams: impl IntoIterator<Item = &'a Arc<StreamTotals>>) {
        self.command_all(streams.into_iter().map(|sending| (sending, ())), |_| Action::Stop);
    }

    /// Pauses streams.
    pub fn hold<'a>(&self, streams: impl IntoIterator<Item = &'a Arc<StreamTotals>>) {
        for held in self.command_all(streams.into_iter().map(|sending| (sending, ())), |_| Action::Pause) {
            held.turn(TransmitState::Started, TransmitState::Paused);
        }
    }

    /// Resumes paused streams.
    pub fn go_on<'a>(&self, streams: impl IntoIterator<Item = &'a Arc<StreamTotals>>) {
        for held in self.command_all(streams.into_iter().map(|sending| (sending, ())), |_| Action::Resume) {
            held.turn(TransmitState::Paused, TransmitState::Started);
        }
    }

    /// Changes the rate of each stream.
    pub fn pace<'a>(&self, streams: impl IntoIterator<Item = (&'a Arc<StreamTotals>, Rate)>) {
        self.command_all(streams, |rates| Action::Rates(rates.into()));
    }

    /// Returns the number of streams that are sent or paused.
    pub fn active(&self) -> usize {
        let table = self.places.table();
        table.taken.len() - table.free.len()
    }

    /// Returns the totals of the port: frames, and their bytes without FCS.
    pub fn sent(&self) -> (u64, u64) {
        (self.progress.frames.load(Ordering::Acquire), self.progress.bytes.load(Ordering::Acquire))
    }

    /// Returns the failure of the port, if any.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a command to those of the streams that still exist, and waits until it is applied; returns them.
    fn command_all<'a, T>(
        &self,
        streams: impl IntoIterator<Item = (&'a Arc<StreamTotals>, T)>,
        action: impl FnOnce(Vec<T>) -> Action,
    ) -> Vec<Arc<StreamTotals>> {
        let table = self.places.table();
        let mut all: Vec<_> = streams.into_iter().filter(|(sending, _)| table.has(sending)).collect();
        // Commands contain each index once, in ascending order.
        all.sort_by_key(|(sending, _)| sending.place);
        all.dedup_by_key(|(sending, _)| sending.place);
        let (all, values): (Vec<Arc<StreamTotals>>, Vec<T>) =
            all.into_iter().map(|(sending, value)| (Arc::clone(sending), value)).unzip();
        let which = StreamSelection::Some(all.iter().map(|sending| sending.place).collect());
        let change = if all.is_empty() { None } else { self.control.command_streams(&which, action(values)).ok() };
        drop(table);
        if let Some(change) = change {
            self.control.wait(change, PATIENCE);
        }
        all
    }
}

impl Drop for Transmitter {
    fn drop(&mut self) {
        self.stop.force();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
