//! Progress output from a separate thread, so that a slow terminal cannot slow the run.

use crate::signals::{ProgressHandler, answer_requests};
use crate::view::file_progress::{self, FileProgress};
use crate::view::rates::{Rates, grouped, totals};
use crate::view::terminal::{print_stderr, shown};
use linerate_engine::Progress;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Runs of this process: action on packets, and progress.
static WATCHED: Mutex<Vec<(&str, Arc<Progress>)>> = Mutex::new(Vec::new());

/// Events already printed.
static PRINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Prints lines to standard error until it is dropped.
pub struct Live {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    /// Starts printing a line per interval, if given. `verb` is the action on packets: `captured`, `sent`.
    pub fn start(progress: &Arc<Progress>, verb: &'static str, interval: Option<Duration>) -> Live {
        Live::start_reading(progress, verb, interval, None)
    }

    /// Like [`Live::start`] for a run that reads only files: prints the part read and the time left instead of a bit rate.
    pub fn start_reading(
        progress: &Arc<Progress>,
        verb: &'static str,
        interval: Option<Duration>,
        mut reading: Option<FileProgress>,
    ) -> Live {
        let Some(interval) = interval else { return Live::none() };
        let progress = Arc::clone(progress);
        let started = Instant::now();
        let mut before = (started, 0, 0);
        Live::every(interval, move || before = print_line(&progress, verb, started, before, reading.as_mut()))
    }

    /// Prints nothing.
    pub fn none() -> Live {
        Live { end: None, thread: None }
    }

    /// Calls `print` after every `interval`.
    pub fn every(interval: Duration, mut print: impl FnMut() + Send + 'static) -> Live {
        let (end, ended) = channel();
        let thread = std::thread::spawn(move || {
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                print();
            }
        });
        Live { end: Some(end), thread: Some(thread) }
    }
}

/// Prints events of a run (peer connected, engine died) when they occur, until it is dropped.
pub struct EventPrinter {
    thread: Option<JoinHandle<()>>,
}

impl EventPrinter {
    /// Starts printing events with the elapsed seconds, if `is_wanted`.
    pub fn start(is_wanted: bool) -> EventPrinter {
        let thread = is_wanted.then(|| {
            let (news, started) = (linerate_port::events::listen(), Instant::now());
            std::thread::spawn(move || news.iter().for_each(|event| print_event(event, started)))
        });
        EventPrinter { thread }
    }
}

fn print_event(event: String, started: Instant) {
    print_stderr(format_args!("{:>4} s  {}\n", started.elapsed().as_secs(), shown(&event)));
    PRINTED.lock().unwrap_or_else(PoisonError::into_inner).insert(event);
}

/// Returns whether an event was already printed, so that the report does not repeat it. Call it after [`EventPrinter`] is
/// dropped, which prints the last ones.
pub fn was_printed(event: &str) -> bool {
    PRINTED.lock().unwrap_or_else(PoisonError::into_inner).contains(event)
}

impl Drop for EventPrinter {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            linerate_port::events::silence();
            let _ = thread.join();
        }
    }
}

/// Prints totals so far and the text of `more` on SIGUSR1, and makes the totals available to metrics.
pub fn answer(
    progress: &Arc<Progress>,
    what: &'static str,
    mut more: impl FnMut() -> String + Send + 'static,
) -> anyhow::Result<ProgressHandler> {
    watch(progress, what);
    let (progress, started) = (Arc::clone(progress), Instant::now());
    answer_requests(move || {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (frames, bytes, wire_bytes) = (read(&progress.frames), read(&progress.bytes), read(&progress.wire_bytes));
        let so_far = totals(what, frames, bytes, wire_bytes, started.elapsed().as_secs_f64());
        let (lost, late) = (grouped(read(&progress.lost)), grouped(read(&progress.late)));
        print_stderr(format_args!("so far {so_far}; {lost} lost, {late} late\n{}", more()));
    })
}

/// Makes the progress of a run available to `top` and metrics; `what` is the action on its packets.
pub fn watch(progress: &Arc<Progress>, what: &'static str) {
    #[cfg(feature = "serve")]
    crate::view::metrics::watch(progress, what);
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner).push((what, Arc::clone(progress)));
}

/// Returns all watched runs.
pub fn watched() -> Vec<(&'static str, Arc<Progress>)> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Returns a function that reports reopened outputs (SIGHUP), unless `is_quiet`.
pub fn reopened(is_quiet: bool) -> fn(String) {
    if is_quiet { drop } else { |text| print_stderr(format_args!("{}\n", shown(&text))) }
}

impl Drop for Live {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Mark = (Instant, u64, u64);

fn print_line(
    progress: &Progress,
    verb: &str,
    started: Instant,
    (then, frames, wire_bytes): Mark,
    reading: Option<&mut FileProgress>,
) -> Mark {
    let now = Instant::now();
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (frames_now, wire_bytes_now) = (read(&progress.frames), read(&progress.wire_bytes));
    let rates = Rates::new(frames_now - frames, wire_bytes_now - wire_bytes, now.duration_since(then).as_secs_f64());
    let late = match read(&progress.late) {
        0 => String::new(),
        late => format!("  {} late", grouped(late)),
    };
    let share = reading.and_then(FileProgress::share);
    let how = match share {
        Some(share) => file_progress::progress_text(share, started.elapsed()),
        // A sender counts its losses at the end.
        None if verb == "sent" => format!("{:>11} L1", rates.l1()),
        None => format!("{:>11} L1  {} lost", rates.l1(), grouped(read(&progress.lost))),
    };
    print_stderr(format_args!(
        "{:>4} s  {:>13} {verb}  {:>18}  {how}{late}\n",
        started.elapsed().as_secs(),
        grouped(frames_now),
        rates.frames(),
    ));
    (now, frames_now, wire_bytes_now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::ledger::events;

    #[test]
    fn the_report_does_not_repeat_an_event_that_was_printed() {
        let all = ["packet:t0: the interface is down", "the clock was set"].map(str::to_owned);
        assert_eq!(events(&all, None::<&String>).lines().count(), 2);
        print_event(all[0].clone(), Instant::now());
        assert_eq!(events(&all, None::<&String>), "  the clock was set\n");
    }
}
