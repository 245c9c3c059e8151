//! Streams -> timeline -> frames -> the queues of a port, a thread each; or a port that makes the frames itself.

use crate::clock;
use crate::control::{Progress, Stop, unwatched};
use crate::died::survive;
use crate::sender::{Account, FULL_STEP, Limits, Sender, Timing};
use linerate_burst::{Count, Ledger, Nanos};
use linerate_generate::stream::{Mark, StreamSet, Wrong};
use linerate_generate::{Part, Traffic};
use linerate_port::live::Unable;
use linerate_port::{LiveControl, PortError, Sent, TxPort};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Frames with the time in them are made so many at a time at most: the last one leaves soon behind the first.
const MARKED_ROOM: usize = 32;
/// How often watchers learn what each stream has sent.
const SHOW_EVERY: Duration = Duration::from_millis(100);
/// Of so few it is shown ten times as often.
const FEW_STREAMS: usize = 1000;
/// How long a sender that is behind its schedule goes on when the time is over.
const OVERTIME: Duration = Duration::from_millis(100);
/// All threads begin at one time, when the last of them surely runs.
const HEAD_START: Duration = Duration::from_millis(2);

/// Streams that are ready to be sent.
pub struct Streams {
    port: TxPort,
    way: Way,
    names: usize,
    note: Option<String>,
}

/// Who makes the frames.
enum Way {
    /// The port.
    Live(Arc<dyn LiveControl>),
    /// This process, a part of them for each queue.
    Made(Vec<Traffic>),
}

/// What to look at while streams are sent, and when to stop.
#[derive(Clone, Default)]
pub struct Run {
    /// After how long to stop.
    pub duration: Option<Duration>,
    /// Ends the run when requested.
    pub stop: Stop,
    /// What the run has done so far.
    pub progress: Arc<Progress>,
    /// And each stream.
    pub watch: StreamWatch,
    /// Nobody waits for frames to be due: for ports that frames do not leave from when they are sent. They are sent as fast
    /// as they are taken, and the run is as long as their times say.
    pub at_once: bool,
}

/// What became of streams.
#[derive(Debug)]
pub struct StreamsReport {
    /// Every frame accounted for.
    pub ledger: Ledger,
    /// What was sent and not dropped.
    pub sent: Sent,
    /// Frames that each stream handed to the port, in the order of the set.
    pub per_stream: Vec<u64>,
    /// From the first frame to the last; by their times where nobody waited for them.
    pub elapsed: Duration,
    /// How far from the schedule frames left, where this process made them.
    pub timing: Timing,
    /// The greatest and the mean time by which frames left later than they were due.
    pub behind: (Duration, Duration),
    /// What went wrong, if anything.
    pub failure: Option<PortError>,
}

/// Why streams cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum Unsendable {
    /// They are wrong themselves.
    #[error(transparent)]
    Wrong(#[from] Wrong),
    /// The port does not send them.
    #[error(transparent)]
    Port(#[from] PortError),
}

/// Lets another thread see how many frames each stream has sent, as it was a tenth of a second ago at most. The run never
/// waits for a reader.
#[derive(Clone, Debug, Default)]
pub struct StreamWatch(Arc<Mutex<Vec<u64>>>);

impl StreamWatch {
    /// Frames that each stream has sent; empty before the first of them.
    pub fn sent(&self) -> Vec<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows what one sender has sent beyond what it showed before.
    fn add(&self, sent: &[u64], shown: &mut [u64], may_wait: bool) {
        let mut all = match unwatched(&self.0) {
            Some(all) => all,
            None if may_wait => self.0.lock().unwrap_or_else(PoisonError::into_inner),
            None => return,
        };
        let streams = sent.len().max(all.len());
        all.resize(streams, 0);
        for ((all, sent), shown) in all.iter_mut().zip(sent).zip(shown) {
            *all += sent - std::mem::replace(shown, *sent);
        }
    }
}

impl Streams {
    /// Gets ready to send through a port, by as many threads as it has queues. Call it with the privileges that opening
    /// the port needed.
    pub fn new(set: &StreamSet, mut port: TxPort) -> Result<Self, Unsendable> {
        set.check()?;
        let mut note = None;
        if let Some(live) = port.queues.first_mut().and_then(|queue| queue.live()) {
            match live.prepare(set) {
                Ok(control) => {
                    return Ok(Streams { port, way: Way::Live(control), names: set.streams.len(), note });
                }
                Err(PortError::Unable { reason: Unable::Make(reason), .. }) => {
                    note = Some(format!("{}: {reason}; this process makes the frames instead", port.name));
                }
                Err(error) => return Err(error.into()),
            }
        }
        let of = port.queues.len() as u32;
        let parts = (0..of).map(|index| Traffic::new(set, Part { index, of })).collect::<Result<Vec<_>, _>>()?;
        let mut streams = Streams { port, way: Way::Made(parts), names: set.streams.len(), note };
        if set.streams.iter().any(|stream| stream.mark == Mark::Trailer) {
            streams.set_room(MARKED_ROOM);
        }
        Ok(streams)
    }

    /// The same with frames made once, so many of each stream, and sent again and again.
    pub fn kept(set: &StreamSet, port: TxPort, frames: u64) -> Result<Self, Unsendable> {
        let of = port.queues.len() as u32;
        let part = |index| Traffic::kept(set, Part { index, of }, frames);
        let parts = (0..of).map(part).collect::<Result<Vec<_>, _>>()?;
        Ok(Streams { port, way: Way::Made(parts), names: set.streams.len(), note: None })
    }

    /// What the user should know about the way frames are made.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Whether the port makes the frames.
    pub fn is_live(&self) -> bool {
        matches!(self.way, Way::Live(_))
    }

    /// Sends until all streams have ended, the time is over, or stopping is requested.
    pub fn run(self, run: &Run) -> StreamsReport {
        match self.way {
            Way::Live(control) => run_live(self.port, &*control, self.names, run),
            Way::Made(parts) => run_made(self.port, parts, self.names, run),
        }
    }

    fn set_room(&mut self, frames: usize) {
        if let Way::Made(parts) = &mut self.way {
            parts.iter_mut().for_each(|part| part.set_room(frames));
        }
    }
}

impl Run {
    fn limits(&self) -> Limits {
        let (stop, progress) = (self.stop.clone(), Arc::clone(&self.progress));
        Limits { duration: self.duration, stop, progress, at_once: self.at_once }
    }
}

/// Each queue as a port of its own; the counters of the whole stay with the first.
fn by_queue(port: TxPort) -> Vec<TxPort> {
    let TxPort { name, queues, mut monitor } = port;
    let one = |queue| TxPort { name: name.clone(), queues: vec![queue], monitor: monitor.take() };
    queues.into_iter().map(one).collect()
}

/// What one thread sends.
struct Work {
    traffic: Traffic,
    start: Nanos,
    /// For how long interfaces were down.
    put_off: u64,
    /// By how much somebody has set the clock since the start.
    set: i64,
    /// Frames that are due so long after the start are not sent any more, in nanoseconds.
    end: u64,
    paced: bool,
    /// Where nobody waits, the time that frames are at.
    then: Option<Nanos>,
    /// How much of the schedule is done, in nanoseconds.
    done: u64,
    shown: Vec<u64>,
    shown_at: Nanos,
}

impl Work {
    /// Sends what is due; false behind the last frame.
    fn step(&mut self, sender: &mut Sender, watch: &StreamWatch) -> Result<bool, PortError> {
        let Some(due) = self.traffic.next_due() else { return Ok(false) };
        let now = self.now(due, sender)?;
        let (put_off, set) = (Duration::from_nanos(self.put_off), self.set);
        let start = self.start.after(put_off).shifted(set);
        let due_at = start.after(Duration::from_nanos(due.min(self.end)));
        if due_at > now {
            self.show(now, watch);
            sender.wait(due_at, now)?;
            return Ok(true);
        }
        self.done = due.min(self.end);
        if due >= self.end {
            return Ok(false);
        }
        let offered = self.traffic.offer((now.0 - start.0).min(self.end - 1), now);
        let burst = offered.map_err(|bug| PortError::broken("generate", format!("a frame cannot be made: {bug}")))?;
        let done = sender.send(0, burst, now)?;
        if let Some(then) = self.then.as_mut().filter(|_| done == 0) {
            *then = then.after(FULL_STEP);
        }
        if self.paced && self.then.is_none() {
            let due = burst.descs()[..done].iter().map(|desc| desc.time.after(put_off).shifted(set));
            due.for_each(|due| sender.timing().add(now.0.saturating_sub(due.0)));
        }
        self.traffic.consume(done);
        self.show(now, watch);
        Ok(true)
    }

    fn show(&mut self, now: Nanos, watch: &StreamWatch) {
        if now.since(self.shown_at) >= show_every(self.shown.len()) || now < self.shown_at {
            self.shown_at = now;
            watch.add(self.traffic.sent_per_stream(), &mut self.shown, false);
        }
    }

    /// What time it is, to send what is due so long after the start.
    fn now(&mut self, due: u64, sender: &mut Sender) -> Result<Nanos, PortError> {
        let Some(then) = &mut self.then else {
            let (now, step) = sender.look_at_clock();
            self.set = self.set.saturating_add(step);
            return Ok(now);
        };
        let due = due.min(self.end);
        let at = self.start.0.checked_add(due).ok_or_else(|| {
            let years = due / (365 * 24 * 3600 * 1_000_000_000);
            PortError::broken("generate", format!("a frame is due in {years} years, later than any time of a frame"))
        })?;
        *then = (*then).max(Nanos(at));
        Ok(*then)
    }
}

/// How often it is shown what each of so many streams has sent.
fn show_every(streams: usize) -> Duration {
    if streams <= FEW_STREAMS { SHOW_EVERY / 10 } else { SHOW_EVERY }
}

fn run_made(port: TxPort, parts: Vec<Traffic>, streams: usize, run: &Run) -> StreamsReport {
    let start = clock::now().after(HEAD_START);
    let end = run.duration.map_or(u64::MAX, |span| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
    let send = |(part, port): (Traffic, TxPort)| {
        let paced = part.is_paced();
        let mut limits = run.limits();
        limits.at_once &= paced;
        let then = limits.at_once.then_some(start);
        if paced {
            // The schedule ends the run; a sender that falls behind it ends soon after.
            limits.duration = limits.duration.filter(|_| then.is_none()).map(|span| span + OVERTIME);
        }
        let mut sender = Sender::new(vec![port], limits);
        let mut work = Work {
            traffic: part,
            start,
            put_off: 0,
            set: 0,
            end,
            paced,
            then,
            done: 0,
            shown: vec![0; streams],
            shown_at: Nanos::ZERO,
        };
        if then.is_none() {
            std::thread::sleep(start.since(clock::now()));
        }
        let sending = || {
            sender.run(
                &mut work,
                |sender, work| work.step(sender, &run.watch),
                |work, span| work.put_off += span.as_nanos() as u64,
            )
        };
        let result = survive(sending).unwrap_or_else(|died| Err(PortError::broken("generate", died.to_string())));
        if result.is_err() {
            // The others would go on alone.
            run.stop.request();
        }
        run.watch.add(work.traffic.sent_per_stream(), &mut work.shown, true);
        let mut account = sender.finish(0);
        if then.is_some() {
            account.elapsed = Duration::from_nanos(work.done);
        }
        (account, work.traffic.sent_per_stream().to_vec(), result.err())
    };
    let work = parts.into_iter().zip(by_queue(port));
    let done: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = work.map(|work| scope.spawn(|| send(work))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut report = StreamsReport::new(streams);
    for (account, per_stream, failure) in done {
        report.add(&account, &per_stream, failure);
    }
    report.behind = (report.timing.behind.max(), report.timing.behind.mean());
    report
}

/// Lets the port make its frames.
fn run_live(port: TxPort, control: &dyn LiveControl, streams: usize, run: &Run) -> StreamsReport {
    let mut sender = Sender::new(vec![port], run.limits());
    let (mut shown, mut shown_at) = (vec![0; streams], Instant::now());
    let failure = sender.run_live(control, || {
        if shown_at.elapsed() >= show_every(streams) {
            shown_at = Instant::now();
            run.watch.add(&control.made(), &mut shown, false);
        }
    });
    let (made, progress) = (control.made(), control.progress());
    run.watch.add(&made, &mut shown, true);
    let mut report = StreamsReport::new(streams);
    report.add(&sender.finish(0), &made, failure.err());
    report.behind = (progress.late_max, progress.late_mean);
    report
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
            failure: None,
        }
    }

    fn add(&mut self, account: &Account, per_stream: &[u64], failure: Option<PortError>) {
        self.ledger.add_all(&account.ledger);
        self.sent.frames += account.ledger.total(Count::Sent);
        self.sent.bytes += account.ports.iter().map(|(_, sent)| sent.bytes).sum::<u64>();
        self.per_stream.iter_mut().zip(per_stream).for_each(|(all, sent)| *all += sent);
        self.elapsed = self.elapsed.max(account.elapsed);
        self.timing.merge(&account.timing);
        self.failure = self.failure.take().or(failure);
    }
}
