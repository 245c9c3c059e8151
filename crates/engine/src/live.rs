//! Watching a port that makes frames itself.

use crate::died::Died;
use linerate_port::{LiveControl, PortError, Sent, TxQueue};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How often the streams are looked after: so soon it stops.
const LOOK: Duration = Duration::from_millis(2);

/// Has a queue make its frames, in a thread of its own because that is one long system call, until they have ended or
/// `is_over`; tells `show` what was sent so far.
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
            // First what streams are told, then whether they are to do it.
            show(control.progress().sent);
            pause = control.look().min(LOOK);
            if is_over() {
                // Again and again: the first time the call may not have begun yet.
                control.stop();
            }
        }
        let result = sender
            .join()
            .unwrap_or_else(|panic| Err(PortError::broken("generate", Died::of("linerate-live", &*panic).to_string())));
        show(control.progress().sent);
        result
    })
}
