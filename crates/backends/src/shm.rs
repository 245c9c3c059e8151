//! `shm:name`: a block ring that another process fills, as `capture --share NAME` does; `shm:/path/to/socket` too.
//!
//! One lane, which the writer has put in order already. Frames are shown as they lie in shared memory. With
//! `?mode=lossless` the writer waits for this port, if it lets such readers in; otherwise it goes on without it and says
//! how much was skipped; `?slots=` is how many blocks a lossy port may hold.
//!
//! Sent to, it is a ring made here, of `?memory=` (64 MiB); with `?wait=N` nothing is sent before N readers have attached.
//! Lossless readers come in with `?lossless=yes` alone, and hold the sender up for at most `?patience=` seconds (1) in one go.

mod send;

use self::send::open_tx;

use linerate_burst::{Count, Horizon, Ledger, Nanos, Stage};
use linerate_port::{Backend, Feed, Head, PortError, Registry, RxOptions, RxPort, RxQueue, Spec, Target};
use linerate_share::{Attach, End, Error, Reader};
use std::os::fd::BorrowedFd;

/// Frames shown at a time.
const MOST: usize = 1024;

/// The row of this backend.
pub const BACKEND: Backend = Backend {
    scheme: "shm",
    placeholder: "ring name or socket",
    sentence: "shared memory: the ordered stream that another process captures and shares; or a ring to send into",
    target: Target::Ring,
    rx_options: &["mode", "slots", "trust"],
    tx_options: &["memory", "wait", "lossless", "patience"],
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
        Some(other) => return Err(wrong(format!("mode={other}: it is lossless or lossy"))),
    };
    let trust = match spec.option("trust") {
        None | Some("no") => false,
        Some("yes") => true,
        Some(other) => return Err(wrong(format!("trust={other}: it is yes or no"))),
    };
    if spec.queues.is_some() {
        return Err(wrong("a ring has one queue: leave @ out".into()));
    }
    let quota = u32::try_from(spec.number("slots", 0)?).unwrap_or(u32::MAX);
    let attach = Attach { lossless, quota, trust, name: "linerate".into(), ..Attach::default() };
    let reader = attach.to(&spec.target).map_err(|error| refused(&name, error))?;
    let notes = vec![format!(
        "attached to pid {}, {}",
        reader.writer(),
        if lossless { "which waits for this port" } else { "which skips what this port is too slow for" }
    )];
    let queue = ShmRx { name: name.clone(), reader, told: false };
    Ok(RxPort { notes, ..RxPort::new(name, vec![Box::new(queue)], Feed::others(options)) })
}

/// Why there is no ring: what was asked for cannot be, or something is in the way.
fn refused(name: &str, error: Error) -> PortError {
    match error {
        Error::Invalid(reason) => PortError::wrong(name, reason),
        error => PortError::broken(name, error.to_string()),
    }
}

struct ShmRx {
    name: String,
    reader: Reader,
    /// Whether an end that is a failure was told.
    told: bool,
}

impl RxQueue for ShmRx {
    fn fill(&mut self, _now: Nanos) -> Result<Head<'_>, PortError> {
        self.reader.fill(MOST);
        if let Some(end) = self.reader.ended()
            && !self.told
        {
            self.told = true;
            let writer = self.reader.writer();
            let reason = match end {
                End::InOrder | End::Detached => None,
                End::Died => Some(format!("its writer (pid {writer}) died; all that it had committed was read")),
                End::Evicted => Some(format!("its writer (pid {writer}) put this reader out: too slow, or a defect")),
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
