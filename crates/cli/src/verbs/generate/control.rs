//! Control socket of `generate --control`: per connection one request and one answer, each one JSON line.

use crate::privileges::socket_folder;
use crate::verbs::socket::listen_at;
use anyhow::Context;
use linerate_engine::streams::{Control, SendState, StreamState};
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

/// Maximum size of a request in bytes.
pub(crate) const MOST_QUESTION: usize = 64 << 10;
/// Maximum size of an answer in bytes: enough for 100,000 streams.
pub(crate) const MOST_ANSWER: u64 = 256 << 20;
/// Timeout for senders to apply a command.
const PATIENCE: Duration = Duration::from_secs(2);
/// Timeout for a client to send its request, and to read the answer.
const SLOWEST: Duration = Duration::from_secs(1);
/// Maximum number of concurrent clients.
const MOST_CLIENTS: usize = 32;
/// Interval at which new connections are accepted.
const LOOK: Duration = Duration::from_millis(20);

/// Request of a client.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ControlRequest {
    /// `status`, `rate`, `pause`, `resume`, `stop`, `start`.
    pub action: String,
    /// Pattern of stream names.
    pub streams: String,
    /// Rate or factor, with `rate`.
    #[serde(default)]
    pub rate: Option<String>,
}

/// ControlReply, `linerate/ctl/1`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ControlReply {
    pub schema: String,
    /// Reason why the request was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Selected streams.
    pub streams: Vec<StreamStatus>,
}

/// Status of one stream.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StreamStatus {
    pub name: String,
    /// `running`, `paused`, `stopped`, `ended`.
    pub state: String,
    /// Configured rate.
    pub rate: String,
    /// Frames sent in this run.
    pub sent: u64,
    /// Frames sent since the last start of the stream.
    pub sent_since_start: u64,
    /// Frames received so far, with `--check`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<u64>,
    /// Frames lost so far (gaps in sequence numbers), with `--check`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
}

/// Listening socket; no client is answered yet.
pub(crate) struct ControlListener {
    listener: UnixListener,
    file: SocketFile,
}

/// Thread that answers clients; dropping it stops the thread and removes the socket.
pub(crate) struct ControlServer {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _file: SocketFile,
}

impl ControlListener {
    /// Creates the socket, accessible only to `owner`, or else to the current user.
    pub(crate) fn new(path: &Path, owner: Option<(u32, u32)>) -> anyhow::Result<Self> {
        let (listener, file) = listen_at("--control", path, owner)?;
        Ok(ControlListener { listener, file })
    }

    /// Returns the folder of the socket, in which the run must be able to remove it at the end.
    pub(crate) fn folder(path: &Path) -> anyhow::Result<Option<OwnedFd>> {
        socket_folder(&Path::new(".").join(path).to_string_lossy())
    }

    /// Answers clients, in a thread of its own.
    pub(crate) fn answer(
        self,
        control: Control,
        watch: StreamWatch,
        check: Option<CheckWatch>,
    ) -> anyhow::Result<ControlServer> {
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
                        // A client that disconnects or is too slow affects no other.
                        clients.push(scope.spawn(move || drop(serve(socket, control, watch, check))));
                    }
                }
            });
        })?;
        Ok(ControlServer { ended, thread: Some(thread), _file: self.file })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers one client. An accepted socket blocks even if the listener does not (accept(2)).
fn serve(socket: UnixStream, control: &Control, watch: &StreamWatch, check: Option<&CheckWatch>) -> anyhow::Result<()> {
    let mut line = String::new();
    BufReader::new(DeadlineStream::new(&socket).take(MOST_QUESTION as u64)).read_line(&mut line)?;
    let answer = match apply(&line, control) {
        Ok(streams) => {
            ControlReply { schema: SCHEMA.to_owned(), error: None, streams: rows(&streams, control, watch, check) }
        }
        Err(error) => ControlReply { schema: SCHEMA.to_owned(), error: Some(error.to_string()), streams: Vec::new() },
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    DeadlineStream::new(&socket).write_all(&text)?;
    Ok(())
}

/// Client connection with one deadline for all reads or writes.
struct DeadlineStream<'a> {
    socket: &'a UnixStream,
    until: Instant,
}

impl<'a> DeadlineStream<'a> {
    fn new(socket: &'a UnixStream) -> Self {
        DeadlineStream { socket, until: Instant::now() + SLOWEST }
    }

    fn left(&self) -> Done<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for DeadlineStream<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> Done<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(bytes)
    }
}

impl Write for DeadlineStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> Done<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> Done<()> {
        Ok(())
    }
}

const SCHEMA: &str = "linerate/ctl/1";

/// Applies a request; returns the selected streams.
fn apply(line: &str, control: &Control) -> anyhow::Result<Vec<usize>> {
    let asked: ControlRequest = serde_json::from_str(line).context("invalid request")?;
    let which = control.named(&asked.streams)?;
    let action = match (asked.action.as_str(), &asked.rate) {
        ("status", None) => None,
        ("rate", Some(rate)) => Some(read_rate(rate)?),
        ("pause", None) => Some(Action::Pause),
        ("resume", None) => Some(Action::Resume),
        ("stop", None) => Some(Action::Stop),
        ("start", None) => Some(Action::Start(Arc::from([]))),
        (other, _) => {
            anyhow::bail!("invalid action {other:?}; expected status, rate (with a rate), pause, resume, stop or start")
        }
    };
    if let Some(action) = action {
        let command = control.command_streams(&which, action)?;
        let is_applied = control.wait(command, PATIENCE);
        anyhow::ensure!(is_applied, "command sent, but not applied within {} s", PATIENCE.as_secs());
    }
    Ok(which.places(control.names().len()).collect())
}

/// Parses a rate such as `10kpps`, or a factor of the current rate such as `x2`.
pub(super) fn read_rate(text: &str) -> anyhow::Result<Action> {
    if let Some(factor) = text.strip_prefix('x') {
        return Ok(Action::Scale(
            factor.parse().with_context(|| format!("invalid factor {text:?}; expected one such as x2 or x0.5"))?,
        ));
    }
    Ok(Action::Rate(text.parse::<Rate>()?))
}

/// Returns the state of the streams at these indices.
pub(super) fn rows(
    places: &[usize],
    control: &Control,
    watch: &StreamWatch,
    check: Option<&CheckWatch>,
) -> Vec<StreamStatus> {
    // The receiver is read first: what it has received had been sent before.
    let live = check.and_then(|check| check.live(None));
    let states = control.states(watch);
    let mut checked = vec![(0, 0); if live.is_some() { states.len() } else { 0 }];
    for LiveRow { stream, received, lost } in live.iter().flat_map(|live| &live.rows) {
        if let Some(counts) = control.place_of(*stream).and_then(|place| checked.get_mut(place)) {
            (counts.0, counts.1) = (counts.0 + received, counts.1 + lost);
        }
    }
    let row = |place: &usize| {
        let StreamState { state, rate, sent, since_start, .. } = states.get(*place)?;
        Some(StreamStatus {
            name: control.names()[*place].clone(),
            state: state_name(*state).to_owned(),
            rate: rate.to_string(),
            sent: *sent,
            sent_since_start: *since_start,
            received: checked.get(*place).map(|(received, _)| *received),
            lost: checked.get(*place).map(|(_, lost)| *lost),
        })
    };
    places.iter().filter_map(row).collect()
}

fn state_name(state: SendState) -> &'static str {
    match state {
        SendState::Running => "running",
        SendState::Paused => "paused",
        SendState::Stopped => "stopped",
        SendState::Ended => "ended",
    }
}
