//! Reception at a port: counts frames, checks them against the flows, and captures them if enabled.

use crate::capture::CaptureBuffer;
use crate::devices::Devices;
use crate::top::LiveFlows;
use linerate_burst::Burst;
use linerate_engine::consumer::{Consumer, FrameOrder, Round, RunCounters, RunEnd};
use linerate_engine::{Receive, ReceiveError, Stop};
use linerate_generate::Check;
use linerate_generate::check::Options;
use linerate_generate::trailer::Key;
use linerate_headers::Link;
use linerate_port::{RxPort, TxPort};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Interval at which the ages of missing frames are checked.
const TURN: Duration = linerate_generate::check::TURN;
/// Maximum number of streams at a port: 2 KB each from its first frame. Their key is random, so that other senders
/// cannot create any.
pub(crate) const MOST_STREAMS: usize = 1 << 17;

/// Received frames of a port.
pub struct PortReception {
    /// Accounts of the flows.
    pub check: Check,
    /// Frames received.
    pub frames: u64,
    /// Bytes of these frames, without FCS.
    pub bytes: u64,
    /// Losses of the port since it was opened, by cause, at the last poll.
    pub losses: BTreeMap<&'static str, u64>,
    /// Number of polls.
    pub looks: u64,
    /// The captured frames.
    pub captured: CaptureBuffer,
    /// Devices at the port.
    pub devices: Devices,
    /// Flow meter, while enabled.
    pub top: Option<Box<LiveFlows>>,
}

/// Port that receives until it is dropped.
pub struct Listener {
    reception: Arc<Mutex<PortReception>>,
    looked: Arc<AtomicU64>,
    stop: Stop,
    failure: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<()>>,
}

/// Creates an empty account with memory for `room` streams.
pub fn account(key: Key, room: usize) -> Check {
    Check::new(key, Options { streams: room, verify: true })
}

impl PortReception {
    fn new(check: Check, devices: Devices) -> Self {
        let (captured, losses) = (CaptureBuffer::default(), BTreeMap::new());
        PortReception { check, frames: 0, bytes: 0, losses, looks: 0, captured, devices, top: None }
    }
}

impl Listener {
    /// Starts the receiving thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(port: RxPort, answers: Result<TxPort, String>) -> std::io::Result<Self> {
        let devices = Devices::new(answers);
        let reception = Arc::new(Mutex::new(PortReception::new(account(Key::default(), MOST_STREAMS), devices)));
        let receive = Receive::all(vec![port]);
        let stop = receive.stop.clone();
        let failure = Arc::new(Mutex::new(None));
        let (looked, failed) = (Arc::new(AtomicU64::new(0)), Arc::clone(&failure));
        let mut hearing =
            PortConsumer { reception: Arc::clone(&reception), looked: Arc::clone(&looked), turn_at: TURN };
        let thread = Builder::new().name("listen".into()).spawn(move || {
            let run = receive.run(&mut [&mut hearing]);
            *failed.lock().unwrap_or_else(PoisonError::into_inner) = run.failure.map(|failure| failure.to_string());
        })?;
        Ok(Listener { reception, looked, stop, failure, thread: Some(thread) })
    }

    /// Locks the received state; blocks the receiver while held.
    pub fn reception(&self) -> MutexGuard<'_, PortReception> {
        self.reception.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the received state for use while the port may move.
    pub(crate) fn shared(&self) -> Arc<Mutex<PortReception>> {
        Arc::clone(&self.reception)
    }

    /// Returns the number of polls. Until it grows, the state of the port is unknown.
    pub fn looked(&self) -> u64 {
        self.looked.load(Ordering::Acquire)
    }

    /// Returns the reason why reception has stopped, if so.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Consumer of received frames.
struct PortConsumer {
    reception: Arc<Mutex<PortReception>>,
    looked: Arc<AtomicU64>,
    turn_at: Duration,
}

impl Consumer for PortConsumer {
    fn name(&self) -> &'static str {
        "serve"
    }

    /// Requires one order: polling several lanes in turn would look like reordering on the wire.
    fn order(&self) -> FrameOrder {
        FrameOrder::Merged
    }

    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        self.receive(round);
        self.looked.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn look(&mut self, look: &RunCounters<'_>) {
        let losses = look.queues().losses();
        let mut reception = self.reception.lock().unwrap_or_else(PoisonError::into_inner);
        reception.losses = losses.into_iter().map(|(count, frames)| (count.name(), frames)).collect();
        reception.looks += 1;
    }

    fn finish(&mut self, _: &mut RunEnd<'_>) {}
}

impl PortConsumer {
    fn receive(&mut self, round: &mut Round<'_>) {
        if round.frames() == 0 && round.elapsed < self.turn_at {
            return;
        }
        let mut reception = self.reception.lock().unwrap_or_else(PoisonError::into_inner);
        let reception = &mut *reception;
        for burst in round.bursts {
            reception.frames += burst.len() as u64;
            reception.bytes += wire_bytes(burst);
        }
        let links: &[&[Option<Link>]] = round.links;
        if let Some(top) = &mut reception.top {
            round.bursts.iter().zip(links).for_each(|(burst, links)| top.take(*burst, links));
        }
        if let ([burst], [links]) = (round.bursts, links) {
            reception.check.take(*burst, links);
            if reception.captured.is_on() {
                (0..burst.len()).for_each(|index| reception.captured.add(&burst.descs()[index], burst.frame(index)));
            }
        } else {
            reception.check.take_picks(round.bursts, round.picks, links);
            if reception.captured.is_on() {
                for pick in round.picks {
                    let burst = round.bursts[pick.lane()];
                    reception.captured.add(&burst.descs()[pick.index()], burst.frame(pick.index()));
                }
            }
        }
        if round.elapsed >= self.turn_at {
            reception.check.turn();
            if let Some(top) = &mut reception.top {
                top.expire(round.now);
            }
            self.turn_at = round.elapsed + TURN;
        }
        reception.devices.receive(round);
    }
}

fn wire_bytes(burst: &Burst<'_>) -> u64 {
    burst.descs().iter().map(|desc| u64::from(desc.wire)).sum()
}
