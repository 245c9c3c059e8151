//! Signals: Ctrl-C, SIGTERM and SIGHUP stop a run, SIGUSR1 prints its progress.
//!
//! The first signal stops the run. Those within a second are the same request: timeout(1) signals the program and its group, and
//! so sends it twice. After a second request the run no longer waits for others (packets in flight, slow readers), and a message
//! is printed; a third one ends the program at once. If the run has not ended 10 s after the second request, a watchdog reports
//! the threads that still run, and ends it.
//!
//! At SIGHUP a run that writes files completes them and reopens files of the same names. A run that writes no files, or that was
//! started at a terminal which has closed, stops as with the others.
//!
//! SIGUSR1 prints the summary so far on standard error, as in dd(1). Before and after a run it is ignored, since its default would
//! end the program.
//!
//! A request during setup (memory, ports: seconds on a busy machine) is remembered: the run starts, ends at once, and writes its
//! outputs and its report. Only while it is [`waiting`] for others, such as a reader of a FIFO or a reply of a neighbour, a signal
//! ends the program as usual: nothing can be lost yet.

use crate::privileges::Session;
use crate::view::terminal::fail;
use anyhow::Context;
use linerate_burst::input;
use linerate_engine::Stop;
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use signal_hook::low_level::{emulate_default_handler, pipe, unregister};
use std::io::{self, ErrorKind, PipeReader, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, LazyLock};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Signals within this time of the first are the same request.
const ONE_REQUEST: Duration = Duration::from_secs(1);
/// The same for the second request.
const ONE_REPEAT: Duration = Duration::from_millis(100);
/// Time from the second request until the program is ended.
const GRACE: Duration = Duration::from_secs(10);
/// Time limit of the report: standard error may be what blocks a thread.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Names of threads that wait by design; the kernel keeps 15 bytes.
const OWN_THREADS: [&str; 5] =
    ["linerate-end", "linerate-watchd", "linerate-signal", "linerate-so-far", "linerate-hangup"];
/// Maximum number of threads reported.
const MAX_REPORTED: usize = 8;
/// Maximum bytes read from the pipe at once: signals that arrive together are one.
const TOGETHER: usize = 64;

/// Maximum bytes of a text file that an option names: about a million rules.
const MAX_TEXT: u64 = 256 << 20;

/// A shell that exits may send SIGHUP before the terminal closes.
const TERMINAL_GOES: Duration = Duration::from_secs(1);

/// True after a stop request.
static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
/// True if SIGHUP arrived before a handler for it was installed.
static HUNG_UP: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
/// True if the program was started at a terminal.
static HAD_TERMINAL: LazyLock<bool> = LazyLock::new(has_terminal);
/// True after a second stop request.
static HURRIED: AtomicBool = AtomicBool::new(false);
/// True while the program waits for others and a signal ends it.
static WAITING: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Ignores SIGUSR1 from here on.
pub fn ignore_sigusr1() {
    // On failure the default remains.
    let _ = flag::register(SIGUSR1, Arc::default());
}

/// Remembers stop requests from here on, until [`stop_on_signals`] or [`stop_or_reopen`] is called for the run.
pub fn record_requests() -> anyhow::Result<()> {
    let _ = *HAD_TERMINAL;
    for signal in requests().chain(hangup()) {
        let asked = if signal == SIGHUP { &HUNG_UP } else { &ASKED };
        flag::register_conditional_default(signal, Arc::clone(&WAITING)).context("cannot handle signals")?;
        flag::register(signal, Arc::clone(asked)).context("cannot handle signals")?;
    }
    Ok(())
}

/// Does work that may block without limit before the run: a signal ends the program, also one that arrived before.
pub fn waiting<T>(work: impl FnOnce() -> T) -> T {
    WAITING.store(true, Ordering::SeqCst);
    if ASKED.load(Ordering::SeqCst) || HUNG_UP.load(Ordering::SeqCst) {
        // The default ends the program.
        let _ = emulate_default_handler(SIGTERM);
    }
    let result = work();
    WAITING.store(false, Ordering::SeqCst);
    result
}

/// Like [`waiting`], if opening the path may block: it is a pipe or a device.
pub fn opening<T>(path: &str, work: impl FnOnce() -> T) -> T {
    let is_there = || std::fs::metadata(path).map_or(true, |data| data.is_file() || data.is_dir());
    let is_at_once = path == "/dev/null" || path != "-" && is_there();
    if is_at_once { work() } else { waiting(work) }
}

/// Reads the text of a file that an option names.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    let path = path.as_ref();
    let mut text = String::new();
    opening(&path.to_string_lossy(), || input::open(path)?.take(MAX_TEXT + 1).read_to_string(&mut text))?;
    if text.len() as u64 > MAX_TEXT {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("longer than {} MiB", MAX_TEXT >> 20)));
    }
    Ok(text)
}

/// Returns a stop that SIGINT, SIGTERM and SIGHUP request. Starts a thread, so a session is needed.
pub fn stop_on_signals(_: &Session) -> anyhow::Result<Stop> {
    let stop = Stop::new();
    stop_on(requests().chain(hangup()).collect(), &stop)?;
    if HUNG_UP.load(Ordering::SeqCst) {
        stop.request();
    }
    Ok(stop)
}

/// Does the same, but if the run has files SIGHUP is to reopen them.
pub fn stop_or_reopen(session: &Session, has_files: bool) -> anyhow::Result<(Stop, Option<Hangup>)> {
    if !has_files {
        return Ok((stop_on_signals(session)?, None));
    }
    let stop = Stop::new();
    stop_on(requests().collect(), &stop)?;
    Ok((stop.clone(), Some(Hangup(stop))))
}

/// SIGHUP of a run whose files can be reopened.
#[must_use = "SIGHUP has no effect before it reopens files"]
pub struct Hangup(Stop);

impl Hangup {
    /// Calls `reopen` on SIGHUP, in a separate thread, until the result is dropped. A SIGHUP because the terminal is gone
    /// stops the run.
    pub fn reopen(self, mut reopen: impl FnMut() + Send + 'static) -> anyhow::Result<ProgressHandler> {
        let Hangup(stop) = self;
        // It may have arrived while the run was set up.
        answer(hangup().next(), "linerate-hangup", HUNG_UP.load(Ordering::SeqCst), move || {
            if has_lost_terminal() {
                return stop.request();
            }
            reopen();
            if *HAD_TERMINAL {
                std::thread::sleep(TERMINAL_GOES);
                if has_lost_terminal() {
                    stop.request();
                }
            }
        })
    }
}

fn stop_on(signals: Vec<i32>, stop: &Stop) -> anyhow::Result<()> {
    let (reader, writer) = std::io::pipe().context("cannot handle signals")?;
    let last = Arc::new(AtomicUsize::new(0));
    for signal in signals {
        // The order matters: the first registration replaces the default, so it must be the one that stops the run.
        flag::register(signal, stop.flag()).context("cannot handle signals")?;
        flag::register_usize(signal, Arc::clone(&last), signal as usize).context("cannot handle signals")?;
        pipe::register(signal, writer.try_clone()?).context("cannot handle signals")?;
    }
    if ASKED.load(Ordering::SeqCst) {
        stop.request();
    }
    let stop = stop.clone();
    let watch = move || watch(reader, &last, &stop);
    Builder::new().name("linerate-signals".into()).spawn(watch).context("cannot handle signals")?;
    Ok(())
}

/// Handles progress requests until it is dropped.
pub struct ProgressHandler {
    handler: Option<SigId>,
    thread: Option<JoinHandle<()>>,
}

/// Calls `print` for each SIGUSR1 in a separate thread, which never delays the run. Call this as late as
/// [`stop_on_signals`].
pub fn answer_requests(print: impl FnMut() + Send + 'static) -> anyhow::Result<ProgressHandler> {
    answer(Some(SIGUSR1), "linerate-so-far", false, print)
}

fn answer(
    signal: Option<i32>,
    thread: &str,
    is_pending: bool,
    mut act: impl FnMut() + Send + 'static,
) -> anyhow::Result<ProgressHandler> {
    let Some(signal) = signal else { return Ok(ProgressHandler { handler: None, thread: None }) };
    let (mut reader, writer) = std::io::pipe().context("cannot handle signals")?;
    let handler = pipe::register(signal, writer).context("cannot handle signals")?;
    let answer = move || {
        if is_pending {
            act();
        }
        let mut together = [0; TOGETHER];
        while reader.read(&mut together).is_ok_and(|signals| signals > 0) {
            act();
        }
    };
    let thread = Builder::new().name(thread.into()).spawn(answer).context("cannot handle signals")?;
    Ok(ProgressHandler { handler: Some(handler), thread: Some(thread) })
}

impl Drop for ProgressHandler {
    fn drop(&mut self) {
        // Unregistering closes the write end of the pipe, which ends the thread.
        if let Some(handler) = self.handler {
            unregister(handler);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns whether a signal ended the run before its time.
pub fn is_interrupted() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Returns whether a second stop request arrived, so that nothing is to be waited for.
pub fn is_forced() -> bool {
    HURRIED.load(Ordering::Relaxed)
}

/// Waits for signals to the end of the program.
fn watch(mut reader: PipeReader, last: &AtomicUsize, stop: &Stop) {
    let mut requests = Requests::default();
    let mut together = [0; TOGETHER];
    while reader.read(&mut together).is_ok_and(|signals| signals > 0) {
        match requests.take(Instant::now()) {
            Reply::Nothing => {}
            Reply::Hurry => {
                // Before anything that may block.
                let signal = last.load(Ordering::Relaxed) as i32;
                watchdog(GRACE, fail, move || _ = emulate_default_handler(signal));
                stop.force();
                HURRIED.store(true, Ordering::Relaxed);
                fail("stopping without waiting; press Ctrl-C again to exit without flushing");
            }
            Reply::End => {
                // The default of these signals ends the program.
                let _ = emulate_default_handler(last.load(Ordering::Relaxed) as i32);
            }
        }
    }
}

/// Ends the program after `grace`: reports the threads that still run, then calls `end` whether or not that was possible.
fn watchdog(grace: Duration, report: impl FnOnce(String) + Send + 'static, end: impl FnOnce() + Send + 'static) {
    let watch = move || {
        std::thread::sleep(grace);
        let (done, is_done) = channel();
        let speak = move || {
            report(format!("still running {} s after the second stop request; {}", grace.as_secs(), threads()));
            let _ = done.send(());
        };
        if Builder::new().name(OWN_THREADS[0].into()).spawn(speak).is_ok() {
            let _ = is_done.recv_timeout(LAST_WORDS);
        }
        end();
    };
    // Without it a third signal still ends the program.
    let _ = Builder::new().name(OWN_THREADS[1].into()).spawn(watch);
}

/// Describes the threads of this process, except those of this module: name, state, and kernel wait channel (proc(5)).
fn threads() -> String {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return "threads: unknown".to_owned() };
    let mut found = Vec::new();
    for task in tasks.flatten() {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let (name, stat, place) = (read("comm"), read("stat"), read("wchan"));
        let state = match stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next()) {
            Some('R') => "running",
            Some('D') => "waiting for a device",
            _ => "waiting",
        };
        let place = Some(&*place).filter(|place| !matches!(*place, "" | "0")).map(|place| format!(" in {place}"));
        if !OWN_THREADS.iter().any(|own| name.trim_end() == *own) {
            found.push(format!("{}: {state}{}", name.trim_end(), place.unwrap_or_default()));
        }
    }
    let more = found.len().saturating_sub(MAX_REPORTED);
    found.truncate(MAX_REPORTED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("threads: {}{more}", found.join(", "))
}

/// Times of the stop requests.
#[derive(Debug, Default)]
struct Requests {
    first: Option<Instant>,
    second: Option<Instant>,
}

/// Reaction to a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    /// Same request as before, or the first one.
    Nothing,
    /// Stop without waiting for others, and print a message.
    Hurry,
    /// End the program.
    End,
}

impl Requests {
    /// Records a signal, and returns the reaction.
    fn take(&mut self, now: Instant) -> Reply {
        let first = *self.first.get_or_insert(now);
        match self.second {
            None if now.duration_since(first) < ONE_REQUEST => Reply::Nothing,
            None => {
                self.second = Some(now);
                Reply::Hurry
            }
            Some(second) if now.duration_since(second) < ONE_REPEAT => Reply::Nothing,
            Some(_) => Reply::End,
        }
    }
}

/// Returns the signals that stop a run.
fn requests() -> impl Iterator<Item = i32> {
    [SIGINT, SIGTERM].into_iter()
}

/// Returns SIGHUP, unless it was ignored at start: then it remains ignored.
fn hangup() -> impl Iterator<Item = i32> {
    [SIGHUP].into_iter().filter(|signal| !is_ignored(*signal))
}

/// Returns whether the terminal at which the program was started has closed.
fn has_lost_terminal() -> bool {
    *HAD_TERMINAL && !has_terminal()
}

/// Returns whether this process has a controlling terminal (proc(5), `tty_nr`).
fn has_terminal() -> bool {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name, which may contain any character: state, parent, group, session, terminal.
    let terminal = text.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(4)?.parse().ok());
    terminal.is_some_and(|number: i32| number != 0)
}

/// Returns whether a signal was ignored at start, as with nohup (proc(5), SigIgn).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_does_not_stop_is_named_and_the_program_ends() {
        let (release, wait) = channel::<()>();
        let (start, started) = channel();
        let block = move || start.send(()).map(|()| wait.recv());
        let stuck = Builder::new().name("stands-still".into()).spawn(block).unwrap();
        // A thread names itself.
        started.recv().unwrap();
        let (report, reported) = channel();
        let (ended, end) = channel();
        watchdog(Duration::ZERO, move |text| _ = report.send(text), move || _ = ended.send(()));
        let text = reported.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(text.contains("stands-still: "), "{text}");
        end.recv_timeout(Duration::from_secs(60)).unwrap();
        // Standard error may be what the thread waits for.
        let (ended, end) = channel();
        let (never, report) = channel::<()>();
        watchdog(Duration::ZERO, move |_| _ = report.recv(), move || _ = ended.send(()));
        end.recv_timeout(Duration::from_secs(60)).unwrap();
        drop((never, release));
        let _ = stuck.join().unwrap();
    }

    #[test]
    fn a_signal_sent_twice_is_one_request_and_the_third_request_ends() {
        let replies = |millis: &[u64]| {
            let (start, mut requests) = (Instant::now(), Requests::default());
            millis.iter().map(|at| requests.take(start + Duration::from_millis(*at))).collect::<Vec<_>>()
        };
        use Reply::{End, Hurry, Nothing};
        assert_eq!(replies(&[0, 0, 1, 999]), [Nothing; 4]);
        assert_eq!(replies(&[0, 0, 1500, 1501, 1599, 1600]), [Nothing, Nothing, Hurry, Nothing, Nothing, End]);
        assert_eq!(replies(&[0, 1000, 1100]), [Nothing, Hurry, End]);
    }
}
