//! Accounting for streams with trailers: received frames compared with sent ones. Nothing is copied.

use crate::answer::{Answers, InterfaceResponder, ResponderReport};
use crate::consumer::{Consumer, Demand, FrameOrder, Round, RunCounters, RunEnd};
use crate::control::{Stop, unwatched};
use crate::error::ReceiveError;
use crate::receive::{Receive, RunReport};
use crate::select::{Selection, Selector};
use linerate_burst::{Count, FrameIndex, Ledger, Stage};
use linerate_generate::check::{Check, CheckSummary, Live, StreamRow, TURN, Totals};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Accounts for streams.
pub struct CheckConsumer {
    check: Check,
    selector: Selector,
    watch: CheckWatch,
    picks: Vec<FrameIndex>,
    /// Time of the run at which missing frames are aged next.
    turn_at: Duration,
    answers: Option<Answers>,
}

/// Result of a check in a separate thread.
#[derive(Debug)]
pub struct CheckReport {
    /// Accounts of streams.
    pub check: Check,
    /// The rest; frames lost by its own ports were not lost on the path.
    pub run: RunReport,
    /// Replies sent on the checked port.
    pub answers: ResponderReport,
}

/// Counters of a run at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckCounters {
    /// Time since the start of the run.
    pub elapsed: Duration,
    /// Totals.
    pub totals: Totals,
    /// Number of streams with trailers.
    pub streams: u64,
    /// Frames lost by the ports.
    pub lost_by_port: u64,
}

/// Accounts of all streams so far, and of each.
#[derive(Clone, Debug)]
pub struct CheckProgress {
    /// Sum of all streams.
    pub summary: CheckSummary,
    /// Each stream, by number.
    pub rows: Vec<StreamRow>,
}

/// Lets another thread read the counters of a run, at most about a tenth of a second old. The run never waits for a
/// reader.
#[derive(Clone, Debug, Default)]
pub struct CheckWatch(Arc<CheckState>);

#[derive(Debug)]
enum CheckRequest {
    /// The accounts, given the frames sent of each stream, now and some time ago, if known.
    CheckProgress(Option<Sent>, Sender<CheckProgress>),
    /// Frames received, and those lost by now.
    Live(Option<Vec<u64>>, Sender<Live>),
}

/// Frames of each stream, by number.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// Sent by now.
    pub now: Vec<u64>,
    /// Sent [`AGE`](linerate_generate::check::AGE) ago: those not received by now are lost.
    pub aged: Vec<u64>,
}

#[derive(Debug, Default)]
struct CheckState {
    look: Mutex<CheckCounters>,
    /// Number of frames with trailers, including those of streams without, at the end of the last round.
    ours: AtomicU64,
    /// Pending requests; closed at the end of the run.
    asked: Mutex<CheckRequests>,
}

#[derive(Debug, Default)]
struct CheckRequests {
    asked: Vec<CheckRequest>,
    are_over: bool,
}

/// Longest wait for the account of a run, which checks for requests about ten times a second.
const ASK_LIMIT: Duration = Duration::from_secs(2);

impl CheckWatch {
    /// Creates a watch without counters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the counters.
    pub fn look(&self) -> CheckCounters {
        *self.0.look.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of our frames, at the end of the last round.
    pub fn ours(&self) -> u64 {
        self.0.ours.load(Ordering::Relaxed)
    }

    /// Returns the accounts of streams, compared with `sent` if that is known; answered by the run, and `None` once it
    /// is over.
    pub fn so_far(&self, sent: Option<Sent>) -> Option<CheckProgress> {
        self.ask(|answer| CheckRequest::CheckProgress(sent, answer))
    }

    /// Returns the received frames of streams, and those lost if the frames sent of each
    /// [`AGE`](linerate_generate::check::AGE) ago are known; answered by the run, and `None` once it is over.
    pub fn live(&self, aged: Option<Vec<u64>>) -> Option<Live> {
        self.ask(|answer| CheckRequest::Live(aged, answer))
    }

    fn ask<T>(&self, question: impl FnOnce(Sender<T>) -> CheckRequest) -> Option<T> {
        let (answer, answered) = channel();
        let mut questions = self.questions();
        if questions.are_over {
            return None;
        }
        questions.asked.push(question(answer));
        drop(questions);
        answered.recv_timeout(ASK_LIMIT).ok()
    }

    fn answer(&self, check: &mut Check) {
        let asked = std::mem::take(&mut self.questions().asked);
        // The requesting thread may be gone.
        for question in asked {
            match question {
                CheckRequest::Live(aged, answer) => drop(answer.send(check.live(aged.as_deref()))),
                CheckRequest::CheckProgress(sent, answer) => {
                    drop(answer.send(CheckProgress::new(check, sent.as_ref())))
                }
            }
        }
    }

    /// Rejects all further requests.
    fn close(&self) {
        *self.questions() = CheckRequests { asked: Vec::new(), are_over: true };
    }

    fn questions(&self) -> MutexGuard<'_, CheckRequests> {
        self.0.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, look: CheckCounters) {
        if let Some(mut shown) = unwatched(&self.0.look) {
            *shown = look;
        }
    }
}

impl CheckProgress {
    /// Creates the accounts, with lost frames by age.
    fn new(check: &mut Check, sent: Option<&Sent>) -> Self {
        let live = check.live(sent.map(|sent| &*sent.aged));
        let report = check.report(sent.map(|sent| &*sent.now));
        let (mut summary, mut rows) = (report.summary(), report.rows().collect::<Vec<_>>());
        for row in &mut rows {
            let place = live.rows.binary_search_by_key(&row.stream, |live| live.stream);
            row.counts.lost = place.map_or(0, |place| live.rows[place].lost);
        }
        summary.counts.lost = live.totals.lost;
        summary.streams_with_loss = rows.iter().filter(|row| row.counts.lost > 0).count() as u64;
        CheckProgress { summary, rows }
    }
}

impl CheckConsumer {
    /// Continues an account, empty or not, with selected frames; the slice is ignored.
    pub fn new(check: Check, selection: Selection) -> Self {
        CheckConsumer {
            check,
            selector: Selector::new(Selection { slice: None, ..selection }),
            watch: CheckWatch::new(),
            picks: Vec::new(),
            turn_at: TURN,
            answers: None,
        }
    }

    /// Answers ARP, NDP and ping on the checked port, whose frames are used for nothing else.
    pub fn answer(mut self, answering: Option<InterfaceResponder>) -> Self {
        if let Some(answering) = answering {
            self.check.keep_requests();
            self.answers = Some(answering.into_answers());
        }
        self
    }

    /// Publishes the counters in `watch`.
    pub fn watch(mut self, watch: CheckWatch) -> Self {
        self.watch = watch;
        self
    }

    /// Returns the account of streams.
    pub fn done(self) -> Check {
        self.check
    }

    /// Checks the frames of these ports.
    pub fn run(mut self, receive: Receive) -> CheckReport {
        let run = receive.run(&mut [&mut self]);
        let answers = self.answers.map(Answers::done).unwrap_or_default();
        CheckReport { check: self.check, run, answers }
    }

    fn show(&self, look: &RunCounters<'_>) {
        self.watch.show(CheckCounters {
            elapsed: look.elapsed,
            totals: self.check.totals(),
            streams: self.check.streams() as u64,
            lost_by_port: look.queues().lost(),
        });
    }
}

impl Consumer for CheckConsumer {
    fn name(&self) -> &'static str {
        "check"
    }

    /// The order in which several lanes are polled would be counted as reordering on the path.
    fn order(&self) -> FrameOrder {
        FrameOrder::Merged
    }

    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        let learned = self.selector.learn(round.interfaces);
        let CheckConsumer { check, selector, picks, watch, turn_at, answers } = self;
        match (round.bursts, round.links) {
            ([burst], [links]) if selector.take_all(burst.len()) => check.take(*burst, links),
            _ => check.take_picks(round.bursts, selector.choose(round, picks), round.links),
        }
        watch.0.ours.store(check.ours(), Ordering::Relaxed);
        if round.elapsed >= *turn_at {
            check.turn();
            *turn_at = round.elapsed + TURN;
        }
        if let Some(answers) = answers {
            answers.answer(check.questions(), round);
        }
        learned
    }

    fn look(&mut self, look: &RunCounters<'_>) {
        self.show(look);
        self.watch.answer(&mut self.check);
    }

    fn counters(&self, ledger: &mut Ledger) {
        self.selector.counters(ledger.account(Stage::Select, ""));
        let totals = self.check.totals();
        let account = ledger.account(Stage::Check, "");
        account.add(Count::CheckReceived, totals.frames).add(Count::Checked, self.check.ours());
        account.add(Count::CheckForeign, totals.foreign()).add(Count::CheckDamaged, totals.damaged);
        account.add(Count::CheckCut, totals.cut).add(Count::CheckOverLimit, totals.over_limit);
    }

    fn demand(&self) -> Demand {
        if self.selector.is_full() { Demand::Enough } else { Demand::More }
    }

    fn finish(&mut self, end: &mut RunEnd<'_>) {
        self.show(end.look());
        self.watch.close();
        self.counters(end.ledger);
    }
}

/// A check in a separate thread, in parallel with a sender.
#[derive(Debug)]
pub struct CheckThread {
    stop: Stop,
    watch: CheckWatch,
    thread: JoinHandle<CheckReport>,
}

/// Interval at which an ending checker looks for further frames.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Maximum time that a check waits for duplicates after as many frames as were sent.
pub const DUPLICATES: Duration = Duration::from_millis(125);

impl CheckThread {
    /// Starts the thread. Frames are taken from now on, so the sender may start.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(checking: CheckConsumer, receive: Receive) -> std::io::Result<Self> {
        let (stop, watch) = (receive.stop.clone(), checking.watch.clone());
        let thread = thread::Builder::new().name("check".into()).spawn(move || checking.run(receive))?;
        Ok(CheckThread { stop, watch, thread })
    }

    /// Returns the counters so far.
    pub fn watch(&self) -> &CheckWatch {
        &self.watch
    }

    /// Ends the check once none of our frames arrived for `silence`, or `sent` of them did, and at the latest after
    /// `limit`: call it when the sender has ended; at once if that must hurry. Frames received by then are in the
    /// report.
    pub fn finish(self, sent: Option<u64>, silence: Duration, limit: Duration, sender: &Stop) -> CheckReport {
        let started = Instant::now();
        let (mut ours, mut changed) = (self.watch.ours(), started);
        let is_time = |since: Instant| since.elapsed() < silence && started.elapsed() < limit && !sender.is_forced();
        while !self.thread.is_finished() && is_time(changed) {
            thread::sleep(LOOK_AGAIN);
            let now = self.watch.ours();
            if now != ours {
                (ours, changed) = (now, Instant::now());
            }
            if sent.is_some_and(|sent| ours >= sent) && changed.elapsed() >= (silence / 4).min(DUPLICATES) {
                break;
            }
        }
        self.stop.request();
        // Panics in that thread are caught there.
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
