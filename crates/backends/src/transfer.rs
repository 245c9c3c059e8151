//! Data sent through the kernel: streams by its TCP, datagrams by its UDP.
//!
//! A baseline sender for testing receivers: it measures the time of a chunk until its last byte is acknowledged,
//! whatever receives it. That moment is the kernel's: it stamps the acknowledgement that covers the last byte
//! (`SOF_TIMESTAMPING_TX_ACK`), and wakes the waiting thread. So nothing spins or polls, and a chunk's time is exact to
//! the microsecond between writing its first byte and processing the acknowledgement, whenever this process is
//! scheduled again. The next chunk starts then: that delay is in the throughput, not in the chunk's time.

mod connection;
mod datagrams;

pub use self::connection::Connection;
pub use self::datagrams::{DatagramPlan, DatagramResult, Datagrams};
pub use crate::sys::inet_socket::TcpInfo;

use self::connection::{DrainDeadline, is_passing};
use linerate_generate::delays::Delays;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes written at a time: they stay in a near cache between being made and being copied by the kernel.
pub const PIECE: usize = 256 << 10;
/// Interval at which a blocked call checks whether the run must end.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// Addresses and options of a connection.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// Network namespace to send from; `None` for this process's own.
    pub netns: Option<String>,
    /// Source address; `None` for the kernel's choice.
    pub source: Option<IpAddr>,
    /// Congestion control; `None` for the system's default.
    pub congestion: Option<String>,
    /// Send buffer in bytes; `None` for the kernel's autotuning.
    pub buffer: Option<usize>,
    /// Connect timeout.
    pub patience: Duration,
    /// Acknowledgement timeout; `None` for no limit.
    pub silence: Option<Duration>,
}

/// Source of the data.
pub trait Source: Send {
    /// Writes the data at this offset to the front of the buffer; 0 bytes are the end.
    ///
    /// # Errors
    /// If it cannot be read. `WouldBlock` if no data is available: it is called again, unless the run is to end, so it
    /// should block for a moment before it returns that, and no longer.
    fn next(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
}

/// Amount of data of a stream, one chunk after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Series {
    /// Bytes of a chunk: the next one starts when its last byte was acknowledged. Without it nothing waits.
    pub chunk: Option<u64>,
    /// Maximum bytes of each connection.
    pub bytes: Option<u64>,
    /// Maximum duration. A chunk in progress is completed.
    pub duration: Option<Duration>,
}

/// Result of a series.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Bytes that were acknowledged.
    pub bytes: u64,
    /// Time from the first write to the last acknowledgement.
    pub elapsed: Duration,
    /// Times of chunks, from before their first byte was made to the acknowledgement of their last.
    pub chunks: Delays,
    /// True if the source is exhausted.
    pub is_over: bool,
}

/// Progress and control of a run for other threads.
#[derive(Clone, Copy, Debug)]
pub struct TransferControl<'a> {
    /// Set to stop the run.
    pub stop: &'a AtomicBool,
    /// Bytes handed to the kernel.
    pub written: &'a AtomicU64,
}

impl TransferControl<'_> {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// A connection and its data.
pub struct TransferStream<S> {
    /// The connection.
    pub connection: Connection,
    /// Source of its data.
    pub source: S,
    /// Processor of its thread.
    pub cpu: Option<usize>,
    /// Error, if it failed.
    pub failure: Option<io::Error>,
}

/// Sends a series on all connections in parallel, a thread each. A connection that fails keeps its error, and sends no
/// more.
///
/// # Errors
/// If a thread cannot be started.
pub fn send<S: Source>(
    streams: &mut [TransferStream<S>],
    series: Series,
    watched: TransferControl<'_>,
) -> io::Result<Outcome> {
    let began = Instant::now();
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let threads: Vec<_> = streams
            .iter_mut()
            .filter(|stream| stream.failure.is_none())
            .map(|stream| {
                let work = move || stream.send(series, watched);
                std::thread::Builder::new().name("linerate-send".to_owned()).spawn_scoped(scope, work)
            })
            .collect::<io::Result<_>>()?;
        let join = |thread: std::thread::ScopedJoinHandle<'_, Outcome>| thread.join();
        io::Result::Ok(
            threads
                .into_iter()
                .map(|thread| join(thread).unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect(),
        )
    })?;
    let mut all = Outcome { is_over: true, ..Outcome::default() };
    for one in outcomes {
        all.bytes += one.bytes;
        all.elapsed = all.elapsed.max(one.elapsed);
        all.chunks.merge(&one.chunks);
        all.is_over &= one.is_over;
    }
    all.elapsed = all.elapsed.min(began.elapsed());
    Ok(all)
}

/// Closes the sending side of all connections, and waits until that is acknowledged: for all of them together, so that
/// several unresponsive peers cost no more time than one. Returns the bytes that peers sent, which are discarded.
pub fn finish<S>(streams: &mut [TransferStream<S>], watched: TransferControl<'_>) -> u64 {
    let alive = streams.iter_mut().filter(|stream| stream.failure.is_none());
    let closed: Vec<_> = alive
        .filter_map(|stream| match stream.connection.close() {
            Ok(patience) => Some((stream, patience)),
            Err(error) => {
                stream.failure = Some(error);
                None
            }
        })
        .collect();
    let (mut unread, mut farewell) = (0, DrainDeadline::default());
    for (stream, patience) in closed {
        match stream.connection.leave(patience, &mut farewell, watched) {
            Ok(bytes) => unread += bytes,
            Err(error) => stream.failure = Some(error),
        }
    }
    unread
}

impl<S: Source> TransferStream<S> {
    fn send(&mut self, series: Series, watched: TransferControl<'_>) -> Outcome {
        let mut outcome = Outcome::default();
        let before = self.connection.acknowledged();
        let began = Instant::now();
        let result = self.pin().and_then(|()| self.go(series, watched, &mut outcome));
        outcome.elapsed = began.elapsed();
        outcome.bytes = self.connection.acknowledged() - before;
        self.failure = result.err();
        outcome
    }

    fn pin(&self) -> io::Result<()> {
        self.cpu.map_or(Ok(()), pin)
    }

    fn go(&mut self, series: Series, watched: TransferControl<'_>, outcome: &mut Outcome) -> io::Result<()> {
        let TransferStream { connection, source, .. } = self;
        let mut buffer = vec![0; PIECE];
        let ends = series.duration.map(|duration| Instant::now() + duration);
        let is_late = || ends.is_some_and(|ends| Instant::now() >= ends);
        let mut left = series.bytes.unwrap_or(u64::MAX);
        while left > 0 && !outcome.is_over && !watched.is_stopped() && !is_late() {
            let size = series.chunk.unwrap_or(u64::MAX).min(left);
            let chunk = connection.begin();
            let mut sent = 0;
            while sent < size && !(watched.is_stopped() || series.chunk.is_none() && is_late()) {
                let room = usize::try_from(size - sent).map_or(PIECE, |room| room.min(PIECE));
                let made = match source.next(connection.written(), &mut buffer[..room]) {
                    // The rest of a chunk may never arrive.
                    Err(error) if is_passing(&error) && is_late() => break,
                    Err(error) if is_passing(&error) => continue,
                    made => made?,
                };
                if made == 0 {
                    outcome.is_over = true;
                    break;
                }
                let before = connection.written();
                connection.write(&buffer[..made], sent + made as u64 == size, watched)?;
                // Less than was made if the run ended in between: then the chunk is incomplete.
                sent += connection.written() - before;
            }
            left -= sent;
            let took = connection.settle(chunk, watched)?;
            if let (Some(took), Some(_), true) = (took, series.chunk, sent == size) {
                outcome.chunks.add(took.as_nanos() as u64);
            }
        }
        Ok(())
    }
}

/// Pins this thread to a processor.
pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::other(format!("no such processor: {cpu}")));
    }
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|error| io::Error::other(format!("cannot pin to processor {cpu}: {error}")))
}

/// Explains an error to a user that sends to this address.
pub fn explain(error: &io::Error, to: SocketAddr) -> String {
    use io::ErrorKind::{
        AddrNotAvailable, BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable,
        NetworkUnreachable, TimedOut,
    };
    match error.kind() {
        ConnectionRefused => format!("{to}: connection refused; start the receiver first"),
        NetworkUnreachable => format!("{to}: network unreachable; see ip route get {}", to.ip()),
        HostUnreachable => format!("{to}: no route to host (the host does not answer)"),
        AddrNotAvailable if error.raw_os_error().is_some() => format!("{to}: {error}: all source ports are in use"),
        AddrNotAvailable => format!("{to}: {error}; choose an address of this host (see ip address)"),
        ConnectionReset | ConnectionAborted | BrokenPipe => format!("{to}: connection reset by the peer"),
        TimedOut => {
            format!("{to}: {}", if error.raw_os_error().is_some() { "timed out".to_owned() } else { error.to_string() })
        }
        _ => format!("{to}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::set_socket_recv_buffer_size;
    use std::io::Read;
    use std::net::TcpListener;

    struct Zeros;

    impl Source for Zeros {
        fn next(&mut self, _: u64, buffer: &mut [u8]) -> io::Result<usize> {
            Ok(buffer.len())
        }
    }

    /// The only piece is cut off by the end of the run, and acknowledged a moment later.
    #[test]
    fn truncated_last_chunk_is_not_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set_socket_recv_buffer_size(&listener, 4 << 10).unwrap();
        let way =
            ConnectOptions { buffer: Some(4 << 10), patience: Duration::from_secs(10), ..ConnectOptions::default() };
        let connection = Connection::open(listener.local_addr().unwrap(), &way).unwrap();
        let mut peer = listener.accept().unwrap().0;
        let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
        let series = Series { chunk: Some(PIECE as u64), ..Series::default() };
        let mut streams = [TransferStream { connection, source: Zeros, cpu: None, failure: None }];
        let outcome = std::thread::scope(|scope| {
            let watched = TransferControl { stop: &stop, written: &written };
            let sending = scope.spawn(move || send(&mut streams, series, watched).unwrap());
            std::thread::sleep(2 * LOOK);
            stop.store(true, Ordering::Relaxed);
            // By then it writes no more.
            std::thread::sleep(6 * LOOK);
            let mut buffer = vec![0; PIECE];
            let mut got = 0;
            while !sending.is_finished() {
                peer.set_read_timeout(Some(LOOK)).unwrap();
                got += peer.read(&mut buffer).unwrap_or_default() as u64;
            }
            assert!(0 < got && got < PIECE as u64, "{got}");
            sending.join().unwrap()
        });
        assert_eq!(outcome.chunks.count(), 0);
    }
}
