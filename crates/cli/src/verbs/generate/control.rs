//! The socket of `generate --control`, and what is said there: one JSON line each way, then it is closed.

use crate::exit::usage;
use crate::privileges::socket_folder;
use anyhow::Context;
use linerate_engine::streams::{Control, State, StreamState};
use linerate_engine::{CheckWatch, StreamWatch};
use linerate_generate::check::LiveRow;
use linerate_generate::{Action, Rate};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of a question, and of an answer, at most.
pub const MOST_QUESTION: usize = 64 << 10;
/// As above: 100,000 streams and more.
pub const MOST_ANSWER: u64 = 256 << 20;
/// How long it takes at most until senders have done what they are told.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long whoever asks may take to say what.
const SLOWEST: Duration = Duration::from_secs(1);
/// How often it is looked whether somebody asks.
const LOOK: Duration = Duration::from_millis(20);

/// A question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// `status`, `rate`, `pause`, `resume`, `stop`, `start`.
    pub action: String,
    /// Names.
    pub streams: String,
    /// Beside `rate`.
    #[serde(default)]
    pub rate: Option<String>,
}

/// An answer, `linerate/ctl/1`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// Which form this is.
    pub schema: String,
    /// Why nothing was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Those that were named.
    pub streams: Vec<Row>,
}

/// One stream.
#[derive(Debug, Serialize, Deserialize)]
pub struct Row {
    /// As the user named it.
    pub name: String,
    /// `running`, `paused`, `stopped`, `ended`.
    pub state: String,
    /// How fast it goes, or would.
    pub rate: String,
    /// Frames of this run, and since it was started last.
    pub sent: u64,
    /// As above.
    pub sent_since_start: u64,
    /// Where somebody checks: frames that came, and that are lost by now, by gaps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<u64>,
    /// As above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
}

/// A socket that nobody is answered at yet.
pub struct Socket {
    listener: UnixListener,
    file: File,
}

/// The name of a socket, which goes with it.
struct File(PathBuf);

/// Answers until it is dropped; then the socket is gone.
pub struct Answering {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _file: File,
}

impl Socket {
    /// Makes it, for `owner` alone where that is another than who makes it.
    pub fn new(path: &Path, owner: Option<(u32, u32)>) -> anyhow::Result<Self> {
        let told = || format!("--control {}", path.display());
        let left = UnixStream::connect(path).err().is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused);
        if left {
            // Of a run that was killed.
            std::fs::remove_file(path).with_context(told)?;
        }
        let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let listener = UnixListener::bind(path);
        rustix::process::umask(mask);
        let listener = listener.map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => usage(format!("{}: something is there already", told())),
            _ => anyhow::Error::new(error).context(told()),
        })?;
        let file = File(path.to_owned());
        listener.set_nonblocking(true)?;
        if let Some((user, group)) = owner {
            std::os::unix::fs::chown(path, Some(user), Some(group)).with_context(told)?;
        }
        Ok(Socket { listener, file })
    }

    /// The folder where it is, which a run may still change in the end.
    pub fn folder(path: &Path) -> anyhow::Result<Option<OwnedFd>> {
        socket_folder(&Path::new(".").join(path).to_string_lossy())
    }

    /// Answers there, in a thread of its own.
    pub fn answer(self, control: Control, watch: StreamWatch, check: Option<CheckWatch>) -> anyhow::Result<Answering> {
        let ended = Arc::new(AtomicBool::new(false));
        let (is_over, listener) = (Arc::clone(&ended), self.listener);
        let thread = std::thread::Builder::new().name("control".into()).spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                match listener.accept() {
                    // Who asks and goes, or is too slow, harms nobody.
                    Ok((socket, _)) => drop(serve(socket, &control, &watch, check.as_ref())),
                    Err(_) => std::thread::sleep(LOOK),
                }
            }
        })?;
        Ok(Answering { ended, thread: Some(thread), _file: self.file })
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for File {
    /// Where the user that the run goes on as may not remove it, the next run with it does.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A socket that was accepted waits, whatever the one does that it came by (accept(2)).
fn serve(socket: UnixStream, control: &Control, watch: &StreamWatch, check: Option<&CheckWatch>) -> anyhow::Result<()> {
    socket.set_read_timeout(Some(SLOWEST))?;
    socket.set_write_timeout(Some(SLOWEST))?;
    let mut line = String::new();
    BufReader::new((&socket).take(MOST_QUESTION as u64)).read_line(&mut line)?;
    let answer = match tell(&line, control) {
        Ok(streams) => {
            Answer { schema: SCHEMA.to_owned(), error: None, streams: rows(&streams, control, watch, check) }
        }
        Err(error) => Answer { schema: SCHEMA.to_owned(), error: Some(error.to_string()), streams: Vec::new() },
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    (&socket).write_all(&text)?;
    Ok(())
}

const SCHEMA: &str = "linerate/ctl/1";

/// Does what a line says; which streams it is about.
fn tell(line: &str, control: &Control) -> anyhow::Result<Vec<usize>> {
    let asked: Asked = serde_json::from_str(line).context("no question")?;
    let which = control.named(&asked.streams)?;
    let action = match (asked.action.as_str(), &asked.rate) {
        ("status", None) => None,
        ("rate", Some(rate)) => Some(read_rate(rate)?),
        ("pause", None) => Some(Action::Pause),
        ("resume", None) => Some(Action::Resume),
        ("stop", None) => Some(Action::Stop),
        ("start", None) => Some(Action::Start(Arc::from([]))),
        (other, _) => anyhow::bail!("{other:?} is nothing that streams can be told"),
    };
    if let Some(action) = action {
        let told = control.tell_which(&which, action)?;
        anyhow::ensure!(control.wait(told, PATIENCE), "told, but not done within {} s", PATIENCE.as_secs());
    }
    Ok(which.places(control.names().len()).collect())
}

/// `10kpps`, or `x2`: so many times what it is.
fn read_rate(text: &str) -> anyhow::Result<Action> {
    if let Some(factor) = text.strip_prefix('x') {
        return Ok(Action::Scale(factor.parse().with_context(|| format!("{text:?} is no factor: as in x2 or x0.5"))?));
    }
    Ok(Action::Rate(text.parse::<Rate>()?))
}

fn rows(places: &[usize], control: &Control, watch: &StreamWatch, check: Option<&CheckWatch>) -> Vec<Row> {
    // Who receives is looked at first: what came had been sent.
    let live = check.and_then(|check| check.live(None));
    let states = control.states(watch);
    let mut came = vec![(0, 0); if live.is_some() { states.len() } else { 0 }];
    for LiveRow { stream, received, lost } in live.iter().flat_map(|live| &live.rows) {
        if let Some(came) = control.place_of(*stream).and_then(|place| came.get_mut(place)) {
            (came.0, came.1) = (came.0 + received, came.1 + lost);
        }
    }
    let row = |place: &usize| {
        let StreamState { state, rate, sent, since_start, .. } = states.get(*place)?;
        Some(Row {
            name: control.names()[*place].clone(),
            state: said(*state).to_owned(),
            rate: rate.to_string(),
            sent: *sent,
            sent_since_start: *since_start,
            received: came.get(*place).map(|(received, _)| *received),
            lost: came.get(*place).map(|(_, lost)| *lost),
        })
    };
    places.iter().filter_map(row).collect()
}

/// A state, in a word.
fn said(state: State) -> &'static str {
    match state {
        State::Running => "running",
        State::Paused => "paused",
        State::Stopped => "stopped",
        State::Ended => "ended",
    }
}
