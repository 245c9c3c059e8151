//! The sending queue: frames copied and sent in batches, or streams.

use super::interface::{Interface, LEAST_FRAME};
use super::loaded_streams::LoadedStreams;
use super::ring::Ring;
use super::shared_state::LiveCounts;
use crate::sys::bpf::Map;
use linerate_burst::{Burst, Count, Ledger, Nanos, Stage};
use linerate_generate::stream::StreamSet;
use linerate_port::{LiveControl, LiveSender, PortError, Sent, TxQueue, Unable};
use std::any::Any;
use std::io;
use std::sync::Arc;

/// The only send queue of a port: the kernel sends from the processor of the calling thread.
pub(super) struct XdpLiveTx {
    interface: Arc<Interface>,
    devmap: Map,
    what: FrameSource,
    counts: SendCounts,
}

/// Source of the queue's frames.
enum FrameSource {
    Frames(Ring),
    Streams(LoadedStreams),
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
    /// Creates a queue for the interface in `devmap`.
    pub(super) fn new(interface: Interface, devmap: Map) -> io::Result<Self> {
        let ring = Ring::new(&devmap)?;
        let interface = interface.limited(ring.longest_live());
        let what = FrameSource::Frames(ring);
        Ok(XdpLiveTx { interface: Arc::new(interface), devmap, what, counts: SendCounts::default() })
    }

    fn run(&mut self) -> Result<(), PortError> {
        let FrameSource::Frames(ring) = &mut self.what else { return Ok(()) };
        if ring.waiting() == 0 {
            return Ok(());
        }
        self.interface.longest()?;
        let (before, bytes) = (ring.counts(), ring.bytes());
        let result = ring.run();
        let after = ring.counts();
        self.counts.add_sent(before, after, bytes);
        result.map_err(|error| self.interface.explain(&error))?;
        self.interface.check_counts(ring.state(), before, after)
    }
}

impl SendCounts {
    /// Adds the frames that were sent. The driver does not report which frames it dropped: they are assumed to have the
    /// mean length.
    fn add_sent(&mut self, before: LiveCounts, after: LiveCounts, bytes: u64) {
        let (frames, made) = (after.sent - before.sent, after.made - before.made);
        self.sent.frames += frames;
        self.sent.bytes += (u128::from(bytes) * u128::from(frames) / u128::from(made.max(1))) as u64;
    }
}

impl TxQueue for XdpLiveTx {
    fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
        let FrameSource::Frames(ring) = &mut self.what else {
            return Err(PortError::broken(self.interface.port(), "the queue generates its frames and accepts none"));
        };
        let longest = self.interface.longest()?;
        let mut done = 0;
        for (_, frame) in burst.iter() {
            if frame.len() < LEAST_FRAME {
                self.counts.too_short += 1;
            } else if !Interface::fits(frame, longest) {
                self.counts.too_long += 1;
            } else if !ring.push(frame) {
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
        self.run()?;
        Ok(true)
    }

    fn sent(&self) -> Sent {
        match &self.what {
            FrameSource::Frames(_) => self.counts.sent,
            FrameSource::Streams(streams) => streams.progress().sent,
        }
    }

    fn counters(&self, ledger: &mut Ledger) {
        let counts = &self.counts;
        let account = ledger.account(Stage::Send, self.interface.port());
        let kernel = match &self.what {
            FrameSource::Frames(ring) => {
                account.add(Count::SendReceived, counts.received).add(Count::SendUnsent, ring.waiting() as u64);
                // Frames that the program could not make were handed over too.
                LiveCounts { made: ring.counts().made + ring.counts().failed, ..ring.counts() }
            }
            FrameSource::Streams(streams) => {
                account.add(Count::SendReceived, streams.counts().made);
                streams.counts()
            }
        };
        account.add(Count::TooLong, counts.too_long + kernel.too_long).add(Count::TooShort, counts.too_short);
        account.add(Count::Sent, kernel.sent).add(Count::SendDropped, kernel.dropped);
        account.add(Count::SendRefused, kernel.refused()).add(Count::SendFull, counts.full);
    }

    fn live(&mut self) -> Option<&mut dyn LiveSender> {
        Some(self)
    }
}

impl XdpLiveTx {
    fn prepare_any(&mut self, streams: &dyn Any, is_commanded: bool) -> Result<Arc<dyn LiveControl>, PortError> {
        let Some(set) = streams.downcast_ref::<StreamSet>() else {
            let reason = Unable::Make("it generates frames only from a set of streams".into());
            return Err(PortError::Unable { port: self.interface.port().into(), reason });
        };
        if self.counts.received > 0 {
            return Err(PortError::broken(
                self.interface.port(),
                "the queue has already sent frames; open another for streams",
            ));
        }
        let prepared = LoadedStreams::new(set, is_commanded, &self.interface, &self.devmap)?;
        let control = prepared.control();
        self.what = FrameSource::Streams(prepared);
        Ok(control)
    }
}

impl LiveSender for XdpLiveTx {
    fn longest(&self) -> usize {
        self.interface.longest_live()
    }

    fn prepare(&mut self, streams: &dyn Any) -> Result<Arc<dyn LiveControl>, PortError> {
        self.prepare_any(streams, false)
    }

    fn prepare_commanded(&mut self, streams: &dyn Any) -> Result<Arc<dyn LiveControl>, PortError> {
        self.prepare_any(streams, true)
    }

    fn run(&mut self) -> Result<(), PortError> {
        match &self.what {
            FrameSource::Streams(streams) => streams.run(&self.interface),
            FrameSource::Frames(_) => Err(PortError::broken(self.interface.port(), "no streams were prepared")),
        }
    }
}
