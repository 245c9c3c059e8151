//! Reception at a port: counts frames, checks them against the flows, and captures them if enabled.

use crate::capture::Captured;
use crate::devices::Devices;
use crate::top::Top;
use linerate_burst::Burst;
use linerate_engine::consumer::{Consumer, End, Look, Order, Round};
use linerate_engine::{Receive, ReceiveError, Stop};
use linerate_generate::Check;
use linerate_generate::check::Options;
use linerate_generate::trailer::Key;
use linerate_port::{RxPort, TxPort};
use linerate_wire::Link;
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
pub struct Heard {
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
    /// Captured frames.
    pub captured: Captured,
    /// Devices at the port.
    pub devices: Devices,
    /// Flow meter, while enabled.
    pub top: Option<Box<Top>>,
}

/// Port that receives until it is dropped.
pub struct Listener {
    heard: Arc<Mutex<Heard>>,
    looked: Arc<AtomicU64>,
    stop: Stop,
    failure: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<()>>,
}

/// Creates an empty account with memory for `room` streams.
pub fn account(key: Key, room: usize) -> Check {
    Check::new(key, Options { streams: room, verify: true })
}

impl Heard {
    fn new(check: Check, devices: Devices) -> Self {
        let (captured, losses) = (Captured::default(), BTreeMap::new());
        Heard { check, frames: 0, bytes: 0, losses, looks: 0, captured, devices, top: None }
    }
}

impl Listener {
    /// Starts the receiving thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(port: RxPort, answers: Result<TxPort, String>) -> std::io::Result<Self> {
        let devices = Devices::new(answers);
        let heard = Arc::new(Mutex::new(Heard::new(account(Key::default(), MOST_STREAMS), devices)));
        let receive = Receive::all(vec![port]);
        let stop = receive.stop.clone();
        let failure = Arc::new(Mutex::new(None));
        let (looked, failed) = (Arc::new(AtomicU64::new(0)), Arc::clone(&failure));
        let mut hearing = Hearing { heard: Arc::clone(&heard), looked: Arc::clone(&looked), turn_at: TURN };
        let thread = Builder::new().name("listen".into()).spawn(move || {
            let run = receive.run(&mut [&mut hearing]);
            *failed.lock().unwrap_or_else(PoisonError::into_inner) = run.failure.map(|failure| failure.to_string());
        })?;
        Ok(Listener { heard, looked, stop, failure, thread: Some(thread) })
    }

    /// Locks the received state; blocks the receiver while held.
    pub fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the received state for use while the port may move.
    pub(crate) fn shared(&self) -> Arc<Mutex<Heard>> {
        Arc::clone(&self.heard)
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
struct Hearing {
    heard: Arc<Mutex<Heard>>,
    looked: Arc<AtomicU64>,
    turn_at: Duration,
}

impl Consumer for Hearing {
    fn name(&self) -> &'static str {
        "serve"
    }

    /// Requires one order: polling several lanes in turn would look like reordering on the wire.
    fn order(&self) -> Order {
        Order::Merged
    }

    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        self.hear(round);
        self.looked.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn look(&mut self, look: &Look<'_>) {
        let losses = look.queues().losses();
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.losses = losses.into_iter().map(|(count, frames)| (count.name(), frames)).collect();
        heard.looks += 1;
    }

    fn finish(&mut self, _: &mut End<'_>) {}
}

impl Hearing {
    fn hear(&mut self, round: &mut Round<'_>) {
        if round.frames() == 0 && round.elapsed < self.turn_at {
            return;
        }
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let heard = &mut *heard;
        for burst in round.bursts {
            heard.frames += burst.len() as u64;
            heard.bytes += wire_bytes(burst);
        }
        let links: &[&[Option<Link>]] = round.links;
        if let Some(top) = &mut heard.top {
            round.bursts.iter().zip(links).for_each(|(burst, links)| top.take(*burst, links));
        }
        if let ([burst], [links]) = (round.bursts, links) {
            heard.check.take(*burst, links);
            if heard.captured.is_on() {
                (0..burst.len()).for_each(|index| heard.captured.add(&burst.descs()[index], burst.frame(index)));
            }
        } else {
            heard.check.take_picks(round.bursts, round.picks, links);
            if heard.captured.is_on() {
                for pick in round.picks {
                    let burst = round.bursts[pick.lane()];
                    heard.captured.add(&burst.descs()[pick.index()], burst.frame(pick.index()));
                }
            }
        }
        if round.elapsed >= self.turn_at {
            heard.check.turn();
            if let Some(top) = &mut heard.top {
                top.expire(round.now);
            }
            self.turn_at = round.elapsed + TURN;
        }
        heard.devices.hear(round);
    }
}

fn wire_bytes(burst: &Burst<'_>) -> u64 {
    burst.descs().iter().map(|desc| u64::from(desc.wire)).sum()
}
