//! Streams -> timeline -> frames -> the queues of a port, one thread each; or a port that generates the frames itself.

use crate::clock;
pub mod control;
mod live;
mod stream_changes;
mod stream_table;
mod watch;
mod work;

use control::SenderControl;
pub use control::{AcceptedCommand, CommandError, CommandResult, Control, SendState, StreamState};
use stream_changes::StreamArrivals;
pub use watch::StreamWatch;

use crate::control::{Progress, Stop};
use crate::sender::{Limits, Sender, SenderReport, Timing};
use crate::thread_panic::survive;
use linerate_burst::{Count, Ledger, Nanos};
use linerate_generate::stream::{Mark, Order, StreamError, StreamSet};
use linerate_generate::{SenderPart, Traffic};
use linerate_port::live::Unable;
use linerate_port::{LATE, LiveControl, PortError, Sent, TxPort};
use std::sync::Arc;
use std::time::Duration;
use work::SendWork;

/// Maximum batch of frames that contain the time: the last one leaves soon after the first.
const MARKED_ROOM: usize = 32;
/// Time that a sender behind its schedule continues after the end.
const OVERTIME: Duration = Duration::from_millis(100);
/// Lead before the common start of all threads, by which the last of them runs.
const HEAD_START: Duration = Duration::from_millis(2);
/// The same for several ports.
const TOGETHER: Duration = Duration::from_millis(10);

/// Returns a start time for several ports: a little ahead, so that all their threads run by then.
pub fn soon() -> Nanos {
    clock::now().after(TOGETHER)
}

/// Streams that are ready to be sent.
pub struct Streams {
    port: TxPort,
    way: FrameOrigin,
    names: usize,
    note: Option<String>,
    control: Option<Control>,
}

/// Origin of the frames.
enum FrameOrigin {
    /// The port generates them.
    Live(Arc<dyn LiveControl>),
    /// This process generates them, one part for each queue.
    Made(Vec<Traffic>),
}

/// Limits and observers of a run.
#[derive(Clone, Default)]
pub struct StreamRun {
    /// Duration of the run, if limited.
    pub duration: Option<Duration>,
    /// Stops the run when requested.
    pub stop: Stop,
    /// Totals of the run so far.
    pub progress: Arc<Progress>,
    /// Totals of each stream.
    pub watch: StreamWatch,
    /// Does not wait for frames to be due: for ports that store frames with their times. They are sent as fast as they
    /// are taken, and the duration of the run is that of their times.
    pub at_once: bool,
}

/// Result of sending streams.
#[derive(Debug)]
pub struct StreamsReport {
    /// Packet accounting.
    pub ledger: Ledger,
    /// Totals sent and not dropped.
    pub sent: Sent,
    /// Frames that each stream passed to the port, in the order of the set.
    pub per_stream: Vec<u64>,
    /// Time from the first frame to the last; by their times with `at_once`.
    pub elapsed: Duration,
    /// Deviation from the schedule, if this process generated the frames.
    pub timing: Timing,
    /// Maximum and mean delay after the due time.
    pub behind: (Duration, Duration),
    /// Frames that left more than [`LATE`] after they were due.
    pub late: u64,
    /// Failure, if any.
    pub failure: Option<PortError>,
}

/// Reason why streams cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum StreamsError {
    /// The streams are invalid.
    #[error(transparent)]
    StreamError(#[from] StreamError),
    /// The port cannot send them.
    #[error(transparent)]
    Port(#[from] PortError),
}

impl Streams {
    /// Prepares to send through a port, with one thread for each of its queues. Call it with the privileges that
    /// opening the port needed.
    pub fn new(set: &StreamSet, port: TxPort) -> Result<Self, StreamsError> {
        Streams::open(set, port, None, false)
    }

    /// Does the same for streams that are controlled by `control`.
    pub fn controlled(set: &StreamSet, port: TxPort, control: &Control) -> Result<Self, StreamsError> {
        Streams::open(set, port, Some(control), false)
    }

    /// Does the same if each of several streams is controlled separately: a port that generates the frames of several
    /// at once has one clock for all of them, so this process generates them.
    pub fn controlled_each(set: &StreamSet, port: TxPort, control: &Control) -> Result<Self, StreamsError> {
        Streams::open(set, port, Some(control), set.order == Order::Interleaved && set.streams.len() > 1)
    }

    fn open(set: &StreamSet, mut port: TxPort, control: Option<&Control>, apart: bool) -> Result<Self, StreamsError> {
        set.check()?;
        let mut note = None;
        let live = port.queues.first_mut().and_then(|queue| queue.live());
        if apart && live.is_some() {
            note = Some(format!("{}: streams are controlled one by one; this process generates the frames", port.name));
        } else if let Some(live) = live {
            let prepared = if control.is_some() { live.prepare_commanded(set) } else { live.prepare(set) };
            match prepared {
                Ok(live) => {
                    let refused = control.map(|control| control.made_by(&live)).transpose();
                    refused.map_err(|reason| PortError::wrong(&port.name, reason))?;
                    let (way, names) = (FrameOrigin::Live(live), set.streams.len());
                    return Ok(Streams { port, way, names, note, control: control.cloned() });
                }
                Err(PortError::Unable { reason: Unable::Make(reason), .. }) => {
                    note = Some(format!("{}: {reason}; this process generates the frames instead", port.name));
                }
                Err(error) => return Err(error.into()),
            }
        }
        let of = port.queues.len() as u32;
        let make = if control.is_some() { Traffic::commanded } else { Traffic::new };
        let parts = (0..of).map(|index| make(set, SenderPart { index, of })).collect::<Result<Vec<_>, _>>()?;
        let control = control.cloned();
        let mut streams = Streams { port, way: FrameOrigin::Made(parts), names: set.streams.len(), note, control };
        if set.streams.iter().any(|stream| stream.mark == Mark::Trailer) {
            streams.set_room(MARKED_ROOM);
        }
        Ok(streams)
    }

    /// Creates a sender for streams that are added and removed, through the first queue of a port.
    pub(crate) fn coming(port: TxPort, control: &Control) -> Self {
        let way = FrameOrigin::Made(vec![Traffic::coming(MARKED_ROOM)]);
        Streams { port, way, names: 0, note: None, control: Some(control.clone()) }
    }

    /// Does the same with frames generated once, `frames` of each stream, and sent repeatedly.
    pub fn kept(set: &StreamSet, port: TxPort, frames: u64) -> Result<Self, StreamsError> {
        Streams::keep(set, port, frames, None)
    }

    /// Does the same as [`Streams::kept`] for streams that are controlled by `control`.
    pub fn controlled_kept(
        set: &StreamSet,
        port: TxPort,
        frames: u64,
        control: &Control,
    ) -> Result<Self, StreamsError> {
        Streams::keep(set, port, frames, Some(control.clone()))
    }

    fn keep(set: &StreamSet, port: TxPort, frames: u64, control: Option<Control>) -> Result<Self, StreamsError> {
        let (of, make) =
            (port.queues.len() as u32, if control.is_some() { Traffic::commanded_kept } else { Traffic::kept });
        let parts = (0..of).map(|index| make(set, SenderPart { index, of }, frames)).collect::<Result<Vec<_>, _>>()?;
        Ok(Streams { port, way: FrameOrigin::Made(parts), names: set.streams.len(), note: None, control })
    }

    /// Returns a note for the user about how frames are generated.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Returns whether the port generates the frames.
    pub fn is_live(&self) -> bool {
        matches!(self.way, FrameOrigin::Live(_))
    }

    /// Sends until all streams have ended, the time is over, or stopping is requested.
    pub fn run(self, run: &StreamRun) -> StreamsReport {
        match self.way {
            FrameOrigin::Live(live) => live::run(self.port, &*live, self.names, run, self.control.as_ref()),
            FrameOrigin::Made(parts) => {
                run_generated(self.port, parts, self.names, clock::now().after(HEAD_START), run, self.control)
            }
        }
    }

    /// Does the same from a time on, see [`soon`]: several ports start together, whichever thread runs first.
    pub fn run_from(self, start: Nanos, run: &StreamRun) -> StreamsReport {
        match self.way {
            FrameOrigin::Live(live) => {
                std::thread::sleep(start.since(clock::now()));
                live::run(self.port, &*live, self.names, run, self.control.as_ref())
            }
            FrameOrigin::Made(parts) => run_generated(self.port, parts, self.names, start, run, self.control),
        }
    }

    fn set_room(&mut self, frames: usize) {
        if let FrameOrigin::Made(parts) = &mut self.way {
            parts.iter_mut().for_each(|part| part.set_room(frames));
        }
    }
}

impl StreamRun {
    fn limits(&self) -> Limits {
        let (stop, progress) = (self.stop.clone(), Arc::clone(&self.progress));
        Limits { duration: self.duration, stop, progress, at_once: self.at_once }
    }
}

/// Splits a port by its queues; the port's own counters stay with the first.
fn by_queue(port: TxPort) -> Vec<TxPort> {
    let TxPort { name, queues, mut monitor } = port;
    let one = |queue| TxPort { name: name.clone(), queues: vec![queue], monitor: monitor.take() };
    queues.into_iter().map(one).collect()
}

/// Returns a listener for each sender.
fn listeners(control: Option<&Control>, senders: usize) -> Vec<Option<SenderControl>> {
    match control {
        Some(control) => control.listen(senders).into_iter().map(Some).collect(),
        None => (0..senders).map(|_| None).collect(),
    }
}

fn run_generated(
    port: TxPort,
    parts: Vec<Traffic>,
    streams: usize,
    start: Nanos,
    run: &StreamRun,
    control: Option<Control>,
) -> StreamsReport {
    let listeners = listeners(control.as_ref(), parts.len());
    let end = run.duration.map_or(u64::MAX, |span| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
    let send = |((part, port), listener): ((Traffic, TxPort), Option<SenderControl>)| {
        let paced = part.is_paced() || listener.is_some();
        let mut limits = run.limits();
        limits.at_once &= part.is_paced();
        let then = limits.at_once.then_some(start);
        if paced {
            // The schedule ends the run; a sender that falls behind it ends soon after.
            limits.duration = limits.duration.filter(|_| then.is_none()).map(|span| span + OVERTIME);
        }
        let mut sender = Sender::new(vec![port], limits);
        if listener.is_some() {
            sender.limit_sleep();
        }
        let coming = listener.as_ref().and_then(SenderControl::places).map(StreamArrivals::new);
        if coming.is_some() {
            sender.stay();
        }
        let mut work = SendWork {
            traffic: part,
            start,
            delay: 0,
            set: 0,
            end,
            then,
            done: 0,
            showing: run.watch.show(streams),
            listener,
            ended: Vec::new(),
            coming,
        };
        if then.is_none() {
            std::thread::sleep(start.since(clock::now()));
        }
        let sending = || sender.run(&mut work, |sender, work| work.step(sender), |work, span| work.stand(span));
        let result = survive(sending).unwrap_or_else(|died| Err(PortError::broken("generate", died.to_string())));
        if result.is_err() {
            // The others would continue without it.
            run.stop.request();
        }
        work.showing.publish_blocking(work.traffic.sent_per_stream());
        let mut account = sender.finish(0);
        if then.is_some() {
            account.elapsed = Duration::from_nanos(work.done);
        }
        (account, work.traffic.sent_per_stream().to_vec(), result.err())
    };
    let work = parts.into_iter().zip(by_queue(port)).zip(listeners);
    let done = in_threads(work, send);
    let mut report = StreamsReport::new(streams);
    let mut downs = 0;
    for (mut account, per_stream, failure) in done {
        account.ledger.count_once(Count::SendLinkDown, &mut downs);
        report.add(&account, &per_stream, failure);
    }
    report.behind = (report.timing.behind.max(), report.timing.behind.mean());
    report.late = report.timing.behind.longer_than(LATE);
    report
}

/// Runs each item in a thread of its own.
fn in_threads<W: Send, T: Send>(work: impl Iterator<Item = W>, send: impl Fn(W) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let send = &send;
        let threads: Vec<_> = work.map(|work| scope.spawn(move || send(work))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

impl StreamsReport {
    fn new(streams: usize) -> Self {
        StreamsReport {
            ledger: Ledger::new(),
            sent: Sent::default(),
            per_stream: vec![0; streams],
            elapsed: Duration::ZERO,
            timing: Timing::default(),
            behind: (Duration::ZERO, Duration::ZERO),
            late: 0,
            failure: None,
        }
    }

    fn add(&mut self, account: &SenderReport, per_stream: &[u64], failure: Option<PortError>) {
        self.ledger.add_all(&account.ledger);
        self.sent.frames += account.ledger.total(Count::Sent);
        self.sent.bytes += account.ports.iter().map(|(_, sent)| sent.bytes).sum::<u64>();
        self.per_stream.iter_mut().zip(per_stream).for_each(|(all, sent)| *all += sent);
        self.elapsed = self.elapsed.max(account.elapsed);
        self.timing.merge(&account.timing);
        self.failure = self.failure.take().or(failure);
    }
}
