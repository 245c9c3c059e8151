//! The sending queue: frames copied and sent a call at a time, or a plan.

use super::interface::{Interface, LEAST_FRAME};
use super::planned::Planned;
use super::ring::Ring;
use super::words::Counts;
use crate::backends::sys::bpf::Map;
use crate::contract::{LiveControl, LiveSender, PortError, Sent, TxQueue};
use crate::live::Plan;
use linerate_burst::{Burst, Count, Ledger, Nanos, Stage};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The one send queue of a port: the kernel sends from the processor that the calling thread runs on.
pub struct XdpLiveTx {
    interface: Arc<Interface>,
    devmap: Map,
    ring: Ring,
    plan: Option<Planned>,
    counts: SendCounts,
}

#[derive(Default)]
struct SendCounts {
    received: u64,
    sent: Sent,
    too_long: u64,
    too_short: u64,
    full: u64,
}

impl XdpLiveTx {
    /// A queue for the interface in `devmap`.
    pub fn new(interface: Interface, devmap: Map) -> io::Result<Self> {
        let ring = Ring::new(&devmap)?;
        let counts = SendCounts::default();
        Ok(XdpLiveTx { interface: Arc::new(interface), devmap, ring, plan: None, counts })
    }

    fn run(&mut self) -> Result<(), PortError> {
        if self.ring.waiting() == 0 {
            return Ok(());
        }
        let (before, bytes) = (self.ring.counts(), self.ring.bytes());
        let result = self.ring.run();
        let after = self.ring.counts();
        self.count(before, after, bytes);
        result.map_err(|error| self.interface.explain(&error))?;
        self.interface.judge(self.ring.state(), before, after)
    }

    /// Notes what was sent. Which of the frames the driver dropped it does not say: their bytes are taken to be the
    /// mean.
    fn count(&mut self, before: Counts, after: Counts, bytes: u64) {
        let (frames, made) = (after.sent - before.sent, after.made - before.made);
        self.counts.sent.frames += frames;
        self.counts.sent.bytes += (u128::from(bytes) * u128::from(frames) / u128::from(made.max(1))) as u64;
    }
}

impl TxQueue for XdpLiveTx {
    fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
        if self.plan.is_some() {
            return Err(PortError::broken(self.interface.port(), "the queue is sending a plan and takes no frames"));
        }
        let longest = self.interface.longest()?;
        let mut done = 0;
        for (_, frame) in burst.iter() {
            if frame.len() < LEAST_FRAME {
                self.counts.too_short += 1;
            } else if !Interface::fits(frame, longest) {
                self.counts.too_long += 1;
            } else if !self.ring.push(frame) {
                self.counts.full += 1;
                break;
            }
            done += 1;
        }
        self.counts.received += done as u64;
        if done < burst.len() {
            self.run()?;
        }
        Ok(done)
    }

    fn flush(&mut self, _now: Nanos) -> Result<bool, PortError> {
        if self.ring.waiting() > 0 {
            self.interface.longest()?;
        }
        self.run()?;
        Ok(true)
    }

    fn sent(&self) -> Sent {
        self.plan.as_ref().map_or(self.counts.sent, |plan| plan.progress().sent)
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self, ledger: &mut Ledger) {
        let (counts, ring) = (&self.counts, self.ring.counts());
        let planned = self.plan.as_ref().map(Planned::counts).unwrap_or_default();
        let account = ledger.account(Stage::Send, self.interface.port());
        account.add(Count::SendReceived, counts.received + planned.made);
        account.add(Count::Sent, ring.sent + planned.sent);
        account.add(Count::TooLong, counts.too_long).add(Count::TooShort, counts.too_short);
        account.add(Count::SendDropped, ring.dropped + planned.dropped);
        account.add(Count::SendRefused, ring.refused() + ring.failed + planned.refused());
        account.add(Count::SendUnsent, self.ring.waiting() as u64).add(Count::SendFull, counts.full);
    }

    fn live(&mut self) -> Option<&mut dyn LiveSender> {
        Some(self)
    }
}

impl LiveSender for XdpLiveTx {
    fn prepare(&mut self, plan: &Plan) -> Result<Arc<dyn LiveControl>, PortError> {
        let planned = Planned::new(plan, &self.interface, &self.devmap)?;
        let control = planned.control();
        self.plan = Some(planned);
        Ok(control)
    }

    fn run(&mut self) -> Result<(), PortError> {
        let broken = || PortError::broken(self.interface.port(), "no plan was prepared");
        self.plan.as_ref().ok_or_else(broken)?.run(&self.interface)
    }
}
