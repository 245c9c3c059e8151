//! Rings the bell of a peer in a thread that nothing waits for.
//!
//! The peer makes the eventfd, and its flags are shared: it can clear `O_NONBLOCK` and fill the counter between any check and the
//! write, which then waits for as long as the peer likes. The kernel has no write to an eventfd that never waits.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Builder, Thread};

/// Threads of this process at most; those that wait in the bells of earlier peers count.
const MAX_RINGERS: usize = 512;

static RINGERS: AtomicUsize = AtomicUsize::new(0);

/// A bell, until it is dropped.
#[derive(Debug)]
pub(super) struct Ringer {
    wish: Arc<Wish>,
    thread: Thread,
}

#[derive(Debug, Default)]
struct Wish {
    to_ring: AtomicBool,
    to_end: AtomicBool,
}

/// Counts one thread.
struct Counted;

impl Ringer {
    /// Starts the thread, which calls `ring` for each wish, or for several at once.
    pub(super) fn start(mut ring: impl FnMut() + Send + 'static) -> io::Result<Self> {
        let before = RINGERS.fetch_add(1, Ordering::Relaxed);
        let counted = Counted;
        if before >= MAX_RINGERS {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let wish = Arc::<Wish>::default();
        let wished = Arc::clone(&wish);
        let run = move || {
            let _counted = counted;
            // The sender may be bound to a processor that it does not leave.
            let mut all = CpuSet::new();
            (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
            let _ = sched_setaffinity(None, &all);
            loop {
                if wished.to_ring.swap(false, Ordering::AcqRel) {
                    ring();
                } else if wished.to_end.load(Ordering::Acquire) {
                    return;
                } else {
                    thread::park();
                }
            }
        };
        let thread = Builder::new().name("memif-bell".into()).spawn(run)?.thread().clone();
        Ok(Ringer { wish, thread })
    }

    /// Has the bell rung soon; never waits.
    #[inline]
    pub(super) fn ring(&self) {
        if !self.wish.to_ring.swap(true, Ordering::AcqRel) {
            self.thread.unpark();
        }
    }
}

impl Drop for Ringer {
    fn drop(&mut self) {
        self.wish.to_end.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        RINGERS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_bell_that_waits_holds_nobody_up() {
        let (entered, enters) = channel();
        let (release, wait) = channel::<()>();
        let ringer = Ringer::start(move || {
            let _ = entered.send(());
            let _ = wait.recv();
        });
        let ringer = ringer.unwrap();
        ringer.ring();
        enters.recv().unwrap();
        for _ in 0..1000 {
            ringer.ring();
        }
        // The last wish is kept, whatever comes after it.
        drop(ringer);
        drop(release);
        enters.recv().unwrap();
        assert!(enters.recv().is_err(), "the thread ends");
    }
}
