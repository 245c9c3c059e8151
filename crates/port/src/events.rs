//! Events of ports and frame consumers that should be shown at once during a run: a peer that connected or
//! disconnected, or one that is awaited. Reports at the end contain their outcome.
//!
//! A process has at most one listener. Reporting an event never blocks: events are dropped if the listener is too slow.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Capacity of the listener's channel, and of the events kept without a listener.
const ROOM: usize = 256;
const KEPT: usize = 16;

static NEWS: Mutex<EventQueue> = Mutex::new(EventQueue { listener: None, kept: VecDeque::new() });

struct EventQueue {
    listener: Option<SyncSender<String>>,
    /// Last events without a listener.
    kept: VecDeque<String>,
}

/// Starts listening: returns the last events reported without a listener, such as those of opening ports, and all later
/// ones. Each is one sentence without a line break. A previous listener receives no more.
///
/// ```
/// use linerate_port::events;
/// events::report("waiting for a peer");
/// let heard = events::listen();
/// events::report("peer connected");
/// events::silence();
/// assert_eq!(heard.iter().collect::<Vec<_>>(), ["waiting for a peer", "peer connected"]);
/// ```
pub fn listen() -> Receiver<String> {
    let (to, from) = sync_channel(ROOM);
    let mut news = news();
    news.kept.drain(..).for_each(|said| drop(to.try_send(said)));
    news.listener = Some(to);
    from
}

/// Stops listening: the listener's channel ends after the events reported so far.
pub fn silence() {
    news().listener = None;
}

/// Reports an event to the listener, if any, without blocking.
pub fn report(text: impl Into<String>) {
    let mut news = news();
    match &news.listener {
        // Full or closed: the event is dropped.
        Some(listener) => drop(listener.try_send(text.into())),
        None => {
            if news.kept.len() == KEPT {
                news.kept.pop_front();
            }
            news.kept.push_back(text.into());
        }
    }
}

fn news() -> MutexGuard<'static, EventQueue> {
    NEWS.lock().unwrap_or_else(PoisonError::into_inner)
}
