//! What is between sender and receiver: a wire, a ring whose reader decides, a switch with one, somebody who decides in place.

use super::PATIENCE;
use anyhow::{Context, ensure};
use linerate_backends::faulty::Faults;
use linerate_burst::{Desc, Ledger, Nanos};
use linerate_cli::verbs::{receive_whole, send_as};
use linerate_engine::switching::{EngineRing, Switching};
use linerate_engine::verdict::{self, Inspect, Policy};
use linerate_engine::{
    Consumer, Fail, Forward, Inline, InlinePolicy, Progress, Receive, Sharing, SharingOptions, Stop, Waiting,
};
use linerate_port::{RxPort, Spec};
use linerate_share::{Access, Attach, Decide, Verdict};
use linerate_switch::text::{numbered, parse_rule};
use linerate_switch::{Action, Options, Switch};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// What is between sender and receiver.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Between {
    Nothing,
    Bridge,
    /// From port to port as frames come.
    Wire,
    /// The ring, and somebody who reads it or nobody.
    Ring {
        engine: bool,
    },
    /// A switch that has the reader of the ring decide, and does the rest with what comes back.
    Switch,
    /// Somebody who looks at frames where they lie.
    InPlace,
}

/// Where frames are sent and received, and where those who are in between receive and send, each way.
pub(super) struct Ends {
    pub sender: Spec,
    pub receiver: Spec,
    pub middle: [(Spec, Spec); 2],
}

impl Between {
    /// Does something while it is there; what it has counted.
    pub(super) fn beside<T>(
        self,
        ends: &Ends,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, Ledger)> {
        let engine = match self {
            Between::Nothing | Between::Bridge => return Ok((work()?, Ledger::new())),
            Between::Ring { engine } => engine,
            Between::Switch => true,
            Between::InPlace | Between::Wire => false,
        };
        let plain = Faults::parse("seed=1").map_err(anyhow::Error::msg)?;
        let [(one, to_other), (other, to_one)] = &ends.middle;
        // Both ends receive before one sends: an xdp: queue is sent into by the socket that receives from it.
        let mut ports = vec![receive_whole(one, &plain, true)?, receive_whole(other, &plain, true)?];
        if matches!(self, Between::InPlace | Between::Wire) {
            // One way alone; the other end goes on to be open.
            let (mut from, to) = (ports.swap_remove(0), send_as(to_other, one)?);
            let inspector = || (Box::new(Passes) as Box<dyn Inspect>, Policy::default());
            let mut forward = match self {
                Between::Wire => Forward::new(&mut from, to, Progress::new()),
                _ => Forward::inspected(&mut from, to, Progress::new(), inspector())?,
            };
            return during(vec![from], &mut forward, None, work);
        }
        let to = [send_as(to_other, one)?, send_as(to_one, other)?];
        let ring = format!("linerate-bench-{}", std::process::id());
        let options = SharingOptions {
            name: ring.clone(),
            ring: linerate_share::Options { slots: 64, ..linerate_share::Options::default() },
            access: Access { engine: Some(String::new()), ..Access::default() },
            wait_for: 0,
            patience: None,
        };
        // What an engine does not decide about does not pass, and so is not counted.
        let fail = if engine { Fail::Closed } else { Fail::Open };
        let (hold, budget) = (Duration::from_secs(1), Duration::from_secs(1));
        let policy = InlinePolicy { on_death: fail, on_overload: fail, hold, budget, ..InlinePolicy::default() };
        let sharing = Sharing::create(options)?;
        if self == Between::Switch {
            let mut switch = Switch::new(Options::new(2));
            for text in ["in_port=1,actions=output:2", "in_port=2,actions=output:1"] {
                let mut rule = parse_rule(text, &numbered(2)).map_err(anyhow::Error::msg)?;
                rule.actions.insert(0, Action::Inspect(0));
                switch.add(rule, Nanos(1));
            }
            let rings = vec![EngineRing { name: ring.clone(), sharing, policy }];
            // What leaves by a port is what came by the other one.
            let [to_other, to_one] = to;
            let switching = Switching::new(switch, vec![to_one, to_other], vec![1, 2], false, Progress::new());
            return during(ports, &mut switching.with_engines(rings), Some(&ring), work);
        }
        let names = [&*ports[0].name, &*ports[1].name];
        let mut inline = Inline::new(names, to, sharing, policy, Progress::new());
        during(ports, &mut inline, engine.then_some(&*ring), work)
    }
}

/// Does something while frames of these ports go on, and while an engine reads this ring if there is one.
fn during<T>(
    mut ports: Vec<RxPort>,
    consumer: &mut (dyn Consumer + Send),
    ring: Option<&str>,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Ledger)> {
    let stop = Stop::new();
    ports.iter_mut().flat_map(|port| &mut port.queues).for_each(|queue| queue.start());
    thread::scope(|scope| {
        let waiting = if spins() { Waiting::Spin } else { Waiting::default() };
        let run = Receive { stop: stop.clone(), waiting, ..Receive::all(ports) };
        let running = scope.spawn(move || run.run(&mut [consumer]));
        let (attached, is_attached) = channel();
        let engine = ring.map(|ring| scope.spawn(|| decide(ring, &stop, attached)));
        let came = match &engine {
            Some(_) => is_attached.recv().context("its engine did not attach").and_then(|()| work()),
            None => work(),
        };
        stop.request();
        let run = running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if let Some(engine) = engine {
            engine.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        if let Some(failure) = run.failure {
            return Err(failure.into());
        }
        ensure!(run.ledger.imbalances().is_empty(), "frames are not accounted for: {:?}", run.ledger.imbalances());
        Ok((came?, run.ledger))
    })
}

/// Whether there are processors enough that nobody has to sleep: for who sends, who receives, who forwards and who decides.
fn spins() -> bool {
    thread::available_parallelism().is_ok_and(|processors| processors.get() >= 4)
}

/// An engine that lets every frame pass, until there is nothing more to decide.
fn decide(ring: &str, stop: &Stop, attached: Sender<()>) -> anyhow::Result<()> {
    let (attach, began) = (Attach { name: "bench".into(), ..Attach::default() }, Instant::now());
    let mut engine = loop {
        match attach.engine(ring) {
            Ok(engine) => break engine,
            Err(error) if began.elapsed() > PATIENCE || stop.is_requested() => return Err(error.into()),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    };
    attached.send(())?;
    let spins = spins();
    while engine.ended().is_none() {
        if engine.look(|_, _| Decide::Now(Verdict::Pass)) == 0 && !spins {
            let mut waits = [PollFd::from_borrowed_fd(engine.wake(), PollFlags::IN)];
            // An interrupted wait is as good as a finished one.
            let _ = poll(&mut waits, Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 }));
        }
    }
    Ok(())
}

/// Lets every frame pass.
struct Passes;

impl Inspect for Passes {
    fn inspect(&mut self, _: u64, _: &Desc, _: &mut [u8]) -> verdict::Verdict {
        verdict::Verdict::Pass
    }
}
