//! Sources of snapshots: runs of this process, or another process at an address or a socket.

use crate::verbs::snapshot::{FlowQuery, Gatherer, SCHEMA, Snapshot};
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Timeout for an answer of another process.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum bytes of an answer.
const MOST: u64 = 16 << 20;

/// Source of snapshots.
pub(super) enum Source {
    /// Runs of this process.
    Own(Box<Gatherer>),
    /// Another process at an address.
    Address(SocketAddr),
    /// Another process at the path of its socket.
    Path(PathBuf),
}

/// Result of a query.
#[derive(Debug)]
pub(super) enum QueryOutcome {
    Snapshot(Box<Snapshot>),
    /// Invalid query, with the reason.
    Invalid(String),
    /// No answer, with the reason.
    Unreachable(String),
}

impl Source {
    /// Parses the address or path of another process.
    pub(super) fn parse(text: &str) -> Option<Source> {
        let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches("/metrics");
        let own = address.strip_prefix("localhost").unwrap_or(address);
        let address = if own.starts_with(':') { format!("127.0.0.1{own}") } else { address.to_owned() };
        if let Ok(address) = address.parse() {
            return Some(Source::Address(address));
        }
        let is_path = text.contains('/') && !text.split('/').next().unwrap_or_default().contains(':');
        let is_socket = [".sock", ".socket"].iter().any(|ending| text.ends_with(ending)) && !text.contains(':');
        (is_path || is_socket).then(|| Source::Path(text.into()))
    }

    /// Queries once.
    pub(super) fn look(&self, ask: &FlowQuery) -> QueryOutcome {
        let answer = match self {
            Source::Own(gatherer) => {
                return match gatherer.snapshot(ask) {
                    Ok(snapshot) => QueryOutcome::Snapshot(Box::new(snapshot)),
                    Err(error) => QueryOutcome::Invalid(error),
                };
            }
            Source::Address(address) => TcpStream::connect_timeout(address, PATIENCE)
                .and_then(|stream| stream.set_read_timeout(Some(PATIENCE)).map(|()| stream))
                .and_then(|stream| exchange(stream, &address.to_string(), ask)),
            Source::Path(path) => UnixStream::connect(path)
                .and_then(|stream| stream.set_read_timeout(Some(PATIENCE)).map(|()| stream))
                .and_then(|stream| exchange(stream, "localhost", ask)),
        };
        match answer.map(|answer| read(&answer)) {
            Ok(Ok(seen)) => seen,
            Ok(Err(what)) => QueryOutcome::Unreachable(what.to_owned()),
            Err(error) if matches!(self, Source::Path(_)) && error.kind() == ErrorKind::NotFound => {
                QueryOutcome::Unreachable("no such socket".to_owned())
            }
            Err(error) => QueryOutcome::Unreachable(error.to_string()),
        }
    }
}

/// Sends a request and reads the whole answer (RFC 9112).
fn exchange(mut stream: impl Read + Write, host: &str, ask: &FlowQuery) -> std::io::Result<Vec<u8>> {
    let request = format!("GET /top?{} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n", ask.query());
    stream.write_all(request.as_bytes())?;
    let (mut answer, until) = (Vec::new(), Instant::now() + PATIENCE);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(answer),
            bytes => answer.extend_from_slice(&buffer[..bytes]),
        }
        if answer.len() as u64 > MOST || Instant::now() > until {
            return Err(Error::new(ErrorKind::TimedOut, "answer too long or too slow"));
        }
    }
}

/// Parses an answer, or returns the reason why it is invalid.
fn read(answer: &[u8]) -> Result<QueryOutcome, &'static str> {
    const NO_RUN: &str = "peer is not a linerate run with --metrics";
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or(NO_RUN)?;
    let head = std::str::from_utf8(&answer[..end]).map_err(|_| NO_RUN)?;
    let body = &answer[end + 4..];
    match head.split(' ').nth(1) {
        Some("200") => {}
        Some("400") => return Ok(QueryOutcome::Invalid(String::from_utf8_lossy(body).trim_end().to_owned())),
        _ => return Err(NO_RUN),
    }
    let snapshot: Snapshot = serde_json::from_slice(body).map_err(|_| NO_RUN)?;
    match snapshot.schema.as_str() {
        SCHEMA => Ok(QueryOutcome::Snapshot(Box::new(snapshot))),
        other if other.starts_with("linerate/top/") => Err("peer is another version of linerate"),
        _ => Err(NO_RUN),
    }
}

/// Queries periodically in a separate thread, until it is dropped.
pub(super) struct SnapshotPoller {
    ask: Arc<Mutex<Option<FlowQuery>>>,
    wake: Sender<()>,
    seen: Receiver<QueryOutcome>,
}

impl SnapshotPoller {
    /// Starts the thread.
    pub(super) fn start(source: Source, ask: FlowQuery, interval: Duration) -> std::io::Result<SnapshotPoller> {
        let ask = Arc::new(Mutex::new(Some(ask)));
        let (wake, woken) = channel();
        let (results, seen) = channel();
        let asked = Arc::clone(&ask);
        std::thread::Builder::new().name("linerate-look".into()).spawn(move || {
            loop {
                let (began, ask) = (Instant::now(), lock(&asked).clone());
                if ask.is_some_and(|ask| results.send(source.look(&ask)).is_err()) {
                    return;
                }
                if woken.recv_timeout(interval.saturating_sub(began.elapsed())) == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
            }
        })?;
        Ok(SnapshotPoller { ask, wake, seen })
    }

    /// Changes the query; `None` pauses.
    pub(super) fn ask(&self, ask: Option<FlowQuery>) {
        *lock(&self.ask) = ask;
        // The thread may have ended; then no more results arrive.
        let _ = self.wake.send(());
    }

    /// Returns the results since the last call.
    pub(super) fn seen(&self) -> impl Iterator<Item = QueryOutcome> + '_ {
        self.seen.try_iter()
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_an_address_or_a_path() {
        let place = |text| match Source::parse(text) {
            Some(Source::Address(address)) => address.to_string(),
            Some(Source::Path(path)) => path.display().to_string(),
            Some(Source::Own(_)) | None => "-".to_owned(),
        };
        assert_eq!(
            [
                "127.0.0.1:9464",
                "http://[::1]:9/metrics",
                "./a",
                "/run/a:b",
                "a.sock",
                "eth0",
                "pcap:/a",
                "xdp:eth0@0/2"
            ]
            .map(place),
            ["127.0.0.1:9464", "[::1]:9", "./a", "/run/a:b", "a.sock", "-", "-", "-"]
        );
    }

    #[test]
    fn a_missing_socket_is_named_as_one() {
        let ask = FlowQuery { by: None, sort: crate::verbs::snapshot::Sort::Bits, filter: String::new(), top: 1 };
        let seen = Source::parse("no-such-run.sock").unwrap().look(&ask);
        assert!(matches!(&seen, QueryOutcome::Unreachable(why) if why == "no such socket"), "{seen:?}");
    }

    #[test]
    fn answers_are_parsed_or_rejected() {
        let seen = |answer: &str| match read(answer.as_bytes()) {
            Ok(QueryOutcome::Snapshot(snapshot)) => snapshot.verb,
            Ok(QueryOutcome::Invalid(what) | QueryOutcome::Unreachable(what)) => what,
            Err(what) => what.to_owned(),
        };
        let good = r#"{"schema":"linerate/top/1","verb":"count"}"#;
        assert_eq!(seen(&format!("HTTP/1.1 200 OK\r\nA: b\r\n\r\n{good}")), "count");
        assert_eq!(seen("HTTP/1.1 400 Bad\r\n\r\nby: x\n"), "by: x");
        for strange in ["", "\r\n\r\n", "HTTP/1.1 404 No\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n[]", "SSH-2.0-x\r\n\r\n"] {
            assert!(seen(strange).starts_with("peer is not"), "{strange}");
        }
        assert!(seen("HTTP/1.1 200 OK\r\n\r\n{\"schema\":\"linerate/top/2\"}").contains("another version"));
    }
}
