//! News: what happens at a port, or to what works on its frames, while a run lasts, and somebody who watches should know at once: a peer
//! that came or went, one that is waited for. Reports say at the end what came of it.
//!
//! One of a process listens, or nobody does. Whoever has news never waits: where nobody reads them fast enough they are left out.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// News that wait for whoever listens, and those that are kept while nobody does.
const ROOM: usize = 256;
const KEPT: usize = 16;

static NEWS: Mutex<News> = Mutex::new(News { listener: None, kept: VecDeque::new() });

struct News {
    listener: Option<SyncSender<String>>,
    /// The last ones that nobody has heard.
    kept: VecDeque<String>,
}

/// The last of what was said while nobody listened, ports that open among it, and what is said from now on: a sentence each, without an
/// end of the line. Who listened before hears no more.
///
/// ```
/// use linerate_port::news;
/// news::say("somebody waits");
/// let heard = news::listen();
/// news::say("somebody came");
/// news::silence();
/// assert_eq!(heard.iter().collect::<Vec<_>>(), ["somebody waits", "somebody came"]);
/// ```
pub fn listen() -> Receiver<String> {
    let (to, from) = sync_channel(ROOM);
    let mut news = news();
    news.kept.drain(..).for_each(|said| drop(to.try_send(said)));
    news.listener = Some(to);
    from
}

/// Nobody listens any more: whoever did sees the end of its channel behind the last of what was said.
pub fn silence() {
    news().listener = None;
}

/// Says something to whoever listens, if anybody does. It never waits for that.
pub fn say(text: impl Into<String>) {
    let mut news = news();
    match &news.listener {
        // Full, or nobody reads any more: there is nothing to be done about it.
        Some(listener) => drop(listener.try_send(text.into())),
        None => {
            if news.kept.len() == KEPT {
                news.kept.pop_front();
            }
            news.kept.push_back(text.into());
        }
    }
}

fn news() -> MutexGuard<'static, News> {
    NEWS.lock().unwrap_or_else(PoisonError::into_inner)
}
