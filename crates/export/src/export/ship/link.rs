//! Connection with timeouts: each message has its timeout, and all waits end with the run.

use super::super::secure::{Secure, Stream};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Timeouts of an unresponsive peer, and of a connection attempt.
const PATIENCE: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(3);
/// Timeout of the TLS handshake.
const AGREEING: Duration = Duration::from_secs(10);
/// Interval of checks for the end of the run.
const SLICE: Duration = Duration::from_millis(100);
/// Maximum bytes read ahead.
const AHEAD: usize = 16 << 10;

/// Deadline of the run, if known: no wait exceeds it.
#[derive(Clone, Debug, Default)]
pub(super) struct RunDeadline {
    until: Arc<Mutex<Option<Instant>>>,
    /// Returns whether all waits should end at once.
    is_forced: Option<fn() -> bool>,
}

impl RunDeadline {
    /// Creates it without a deadline; it also ends when `is_forced` returns true.
    pub(super) fn new(is_forced: Option<fn() -> bool>) -> RunDeadline {
        RunDeadline { until: Arc::default(), is_forced }
    }

    /// Sets the deadline to `span` from now, at the latest.
    pub(super) fn after(&self, span: Duration) {
        let mut over = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let until = Instant::now() + span;
        *over = Some(over.map_or(until, |before| before.min(until)));
    }

    /// Returns the remaining time; `None`: unlimited.
    pub(super) fn left(&self) -> Option<Duration> {
        if self.is_forced.is_some_and(|is_forced| is_forced()) {
            return Some(Duration::ZERO);
        }
        let over = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        over.map(|over| over.saturating_duration_since(Instant::now()))
    }

    /// Returns whether the deadline has passed.
    pub(super) fn has_passed(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }
}

pub(super) struct Link {
    stream: Stream,
    over: RunDeadline,
    /// Bytes read ahead.
    ahead: Vec<u8>,
    since: Instant,
}

impl Link {
    /// Connects to the first address of the host that accepts.
    ///
    /// # Errors
    /// Error of the last address of the host.
    pub(super) fn open(host: &str, port: u16, over: &RunDeadline, secure: &Secure) -> Result<Self> {
        let mut last = Error::new(ErrorKind::NotFound, "host has no address");
        for address in (host, port).to_socket_addrs()? {
            let patience = over.left().unwrap_or(CONNECT).clamp(SLICE, CONNECT);
            match TcpStream::connect_timeout(&address, patience) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(SLICE))?;
                    stream.set_write_timeout(Some(SLICE))?;
                    stream.set_nodelay(true)?;
                    let since = Instant::now();
                    let goes_on = || since.elapsed() < AGREEING && !over.has_passed();
                    let stream = secure.begin(host, stream, goes_on)?;
                    return Ok(Link { stream, over: over.clone(), ahead: Vec::new(), since });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub(super) fn send(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.since = Instant::now();
        loop {
            let wrote = if bytes.is_empty() { self.stream.flush().map(|()| 0) } else { self.stream.write(bytes) };
            match wrote {
                Ok(_) if bytes.is_empty() => return Ok(()),
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    self.since = Instant::now();
                }
                Err(error) => self.go_on(error)?,
            }
        }
    }

    /// Returns the next byte.
    pub(super) fn byte(&mut self) -> Result<u8> {
        if self.ahead.is_empty() {
            let mut bytes = vec![0; AHEAD];
            let count = self.read(&mut bytes)?;
            bytes.truncate(count);
            bytes.reverse();
            self.ahead = bytes;
        }
        self.ahead.pop().ok_or_else(|| ErrorKind::UnexpectedEof.into())
    }

    /// Returns the next `count` bytes.
    pub(super) fn bytes(&mut self, count: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while bytes.len() < count {
            bytes.push(self.byte()?);
        }
        Ok(bytes)
    }

    /// Returns whether nothing was received and the peer has not closed.
    pub(super) fn is_idle(&mut self) -> bool {
        self.ahead.is_empty() && self.stream.is_idle()
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        loop {
            match self.stream.read(bytes) {
                Ok(0) => return Err(Error::new(ErrorKind::UnexpectedEof, "connection closed by peer")),
                Ok(count) => {
                    self.since = Instant::now();
                    return Ok(count);
                }
                Err(error) => self.go_on(error)?,
            }
        }
    }

    /// Returns the error unless the wait may continue.
    fn go_on(&self, error: Error) -> Result<()> {
        match error.kind() {
            ErrorKind::Interrupted => Ok(()),
            ErrorKind::WouldBlock | ErrorKind::TimedOut
                if self.since.elapsed() < PATIENCE && !self.over.has_passed() =>
            {
                Ok(())
            }
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Err(Error::new(ErrorKind::TimedOut, "no answer in time")),
            _ => Err(error),
        }
    }
}
