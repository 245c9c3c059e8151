//! Delivery of finished frames to their destination, in this thread or a separate one, and back.
//!
//! A frame has one owner. The size of the pool is the only bound of frames in transit; a slow destination keeps frames,
//! and the window of the senders closes. After a failure frames are returned unused, and are counted.

use crate::consumer::RunEnd;
use crate::frame_ring::SharedFrames;
use crate::thread_panic::{ThreadPanic, survive};
use linerate_burst::{Count, Stage};
use linerate_transport::destination::{Destination, DestinationError};
use linerate_transport::frames::Frame;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

/// Maximum number of frames at a destination: one in progress, and the next.
const MOST_OUT: u64 = 2;

/// Passes frames to a destination.
pub(super) struct Delivery {
    way: DeliveryRoute,
    /// Number of frames passed on that have not returned.
    out: u64,
    failed: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
    given: u64,
}

enum DeliveryRoute {
    Here(GuardedDestination),
    Apart {
        to: Sender<Frame>,
        back: Receiver<Frame>,
        thread: JoinHandle<GuardedDestination>,
    },
    /// In shared memory, for another process.
    Shared(Box<SharedFrames>),
    /// Only during a change.
    Nowhere,
}

/// A destination that may have failed.
struct GuardedDestination {
    destination: Box<dyn Destination>,
    failure: Option<DestinationError>,
    died: Option<ThreadPanic>,
    failed: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
}

impl GuardedDestination {
    fn accept(&mut self, frame: &Frame) {
        if self.failed.load(Ordering::Relaxed) {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        match survive(|| self.destination.accept(frame)) {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => self.failure = Some(failure),
            Err(died) => self.died = Some(died),
        }
        self.lost.fetch_add(1, Ordering::Relaxed);
        self.failed.store(true, Ordering::Relaxed);
    }

    fn finish(&mut self) {
        if self.died.is_some() {
            return;
        }
        match survive(|| self.destination.finish()) {
            Ok(result) => self.failure = self.failure.take().or(result.err()),
            Err(died) => self.died = Some(died),
        }
    }
}

impl Delivery {
    /// Calls the destination in this thread.
    pub(super) fn here(destination: Box<dyn Destination>) -> Delivery {
        let (failed, lost): (Arc<AtomicBool>, Arc<AtomicU64>) = Default::default();
        let guarded = GuardedDestination {
            destination,
            failure: None,
            died: None,
            failed: Arc::clone(&failed),
            lost: Arc::clone(&lost),
        };
        Delivery { way: DeliveryRoute::Here(guarded), out: 0, failed, lost, given: 0 }
    }

    /// Passes frames to another process, from this thread.
    pub(super) fn shared(frames: SharedFrames) -> Delivery {
        let (failed, lost) = Default::default();
        Delivery { way: DeliveryRoute::Shared(Box::new(frames)), out: 0, failed, lost, given: 0 }
    }

    /// Moves the destination to a separate thread.
    pub(super) fn apart(mut self) -> Result<Delivery, std::io::Error> {
        let mut guarded = match std::mem::replace(&mut self.way, DeliveryRoute::Nowhere) {
            DeliveryRoute::Here(guarded) => guarded,
            other => return Ok(Delivery { way: other, ..self }),
        };
        let (to, taken) = channel::<Frame>();
        let (back, returned) = channel();
        let thread = Builder::new().name("frames".into()).spawn(move || {
            for frame in taken {
                guarded.accept(&frame);
                // At the end the receiver is gone.
                let _ = back.send(frame);
            }
            guarded
        })?;
        self.way = DeliveryRoute::Apart { to, back: returned, thread };
        Ok(self)
    }

    /// Passes a frame on; returns it at once if it is not kept.
    pub(super) fn hand_over(&mut self, frame: Frame) -> Option<Frame> {
        self.given += 1;
        match &mut self.way {
            DeliveryRoute::Here(guarded) => {
                guarded.accept(&frame);
                Some(frame)
            }
            DeliveryRoute::Apart { to, .. } => {
                // The thread ends when its channel closes, whatever happens to a frame.
                let unsent = to.send(frame).err().map(|unsent| unsent.0);
                self.out += u64::from(unsent.is_none());
                unsent
            }
            DeliveryRoute::Shared(shared) => {
                shared.hand_over(frame);
                None
            }
            DeliveryRoute::Nowhere => Some(frame),
        }
    }

    /// Returns whether the destination can take one more.
    pub(super) fn has_room(&self) -> bool {
        match &self.way {
            DeliveryRoute::Shared(shared) => shared.has_room(),
            _ => self.out < MOST_OUT,
        }
    }

    /// Does periodic work; to be called at the end of a burst.
    pub(super) fn tick(&mut self) {
        if let DeliveryRoute::Shared(shared) = &mut self.way {
            shared.tick();
        }
    }

    /// Returns an unused frame.
    pub(super) fn returned(&mut self) -> Option<Frame> {
        match &mut self.way {
            DeliveryRoute::Apart { back, .. } => {
                let frame = back.try_recv().ok()?;
                self.out -= 1;
                Some(frame)
            }
            DeliveryRoute::Shared(shared) => shared.returned(),
            DeliveryRoute::Here(_) | DeliveryRoute::Nowhere => None,
        }
    }

    /// Returns the number of frames still to be returned.
    pub(super) fn out(&self) -> u64 {
        if let DeliveryRoute::Shared(shared) = &self.way { shared.out() } else { self.out }
    }

    /// Returns whether the destination has failed.
    pub(super) fn has_failed(&self) -> bool {
        let is_shut = matches!(&self.way, DeliveryRoute::Shared(shared) if shared.has_failed());
        is_shut || self.failed.load(Ordering::Relaxed)
    }

    /// Waits for the last frames, and finishes the destination.
    pub(super) fn finish(&mut self, end: &mut RunEnd<'_>) {
        let mut guarded = match std::mem::replace(&mut self.way, DeliveryRoute::Nowhere) {
            DeliveryRoute::Here(guarded) => guarded,
            DeliveryRoute::Apart { to, back, thread } => {
                drop(to);
                // The memory is not needed any more.
                back.into_iter().for_each(drop);
                self.out = 0;
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
            DeliveryRoute::Shared(mut shared) => return shared.finish(end),
            DeliveryRoute::Nowhere => return,
        };
        guarded.finish();
        let lost = self.lost.load(Ordering::Relaxed);
        let reason = if guarded.died.is_some() { Count::StoreDied } else { Count::StoreFailed };
        let account = end.ledger.account(Stage::Store, "");
        account.add(Count::StoreReceived, self.given).add(Count::Stored, self.given - lost).add(reason, lost);
        if let Some(failure) = guarded.failure.take() {
            end.fail(failure);
        }
        if let Some(died) = guarded.died.take() {
            end.fail(died);
        }
        self.way = DeliveryRoute::Here(guarded);
    }

    /// Returns the destination after the end.
    pub(super) fn into_destination(self) -> Option<Box<dyn Destination>> {
        match self.way {
            DeliveryRoute::Here(guarded) => Some(guarded.destination),
            _ => None,
        }
    }
}
