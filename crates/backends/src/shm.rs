//! `shm:name`: a block ring that another process writes, as with `capture --share NAME`; also `shm:/path/to/socket`.
//!
//! One lane, already ordered by the writer. Frames are shown in place, in shared memory. With `?mode=lossless` the
//! writer waits for this port, if it allows such readers; otherwise it does not wait and reports skipped frames;
//! `?slots=` is the maximum number of blocks that a lossy port may hold.
//!
//! When sending, the ring is created here, with `?memory=` (64 MiB); with `?wait=N` nothing is sent before N readers
//! have attached. Lossless readers are allowed only with `?lossless=yes`, and may stall the sender for at most
//! `?timeout=` seconds (1) at a time.

mod send;

use self::send::open_tx;

use linerate_burst::{Count, Horizon, Ledger, Nanos, Stage};
use linerate_port::{Backend, Feed, Head, PortError, Registry, RxOptions, RxPort, RxQueue, Spec, Target};
use linerate_share::{AttachOptions, End, Error, Reader};
use std::os::fd::BorrowedFd;

/// Maximum frames shown at a time.
const MOST: usize = 1024;

/// Describes this backend.
pub const BACKEND: Backend = Backend {
    scheme: "shm",
    placeholder: "ring name or socket",
    sentence: "shared memory: the ordered stream captured by another process; or a ring to send to",
    target: Target::Ring,
    rx_options: &["mode", "slots", "trust"],
    tx_options: &["memory", "wait", "lossless", "timeout"],
    open_rx,
    open_tx,
    leaves_when_sent: |_, _| true,
};

/// Attaches to a ring.
fn open_rx(spec: &Spec, options: &RxOptions, _: &Registry) -> Result<RxPort, PortError> {
    let name = spec.to_string();
    let wrong = |reason: String| PortError::wrong(&name, reason);
    let lossless = match spec.option("mode") {
        None => options.lossless,
        Some("lossless") => true,
        Some("lossy") => false,
        Some(other) => return Err(wrong(format!("mode={other}: expected lossless or lossy"))),
    };
    let trust = match spec.option("trust") {
        None | Some("no") => false,
        Some("yes") => true,
        Some(other) => return Err(wrong(format!("trust={other}: expected yes or no"))),
    };
    if spec.queues.is_some() {
        return Err(wrong("a ring has only one queue; omit the @".into()));
    }
    let quota = u32::try_from(spec.number("slots", 0)?).unwrap_or(u32::MAX);
    let attach = AttachOptions { lossless, quota, trust, name: "linerate".into(), ..AttachOptions::default() };
    let reader = attach.to(&spec.target).map_err(|error| refused(&name, error))?;
    let notes = vec![format!(
        "attached to pid {}, {}",
        reader.writer(),
        if lossless { "which waits for this port" } else { "which skips frames if this port is too slow" }
    )];
    let queue = ShmRx { name: name.clone(), reader, reported: false };
    Ok(RxPort { notes, ..RxPort::new(name, vec![Box::new(queue)], Feed::others(options)) })
}

/// Classifies an error: an invalid request, or a failure.
fn refused(name: &str, error: Error) -> PortError {
    match error {
        Error::Invalid(reason) => PortError::wrong(name, reason),
        error => PortError::broken(name, error.to_string()),
    }
}

struct ShmRx {
    name: String,
    reader: Reader,
    /// True if an abnormal end was reported.
    reported: bool,
}

impl RxQueue for ShmRx {
    fn fill(&mut self, _now: Nanos) -> Result<Head<'_>, PortError> {
        self.reader.fill(MOST);
        if let Some(end) = self.reader.ended()
            && !self.reported
        {
            self.reported = true;
            let writer = self.reader.writer();
            let reason = match end {
                End::InOrder | End::Detached => None,
                End::Died => Some(format!("its writer (pid {writer}) died; all committed frames were read")),
                End::Evicted => Some(format!("reader was evicted by its writer (pid {writer}): too slow, or invalid")),
                End::Broken(reason) => Some(format!("its writer (pid {writer}) broke the format: {reason}")),
            };
            if let Some(reason) = reason {
                return Err(PortError::broken(&self.name, reason));
            }
        }
        let horizon = match self.reader.ended() {
            None => Horizon::At(self.reader.horizon()),
            Some(_) => Horizon::Ended,
        };
        Ok(Head { burst: self.reader.shown(), horizon, interfaces: self.reader.interfaces() })
    }

    fn consume(&mut self, frames: usize) {
        self.reader.consume(frames);
    }

    fn detach(&mut self) {
        self.reader.detach();
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        Some(self.reader.wake())
    }

    fn counters(&self, ledger: &mut Ledger) {
        let delivered = self.reader.consumed();
        let (bad, (skipped, _)) = (self.reader.bad(), self.reader.skipped());
        let received = delivered + self.reader.shown().len() as u64 + bad + skipped;
        let account = ledger.account(Stage::Receive, &self.name);
        account.add(Count::Received, received).add(Count::Delivered, delivered);
        account.add(Count::BadDesc, bad).add(Count::Skipped, skipped);
        account.add(Count::UpstreamLost, self.reader.lost_upstream());
    }
}
