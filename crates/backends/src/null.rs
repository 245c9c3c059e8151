//! `null:name`: never receives a frame, and discards all frames sent. Measures the speed of senders, or ends a wire
//! that leads nowhere.

use linerate_burst::{Burst, Count, Horizon, Interface, Ledger, LinkType, Nanos, Stage, StampSource};
use linerate_port::{
    Backend, Feed, Head, PortError, Registry, RxOptions, RxPort, RxQueue, Sent, Spec, Target, TxOptions, TxPort,
    TxQueue,
};
use std::os::fd::BorrowedFd;

/// Describes this backend.
pub const BACKEND: Backend = Backend {
    scheme: "null",
    placeholder: "name",
    sentence: "never receives, discards all frames sent: for measuring senders",
    target: Target::Device,
    rx_options: &[],
    tx_options: &[],
    open_rx,
    open_tx,
    leaves_when_sent: |_, _| true,
};

/// Maximum number of queues of a port.
const MAX_QUEUES: u32 = 64;

/// Opens a port that never receives a frame.
fn open_rx(spec: &Spec, _: &RxOptions, _: &Registry) -> Result<RxPort, PortError> {
    let queue = |_| {
        let interfaces = [Interface::new(spec.target.clone(), LinkType::ETHERNET, StampSource::User)];
        Box::new(NullRx { interfaces, detached: false }) as Box<dyn RxQueue>
    };
    Ok(RxPort::new(spec.to_string(), numbers(spec, 1)?.map(queue).collect(), Feed::Clock))
}

/// Opens a port that discards all frames.
fn open_tx(spec: &Spec, options: &TxOptions, _: &Registry) -> Result<TxPort, PortError> {
    let name = spec.to_string();
    let queue = |number| {
        let subject = format!("null:{}@{number}", spec.target);
        Box::new(NullTx { subject, sent: Sent::default() }) as Box<dyn TxQueue>
    };
    let queues = numbers(spec, options.queues.max(1) as u32)?.map(queue).collect();
    Ok(TxPort { name, queues, monitor: None })
}

/// Returns the queues that the port names, or `count`.
fn numbers(spec: &Spec, count: u32) -> Result<std::ops::RangeInclusive<u32>, PortError> {
    match spec.queues.unwrap_or((0, count - 1)) {
        (first, last) if last < MAX_QUEUES => Ok(first..=last),
        _ => Err(PortError::wrong(spec.to_string(), format!("null ports support at most {MAX_QUEUES} queues"))),
    }
}

struct NullRx {
    interfaces: [Interface; 1],
    detached: bool,
}

impl RxQueue for NullRx {
    fn fill(&mut self, now: Nanos) -> Result<Head<'_>, PortError> {
        let horizon = if self.detached { Horizon::Ended } else { Horizon::At(now) };
        Ok(Head { burst: Burst::EMPTY, horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        assert!(frames == 0, "{frames} frames consumed, none shown");
    }

    fn detach(&mut self) {
        self.detached = true;
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self, _: &mut Ledger) {}
}

struct NullTx {
    subject: String,
    sent: Sent,
}

impl TxQueue for NullTx {
    fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
        self.sent.add(burst);
        Ok(burst.len())
    }

    fn sent(&self) -> Sent {
        self.sent
    }

    fn counters(&self, ledger: &mut Ledger) {
        let account = ledger.account(Stage::Send, &self.subject);
        account.add(Count::SendReceived, self.sent.frames).add(Count::Sent, self.sent.frames);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{open_rx, open_tx};
    use linerate_burst::{Block, Desc};

    #[test]
    fn sent_frames_are_counted_and_none_is_received() {
        let spec = Spec::parse("null:x").unwrap();
        let mut tx = open_tx(&spec, &TxOptions { queues: 2, ..TxOptions::default() }).unwrap();
        let mut rx = open_rx(&Spec::parse("null:x@0-2").unwrap(), &RxOptions::default()).unwrap();
        assert_eq!((tx.queues.len(), rx.queues.len()), (2, 3));
        let mut block = Block::new(1 << 20, 100);
        assert!((0..100).all(|_| block.push(&Desc::new(Nanos::ZERO, 0, 60), &[0; 60])));
        assert_eq!(tx.queues[1].send(block.burst()).unwrap(), 100);
        assert!(tx.queues[1].flush(Nanos::ZERO).unwrap());
        assert_eq!(tx.queues[1].sent(), Sent { frames: 100, bytes: 6000 });
        let mut ledger = Ledger::new();
        tx.queues.iter().for_each(|queue| queue.counters(&mut ledger));
        assert_eq!((ledger.total(Count::Sent), ledger.imbalances()), (100, Vec::new()));
        let head = rx.queues[0].fill(Nanos(7)).unwrap();
        assert_eq!((head.burst.len(), head.horizon), (0, Horizon::At(Nanos(7))));
        rx.queues[0].detach();
        assert_eq!(rx.queues[0].fill(Nanos(8)).unwrap().horizon, Horizon::Ended);
        let error = open_rx(&Spec::parse("null:x@64").unwrap(), &RxOptions::default()).err().unwrap();
        assert!(error.to_string().contains("at most 64 queues"), "{error}");
    }
}
