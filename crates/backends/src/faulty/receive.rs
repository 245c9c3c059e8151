//! The receiving side: frames of a queue as if they had passed a bad wire.

use super::delay_line::{DelayLine, FaultCounts};
use super::plan::Plan;
use linerate_burst::{Count, Horizon, Interface, Ledger, Nanos, Stage};
use linerate_port::{Head, PortError, RxQueue};
use std::os::fd::BorrowedFd;
use std::time::Duration;

pub(super) struct FaultyRx {
    inner: Box<dyn RxQueue>,
    line: DelayLine,
    interfaces: Vec<Interface>,
    /// Lower bound of the times of frames that the queue has not given to the line.
    floor: Horizon,
    /// Error, reported after all earlier frames were shown.
    failure: Option<PortError>,
    delivered: u64,
    detached: bool,
}

impl FaultyRx {
    pub(super) fn new(inner: Box<dyn RxQueue>, plan: Plan) -> Self {
        FaultyRx {
            inner,
            line: DelayLine::new(plan),
            interfaces: Vec::new(),
            floor: Horizon::At(Nanos::ZERO),
            failure: None,
            delivered: 0,
            detached: false,
        }
    }

    /// Moves frames of the queue into the line, as far as there is room.
    fn pull(&mut self, now: Nanos) -> Result<(), PortError> {
        let FaultyRx { inner, line, interfaces, .. } = self;
        let head = match inner.fill(now) {
            Ok(head) => head,
            Err(error @ PortError::Again { .. }) => return Err(error),
            Err(error) => {
                line.settle_all(now);
                self.failure = Some(error);
                return Ok(());
            }
        };
        if head.interfaces.len() > interfaces.len() {
            interfaces.extend_from_slice(&head.interfaces[interfaces.len()..]);
        }
        let mut taken = 0;
        for (desc, frame) in head.burst.iter() {
            if line.is_full() {
                break;
            }
            line.enter(now, desc.time, desc, frame);
            taken += 1;
        }
        let left = head.burst.descs()[taken..].iter().map(|desc| desc.time).min();
        self.floor = match (left, head.horizon) {
            (Some(left), horizon) => Horizon::At(left.min(horizon.time())),
            (None, horizon) => horizon,
        };
        match self.floor {
            Horizon::At(floor) => line.settle(now, floor),
            Horizon::Ended => line.settle_all(now),
        }
        inner.consume(taken);
        Ok(())
    }

    /// Returns the horizon: no frame in the line or still to enter it is older.
    fn horizon(&self) -> Horizon {
        match (self.line.oldest(), self.floor) {
            (None, Horizon::Ended) => Horizon::Ended,
            (oldest, floor) => {
                let to_come = match floor {
                    Horizon::At(floor) => floor.after(self.line.least_delay()),
                    Horizon::Ended => Nanos::MAX,
                };
                Horizon::At(oldest.unwrap_or(Nanos::MAX).min(to_come))
            }
        }
    }
}

impl RxQueue for FaultyRx {
    fn start(&mut self) {
        self.inner.start();
    }

    fn fill(&mut self, now: Nanos) -> Result<Head<'_>, PortError> {
        if self.failure.is_none() && !self.line.is_full() {
            self.pull(now)?;
        }
        if self.line.len() == 0
            && let Some(failure) = self.failure.take()
        {
            return Err(failure);
        }
        self.line.show(now, self.detached);
        let horizon = self.horizon();
        Ok(Head { burst: self.line.show(now, self.detached), horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        self.line.consume(frames);
        self.delivered += frames as u64;
    }

    fn detach(&mut self) {
        self.detached = true;
        self.inner.detach();
    }

    /// Due frames do not signal the descriptor.
    fn wake(&self) -> Option<BorrowedFd<'_>> {
        if self.line.waits() || self.failure.is_some() { None } else { self.inner.wake() }
    }

    fn has_pending_work(&self) -> bool {
        self.failure.is_none() && self.inner.has_pending_work()
    }

    fn poll_interval(&self) -> Option<Duration> {
        self.inner.poll_interval()
    }

    /// Adds the account of the wrapped queue, with the faults after it.
    fn counters(&self, ledger: &mut Ledger) {
        let mut inner = Ledger::new();
        self.inner.counters(&mut inner);
        for account in inner.accounts() {
            let own = ledger.account(account.stage, &self.line.subject(&account.subject));
            for (count, frames) in account.counts().filter(|(count, _)| *count != Count::Delivered) {
                own.add(count, frames);
            }
            if account.stage == Stage::Receive {
                let FaultCounts { dropped, queue, repeated, reordered, corrupted, truncated, padded, filled } =
                    self.line.counts;
                own.add(Count::Received, repeated).add(Count::Delivered, self.delivered);
                own.add(Count::FaultDropped, dropped).add(Count::FaultQueue, queue);
                own.add(Count::FaultRepeated, repeated).add(Count::FaultReordered, reordered);
                own.add(Count::FaultCorrupted, corrupted).add(Count::FaultTruncated, truncated);
                own.add(Count::FaultPadded, padded).add(Count::ChecksumFilled, filled);
            }
        }
    }
}
