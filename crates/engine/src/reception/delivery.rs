//! Finished frames to their destination, here or in a thread of its own, and back.
//!
//! A frame is owned by whoever has it. There are as many as the pool has, so nothing more bounds what is on its way; a destination
//! that is slow keeps frames, and the window of the senders closes. After a failure frames come back unused, and are counted.

use crate::consumer::End;
use crate::died::{Died, survive};
use crate::frame_ring::SharedFrames;
use linerate_burst::{Count, Stage};
use linerate_receive::destination::{Destination, DestinationError};
use linerate_receive::frames::Frame;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

/// How many frames are with a destination: one that it works on, and the next.
const MOST_OUT: u64 = 2;

/// Who hands frames to a destination.
pub(super) struct Delivery {
    way: Way,
    /// Frames handed over that have not come back.
    out: u64,
    failed: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
    given: u64,
}

enum Way {
    Here(Guarded),
    Apart {
        to: Sender<Frame>,
        back: Receiver<Frame>,
        thread: JoinHandle<Guarded>,
    },
    /// For another process.
    Shared(Box<SharedFrames>),
    /// Only while it changes.
    Nowhere,
}

/// A destination that may have failed.
struct Guarded {
    destination: Box<dyn Destination>,
    failure: Option<DestinationError>,
    died: Option<Died>,
    failed: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
}

impl Guarded {
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
    /// In the thread that hands over.
    pub(super) fn here(destination: Box<dyn Destination>) -> Delivery {
        let (failed, lost): (Arc<AtomicBool>, Arc<AtomicU64>) = Default::default();
        let guarded =
            Guarded { destination, failure: None, died: None, failed: Arc::clone(&failed), lost: Arc::clone(&lost) };
        Delivery { way: Way::Here(guarded), out: 0, failed, lost, given: 0 }
    }

    /// To another process, in the thread that hands over.
    pub(super) fn shared(frames: SharedFrames) -> Delivery {
        let (failed, lost) = Default::default();
        Delivery { way: Way::Shared(Box::new(frames)), out: 0, failed, lost, given: 0 }
    }

    /// In a thread of its own from now on.
    pub(super) fn apart(mut self) -> Result<Delivery, std::io::Error> {
        let mut guarded = match std::mem::replace(&mut self.way, Way::Nowhere) {
            Way::Here(guarded) => guarded,
            other => return Ok(Delivery { way: other, ..self }),
        };
        let (to, taken) = channel::<Frame>();
        let (back, returned) = channel();
        let thread = Builder::new().name("frames".into()).spawn(move || {
            for frame in taken {
                guarded.accept(&frame);
                // At the end nobody wants it back.
                let _ = back.send(frame);
            }
            guarded
        })?;
        self.way = Way::Apart { to, back: returned, thread };
        Ok(self)
    }

    /// Hands a frame over; it comes back at once where nobody keeps it.
    pub(super) fn hand_over(&mut self, frame: Frame) -> Option<Frame> {
        self.given += 1;
        match &mut self.way {
            Way::Here(guarded) => {
                guarded.accept(&frame);
                Some(frame)
            }
            Way::Apart { to, .. } => {
                // The thread ends when it is told to, whatever happens to a frame.
                let unsent = to.send(frame).err().map(|unsent| unsent.0);
                self.out += u64::from(unsent.is_none());
                unsent
            }
            Way::Shared(shared) => {
                shared.hand_over(frame);
                None
            }
            Way::Nowhere => Some(frame),
        }
    }

    /// Whether it may have one more now.
    pub(super) fn has_room(&self) -> bool {
        match &self.way {
            Way::Shared(shared) => shared.has_room(),
            _ => self.out < MOST_OUT,
        }
    }

    /// What is to be done at the end of a burst.
    pub(super) fn tick(&mut self) {
        if let Way::Shared(shared) = &mut self.way {
            shared.tick();
        }
    }

    /// A frame that is needed no more.
    pub(super) fn returned(&mut self) -> Option<Frame> {
        match &mut self.way {
            Way::Apart { back, .. } => {
                let frame = back.try_recv().ok()?;
                self.out -= 1;
                Some(frame)
            }
            Way::Shared(shared) => shared.returned(),
            Way::Here(_) | Way::Nowhere => None,
        }
    }

    /// Frames that are still to come back.
    pub(super) fn out(&self) -> u64 {
        if let Way::Shared(shared) = &self.way { shared.out() } else { self.out }
    }

    /// Whether frames go nowhere any more.
    pub(super) fn has_failed(&self) -> bool {
        let is_shut = matches!(&self.way, Way::Shared(shared) if shared.has_failed());
        is_shut || self.failed.load(Ordering::Relaxed)
    }

    /// The last frames are on their way: waits for them, and completes what the destination has begun.
    pub(super) fn finish(&mut self, end: &mut End<'_>) {
        let mut guarded = match std::mem::replace(&mut self.way, Way::Nowhere) {
            Way::Here(guarded) => guarded,
            Way::Apart { to, back, thread } => {
                drop(to);
                // Nobody needs the memory any more.
                back.into_iter().for_each(drop);
                self.out = 0;
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
            Way::Shared(mut shared) => return shared.finish(end),
            Way::Nowhere => return,
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
        self.way = Way::Here(guarded);
    }

    /// Where frames went, once all is over.
    pub(super) fn into_destination(self) -> Option<Box<dyn Destination>> {
        match self.way {
            Way::Here(guarded) => Some(guarded.destination),
            _ => None,
        }
    }
}
