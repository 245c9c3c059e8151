//! Middle boxes between sender and receiver: a wire, a ring whose reader decides, a switch with such a ring, or an inspector in the same thread.

use super::PATIENCE;
use crate::machine::{crossing, during};
use anyhow::Context;
use linerate_backends::faulty::Faults;
use linerate_burst::{Desc, Ledger};
use linerate_cli::verbs::{receive_whole, send_as};
use linerate_engine::switching::{EngineRing, SwitchConsumer};
use linerate_engine::verdict::{self, Inspect, Policy};
use linerate_engine::{
    Consumer, FailMode, Forward, Inline, InlinePolicy, Progress, Sharing, SharingOptions, Stop, WaitStrategy,
};
use linerate_port::{RxPort, Spec};
use linerate_share::{Access, AttachOptions, Verdict, VerdictReply};
use linerate_switch::Action;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Connection of sender and receiver.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MiddleBox {
    Nothing,
    Bridge,
    /// From port to port as packets arrive.
    Wire,
    /// The ring, with a reader or without.
    Ring {
        engine: bool,
    },
    /// A switch that has the reader of the ring decide, and forwards what it passes.
    Switch,
    /// An inspector that reads packets without a copy.
    InPlace,
}

/// Ports of sender and receiver, and those of the middle to receive and send, each way.
pub(super) struct Ends {
    pub sender: Spec,
    pub receiver: Spec,
    pub middle: [(Spec, Spec); 2],
}

impl MiddleBox {
    /// Runs `work` while it forwards; returns its counters too.
    pub(super) fn during<T>(
        self,
        ends: &Ends,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, Ledger)> {
        let engine = match self {
            MiddleBox::Nothing | MiddleBox::Bridge => return Ok((work()?, Ledger::new())),
            MiddleBox::Ring { engine } => engine,
            MiddleBox::Switch => true,
            MiddleBox::InPlace | MiddleBox::Wire => false,
        };
        let plain = Faults::parse("seed=1").map_err(anyhow::Error::msg)?;
        let [(one, to_other), (other, to_one)] = &ends.middle;
        // Both ends receive before one sends: an xdp: queue is sent into by the socket that receives from it.
        let mut ports = vec![receive_whole(one, &plain, true)?, receive_whole(other, &plain, true)?];
        if matches!(self, MiddleBox::InPlace | MiddleBox::Wire) {
            // One way only; the other end stays open.
            let (mut from, to) = (ports.swap_remove(0), send_as(to_other, one)?);
            let inspector = || (Box::new(PassAll) as Box<dyn Inspect>, Policy::default());
            let mut forward = match self {
                MiddleBox::Wire => Forward::new(&mut from, to, Progress::new()),
                _ => Forward::inspected(&mut from, to, Progress::new(), inspector())?,
            };
            return run(vec![from], &mut forward, None, work);
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
        // Packets without a verdict of the engine are dropped, and so are not counted.
        let fail = if engine { FailMode::Closed } else { FailMode::Open };
        let (hold, budget) = (Duration::from_secs(1), Duration::from_secs(1));
        let policy = InlinePolicy { on_death: fail, on_overload: fail, hold, budget, ..InlinePolicy::default() };
        let sharing = Sharing::create(options)?;
        if self == MiddleBox::Switch {
            let switch = crossing(&[Action::Inspect(0)])?;
            let rings = vec![EngineRing { name: ring.clone(), sharing, policy }];
            // Packets leave by the other port.
            let [to_other, to_one] = to;
            let switching = SwitchConsumer::new(switch, vec![to_one, to_other], vec![1, 2], false, Progress::new());
            return run(ports, &mut switching.with_engines(rings), Some(&ring), work);
        }
        let names = [&*ports[0].name, &*ports[1].name];
        let mut inline = Inline::new(names, to, sharing, policy, Progress::new());
        run(ports, &mut inline, engine.then_some(&*ring), work)
    }
}

/// Runs `work` while packets of these ports are forwarded, and while an engine reads this ring, if there is one.
fn run<T>(
    ports: Vec<RxPort>,
    consumer: &mut (dyn Consumer + Send),
    ring: Option<&str>,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Ledger)> {
    let waiting = if spins() { WaitStrategy::Spin } else { WaitStrategy::default() };
    let done = during(ports, consumer, (waiting, None), |stop| {
        let Some(ring) = ring else { return work() };
        thread::scope(|scope| {
            let (attached, is_attached) = channel();
            let engine = scope.spawn(|| decide(ring, stop, attached));
            let result = is_attached.recv().context("its engine did not attach").and_then(|()| work());
            // The ring ends with the run.
            stop.request();
            engine.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            result
        })
    })?;
    Ok((done.0, done.1))
}

/// Returns true if sender, receiver, forwarder and engine have a processor each, so that none has to sleep.
fn spins() -> bool {
    thread::available_parallelism().is_ok_and(|processors| processors.get() >= 4)
}

/// An engine that passes every packet, to the end of the ring.
fn decide(ring: &str, stop: &Stop, attached: Sender<()>) -> anyhow::Result<()> {
    let (attach, began) = (AttachOptions { name: "bench".into(), ..AttachOptions::default() }, Instant::now());
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
        if engine.look(|_, _| VerdictReply::Now(Verdict::Pass)) == 0 && !spins {
            let mut waits = [PollFd::from_borrowed_fd(engine.wake(), PollFlags::IN)];
            // An interrupted wait is as good as a finished one.
            let _ = poll(&mut waits, Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 }));
        }
    }
    Ok(())
}

/// Forwards every packet.
struct PassAll;

impl Inspect for PassAll {
    fn inspect(&mut self, _: u64, _: &Desc, _: &mut [u8]) -> verdict::Verdict {
        verdict::Verdict::Pass
    }
}
