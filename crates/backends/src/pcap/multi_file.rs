//! Many capture files as one lane: more than a merge supports.
//!
//! The order is that of the merge: by the latest time so far in a file, then by the position of the file. Packets are
//! copied once.

use super::{PcapRx, Recording, broken};
use linerate_burst::{Block, Burst, Desc, Horizon, Interface, Ledger, Nanos};
use linerate_port::{Feed, Head, PortError, RxPort, RxQueue};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::os::fd::BorrowedFd;

const BLOCK_BYTES: usize = 512 << 10;
const BLOCK_FRAMES: usize = 4096;

/// Opens a port of one lane with the packets of these files, all of them regular files.
///
/// # Errors
/// If one of them cannot be opened.
pub fn joined(paths: &[&str]) -> Result<RxPort, PortError> {
    let queue = |path: &&str| Ok(File { queue: Recording::open(path)?.queue()?, done: 0, map: Vec::new() });
    let files: Vec<File> = paths.iter().map(queue).collect::<Result<_, PortError>>()?;
    let queue = MergedRx {
        order: (0..files.len()).map(|index| Reverse((Nanos::ZERO, index))).collect(),
        files,
        interfaces: Vec::new(),
        block: Block::new(BLOCK_BYTES, BLOCK_FRAMES),
        sources: VecDeque::new(),
        newest: Nanos::ZERO,
        failure: None,
        has_pending_work: false,
        is_detached: false,
    };
    Ok(RxPort::new(format!("pcap:{} files", paths.len()), vec![Box::new(queue)], Feed::Stored))
}

struct MergedRx {
    files: Vec<File>,
    /// Files that have not ended, the next one first.
    order: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// Interfaces of all files.
    interfaces: Vec<Interface>,
    block: Block,
    /// File of each packet in the block that is not consumed.
    sources: VecDeque<usize>,
    newest: Nanos,
    /// First error; reported after the packets of all files.
    failure: Option<PortError>,
    has_pending_work: bool,
    is_detached: bool,
}

struct File {
    /// Reader of the file; `shown` counts its packets in the block.
    queue: PcapRx,
    /// Number of packets shown by its reader that are in the block.
    done: usize,
    /// Index of each of its interfaces in the list of all.
    map: Vec<u16>,
}

/// Reason why reading a file stopped.
enum StopReason {
    /// Another file is next.
    Behind,
    /// The block is full, or the file was read for long enough.
    Pause,
    Ended,
}

impl MergedRx {
    fn fill_block(&mut self) -> Result<(), PortError> {
        self.block.clear();
        self.has_pending_work = false;
        while let Some(Reverse((_, index))) = self.order.pop() {
            let stopped = self.read(index)?;
            if !matches!(stopped, StopReason::Ended) {
                self.order.push(Reverse((self.files[index].queue.newest, index)));
            }
            if matches!(stopped, StopReason::Pause) {
                break;
            }
        }
        Ok(())
    }

    /// Copies packets of a file as long as they precede those of the others.
    fn read(&mut self, index: usize) -> Result<StopReason, PortError> {
        let next = self.order.peek().map(|Reverse(next)| *next);
        loop {
            let File { queue, done, map } = &mut self.files[index];
            let shown = queue.reader.shown();
            while let Some(desc) = shown.descs().get(*done) {
                let time = queue.newest.max(desc.time);
                if next.is_some_and(|next| (time, index) > next) {
                    queue.newest = time;
                    return Ok(StopReason::Behind);
                }
                let interface = map.get(usize::from(desc.interface)).copied().unwrap_or_default();
                if !self.block.push_stored(&Desc { interface, ..*desc }, shown, *done) {
                    return Ok(StopReason::Pause);
                }
                (queue.newest, self.newest) = (time, self.newest.max(time));
                self.sources.push_back(index);
                (*done, queue.shown) = (*done + 1, queue.shown + 1);
            }
            queue.reader.consume(std::mem::take(done));
            match queue.reader.look() {
                Ok(0) if queue.reader.has_pending_work() => {
                    self.has_pending_work = true;
                    return Ok(StopReason::Pause);
                }
                Ok(0) => return Ok(StopReason::Ended),
                Ok(_) => {}
                Err(error) => {
                    self.failure.get_or_insert(broken(error));
                    return Ok(StopReason::Ended);
                }
            }
            let known = map.len();
            for interface in &queue.reader.interfaces()[known..] {
                let place = u16::try_from(self.interfaces.len());
                map.push(place.map_err(|_| PortError::broken(&*queue.name, "more than 65,536 interfaces"))?);
                self.interfaces.push(interface.clone());
            }
        }
    }
}

impl RxQueue for MergedRx {
    fn fill(&mut self, _now: Nanos) -> Result<Head<'_>, PortError> {
        if self.sources.is_empty() && !self.is_detached {
            self.fill_block()?;
        }
        let is_over = self.order.is_empty() && !self.is_detached;
        if self.sources.is_empty()
            && is_over
            && let Some(failure) = self.failure.take()
        {
            return Err(failure);
        }
        // Errors beyond the point where a run stopped early are not reported.
        let has_ended = self.is_detached || is_over && self.failure.is_none();
        let first = self.block.len() - self.sources.len();
        let burst: Burst<'_> = self.block.burst().slice(first..self.block.len());
        let horizon = if has_ended { Horizon::Ended } else { Horizon::At(self.newest) };
        Ok(Head { burst, horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        assert!(frames <= self.sources.len(), "{frames} frames consumed, {} shown", self.sources.len());
        for source in self.sources.drain(..frames) {
            let queue = &mut self.files[source].queue;
            (queue.shown, queue.delivered) = (queue.shown - 1, queue.delivered + 1);
        }
    }

    fn detach(&mut self) {
        self.is_detached = true;
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn has_pending_work(&self) -> bool {
        !self.is_detached && self.has_pending_work
    }

    fn counters(&self, ledger: &mut Ledger) {
        self.files.iter().for_each(|file| file.queue.counters(ledger));
    }
}
