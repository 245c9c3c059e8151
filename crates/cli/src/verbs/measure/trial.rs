//! One trial: ports opened, frames sent in one direction or two at once, what came counted once nothing comes any more.

use super::account::{Account, Made, Way};
use super::reset::Resetter;
use super::traffic::Frames;
use crate::verbs::generate::answer::{self, AnswerArgs};
use crate::verbs::generate::sending::{check, open_check, open_tx, route};
use linerate_burst::LinkType;
use linerate_engine::answer::Running;
use linerate_engine::check::{CheckWatch, Checker, Checking};
use linerate_engine::streams::{Run, soon};
use linerate_engine::{Answering, Progress, Receive, Selection, Stop, StreamWatch, Streams};
use linerate_generate::check::LiveRow;
use linerate_generate::stream::StreamSet;
use linerate_generate::trailer::Key;
use linerate_port::{Spec, TxOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What came late is waited for so long at the most.
const PATIENCE: Duration = Duration::from_secs(10);
/// Streams of a trial that are told one by one.
pub const FEW: usize = 100;

/// Whoever makes trials.
pub trait Trials {
    /// Sends frames of these sets, one for each direction; the number of the trial keeps its frames apart from those of others.
    fn run(
        &self,
        sets: &[StreamSet],
        frames: &Frames,
        number: u64,
        beside: Option<Beside<'_>>,
    ) -> anyhow::Result<Account>;

    /// Asked for, nothing more is begun.
    fn stop(&self) -> &Stop;

    /// Whoever resets the device, by a command of the shell.
    fn resetter(&self, command: &str) -> Resetter {
        Resetter::Command(command.to_owned())
    }
}

/// The ports, and what is done at them.
pub struct Bench<'a> {
    /// One or two.
    pub directions: Vec<Direction>,
    pub take: bool,
    pub threads: usize,
    /// Nothing came for so long: nothing more will.
    pub quiet: Duration,
    pub stop: &'a Stop,
}

/// Where frames of one direction leave and come.
#[derive(Clone, Debug)]
pub struct Direction {
    pub from: Spec,
    pub to: Spec,
    /// Who is answered and asked there.
    pub answer: AnswerArgs,
}

/// Something that goes on beside a trial.
pub type Beside<'a> = Box<dyn FnOnce(&Looks) + Send + 'a>;

/// Looks at a trial while it runs.
pub struct Looks {
    /// Each direction.
    pub ways: Vec<Box<dyn Looking>>,
    /// Whether all was sent.
    pub is_sent: Arc<AtomicBool>,
}

/// What was sent and what came in one direction, so far.
pub trait Looking: Send + Sync {
    /// Frames of each stream, by its number.
    fn sent(&self) -> Vec<u64>;

    /// What came of each stream, and what is lost of it, where so many frames had been sent
    /// [`AGE`](linerate_generate::check::AGE) ago.
    fn live(&self, aged: Vec<u64>) -> Vec<LiveRow>;

    /// Frames of ours that came.
    fn ours(&self) -> u64;
}

impl Looking for (StreamWatch, CheckWatch) {
    fn sent(&self) -> Vec<u64> {
        self.0.sent()
    }

    fn live(&self, aged: Vec<u64>) -> Vec<LiveRow> {
        self.1.live(Some(aged)).unwrap_or_default().rows
    }

    fn ours(&self) -> u64 {
        self.1.ours()
    }
}

impl Looks {
    /// Whether all was sent.
    pub fn is_sent(&self) -> bool {
        self.is_sent.load(Ordering::Acquire)
    }
}

/// A direction whose ports are open.
struct Ready {
    set: StreamSet,
    intended: Option<(u64, f64)>,
    streams: Option<Streams>,
    checker: Checker,
    answering: Option<Running>,
    watch: StreamWatch,
}

impl Trials for Bench<'_> {
    fn run(
        &self,
        sets: &[StreamSet],
        frames: &Frames,
        number: u64,
        beside: Option<Beside<'_>>,
    ) -> anyhow::Result<Account> {
        let ways = self.directions.iter().zip(sets).enumerate();
        let ready = ways.map(|(way, (direction, set))| self.ready(direction, set, frames, number * 2 + way as u64));
        let mut ready = ready.collect::<anyhow::Result<Vec<Ready>>>()?;
        let look =
            |ready: &Ready| -> Box<dyn Looking> { Box::new((ready.watch.clone(), ready.checker.watch().clone())) };
        let looks = Looks { ways: ready.iter().map(look).collect(), is_sent: Arc::default() };
        let start = soon();
        let sent: Vec<_> = std::thread::scope(|scope| {
            let beside = beside.map(|beside| scope.spawn(|| beside(&looks)));
            let send = |ready: &mut Ready| {
                let run = Run {
                    duration: frames.seconds().map(Duration::from_secs_f64),
                    stop: self.stop.clone(),
                    progress: Progress::new(),
                    watch: ready.watch.clone(),
                    at_once: false,
                };
                let streams = ready.streams.take();
                scope.spawn(move || streams.map(|streams| streams.run_from(start, &run)))
            };
            let senders: Vec<_> = ready.iter_mut().map(send).collect();
            let sent = senders.into_iter().map(|sender| sender.join()).collect();
            looks.is_sent.store(true, Ordering::Release);
            if let Some(Err(panic)) = beside.map(|beside| beside.join()) {
                std::panic::resume_unwind(panic);
            }
            sent
        });
        let mut ways = Vec::new();
        for ((ready, sent), direction) in ready.into_iter().zip(sent).zip(&self.directions) {
            let Some(sent) = sent.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) else {
                unreachable!("each direction sends once")
            };
            let received = ready.checker.finish(Some(sent.sent.frames), self.quiet, PATIENCE, self.stop);
            answer::finish(ready.answering);
            answer::tell_failure(&received.answers);
            let is_each_told = ready.set.streams.len() <= FEW;
            let way = Way::new(ready.intended, &ready.set, &Made::new(&sent, &received), is_each_told);
            ways.push(Way { from: direction.from.to_string(), to: direction.to.to_string(), ..way });
        }
        Ok(Account::new(ways))
    }

    fn stop(&self) -> &Stop {
        self.stop
    }
}

impl Bench<'_> {
    fn ready(&self, direction: &Direction, set: &StreamSet, frames: &Frames, key: u64) -> anyhow::Result<Ready> {
        let Direction { from, to, answer } = direction;
        let mut set = frames.of(set);
        set.key = Key(Key::default().0.wrapping_add(key));
        let routed = route(answer, from, Some(to), &mut set)?;
        let receiving = open_check(to, self.take)?;
        let link = LinkType(set.streams[0].link.linktype());
        let options = TxOptions { queues: self.threads, stamped: true, owner: None, link };
        let streams = Streams::new(&set, open_tx(from, &options)?)?;
        let answering = routed.answering.map(Answering::start).transpose()?;
        let checking = Checking::new(check(&set, 0), Selection::default()).answer(routed.answering_check);
        let checker = Checker::start(checking, Receive::all(vec![receiving]))?;
        let intended = frames.intended(&set).map(|intended| (intended, frames.seconds().unwrap_or(f64::INFINITY)));
        Ok(Ready { intended, streams: Some(streams), checker, answering, watch: StreamWatch::default(), set })
    }
}
