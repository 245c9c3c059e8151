//! The account of streams with trailers: what came of them, out of what was sent. Nothing is copied.

use crate::answer::{Answering, AnsweringReport, Answers};
use crate::consumer::{Consumer, Demand, End, Look, Order, Round};
use crate::control::{Stop, unwatched};
use crate::error::ReceiveError;
use crate::receive::{Receive, Received};
use crate::select::{Selection, Selector};
use linerate_burst::{Count, Ledger, Pick, Stage};
use linerate_generate::check::{Check, Live, StreamRow, Summary, TURN, Totals};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Accounts for streams.
pub struct Checking {
    check: Check,
    selector: Selector,
    watch: CheckWatch,
    picks: Vec<Pick>,
    /// When what is missing gets older, by the time of the run.
    turn_at: Duration,
    answers: Option<Answers>,
}

/// What came of a check in a thread of its own.
#[derive(Debug)]
pub struct CheckReport {
    /// The account of streams.
    pub check: Check,
    /// The rest; what its ports lost themselves was not lost on the way.
    pub run: Received,
    /// What was answered on the port that was checked.
    pub answers: AnsweringReport,
}

/// A look at a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckLook {
    /// How long the run had taken then.
    pub elapsed: Duration,
    /// What was counted.
    pub totals: Totals,
    /// Streams with trailers.
    pub streams: u64,
    /// Frames that the ports lost.
    pub lost_by_port: u64,
}

/// What came of all streams so far, and of each.
#[derive(Clone, Debug)]
pub struct SoFar {
    /// All together.
    pub summary: Summary,
    /// Each stream, by their numbers.
    pub rows: Vec<StreamRow>,
}

/// Lets another thread see a run, as it was at most about a tenth of a second ago. The run never waits for a reader.
#[derive(Clone, Debug, Default)]
pub struct CheckWatch(Arc<Watched>);

/// What somebody wants to know.
#[derive(Debug)]
enum Asked {
    /// The account, where so many frames were sent of each stream, and had been sent some time ago, if that is known.
    SoFar(Option<Sent>, Sender<SoFar>),
    /// What came, and what is lost by now.
    Live(Option<Vec<u64>>, Sender<Live>),
}

/// Frames of each stream, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// Sent by now.
    pub now: Vec<u64>,
    /// Sent [`AGE`](linerate_generate::check::AGE) ago: what of it did not come is lost.
    pub aged: Vec<u64>,
}

#[derive(Debug, Default)]
struct Watched {
    look: Mutex<CheckLook>,
    /// Frames with trailers, and of streams without, at the end of the last round.
    ours: AtomicU64,
    /// Nothing once nobody answers any more.
    asked: Mutex<Questions>,
}

#[derive(Debug, Default)]
struct Questions {
    asked: Vec<Asked>,
    are_over: bool,
}

/// How long the account of a run is waited for: it looks up whether one is wanted some ten times a second.
const ASK_LIMIT: Duration = Duration::from_secs(2);

impl CheckWatch {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What was counted.
    pub fn look(&self) -> CheckLook {
        *self.0.look.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many frames were ours, at the end of the last round.
    pub fn ours(&self) -> u64 {
        self.0.ours.load(Ordering::Relaxed)
    }

    /// What came of the streams, out of what was `sent` of each, where that is known; looked up by the run. Nothing once that is over.
    pub fn so_far(&self, sent: Option<Sent>) -> Option<SoFar> {
        self.ask(|answer| Asked::SoFar(sent, answer))
    }

    /// What came of the streams, and what is lost of it, where it is known what had been sent of each
    /// [`AGE`](linerate_generate::check::AGE) ago; looked up by the run. Nothing once that is over.
    pub fn live(&self, aged: Option<Vec<u64>>) -> Option<Live> {
        self.ask(|answer| Asked::Live(aged, answer))
    }

    fn ask<T>(&self, question: impl FnOnce(Sender<T>) -> Asked) -> Option<T> {
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
        // Who asked may be gone.
        for question in asked {
            match question {
                Asked::Live(aged, answer) => drop(answer.send(check.live(aged.as_deref()))),
                Asked::SoFar(sent, answer) => drop(answer.send(SoFar::new(check, sent.as_ref()))),
            }
        }
    }

    /// Nobody is answered any more.
    fn close(&self) {
        *self.questions() = Questions { asked: Vec::new(), are_over: true };
    }

    fn questions(&self) -> MutexGuard<'_, Questions> {
        self.0.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, look: CheckLook) {
        if let Some(mut shown) = unwatched(&self.0.look) {
            *shown = look;
        }
    }
}

impl SoFar {
    /// Frames are lost by their age.
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
        SoFar { summary, rows }
    }
}

impl Checking {
    /// Goes on with an account, empty or not, by frames that are selected; the slice means nothing here.
    pub fn new(check: Check, selection: Selection) -> Self {
        Checking {
            check,
            selector: Selector::new(Selection { slice: None, ..selection }),
            watch: CheckWatch::new(),
            picks: Vec::new(),
            turn_at: TURN,
            answers: None,
        }
    }

    /// Answers what is asked on the port that is checked, whose frames go nowhere else.
    pub fn answer(mut self, answering: Option<Answering>) -> Self {
        if let Some(answering) = answering {
            self.check.keep_questions();
            self.answers = Some(answering.into_answers());
        }
        self
    }

    /// Says there what was counted so far.
    pub fn watch(mut self, watch: CheckWatch) -> Self {
        self.watch = watch;
        self
    }

    /// The account of streams.
    pub fn done(self) -> Check {
        self.check
    }

    /// Checks what these ports bring.
    pub fn run(mut self, receive: Receive) -> CheckReport {
        let run = receive.run(&mut [&mut self]);
        let answers = self.answers.map(Answers::done).unwrap_or_default();
        CheckReport { check: self.check, run, answers }
    }

    fn show(&self, look: &Look<'_>) {
        self.watch.show(CheckLook {
            elapsed: look.elapsed,
            totals: self.check.totals(),
            streams: self.check.streams() as u64,
            lost_by_port: look.queues().lost(),
        });
    }
}

impl Consumer for Checking {
    fn name(&self) -> &'static str {
        "check"
    }

    /// The order in which several lanes are looked at would pass for reordering on the way.
    fn order(&self) -> Order {
        Order::Merged
    }

    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        let learned = self.selector.learn(round.interfaces);
        let Checking { check, selector, picks, watch, turn_at, answers } = self;
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

    fn look(&mut self, look: &Look<'_>) {
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

    fn finish(&mut self, end: &mut End<'_>) {
        self.show(end.look());
        self.watch.close();
        self.counters(end.ledger);
    }
}

/// A check in a thread of its own, beside whoever sends.
#[derive(Debug)]
pub struct Checker {
    stop: Stop,
    watch: CheckWatch,
    thread: JoinHandle<CheckReport>,
}

/// How often a checker that is to end looks whether frames still come.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl Checker {
    /// Starts the thread. Frames are taken from now on, so the sender may begin.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub fn start(checking: Checking, receive: Receive) -> std::io::Result<Self> {
        let (stop, watch) = (receive.stop.clone(), checking.watch.clone());
        let thread = thread::Builder::new().name("check".into()).spawn(move || checking.run(receive))?;
        Ok(Checker { stop, watch, thread })
    }

    /// To see what was counted so far.
    pub fn watch(&self) -> &CheckWatch {
        &self.watch
    }

    /// Ends the check once so long nothing of ours came, or `sent` frames did, and at the latest after `limit`: to be called
    /// when the sender has ended; at once if that is in a hurry. Whatever came by then is in the report.
    pub fn finish(self, sent: Option<u64>, silence: Duration, limit: Duration, sender: &Stop) -> CheckReport {
        let started = Instant::now();
        let (mut ours, mut changed) = (self.watch.ours(), started);
        let is_time = |since: Instant| since.elapsed() < silence && started.elapsed() < limit && !sender.is_hurried();
        while !self.thread.is_finished() && is_time(changed) {
            thread::sleep(LOOK_AGAIN);
            let now = self.watch.ours();
            if now != ours {
                (ours, changed) = (now, Instant::now());
            }
            if sent.is_some_and(|sent| ours >= sent) && changed.elapsed() >= silence / 4 {
                break;
            }
        }
        self.stop.request();
        // What can panic there is survived there.
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
