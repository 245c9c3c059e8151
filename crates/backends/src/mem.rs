//! `mem:name`: frames sent to a name are received from it, within this process.
//!
//! A complete backend with blocks, back-pressure, horizons and counters, and so the fake of every test. Frames keep the
//! time they were sent with, and are assumed to be in order; with `?stamp=now` they get the time of the flush that
//! sends them. `@0-3` opens four queues, each its own lane. With `?chunk=2048` each frame has its own chunk, and can be
//! held.

mod chunks;

use linerate_burst::{Block, Burst, Count, Desc, Horizon, Interface, Ledger, LinkType, Nanos, Stage, StampSource};
use linerate_port::{
    Backend, Feed, Head, PortError, Registry, RxOptions, RxPort, RxQueue, Sent, Spec, Target, TxOptions, TxPort,
    TxQueue,
};
use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Default number of blocks that a queue holds before its sender must wait.
const BLOCKS: u64 = 8;
const BLOCK_BYTES: usize = 512 << 10;
const BLOCK_FRAMES: usize = 2048;
const MAX_QUEUES: u32 = 64;
const OPTIONS: &[&str] = &["stamp", "blocks", "chunk"];

/// Wires that are open at one end or both.
static WIRES: Mutex<Option<Wires>> = Mutex::new(None);

/// Wires by name and queue.
type Wires = HashMap<(String, u32), Weak<Wire>>;

struct Wire {
    name: String,
    state: Mutex<State>,
}

struct State {
    /// Blocks sent and not yet received, each with its oldest time.
    full: VecDeque<(Block, Nanos)>,
    free: Vec<Block>,
    /// Horizon announced by the sender.
    horizon: Nanos,
    senders: usize,
    had_sender: bool,
    receiver: bool,
    /// True if the receiver has detached: the wire is full until a new receiver opens it.
    detached: bool,
}

impl Wire {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Describes this backend.
pub const BACKEND: Backend = Backend {
    scheme: "mem",
    placeholder: "name",
    sentence: "memory of this process: frames sent to a name are received from it",
    target: Target::Memory,
    rx_options: OPTIONS,
    tx_options: OPTIONS,
    open_rx,
    open_tx,
    leaves_when_sent: |spec, options| restamps(spec, options).unwrap_or(true),
};

/// Opens the receiving end of a name; each queue can have one receiver at a time.
fn open_rx(spec: &Spec, options: &RxOptions, _: &Registry) -> Result<RxPort, PortError> {
    if spec.option("chunk").is_some() {
        return chunks::open_rx(spec, options);
    }
    let mut queues: Vec<Box<dyn RxQueue>> = Vec::new();
    for wire in wires(spec)? {
        let mut state = wire.state();
        if std::mem::replace(&mut state.receiver, true) {
            return Err(PortError::broken(&wire.name, "already open for receiving"));
        }
        state.detached = false;
        drop(state);
        queues.push(Box::new(MemRx {
            interfaces: [Interface::new(spec.target.clone(), LinkType::ETHERNET, StampSource::User)],
            wire,
            head: None,
            consumed: 0,
            horizon: Horizon::At(Nanos::ZERO),
            received: 0,
            detached: false,
        }));
    }
    Ok(RxPort::new(spec.to_string(), queues, Feed::others(options)))
}

/// Opens a sending end of a name.
fn open_tx(spec: &Spec, options: &TxOptions, _: &Registry) -> Result<TxPort, PortError> {
    if spec.option("chunk").is_some() {
        return chunks::open_tx(spec);
    }
    let restamp = restamps(spec, options)?;
    let queues = wires(spec)?.into_iter().map(|wire| {
        let mut state = wire.state();
        state.senders += 1;
        state.had_sender = true;
        drop(state);
        let filling = Block::new(BLOCK_BYTES, BLOCK_FRAMES);
        Box::new(MemTx { wire, filling, restamp, newest: Nanos::ZERO, taken: Sent::default(), full: 0 })
            as Box<dyn TxQueue>
    });
    Ok(TxPort { name: spec.to_string(), queues: queues.collect(), monitor: None })
}

/// Returns whether frames get the time of the flush that sends them.
fn restamps(spec: &Spec, options: &TxOptions) -> Result<bool, PortError> {
    match spec.option("stamp") {
        None => Ok(options.stamped),
        Some("keep") => Ok(false),
        Some("now") => Ok(true),
        Some(other) => Err(PortError::wrong(spec.to_string(), format!("stamp={other}: expected keep or now"))),
    }
}

struct MemRx {
    wire: Arc<Wire>,
    interfaces: [Interface; 1],
    head: Option<Block>,
    consumed: usize,
    horizon: Horizon,
    received: u64,
    detached: bool,
}

impl MemRx {
    /// Returns an empty head block and takes the next block.
    fn advance(&mut self) {
        let mut state = self.wire.state();
        if self.head.as_ref().is_none_or(|block| block.len() == self.consumed) {
            self.consumed = 0;
            if let Some(mut block) = self.head.take() {
                block.clear();
                state.free.push(block);
            }
            self.head = state.full.pop_front().map(|(block, _)| block);
            self.received += self.head.as_ref().map_or(0, Block::len) as u64;
        }
        let ended = self.detached || (state.had_sender && state.senders == 0);
        self.horizon = match state.full.iter().map(|(_, oldest)| *oldest).min() {
            Some(oldest) => Horizon::At(oldest),
            None if ended => Horizon::Ended,
            None => Horizon::At(state.horizon),
        };
    }
}

impl RxQueue for MemRx {
    fn fill(&mut self, _now: Nanos) -> Result<Head<'_>, PortError> {
        self.advance();
        let burst = self.head.as_ref().map_or(Burst::EMPTY, |block| block.burst().slice(self.consumed..block.len()));
        Ok(Head { burst, horizon: self.horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        let shown = self.head.as_ref().map_or(0, Block::len) - self.consumed;
        assert!(frames <= shown, "{frames} frames consumed, {shown} shown");
        self.consumed += frames;
    }

    fn detach(&mut self) {
        self.detached = true;
        self.wire.state().detached = true;
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self, ledger: &mut Ledger) {
        let unconsumed = self.head.as_ref().map_or(0, Block::len) - self.consumed;
        let account = ledger.account(Stage::Receive, &self.wire.name);
        account.add(Count::Received, self.received).add(Count::Delivered, self.received - unconsumed as u64);
    }
}

impl Drop for MemRx {
    fn drop(&mut self) {
        let mut state = self.wire.state();
        state.receiver = false;
        if let Some(mut block) = self.head.take() {
            block.clear();
            state.free.push(block);
        }
    }
}

struct MemTx {
    wire: Arc<Wire>,
    filling: Block,
    restamp: bool,
    newest: Nanos,
    taken: Sent,
    full: u64,
}

impl MemTx {
    /// Puts the block being filled on the wire; false if the wire is full.
    fn enqueue_block(filling: &mut Block, state: &mut State) -> bool {
        if filling.is_empty() {
            return true;
        }
        if state.detached {
            return false;
        }
        let Some(empty) = state.free.pop() else { return false };
        let block = std::mem::replace(filling, empty);
        let oldest = block.burst().descs().iter().map(|desc| desc.time).min().unwrap_or(Nanos::ZERO);
        state.full.push_back((block, oldest));
        true
    }
}

impl MemTx {
    /// Copies a frame to the block being filled; false if that is full and cannot leave.
    fn take(&mut self, desc: &Desc, frame: &[u8]) -> bool {
        while !self.filling.push(&Desc { interface: 0, ..*desc }, frame) {
            // A block without time stamps cannot leave before the flush that sets them.
            if self.restamp || !Self::enqueue_block(&mut self.filling, &mut self.wire.state()) {
                return false;
            }
        }
        self.newest = self.newest.max(desc.time);
        true
    }
}

impl TxQueue for MemTx {
    fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
        let taken = burst.iter().take_while(|(desc, frame)| self.take(desc, frame)).count();
        self.full += u64::from(taken < burst.len());
        self.taken.add(burst.slice(0..taken));
        Ok(taken)
    }

    fn flush(&mut self, now: Nanos) -> Result<bool, PortError> {
        let mut state = self.wire.state();
        if self.restamp {
            // Another sender of this name may have read its clock later and flushed before.
            self.newest = now.max(state.horizon);
            self.filling.restamp(self.newest);
        }
        let all = Self::enqueue_block(&mut self.filling, &mut state);
        if all {
            state.horizon = state.horizon.max(self.newest);
        }
        Ok(all)
    }

    fn sent(&self) -> Sent {
        let waiting = self.filling.burst();
        Sent { frames: self.taken.frames - waiting.len() as u64, bytes: self.taken.bytes - waiting.bytes() }
    }

    fn counters(&self, ledger: &mut Ledger) {
        let unsent = self.filling.len() as u64;
        let account = ledger.account(Stage::Send, &self.wire.name);
        account.add(Count::SendReceived, self.taken.frames).add(Count::Sent, self.taken.frames - unsent);
        account.add(Count::SendFull, self.full);
        if unsent > 0 {
            account.add(Count::SendUnsent, unsent);
        }
    }
}

impl Drop for MemTx {
    fn drop(&mut self) {
        self.wire.state().senders -= 1;
    }
}

fn wires(spec: &Spec) -> Result<Vec<Arc<Wire>>, PortError> {
    let (first, last) = spec.queues.unwrap_or((0, 0));
    if last >= MAX_QUEUES {
        return Err(PortError::wrong(spec.to_string(), format!("memory ports support at most {MAX_QUEUES} queues")));
    }
    let blocks = spec.number_in("blocks", BLOCKS, 1..=1024, "1 to 1024")? as usize;
    let mut open = WIRES.lock().unwrap_or_else(PoisonError::into_inner);
    let open = open.get_or_insert_with(HashMap::new);
    open.retain(|_, wire| wire.strong_count() > 0);
    let wires = (first..=last).map(|queue| {
        let key = (spec.target.clone(), queue);
        if let Some(wire) = open.get(&key).and_then(Weak::upgrade) {
            return wire;
        }
        let wire = Arc::new(Wire {
            name: format!("mem:{}@{queue}", spec.target),
            state: Mutex::new(State {
                full: VecDeque::new(),
                free: (0..blocks).map(|_| Block::new(BLOCK_BYTES, BLOCK_FRAMES)).collect(),
                horizon: Nanos::ZERO,
                senders: 0,
                had_sender: false,
                receiver: false,
                detached: false,
            }),
        });
        open.insert(key, Arc::downgrade(&wire));
        wire
    });
    Ok(wires.collect())
}
