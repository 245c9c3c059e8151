//! The socket of `generate --control`, and what is said there: one JSON line each way, then it is closed.

use crate::privileges::socket_folder;
use crate::verbs::socket::listen_at;
use anyhow::Context;
use linerate_engine::streams::{Control, State, StreamState};
use linerate_engine::{CheckWatch, StreamWatch};
use linerate_generate::check::LiveRow;
use linerate_generate::{Action, Rate};
use linerate_share::SocketFile;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, ErrorKind, Read, Result as Done, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// Bytes of a question, and of an answer, at most.
pub(crate) const MOST_QUESTION: usize = 64 << 10;
/// As above: 100,000 streams and more.
pub(crate) const MOST_ANSWER: u64 = 256 << 20;
/// How long it takes at most until senders have done what they are told.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long whoever asks may take to say what, and to read the answer.
const SLOWEST: Duration = Duration::from_secs(1);
/// So many may ask at one time.
const MOST_CLIENTS: usize = 32;
/// How often it is looked whether somebody asks.
const LOOK: Duration = Duration::from_millis(20);

/// A question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
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
pub(crate) struct Answer {
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
pub(crate) struct Row {
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
pub(crate) struct Socket {
    listener: UnixListener,
    file: SocketFile,
}

/// Answers until it is dropped; then the socket is gone.
pub(crate) struct Answering {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _file: SocketFile,
}

impl Socket {
    /// Makes it, for `owner` alone where that is another than who makes it.
    pub(crate) fn new(path: &Path, owner: Option<(u32, u32)>) -> anyhow::Result<Self> {
        let (listener, file) = listen_at("--control", path, owner)?;
        Ok(Socket { listener, file })
    }

    /// The folder where it is, which a run may still change in the end.
    pub(crate) fn folder(path: &Path) -> anyhow::Result<Option<OwnedFd>> {
        socket_folder(&Path::new(".").join(path).to_string_lossy())
    }

    /// Answers there, in a thread of its own.
    pub(crate) fn answer(
        self,
        control: Control,
        watch: StreamWatch,
        check: Option<CheckWatch>,
    ) -> anyhow::Result<Answering> {
        let ended = Arc::new(AtomicBool::new(false));
        let (is_over, listener) = (Arc::clone(&ended), self.listener);
        let thread = std::thread::Builder::new().name("control".into()).spawn(move || {
            let (control, watch, check) = (&control, &watch, check.as_ref());
            std::thread::scope(|scope| {
                let mut clients = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let Ok((socket, _)) = listener.accept() else {
                        std::thread::sleep(LOOK);
                        continue;
                    };
                    clients.retain(|client: &ScopedJoinHandle<'_, ()>| !client.is_finished());
                    if clients.len() < MOST_CLIENTS {
                        // Who asks and goes, or is too slow, harms nobody.
                        clients.push(scope.spawn(move || drop(serve(socket, control, watch, check))));
                    }
                }
            });
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

/// A socket that was accepted waits, whatever the one does that it came by (accept(2)).
fn serve(socket: UnixStream, control: &Control, watch: &StreamWatch, check: Option<&CheckWatch>) -> anyhow::Result<()> {
    let mut line = String::new();
    BufReader::new(Timed::new(&socket).take(MOST_QUESTION as u64)).read_line(&mut line)?;
    let answer = match tell(&line, control) {
        Ok(streams) => {
            Answer { schema: SCHEMA.to_owned(), error: None, streams: rows(&streams, control, watch, check) }
        }
        Err(error) => Answer { schema: SCHEMA.to_owned(), error: Some(error.to_string()), streams: Vec::new() },
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    Timed::new(&socket).write_all(&text)?;
    Ok(())
}

/// The other end, which has so long for all that it says, or reads.
struct Timed<'a> {
    socket: &'a UnixStream,
    until: Instant,
}

impl<'a> Timed<'a> {
    fn new(socket: &'a UnixStream) -> Self {
        Timed { socket, until: Instant::now() + SLOWEST }
    }

    fn left(&self) -> Done<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> Done<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(bytes)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> Done<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> Done<()> {
        Ok(())
    }
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
pub(super) fn read_rate(text: &str) -> anyhow::Result<Action> {
    if let Some(factor) = text.strip_prefix('x') {
        return Ok(Action::Scale(factor.parse().with_context(|| format!("{text:?} is no factor: as in x2 or x0.5"))?));
    }
    Ok(Action::Rate(text.parse::<Rate>()?))
}

/// What there is to say of the streams at these places.
pub(super) fn rows(places: &[usize], control: &Control, watch: &StreamWatch, check: Option<&CheckWatch>) -> Vec<Row> {
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
