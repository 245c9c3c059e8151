//! Thread that admits readers of shared memory.

use crate::clock;
use crate::thread_panic::{ThreadPanic, survive};
use linerate_share::{Acceptor, Client};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Thread name.
const ACCEPTOR: &str = "linerate-accept";
/// Time that the acceptor waits for a client before it checks whether to close.
const ACCEPT_NAP: Duration = Duration::from_millis(20);
/// Delay for clients beyond those that the acceptor handles at once, so that unknown processes cannot decide how much
/// CPU time it takes.
const CROWD_NAP: Duration = Duration::from_micros(200);

/// A running acceptor; it closes when this is dropped.
pub(crate) struct AcceptorThread {
    close: Arc<AtomicBool>,
    refused: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<(), ThreadPanic>>>,
}

impl AcceptorThread {
    /// Starts admitting readers; they are also sent to the returned channel.
    pub(crate) fn start(mut acceptor: Acceptor) -> std::io::Result<(AcceptorThread, Receiver<Client>)> {
        let (let_in, clients) = channel();
        let (close, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (closed, counted) = (Arc::clone(&close), Arc::clone(&refused));
        let mut watch = move || {
            while !closed.load(Ordering::Relaxed) {
                acceptor.wait(ACCEPT_NAP);
                for client in acceptor.step(clock::now()) {
                    // At the end of the run the receiver is gone.
                    let _ = let_in.send(client);
                }
                counted.store(acceptor.refused(), Ordering::Relaxed);
                if acceptor.is_crowded() {
                    std::thread::sleep(CROWD_NAP);
                }
            }
        };
        let thread = std::thread::Builder::new().name(ACCEPTOR.into()).spawn(move || survive(&mut watch))?;
        Ok((AcceptorThread { close, refused, thread: Some(thread) }, clients))
    }

    /// Returns one that has panicked.
    #[cfg(test)]
    pub(crate) fn dead() -> AcceptorThread {
        let thread = std::thread::Builder::new().name(ACCEPTOR.into()).spawn(|| survive(|| panic!("a bug")));
        let thread = thread.expect("a thread");
        while !thread.is_finished() {
            std::thread::yield_now();
        }
        AcceptorThread { close: Arc::default(), refused: Arc::default(), thread: Some(thread) }
    }

    /// Returns whether the thread has ended without being closed.
    pub(crate) fn is_dead(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Returns the number of rejected readers.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Stops admitting readers; returns the panic of the thread, if any.
    pub(crate) fn close(&mut self) -> Option<ThreadPanic> {
        self.close.store(true, Ordering::Relaxed);
        self.thread.take()?.join().unwrap_or_else(|panic| Err(ThreadPanic::of(ACCEPTOR, &*panic))).err()
    }
}

impl Drop for AcceptorThread {
    fn drop(&mut self) {
        self.close();
    }
}
