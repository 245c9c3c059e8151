//! Ctrl-C, SIGTERM and a terminal that goes away: how a run is asked to end. SIGUSR1: how it is asked how far it is.
//!
//! The first signal asks the run to stop. Those that come within a second are the same request: timeout(1), which sends its
//! signal to the program and to its group, sends it twice. A second request has the run wait for nobody any more (frames
//! that are still to come, readers that are slow), and says so; a third one ends the program at once. A run that has not ended
//! 10 s after the second request is ended by a watchdog, which reports the threads that still run.
//!
//! SIGHUP has a run that writes files complete them and go on in new ones of the same names; a run that was started at a terminal
//! which is gone, and one that writes no files, is asked to stop as by the others.
//!
//! SIGUSR1, by which dd(1) and others are asked how far they are, prints the summary so far on standard error; before and
//! behind a run it does nothing, since its default would end the program.
//!
//! A request that comes while a verb still gets ready (memory, ports: seconds on a busy machine) is remembered: the run begins,
//! ends at once, and leaves its outputs and its report. Only where it waits for others, [`waiting`] for a reader of a FIFO or an
//! answer of a neighbour, a signal ends the program as usual: nothing is there yet that could be lost.

use crate::privileges::settled;
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

/// Signals that come so soon after the first are the same request.
const ONE_REQUEST: Duration = Duration::from_secs(1);
/// And so soon after the second.
const ONE_REPEAT: Duration = Duration::from_millis(100);
/// Time from the second request until the program is ended.
const GRACE: Duration = Duration::from_secs(10);
/// Time to report why; standard error may be what a thread waits for.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Names of threads that wait by design; the kernel keeps 15 bytes.
const OWN_THREADS: [&str; 5] =
    ["linerate-end", "linerate-watchd", "linerate-signal", "linerate-so-far", "linerate-hangup"];
/// Threads that are reported at most.
const MAX_REPORTED: usize = 8;
/// Signals that come together are one: so many bytes at the most are read of a pipe.
const TOGETHER: usize = 64;

/// Bytes of a text that an option names: a million rules.
const MAX_TEXT: u64 = 256 << 20;

/// A shell that ends may tell its programs before their terminal is gone.
const TERMINAL_GOES: Duration = Duration::from_secs(1);

/// Whether the program was asked to end.
static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
/// Whether SIGHUP came, before anybody watched for it.
static HUNG_UP: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
/// Whether the program was started at a terminal.
static HAD_TERMINAL: LazyLock<bool> = LazyLock::new(has_terminal);
/// Whether it was asked twice.
static HURRIED: AtomicBool = AtomicBool::new(false);
/// Whether it waits for others, and a signal ends it.
static WAITING: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Bears SIGUSR1 from here on.
pub fn bear_requests() {
    // Where that cannot be it stays as it was.
    let _ = flag::register(SIGUSR1, Arc::default());
}

/// Remembers requests to end from here on, for a run that is to begin: [`stop_on_signals`] is called then.
pub fn remember_requests() -> anyhow::Result<()> {
    let _ = *HAD_TERMINAL;
    for signal in requests().chain(hangup()) {
        let asked = if signal == SIGHUP { &HUNG_UP } else { &ASKED };
        flag::register_conditional_default(signal, Arc::clone(&WAITING)).context("cannot handle signals")?;
        flag::register(signal, Arc::clone(asked)).context("cannot handle signals")?;
    }
    Ok(())
}

/// Does what may wait for others without end, before the run: a signal ends the program meanwhile, and one that came before.
pub fn waiting<T>(work: impl FnOnce() -> T) -> T {
    WAITING.store(true, Ordering::SeqCst);
    if ASKED.load(Ordering::SeqCst) || HUNG_UP.load(Ordering::SeqCst) {
        // Its default is to end the program.
        let _ = emulate_default_handler(SIGTERM);
    }
    let result = work();
    WAITING.store(false, Ordering::SeqCst);
    result
}

/// The same where a path is a pipe, or anything else but a file that is there at once.
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

/// Makes these signals request `stop`, SIGHUP among them. A thread of its own is started for it: call this once ports and files
/// are open, and privileges gone.
pub fn stop_on_signals(stop: &Stop) -> anyhow::Result<()> {
    stop_on(requests().chain(hangup()).collect(), stop)?;
    if HUNG_UP.load(Ordering::SeqCst) {
        stop.request();
    }
    Ok(())
}

/// The same, where SIGHUP has `reopen` called, in a thread of its own, as long as the result is there: it is for files.
pub fn reopen_on_hangup(stop: &Stop, mut reopen: impl FnMut() + Send + 'static) -> anyhow::Result<Answers> {
    stop_on(requests().collect(), stop)?;
    let stop = stop.clone();
    // It came before there was anything to complete.
    if HUNG_UP.load(Ordering::SeqCst) && has_lost_terminal() {
        stop.request();
    }
    answer(hangup().next(), "linerate-hangup", move || {
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

fn stop_on(signals: Vec<i32>, stop: &Stop) -> anyhow::Result<()> {
    settled()?;
    let (told, tells) = std::io::pipe().context("cannot handle signals")?;
    let last = Arc::new(AtomicUsize::new(0));
    for signal in signals {
        // The order matters: from the first line on the signal ends the program no more, so that line makes it stop.
        flag::register(signal, stop.flag()).context("cannot handle signals")?;
        flag::register_usize(signal, Arc::clone(&last), signal as usize).context("cannot handle signals")?;
        pipe::register(signal, tells.try_clone()?).context("cannot handle signals")?;
    }
    if ASKED.load(Ordering::SeqCst) {
        stop.request();
    }
    let stop = stop.clone();
    let watch = move || watch(told, &last, &stop);
    Builder::new().name("linerate-signals".into()).spawn(watch).context("cannot handle signals")?;
    Ok(())
}

/// Answers whoever asks how far the run is, until it is dropped.
pub struct Answers {
    handler: Option<SigId>,
    thread: Option<JoinHandle<()>>,
}

/// Calls `print` for each SIGUSR1, in a thread of its own: it never holds the run up. Call this as late as
/// [`stop_on_signals`].
pub fn answer_requests(print: impl FnMut() + Send + 'static) -> anyhow::Result<Answers> {
    answer(Some(SIGUSR1), "linerate-so-far", print)
}

fn answer(signal: Option<i32>, thread: &str, mut act: impl FnMut() + Send + 'static) -> anyhow::Result<Answers> {
    let Some(signal) = signal else { return Ok(Answers { handler: None, thread: None }) };
    let (mut told, tells) = std::io::pipe().context("cannot handle signals")?;
    let handler = pipe::register(signal, tells).context("cannot handle signals")?;
    let answer = move || {
        let mut together = [0; TOGETHER];
        while told.read(&mut together).is_ok_and(|signals| signals > 0) {
            act();
        }
    };
    let thread = Builder::new().name(thread.into()).spawn(answer).context("cannot handle signals")?;
    Ok(Answers { handler: Some(handler), thread: Some(thread) })
}

impl Drop for Answers {
    fn drop(&mut self) {
        // Its end of the pipe goes with the handler, and the thread with that.
        if let Some(handler) = self.handler {
            unregister(handler);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whether whoever is waited for is not to be any more: a second signal came.
pub fn is_hurried() -> bool {
    HURRIED.load(Ordering::Relaxed)
}

/// Waits for signals to the end of the program.
fn watch(mut told: PipeReader, last: &AtomicUsize, stop: &Stop) {
    let mut requests = Requests::default();
    let mut together = [0; TOGETHER];
    while told.read(&mut together).is_ok_and(|signals| signals > 0) {
        match requests.take(Instant::now()) {
            Reply::Nothing => {}
            Reply::Hurry => {
                // Before anything that may wait.
                let signal = last.load(Ordering::Relaxed) as i32;
                watchdog(GRACE, fail, move || _ = emulate_default_handler(signal));
                stop.hurry();
                HURRIED.store(true, Ordering::Relaxed);
                fail("only what was begun is finished now; one more signal ends it at once, as it is");
            }
            Reply::End => {
                // The signal is one of those above, whose default is to end the program.
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
            report(format!("not stopped {} s after the second request; {}", grace.as_secs(), threads()));
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

/// Describes the threads of this process, except those of this module: name, state, and where the kernel has them wait (proc(5)).
fn threads() -> String {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return "its threads are unknown".to_owned() };
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

/// How often the program was asked to end.
#[derive(Debug, Default)]
struct Requests {
    first: Option<Instant>,
    second: Option<Instant>,
}

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    /// The run was asked to stop already, or is by this.
    Nothing,
    /// The run is to wait for nobody, and whoever sent it should know what is waited for still.
    Hurry,
    /// The program ends.
    End,
}

impl Requests {
    /// A signal came.
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

/// The signals that ask to end.
fn requests() -> impl Iterator<Item = i32> {
    [SIGINT, SIGTERM].into_iter()
}

/// SIGHUP, unless it was ignored when the program was started: so it stays then.
fn hangup() -> impl Iterator<Item = i32> {
    [SIGHUP].into_iter().filter(|signal| !is_ignored(*signal))
}

/// Whether the terminal that the program was started at is gone.
fn has_lost_terminal() -> bool {
    *HAD_TERMINAL && !has_terminal()
}

/// Whether there is a terminal that controls this process (proc(5), `tty_nr`).
fn has_terminal() -> bool {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may have anything in it: state, parent, group, session, terminal.
    let terminal = text.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(4)?.parse().ok());
    terminal.is_some_and(|number: i32| number != 0)
}

/// Whether a signal was ignored when the program was started, as nohup does it (proc(5), SigIgn).
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
        let stand_still = move || start.send(()).map(|()| wait.recv());
        let stuck = Builder::new().name("stands-still".into()).spawn(stand_still).unwrap();
        // A thread names itself.
        started.recv().unwrap();
        let (said, hear) = channel();
        let (ended, end) = channel();
        watchdog(Duration::ZERO, move |text| _ = said.send(text), move || _ = ended.send(()));
        let text = hear.recv_timeout(Duration::from_secs(60)).unwrap();
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
