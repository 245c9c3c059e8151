//! One trial: opens the ports, sends frames in one or both directions, and counts received frames until silence.

use super::account::{DirectionResult, SentFrames, TrialResult};
use super::reset::Helper;
use super::traffic::{self, Frames};
use crate::exit::usage;
use crate::verbs::generate::answer::{self, AnswerArgs};
use crate::verbs::generate::preflight;
use crate::verbs::generate::stream_run::{open_check, open_tx, route};
use crate::verbs::inputs::check_take;
use anyhow::bail;
use linerate_backends::REGISTRY;
use linerate_backends::carrier::Carrier;
use linerate_burst::LinkType;
use linerate_engine::answer::ResponderThread;
use linerate_engine::check::{CheckConsumer, CheckThread, CheckWatch};
use linerate_engine::streams::{StreamRun, soon};
use linerate_engine::{InterfaceResponder, Progress, Receive, Selection, Stop, StreamWatch, Streams};
use linerate_generate::Rate;
use linerate_generate::check::{Check, LiveRow};
use linerate_generate::stream::StreamSet;
use linerate_generate::trailer::Key;
use linerate_port::{Spec, TxOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum time to wait for frames after sending.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum time to wait for a link after opening a port: some drivers reset it.
const LINK_PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which link states are polled.
const LOOK: Duration = Duration::from_millis(20);
/// Number of learning frames per stream, and their rate in frames per second.
const LEARNING: (u64, f64) = (16, 10_000.0);
/// Maximum transit time of learning frames.
const LEARNED: Duration = Duration::from_millis(50);
/// Maximum number of streams of a trial that are reported one by one.
pub(super) const FEW: usize = 100;

/// Runs trials.
pub(super) trait Trials {
    /// Sends the frames of these sets, one per direction; the number of the trial marks its frames.
    fn run(
        &self,
        sets: &[StreamSet],
        frames: &Frames,
        number: u64,
        task: Option<SideTask<'_>>,
    ) -> anyhow::Result<TrialResult>;

    /// Returns the stop request: once it is set, no trial starts.
    fn stop(&self) -> &Stop;

    /// Returns the shell that resets the device.
    fn resets(&self) -> Option<&Helper>;
}

/// Trials at ports that are opened for each of them.
pub(super) struct PortTrials<'a> {
    /// One or two directions.
    pub directions: Vec<Direction>,
    pub take: bool,
    pub threads: usize,
    /// True to send learning frames for bridges before each trial.
    pub learn: bool,
    /// Silence after which a trial ends.
    pub quiet: Duration,
    pub stop: &'a Stop,
    /// Shell that resets the device.
    pub resets: Option<Arc<Helper>>,
}

/// Ports of one direction.
#[derive(Clone, Debug)]
pub(super) struct Direction {
    pub from: Spec,
    pub to: Spec,
    /// Options for answering and resolving.
    pub answer: AnswerArgs,
}

/// Returns the directions: forward, and with `--both` reverse.
pub(super) fn directions(args: &super::Args) -> anyhow::Result<Vec<Direction>> {
    let [to, check] = [&args.to, &args.check].map(|port| Spec::parse(port).map_err(usage));
    let (to, check) = (to?, check?);
    for spec in [&to, &check] {
        if REGISTRY.file(spec).is_some() {
            return Err(usage(format!(
                "{spec}: not supported; measure needs two interfaces with the device in between"
            )));
        }
    }
    preflight::check_route(&to, args.end.yes)?;
    check_take(args.take, &Some(check.clone()))?;
    args.answer.check(&to, Some(&check))?;
    let mut directions = vec![Direction { from: to.clone(), to: check.clone(), answer: args.answer.clone() }];
    if args.both || args.learn {
        preflight::check_route(&check, args.end.yes)?;
    }
    if args.both {
        let answer = args.answer.turned()?;
        directions.push(Direction { from: REGISTRY.for_sending(&check)?, to, answer });
    }
    Ok(directions)
}

/// Task that runs during a trial.
pub(super) struct SideTask<'a> {
    pub does: Box<dyn FnOnce(&TrialCounters) + Send + 'a>,
    /// True if it resets the device, whose links may then go down.
    pub is_reset: bool,
}

/// Live counters of a trial.
pub(super) struct TrialCounters {
    /// Counters of each direction.
    pub directions: Vec<Box<dyn DirectionCounters>>,
    /// True once all frames are sent.
    pub is_sent: Arc<AtomicBool>,
}

/// Live counters of one direction.
pub(super) trait DirectionCounters: Send + Sync {
    /// Returns the frames sent per stream, by stream number.
    fn sent(&self) -> Vec<u64>;

    /// Returns the frames received and lost per stream, given those sent [`AGE`](linerate_generate::check::AGE) ago.
    fn live(&self, aged: Vec<u64>) -> Vec<LiveRow>;

    /// Returns the number of received frames that are part of the trial.
    fn ours(&self) -> u64;
}

impl DirectionCounters for (StreamWatch, CheckWatch) {
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

impl<'a> SideTask<'a> {
    /// Creates a task that does not reset the device.
    pub(super) fn looking(does: impl FnOnce(&TrialCounters) + Send + 'a) -> Self {
        SideTask { does: Box::new(does), is_reset: false }
    }
}

impl TrialCounters {
    /// Returns whether all frames are sent.
    pub(super) fn is_sent(&self) -> bool {
        self.is_sent.load(Ordering::Acquire)
    }
}

/// Direction with open ports.
struct OpenDirection {
    set: StreamSet,
    intended: Option<(u64, f64)>,
    streams: Option<Streams>,
    checker: CheckThread,
    answering: Option<ResponderThread>,
    watch: StreamWatch,
}

impl Trials for PortTrials<'_> {
    fn run(
        &self,
        sets: &[StreamSet],
        frames: &Frames,
        number: u64,
        task: Option<SideTask<'_>>,
    ) -> anyhow::Result<TrialResult> {
        if self.learn {
            self.send_back(sets)?;
        }
        let directions = self.directions.iter().zip(sets).enumerate();
        let ready =
            directions.map(|(way, (direction, set))| self.ready(direction, set, frames, number * 2 + way as u64));
        let mut ready = ready.collect::<anyhow::Result<Vec<OpenDirection>>>()?;
        let look = |ready: &OpenDirection| -> Box<dyn DirectionCounters> {
            Box::new((ready.watch.clone(), ready.checker.watch().clone()))
        };
        let looks = TrialCounters { directions: ready.iter().map(look).collect(), is_sent: Arc::default() };
        let may_go_down = task.as_ref().is_some_and(|task| task.is_reset);
        let links = if may_go_down { Vec::new() } else { self.links()? };
        let start = soon();
        let (sent, down): (Vec<_>, _) = std::thread::scope(|scope| {
            let task = task.map(|task| scope.spawn(|| (task.does)(&looks)));
            let down = scope.spawn(|| self.watch(&links, &looks));
            let send = |ready: &mut OpenDirection| {
                let run = StreamRun {
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
            if let Some(Err(panic)) = task.map(|task| task.join()) {
                std::panic::resume_unwind(panic);
            }
            (sent, down.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let mut directions = Vec::new();
        for ((ready, sent), direction) in ready.into_iter().zip(sent).zip(&self.directions) {
            let Some(sent) = sent.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) else {
                unreachable!("each direction sends once")
            };
            let received = ready.checker.finish(Some(sent.sent.frames), self.quiet, PATIENCE, self.stop);
            answer::finish(ready.answering);
            answer::report_failure(&received.answers);
            let per_stream = ready.set.streams.len() <= FEW;
            let made = SentFrames::new(&sent, &received, frames.load(&ready.set));
            let way = DirectionResult::new(ready.intended, &ready.set, &made, per_stream);
            directions.push(DirectionResult { from: direction.from.to_string(), to: direction.to.to_string(), ..way });
        }
        let mut account = TrialResult::new(directions);
        account.failure = account.failure.or(down.or_else(|| link_down_error(&links)));
        Ok(account)
    }

    fn stop(&self) -> &Stop {
        self.stop
    }

    fn resets(&self) -> Option<&Helper> {
        self.resets.as_deref()
    }
}

/// Name and link of a port.
type Link = (String, Carrier);

/// Returns the error if a link was down.
fn link_down_error(links: &[Link]) -> Option<String> {
    let (port, _) = links.iter().find(|(_, link)| link.was_down())?;
    Some(format!("{port}: link went down during the trial; missing packets were not lost by the device"))
}

impl PortTrials<'_> {
    /// Sends learning frames in the reverse direction.
    fn send_back(&self, sets: &[StreamSet]) -> anyhow::Result<()> {
        for (direction, set) in self.directions.iter().zip(sets) {
            let mut back = traffic::turned(set);
            // A key that no trial uses.
            (back.rate, back.key) = (None, Key(Key::default().0.wrapping_sub(1)));
            for stream in &mut back.streams {
                (stream.count, stream.rate) = (Some(LEARNING.0), Rate::Frames(LEARNING.1));
            }
            let link = LinkType(set.streams[0].link.linktype());
            let options = TxOptions { queues: 1, stamped: true, owner: None, link };
            let port = open_tx(&REGISTRY.for_sending(&direction.to)?, &options)?;
            let sent = Streams::new(&back, port)?.run(&StreamRun { stop: self.stop.clone(), ..StreamRun::default() });
            if let Some(failure) = sent.failure {
                bail!("learning frames: {failure}");
            }
        }
        std::thread::sleep(LEARNED);
        Ok(())
    }

    /// Waits until the links of all ports are up, and returns them.
    fn links(&self) -> anyhow::Result<Vec<Link>> {
        let ports = self.directions[..1].iter().flat_map(|direction| [&direction.from, &direction.to]);
        let mut links = Vec::new();
        for port in ports {
            let Some(mut link) = Carrier::of(port) else { continue };
            let started = Instant::now();
            while !link.is_up() {
                if self.stop.is_requested() || started.elapsed() >= LINK_PATIENCE {
                    bail!("{port}: link is down; set both ends up, or check the cable");
                }
                std::thread::sleep(LOOK);
                link = Carrier::of(port).unwrap_or(link);
            }
            links.push((port.to_string(), link));
        }
        Ok(links)
    }

    /// Stops the measurement when a link goes down; returns the error.
    fn watch(&self, links: &[Link], looks: &TrialCounters) -> Option<String> {
        while !looks.is_sent() {
            let down = link_down_error(links);
            if down.is_some() {
                self.stop.request();
                return down;
            }
            std::thread::sleep(LOOK);
        }
        None
    }

    fn ready(
        &self,
        direction: &Direction,
        set: &StreamSet,
        frames: &Frames,
        key: u64,
    ) -> anyhow::Result<OpenDirection> {
        let Direction { from, to, answer } = direction;
        let mut set = frames.of(set);
        set.key = Key(Key::default().0.wrapping_add(key));
        let routed = route(answer, from, Some(to), &mut set)?;
        let receiving = open_check(to, self.take)?;
        let link = LinkType(set.streams[0].link.linktype());
        let options = TxOptions { queues: self.threads, stamped: true, owner: None, link };
        let streams = Streams::new(&set, open_tx(from, &options)?)?;
        let answering = routed.answering.map(InterfaceResponder::start).transpose()?;
        let checking = CheckConsumer::new(Check::of(&set, 0), Selection::default()).answer(routed.answering_check);
        let checker = CheckThread::start(checking, Receive::all(vec![receiving]))?;
        let intended = frames.intended(&set).map(|intended| (intended, frames.seconds().unwrap_or(f64::INFINITY)));
        Ok(OpenDirection { intended, streams: Some(streams), checker, answering, watch: StreamWatch::default(), set })
    }
}
