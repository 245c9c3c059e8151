//! Connected sender and receiver, and a receiver that checks the contract of its queues.

use crate::conformance::frames::Frame;
use linerate_burst::{Block, Desc, Horizon, Interface, Ledger, Nanos};
use linerate_engine::clock::now;
use linerate_merge::{Input, Merge};
use linerate_port::{Head, RxPort, RxQueue, TxPort, TxQueue};
use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit for events that are certain to happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two polls.
pub(super) const PAUSE: Duration = Duration::from_micros(100);
/// Max frames offered per send.
const OFFER: usize = 64;

/// Open sender and receiver of one backend.
pub(super) struct Wire {
    pub tx: Option<TxPort>,
    rx: Option<RxPort>,
    /// Opens the receiver, for backends that need the sender to be closed first.
    open_late: Option<Box<dyn FnOnce() -> RxPort>>,
    /// Counters of senders that have closed.
    pub sent: Ledger,
    /// Max frames in flight, for backends that lose frames if the receiver is slow.
    window: usize,
    /// Files or namespaces that live as long as the wire.
    _keep: Option<Box<dyn Any>>,
}

/// Frame delivered by the merge.
#[derive(Clone, Debug)]
pub(super) struct Got {
    pub desc: Desc,
    pub bytes: Vec<u8>,
}

/// Result of an exchange.
pub(super) struct Outcome {
    pub got: Vec<Got>,
    pub watches: Vec<Watch>,
    pub ledger: Ledger,
    pub interfaces: Vec<Interface>,
    /// Time from the detach until every lane had ended.
    pub drained_in: Duration,
}

impl Wire {
    pub(super) fn live(tx: TxPort, rx: RxPort) -> Self {
        Wire { tx: Some(tx), rx: Some(rx), open_late: None, sent: Ledger::new(), window: usize::MAX, _keep: None }
    }

    pub(super) fn late(tx: TxPort, open: impl FnOnce() -> RxPort + 'static) -> Self {
        Wire {
            tx: Some(tx),
            rx: None,
            open_late: Some(Box::new(open)),
            sent: Ledger::new(),
            window: usize::MAX,
            _keep: None,
        }
    }

    /// Limits the frames that senders of an exchange may be ahead of the receiver.
    pub(super) fn with_window(mut self, frames: usize) -> Self {
        self.window = frames;
        self
    }

    pub(super) fn keeping(mut self, keep: impl Any) -> Self {
        self._keep = Some(Box::new(keep));
        self
    }

    /// Sends all frames through one queue.
    pub(super) fn send(&mut self, sender: usize, frames: &[Frame]) {
        let tx = self.tx.as_mut().expect("the sender is open");
        send_all(tx.queues[sender].as_mut(), frames);
    }

    /// Wraps the ports.
    pub(super) fn map(
        mut self,
        tx: impl FnOnce(TxPort) -> TxPort,
        rx: impl FnOnce(RxPort) -> RxPort + 'static,
    ) -> Self {
        self.tx = self.tx.map(tx);
        match self.open_late.take() {
            Some(open) => self.open_late = Some(Box::new(|| rx(open()))),
            None => self.rx = self.rx.map(rx),
        }
        self
    }

    /// Returns true if the receiver opens only after the sender has closed.
    pub(super) fn is_late(&self) -> bool {
        self.open_late.is_some()
    }

    /// Closes the sender, and keeps its counters.
    pub(super) fn close_sender(&mut self) {
        for queue in self.tx.take().into_iter().flat_map(|tx| tx.queues) {
            queue.counters(&mut self.sent);
        }
    }

    /// Returns the receive queues.
    pub(super) fn queues(&mut self) -> &mut Vec<Box<dyn RxQueue>> {
        if let Some(open) = self.open_late.take() {
            self.close_sender();
            self.rx = Some(open());
        }
        &mut self.rx.as_mut().expect("the receiver is open").queues
    }

    /// Fills every queue until at least `frames` are visible in total; consumes none.
    pub(super) fn wait_for(&mut self, frames: usize) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let fill = |queue: &mut Box<dyn RxQueue>| queue.fill(now()).unwrap().burst.len();
            let shown: usize = self.queues().iter_mut().map(fill).sum();
            if shown >= frames {
                return;
            }
            assert!(Instant::now() < deadline, "{shown} of {frames} frames are visible:\n{:#?}", self.counted());
            thread::sleep(PAUSE);
        }
    }

    /// Returns the counters of both sides, for error messages.
    fn counted(&mut self) -> Ledger {
        let mut ledger = Ledger::new();
        self.queues().iter().for_each(|queue| queue.counters(&mut ledger));
        self.tx.iter().flat_map(|tx| &tx.queues).for_each(|queue| queue.counters(&mut ledger));
        ledger
    }

    /// Sends each list of frames from its own thread and queue, merges what arrives, then detaches and drains the port.
    pub(super) fn exchange(self, lists: &[Vec<Frame>]) -> Outcome {
        let expected = lists.iter().map(Vec::len).sum();
        self.exchange_until(lists, expected)
    }

    /// Runs an exchange where the number of frames received differs from the number sent.
    pub(super) fn exchange_until(mut self, lists: &[Vec<Frame>], expected: usize) -> Outcome {
        let late = self.open_late.is_some();
        let queues = self.tx.take().expect("the sender is open").queues;
        assert!(lists.len() <= queues.len(), "{} senders, {} queues", lists.len(), queues.len());
        let (sent_total, arrived, window) = (&AtomicUsize::new(0), &AtomicUsize::new(0), self.window);
        let receiver = thread::scope(|scope| {
            let mut senders = Vec::new();
            for (index, mut queue) in queues.into_iter().enumerate() {
                let list = lists.get(index).map_or(&[][..], Vec::as_slice);
                senders.push(scope.spawn(move || {
                    for chunk in list.chunks(OFFER) {
                        let sent = sent_total.fetch_add(chunk.len(), Ordering::Relaxed) + chunk.len();
                        let deadline = Instant::now() + PATIENCE;
                        while sent.saturating_sub(arrived.load(Ordering::Relaxed)) > window {
                            assert!(Instant::now() < deadline, "sent frames do not arrive");
                            thread::sleep(PAUSE);
                        }
                        send_all(queue.as_mut(), chunk);
                    }
                    let mut ledger = Ledger::new();
                    queue.counters(&mut ledger);
                    ledger
                }));
            }
            let mut join = |sent: &mut Ledger| senders.drain(..).for_each(|sender| add(sent, &sender.join().unwrap()));
            if late {
                join(&mut self.sent);
            }
            let mut receiver = Receiver::new(std::mem::take(self.queues()));
            receiver.run_until(|receiver| {
                arrived.store(receiver.arrived(), Ordering::Relaxed);
                receiver.arrived() >= expected || receiver.is_over()
            });
            if receiver.arrived() < expected {
                // Closes a pipe, so that its sender does not block forever.
                let arrived = receiver.arrived();
                let mut ledger = std::mem::take(&mut self.sent);
                receiver.queues_mut().iter().for_each(|queue| queue.counters(&mut ledger));
                drop(receiver);
                panic!("{arrived} of {expected} frames arrived: {ledger:#?}");
            }
            join(&mut self.sent);
            receiver
        });
        receiver.finish(self.sent)
    }
}

/// Adds the accounts of one ledger to another.
pub(super) fn add(into: &mut Ledger, from: &Ledger) {
    for account in from.accounts() {
        for (count, frames) in account.counts() {
            into.account(account.stage, &account.subject).add(count, frames);
        }
    }
}

/// Returns a block with these frames.
pub(super) fn block_of(frames: &[Frame]) -> Block {
    let bytes = frames.iter().map(|frame| frame.bytes.len() + 16).sum();
    let mut block = Block::new(bytes, frames.len().max(1));
    for frame in frames {
        assert!(block.push(&full_desc(frame), &frame.bytes));
    }
    block
}

/// Sends and flushes until all frames are accepted.
pub(super) fn send_all(queue: &mut dyn TxQueue, frames: &[Frame]) {
    let deadline = Instant::now() + PATIENCE;
    for chunk in frames.chunks(OFFER) {
        let block = block_of(chunk);
        let mut taken = 0;
        while taken < chunk.len() {
            taken += queue.send(block.burst().slice(taken..chunk.len())).expect("sending works");
            let flushed = queue.flush(now()).expect("flushing works");
            assert!(Instant::now() < deadline, "the wire stays full");
            if taken < chunk.len() || !flushed {
                thread::sleep(PAUSE);
            }
        }
    }
    while !queue.flush(now()).expect("flushing works") {
        assert!(Instant::now() < deadline, "the wire stays full");
        thread::sleep(PAUSE);
    }
}

fn full_desc(frame: &Frame) -> Desc {
    Desc::new(frame.time, 0, frame.bytes.len() as u32)
}

/// Checks of the contract of one lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    /// Frames visible and not consumed.
    shown: usize,
    /// Latest horizon.
    promised: Nanos,
    newest: Nanos,
    ended: bool,
    pub frames: u64,
    /// Frames older than an earlier frame of this lane.
    pub back: u64,
    /// Frames older than a previous horizon, and the maximum violation.
    pub broken: u64,
    pub worst: Duration,
    /// Max frames visible at once.
    pub most: usize,
}

impl Watch {
    fn look(&mut self, head: &Head<'_>) {
        let descs = head.burst.descs();
        for desc in &descs[self.shown.min(descs.len())..] {
            self.frames += 1;
            self.back += u64::from(desc.time < self.newest);
            self.newest = self.newest.max(desc.time);
            if desc.time < self.promised {
                self.broken += 1;
                self.worst = self.worst.max(self.promised.since(desc.time));
            }
            let interface = head.interfaces.get(usize::from(desc.interface));
            assert!(
                interface.is_some(),
                "a descriptor names interface {} of {}",
                desc.interface,
                head.interfaces.len()
            );
        }
        self.shown = descs.len();
        self.most = self.most.max(self.shown);
        self.promised = self.promised.max(head.horizon.time());
        self.ended = descs.is_empty() && head.horizon == Horizon::Ended;
    }
}

/// Receives frames from all lanes of a port through the merge, as the engine does, and keeps them.
pub(super) struct Receiver {
    queues: Vec<Box<dyn RxQueue>>,
    merge: Merge,
    watches: Vec<Watch>,
    interfaces: Vec<Interface>,
    got: Vec<Got>,
}

impl Receiver {
    pub(super) fn new(queues: Vec<Box<dyn RxQueue>>) -> Self {
        let lanes = queues.len();
        let watches = vec![Watch::default(); lanes];
        Receiver { queues, merge: Merge::new(lanes), watches, interfaces: Vec::new(), got: Vec::new() }
    }

    pub(super) fn queues_mut(&mut self) -> &mut [Box<dyn RxQueue>] {
        &mut self.queues
    }

    pub(super) fn got(&self) -> &[Got] {
        &self.got
    }

    /// Returns the number of frames received so far.
    pub(super) fn arrived(&self) -> usize {
        self.watches.iter().map(|watch| watch.frames as usize).sum()
    }

    pub(super) fn is_over(&self) -> bool {
        self.watches.iter().all(|watch| watch.ended)
    }

    /// Runs rounds until `done`, for at most [`PATIENCE`].
    pub(super) fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) && Instant::now() < deadline {
            if !self.round() {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Receives the frames released by the merge; returns false if there are none.
    pub(super) fn round(&mut self) -> bool {
        let Receiver { queues, merge, watches, interfaces, got } = self;
        let time = now();
        let mut heads = Vec::new();
        for (queue, watch) in queues.iter_mut().zip(watches.iter_mut()) {
            let head = queue.fill(time).expect("filling works");
            watch.look(&head);
            if head.interfaces.len() > interfaces.len() {
                *interfaces = head.interfaces.to_vec();
            }
            heads.push(head);
        }
        let inputs: Vec<Input<'_>> =
            heads.iter().map(|head| Input { descs: head.burst.descs(), horizon: head.horizon }).collect();
        let mut runs = Vec::new();
        merge.round(&inputs, &mut runs);
        for run in &runs {
            for (desc, bytes) in heads[run.lane].burst.slice(run.first..run.first + run.count).iter() {
                got.push(Got { desc: *desc, bytes: bytes.to_vec() });
            }
        }
        for run in &runs {
            queues[run.lane].consume(run.count);
            watches[run.lane].shown -= run.count;
        }
        !runs.is_empty()
    }

    /// Detaches and drains every lane, and adds its counters to those of the senders in `sent`.
    pub(super) fn finish(mut self, sent: Ledger) -> Outcome {
        self.queues.iter_mut().for_each(|queue| queue.detach());
        let start = Instant::now();
        self.run_until(Receiver::is_over);
        assert!(self.is_over(), "detached lanes do not end: {:?}", self.watches);
        let drained_in = start.elapsed();
        let mut ledger = sent;
        self.queues.iter().for_each(|queue| queue.counters(&mut ledger));
        let Receiver { got, watches, interfaces, .. } = self;
        Outcome { got, watches, ledger, interfaces, drained_in }
    }
}
