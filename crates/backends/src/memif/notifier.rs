//! Rings the bell of a peer in a thread, so that the sender never waits.
//!
//! The peer creates the eventfd, and its flags are shared: it can clear `O_NONBLOCK` and fill the counter between any
//! check and the write, which then blocks as long as the peer likes. The kernel has no write to an eventfd that never
//! blocks.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Builder, Thread};

/// Maximum number of threads in this process, including those blocked on the eventfds of earlier peers.
const MAX_RINGERS: usize = 512;

static RINGERS: AtomicUsize = AtomicUsize::new(0);

/// A thread that rings until this is dropped.
#[derive(Debug)]
pub(super) struct Ringer {
    request: Arc<Request>,
    thread: Thread,
}

#[derive(Debug, Default)]
struct Request {
    to_ring: AtomicBool,
    to_end: AtomicBool,
}

/// Counts a thread.
struct RingerGuard;

impl Ringer {
    /// Starts the thread, which calls `ring` once for one or more requests.
    pub(super) fn start(mut ring: impl FnMut() + Send + 'static) -> io::Result<Self> {
        let before = RINGERS.fetch_add(1, Ordering::Relaxed);
        let counted = RingerGuard;
        if before >= MAX_RINGERS {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let request = Arc::<Request>::default();
        let shared = Arc::clone(&request);
        let run = move || {
            let _counted = counted;
            // The sender may be pinned to a processor that it keeps busy.
            let mut all = CpuSet::new();
            (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
            let _ = sched_setaffinity(None, &all);
            loop {
                if shared.to_ring.swap(false, Ordering::AcqRel) {
                    ring();
                } else if shared.to_end.load(Ordering::Acquire) {
                    return;
                } else {
                    thread::park();
                }
            }
        };
        let thread = Builder::new().name("memif-bell".into()).spawn(run)?.thread().clone();
        Ok(Ringer { request, thread })
    }

    /// Requests a ring; never waits.
    #[inline]
    pub(super) fn ring(&self) {
        if !self.request.to_ring.swap(true, Ordering::AcqRel) {
            self.thread.unpark();
        }
    }
}

impl Drop for Ringer {
    fn drop(&mut self) {
        self.request.to_end.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Drop for RingerGuard {
    fn drop(&mut self) {
        RINGERS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn full_eventfd_does_not_block_the_sender() {
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
        // The last request is kept.
        drop(ringer);
        drop(release);
        enters.recv().unwrap();
        assert!(enters.recv().is_err(), "the thread ends");
    }
}
