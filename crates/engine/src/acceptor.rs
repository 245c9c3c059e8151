//! The thread in which readers of shared memory come in.

use crate::clock;
use crate::died::{Died, survive};
use linerate_share::{Acceptor, Client};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// What it is called.
const ACCEPTOR: &str = "linerate-accept";
/// How long the acceptor waits for somebody before it looks whether it should close.
const ACCEPT_NAP: Duration = Duration::from_millis(20);
/// How long those wait who come while more knock than the acceptor deals with at once, so that strangers do not decide how much of
/// a processor it takes.
const CROWD_NAP: Duration = Duration::from_micros(200);

/// An acceptor at work; it closes when this is dropped.
pub(crate) struct AcceptorThread {
    close: Arc<AtomicBool>,
    refused: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<(), Died>>>,
}

impl AcceptorThread {
    /// Lets readers in from now on; they come out of what is returned too.
    pub(crate) fn start(mut acceptor: Acceptor) -> std::io::Result<(AcceptorThread, Receiver<Client>)> {
        let (let_in, clients) = channel();
        let (close, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (closed, counted) = (Arc::clone(&close), Arc::clone(&refused));
        let mut watch = move || {
            while !closed.load(Ordering::Relaxed) {
                acceptor.wait(ACCEPT_NAP);
                for client in acceptor.step(clock::now()) {
                    // At the end of the run nobody is admitted any more.
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

    /// One that has died of a bug.
    #[cfg(test)]
    pub(crate) fn dead() -> AcceptorThread {
        let thread = std::thread::Builder::new().name(ACCEPTOR.into()).spawn(|| survive(|| panic!("a bug")));
        let thread = thread.expect("a thread");
        while !thread.is_finished() {
            std::thread::yield_now();
        }
        AcceptorThread { close: Arc::default(), refused: Arc::default(), thread: Some(thread) }
    }

    /// Whether the thread is gone, though nobody closed the acceptor.
    pub(crate) fn is_dead(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Readers that were not let in.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Nobody comes in any more; of what the thread had died, if it had.
    pub(crate) fn close(&mut self) -> Option<Died> {
        self.close.store(true, Ordering::Relaxed);
        self.thread.take()?.join().unwrap_or_else(|panic| Err(Died::of(ACCEPTOR, &*panic))).err()
    }
}

impl Drop for AcceptorThread {
    fn drop(&mut self) {
        self.close();
    }
}
