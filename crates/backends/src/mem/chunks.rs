//! `mem:name?chunk=2048`: each frame in its own chunk, so that it can be held, changed, and forwarded in place.
//!
//! The fake of ports over registered memory. A chunk has one owner at a time: the free list, the wire, the queue that
//! shows it, or the holder of the frame. A submitted frame comes from another region, and is returned there.

use linerate_burst::pool::{Chunk, Pool};
use linerate_burst::{Burst, Count, Desc, Flags, Horizon, Interface, Ledger, LinkType, Nanos, Stage, StampSource};
use linerate_port::{
    Feed, Head, HeldFrame, HoldQueue, PortError, Region, Room, RxOptions, RxPort, RxQueue, Sent, Spec, SubmitQueue,
    TxPort, TxQueue,
};
use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Chunks of a region, and maximum frames shown.
const CHUNKS: usize = 4096;
const SHOWN: usize = 1024;
/// Room before each frame.
const HEADROOM: usize = 64;

static WIRES: Mutex<Option<HashMap<String, Weak<Wire>>>> = Mutex::new(None);

/// The memory of a name, and the frames in transit.
struct Wire {
    name: String,
    region: Arc<Chunks>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    full: VecDeque<Frame>,
    horizon: Nanos,
    senders: usize,
    had_sender: bool,
    receiver: bool,
    detached: bool,
}

/// A region, for frames that are sent by copying.
struct Chunks {
    pool: Pool,
    free: Mutex<Vec<Chunk>>,
    /// Number of held frames of its queue.
    held: AtomicUsize,
}

/// A frame with its chunk; the token of a held frame.
struct Frame {
    chunk: Chunk,
    desc: Desc,
    home: Arc<Chunks>,
    /// Submitter to which it must be returned, if any.
    lent: Option<Submitter>,
}

/// The submitter of a frame.
struct Submitter {
    lane: u32,
    completed: Arc<Mutex<Vec<HeldFrame>>>,
    /// Submitter before it, if the frame was submitted several times.
    before: Option<Box<Submitter>>,
}

impl Frame {
    /// Returns the frame to its owner.
    fn go_back(mut self) {
        match self.lent.take() {
            None => lock(&self.home.free).push(self.chunk),
            Some(Submitter { lane, completed, before }) => {
                self.lent = before.map(|before| *before);
                let mut held = self.into_held();
                held.lane = lane;
                lock(&completed).push(held);
            }
        }
    }

    fn into_held(self) -> HeldFrame {
        HeldFrame::owning(self.desc, Box::new(self))
    }

    /// Returns the offset and the length of its chunk.
    fn chunk(&self) -> (u32, usize) {
        (self.home.pool.offset(&self.chunk), self.home.pool.chunk_bytes())
    }
}

/// Opens the receiving end of a name.
pub(super) fn open_rx(spec: &Spec, options: &RxOptions) -> Result<RxPort, PortError> {
    let wire = wire(spec)?;
    let mut state = lock(&wire.state);
    if std::mem::replace(&mut state.receiver, true) {
        return Err(PortError::broken(&wire.name, "already open for receiving"));
    }
    state.detached = false;
    drop(state);
    let queue = ChunksRx {
        interfaces: [Interface::new(spec.target.clone(), LinkType::ETHERNET, StampSource::User)],
        shown: Vec::new(),
        chunks: Vec::new(),
        descs: Vec::new(),
        home: Arc::clone(&wire.region),
        delivered: 0,
        received: 0,
        detached: false,
        horizon: Horizon::At(Nanos::ZERO),
        wire,
    };
    Ok(RxPort::new(spec.to_string(), vec![Box::new(queue)], Feed::others(options)))
}

/// Opens a sending end of a name.
pub(super) fn open_tx(spec: &Spec) -> Result<TxPort, PortError> {
    let wire = wire(spec)?;
    let mut state = lock(&wire.state);
    state.senders += 1;
    state.had_sender = true;
    drop(state);
    let queue =
        Box::new(ChunksTx { wire, newest: Nanos::ZERO, counts: TxCounts::default(), completed: Arc::default() });
    Ok(TxPort { name: spec.to_string(), queues: vec![queue], monitor: None })
}

fn wire(spec: &Spec) -> Result<Arc<Wire>, PortError> {
    let refuse = |reason: &str| Err(PortError::wrong(spec.to_string(), reason));
    if spec.queues.is_some() || spec.option("stamp").is_some_and(|stamp| stamp != "keep") {
        return refuse("chunk= supports only one queue and stamp=keep");
    }
    let chunk = match spec.number("chunk", 0)? {
        chunk @ 256..=262_144 => chunk as usize,
        _ => return refuse("chunk=: expected 256 to 262144 bytes"),
    };
    let mut open = lock(&WIRES);
    let open = open.get_or_insert_with(HashMap::new);
    open.retain(|_, wire| wire.strong_count() > 0);
    if let Some(wire) = open.get(&spec.target).and_then(Weak::upgrade) {
        return Ok(wire);
    }
    let (pool, free) = Pool::new(HEADROOM + chunk, CHUNKS);
    let region = Arc::new(Chunks { pool, free: Mutex::new(free), held: AtomicUsize::new(0) });
    let wire = Arc::new(Wire { name: format!("mem:{}@0", spec.target), region, state: Mutex::default() });
    open.insert(spec.target.clone(), Arc::downgrade(&wire));
    Ok(wire)
}

struct ChunksRx {
    wire: Arc<Wire>,
    interfaces: [Interface; 1],
    /// Frames shown, all of one region, with chunk and desc in `chunks` and `descs`.
    home: Arc<Chunks>,
    shown: Vec<Option<Submitter>>,
    chunks: Vec<Chunk>,
    descs: Vec<Desc>,
    received: u64,
    delivered: u64,
    detached: bool,
    horizon: Horizon,
}

impl ChunksRx {
    /// Takes frames from the wire, as long as they are of one region.
    fn refill(&mut self) {
        let wire = Arc::clone(&self.wire);
        let mut state = lock(&wire.state);
        while self.descs.len() < SHOWN
            && let Some(first) = state.full.front()
            && (self.descs.is_empty() || Arc::ptr_eq(&first.home, &self.home))
            && let Some(Frame { chunk, desc, home, lent }) = state.full.pop_front()
        {
            self.home = home;
            self.chunks.push(chunk);
            self.descs.push(desc);
            self.shown.push(lent);
            self.received += 1;
        }
        let ended = self.detached || (state.had_sender && state.senders == 0);
        self.horizon = match state.full.iter().map(|frame| frame.desc.time).min() {
            Some(oldest) => Horizon::At(oldest),
            None if ended => Horizon::Ended,
            None => Horizon::At(state.horizon),
        };
    }

    /// Takes the first frames shown.
    fn take(&mut self, frames: usize, mut each: impl FnMut(usize, Frame)) {
        assert!(frames <= self.descs.len(), "{frames} frames consumed, {} shown", self.descs.len());
        let parts = self.chunks.drain(..frames).zip(self.descs.drain(..frames)).zip(self.shown.drain(..frames));
        for (index, ((chunk, desc), lent)) in parts.enumerate() {
            each(index, Frame { chunk, desc, home: Arc::clone(&self.home), lent });
        }
        self.delivered += frames as u64;
    }
}

impl RxQueue for ChunksRx {
    fn fill(&mut self, _now: Nanos) -> Result<Head<'_>, PortError> {
        self.refill();
        let burst = self.home.pool.burst(&self.chunks, &self.descs);
        Ok(Head { burst, horizon: self.horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        self.take(frames, |_, frame| frame.go_back());
    }

    fn detach(&mut self) {
        self.detached = true;
        lock(&self.wire.state).detached = true;
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self, ledger: &mut Ledger) {
        let account = ledger.account(Stage::Receive, &self.wire.name);
        account.add(Count::Received, self.received - self.descs.len() as u64).add(Count::Delivered, self.delivered);
    }

    fn holding(&mut self) -> Option<&mut dyn HoldQueue> {
        Some(self)
    }
}

impl Drop for ChunksRx {
    fn drop(&mut self) {
        self.take(self.descs.len(), |_, frame| frame.go_back());
        lock(&self.wire.state).receiver = false;
    }
}

impl HoldQueue for ChunksRx {
    fn region(&self) -> Region {
        Region::new(Arc::clone(&self.wire.region) as _)
    }

    fn spare(&self) -> usize {
        (CHUNKS / 2).saturating_sub(self.wire.region.held.load(Ordering::Relaxed))
    }

    fn room(&self) -> Room {
        Room { head: HEADROOM as u32, tail: 0 }
    }

    fn hold(&mut self, frames: usize, indices: &[u32], held: &mut Vec<HeldFrame>) -> usize {
        let (indices, beyond) = indices.split_at(self.spare().min(indices.len()));
        let frames = beyond.first().map_or(frames, |index| *index as usize);
        assert!(indices.iter().all(|index| (*index as usize) < frames), "indices are below {frames}");
        self.wire.region.held.fetch_add(indices.len(), Ordering::Relaxed);
        let mut rest = indices.iter().map(|index| *index as usize).peekable();
        self.take(frames, |index, frame| match rest.next_if_eq(&index) {
            Some(_) => held.push(frame.into_held()),
            None => frame.go_back(),
        });
        frames
    }

    /// Nothing to move: each frame has its own chunk and blocks no other.
    fn keep(&mut self, _held: &mut HeldFrame) -> bool {
        true
    }

    fn release(&mut self, held: &mut Vec<HeldFrame>) {
        let frames = held.drain(..).filter_map(HeldFrame::into_token);
        let released = frames.map(Frame::go_back).count();
        self.wire.region.held.fetch_sub(released, Ordering::Relaxed);
    }

    fn bytes_mut<'a>(&'a mut self, held: &'a mut HeldFrame) -> &'a mut [u8] {
        let (start, length) = (held.desc.offset, held.desc.captured as usize);
        let Some(Frame { chunk, home, .. }) = held.token() else { return &mut [] };
        let Some(start) = start.checked_sub(home.pool.offset(chunk)).map(|start| start as usize) else {
            return &mut [];
        };
        home.pool.bytes_mut(chunk).get_mut(start..start + length).unwrap_or_default()
    }

    fn resize(&mut self, held: &mut HeldFrame, head: i32, tail: i32) -> bool {
        let (start, length) = (i64::from(held.desc.offset), i64::from(held.desc.captured));
        let (start, length) = (start - i64::from(head), length + i64::from(head) + i64::from(tail));
        let Some((begin, bytes)) = held.token::<Frame>().map(|frame| frame.chunk()) else { return false };
        let fits = length >= 0 && start >= i64::from(begin) && start + length <= i64::from(begin) + bytes as i64;
        if fits {
            // Both lie within a chunk.
            (held.desc.offset, held.desc.captured, held.desc.wire) = (start as u32, length as u32, length as u32);
        }
        fits
    }
}

struct ChunksTx {
    wire: Arc<Wire>,
    newest: Nanos,
    counts: TxCounts,
    completed: Arc<Mutex<Vec<HeldFrame>>>,
}

#[derive(Default)]
struct TxCounts {
    taken: Sent,
    full: u64,
    too_long: u64,
}

impl ChunksTx {
    fn note(&mut self, desc: &Desc) {
        self.newest = self.newest.max(desc.time);
        self.counts.taken.frames += 1;
        self.counts.taken.bytes += u64::from(desc.captured);
    }
}

impl TxQueue for ChunksTx {
    fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
        let wire = Arc::clone(&self.wire);
        let (home, mut state) = (&wire.region, lock(&wire.state));
        let mut done = 0;
        for (desc, frame) in burst.iter() {
            if frame.len() > home.pool.chunk_bytes() - HEADROOM {
                self.counts.too_long += 1;
            } else {
                let free = if state.detached { None } else { lock(&home.free).pop() };
                let Some(mut chunk) = free else { break };
                home.pool.bytes_mut(&mut chunk)[HEADROOM..HEADROOM + frame.len()].copy_from_slice(frame);
                let desc = Desc {
                    offset: home.pool.offset(&chunk) + HEADROOM as u32,
                    interface: 0,
                    flags: desc.flags.without(Flags::FCS),
                    ..*desc
                };
                state.full.push_back(Frame { chunk, desc, home: Arc::clone(home), lent: None });
                self.note(&desc);
            }
            done += 1;
        }
        self.counts.full += u64::from(done < burst.len());
        Ok(done)
    }

    fn flush(&mut self, _now: Nanos) -> Result<bool, PortError> {
        let mut state = lock(&self.wire.state);
        state.horizon = state.horizon.max(self.newest);
        Ok(true)
    }

    fn sent(&self) -> Sent {
        self.counts.taken
    }

    fn counters(&self, ledger: &mut Ledger) {
        let TxCounts { taken, full, too_long } = self.counts;
        let account = ledger.account(Stage::Send, &self.wire.name);
        account.add(Count::SendReceived, taken.frames + too_long).add(Count::Sent, taken.frames);
        account.add(Count::SendFull, full).add(Count::TooLong, too_long);
    }

    fn submitting(&mut self) -> Option<&mut dyn SubmitQueue> {
        Some(self)
    }
}

impl SubmitQueue for ChunksTx {
    fn attach(&mut self, region: &Region) -> bool {
        region.memory::<Chunks>().is_some()
    }

    fn submit(&mut self, frames: &mut VecDeque<HeldFrame>) -> Result<usize, PortError> {
        let wire = Arc::clone(&self.wire);
        let mut state = lock(&wire.state);
        let before = frames.len();
        // At most as many as its own memory holds: the receiver must take them first.
        while state.full.len() < CHUNKS && !state.detached {
            let Some(held) = frames.pop_front() else { break };
            let (lane, desc) = (held.lane, held.desc);
            let Some(frame) = held.into_token::<Frame>() else { continue };
            let lent = Submitter { lane, completed: Arc::clone(&self.completed), before: frame.lent.map(Box::new) };
            self.note(&desc);
            state.full.push_back(Frame { desc, lent: Some(lent), ..frame });
        }
        self.counts.full += u64::from(!frames.is_empty());
        Ok(before - frames.len())
    }

    fn completed(&mut self, done: &mut Vec<HeldFrame>) {
        done.append(&mut lock(&self.completed));
    }
}

impl Drop for ChunksTx {
    fn drop(&mut self) {
        lock(&self.wire.state).senders -= 1;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
