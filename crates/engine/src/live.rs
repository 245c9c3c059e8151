//! Watching a port that generates frames itself.

use crate::thread_panic::ThreadPanic;
use linerate_port::{LiveControl, PortError, Sent, TxQueue};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Interval of `look`, which bounds the delay of a stop.
const LOOK: Duration = Duration::from_millis(2);

/// Runs a queue that generates frames, in a separate thread because that is one long system call, until the streams
/// have ended or `is_over`; passes the totals sent to `show`.
pub(crate) fn run(
    queue: &mut dyn TxQueue,
    control: &dyn LiveControl,
    is_over: impl Fn() -> bool,
    mut show: impl FnMut(Sent),
) -> Result<(), PortError> {
    let (watcher, ended) = (thread::current(), &AtomicBool::new(false));
    show(control.progress().sent);
    thread::scope(|scope| {
        let sender = scope.spawn(move || {
            let result = queue.live().map_or(Ok(()), |live| live.run());
            ended.store(true, Ordering::Release);
            watcher.unpark();
            result
        });
        let mut pause = LOOK;
        while !ended.load(Ordering::Acquire) && !sender.is_finished() {
            thread::park_timeout(pause);
            // Commands are applied before the check for the end.
            show(control.progress().sent);
            pause = control.look().min(LOOK);
            if is_over() {
                // Repeated, because the first time the call may not have started yet.
                control.stop();
            }
        }
        let result = sender.join().unwrap_or_else(|panic| {
            Err(PortError::broken("generate", ThreadPanic::of("linerate-live", &*panic).to_string()))
        });
        show(control.progress().sent);
        result
    })
}
