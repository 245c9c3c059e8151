//! Answering on an interface while it sends: port -> answers -> port, in a thread of its own.
//!
//! A sender whose addresses nobody answers for gets no traffic through a router or to a host that looks its source up. The
//! frames for this come by a port of their own, which takes nothing away from anybody: `packet`, with a filter in the kernel.

use crate::clock;
use crate::control::Stop;
use crate::died::survive;
use crate::lanes::{Lanes, Shown, recycle};
use crate::wait::{Awaited, Idler, Waiting};
use linerate_burst::{Ledger, Nanos, Stage};
use linerate_generate::answer::{Answerer, Hop, RETRY, Resolution, TRIES};
use linerate_port::{PortError, RxPort, TxPort};
use linerate_wire::MacAddr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest wait for input, so that stop requests are seen and questions leave in time.
const NAP_LIMIT: Duration = Duration::from_millis(10);
/// How long the ports may take to run dry at the end.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// Answers on one interface: a receiving and a sending port of it.
pub struct Answering {
    lanes: Lanes,
    to: TxPort,
    answerer: Answerer,
    idler: Idler,
    /// How many of the frames to be sent are sent.
    sent: usize,
    /// What each lane shows in a round; empty between rounds.
    shown: Vec<Shown<'static>>,
    failure: Option<PortError>,
}

/// Answers that are given in a thread until they are finished.
#[derive(Debug)]
pub struct Running {
    thread: JoinHandle<AnsweringReport>,
    stop: Stop,
}

/// What was answered.
#[derive(Debug, Default)]
pub struct AnsweringReport {
    /// Every frame accounted for; the subjects say that they are those of answering.
    pub ledger: Ledger,
    /// What was noteworthy, in order.
    pub events: Vec<String>,
    /// What went wrong, if anything.
    pub failure: Option<PortError>,
}

/// Why the MAC address of a next hop is not known.
#[derive(Debug, thiserror::Error)]
pub enum Unresolved {
    /// It does not answer.
    #[error(
        "nobody answers for {} on {port}: {TRIES} {hop} in {} s; is it up, in the network of that port, and willing \
         to answer this source?", .hop.target(), RETRY.as_secs() * u64::from(TRIES)
    )]
    Silent {
        /// Which next hop.
        hop: Hop,
        /// Where it was asked for.
        port: String,
    },
    /// The run is to end.
    #[error("stopped while waiting for the MAC address of {0}")]
    Stopped(std::net::IpAddr),
    /// A port does not work.
    #[error(transparent)]
    Port(PortError),
}

impl Answering {
    /// Answers what comes from `from`, through the first queue of `to`.
    pub fn new(from: RxPort, to: TxPort, answerer: Answerer) -> Self {
        let lanes = Lanes::new(vec![from]);
        let idler = Idler::new(Waiting::Sleep);
        Answering { lanes, to, answerer, idler, sent: 0, shown: Vec::new(), failure: None }
    }

    /// Asks for the MAC addresses of all these next hops at once, in this thread, and waits for them, at most
    /// [`TRIES`] times [`RETRY`]; answers others meanwhile.
    pub fn resolve(&mut self, hops: &[Hop], stop: &Stop) -> Result<Vec<MacAddr>, Unresolved> {
        let now = clock::now();
        hops.iter().for_each(|hop| self.answerer.resolve(*hop, now));
        loop {
            let now = clock::now();
            let round = self.round(now);
            let states = hops.iter().map(|hop| (hop, self.answerer.resolution(hop)));
            let mut found = Vec::with_capacity(hops.len());
            let mut asking = None;
            for (hop, state) in states {
                match state {
                    Some(Resolution::At(mac)) => found.push(mac),
                    Some(Resolution::Silent) => {
                        return Err(Unresolved::Silent { hop: *hop, port: self.to.name.clone() });
                    }
                    Some(Resolution::Asking) | None => asking = asking.or(Some(hop.target())),
                }
            }
            let Some(asking) = asking else { return Ok(found) };
            if let Some(failure) = self.failure.take().or(self.lanes.failure.take()) {
                return Err(Unresolved::Port(failure));
            }
            if stop.is_requested() {
                return Err(Unresolved::Stopped(asking));
            }
            self.rest(&round, now);
        }
    }

    /// Goes on in a thread of its own, which has the privileges that the caller has now.
    ///
    /// # Errors
    /// If the system starts no more threads.
    pub fn start(self) -> std::io::Result<Running> {
        let stop = Stop::new();
        let asked = stop.clone();
        let thread = std::thread::Builder::new().name("answer".into()).spawn(move || self.run(&asked))?;
        Ok(Running { thread, stop })
    }

    fn run(mut self, stop: &Stop) -> AnsweringReport {
        if let Err(died) = survive(|| self.answer(stop)) {
            self.failure.get_or_insert(died.at(&self.to.name));
        }
        self.report()
    }

    fn answer(&mut self, stop: &Stop) {
        let mut detached: Option<Instant> = None;
        loop {
            if detached.is_none() && (stop.is_requested() || self.failure.is_some()) {
                self.lanes.detach();
                detached = Some(Instant::now());
            }
            let now = clock::now();
            let round = self.round(now);
            if (round.over && round.flushed) || detached.is_some_and(|since| since.elapsed() > STOP_LIMIT) {
                return;
            }
            self.rest(&round, now);
        }
    }

    /// Looks at what has come, and sends what is to be sent.
    fn round(&mut self, now: Nanos) -> Round {
        let mut shown = recycle(std::mem::take(&mut self.shown));
        self.lanes.fill(now, &mut shown);
        let mut taken = Vec::with_capacity(shown.len());
        for lane in &shown {
            for (desc, frame) in lane.burst.iter() {
                if desc.is_truncated() {
                    self.answerer.receive_truncated();
                } else {
                    self.answerer.receive(frame, now);
                }
            }
            taken.push(lane.burst.len());
        }
        let over = shown.iter().all(Shown::is_over);
        self.shown = recycle(shown);
        taken.iter().enumerate().for_each(|(lane, frames)| self.lanes.consume(lane, *frames));
        self.answerer.tick(now);
        let flushed = self.send(now);
        Round { moved: taken.iter().any(|frames| *frames > 0), over, flushed }
    }

    /// Hands on what is to be sent; true if nothing is left in hand.
    fn send(&mut self, now: Nanos) -> bool {
        let queue = &mut self.to.queues[0];
        let frames = self.answerer.frames();
        let result = queue.send(frames.slice(self.sent..frames.len())).and_then(|done| {
            self.sent += done;
            queue.flush(now)
        });
        let left = frames.len() - self.sent;
        match result {
            Ok(flushed) if left == 0 => {
                self.forget(0);
                flushed
            }
            Ok(_) | Err(PortError::Again { .. }) => false,
            // Who asks will ask again.
            Err(error) => {
                self.forget(left);
                if !matches!(error, PortError::Down { .. }) {
                    self.failure.get_or_insert(error);
                }
                true
            }
        }
    }

    fn forget(&mut self, unsent: usize) {
        self.answerer.clear(unsent);
        self.sent = 0;
    }

    fn rest(&mut self, round: &Round, now: Nanos) {
        let lanes = &self.lanes;
        if round.moved {
            self.idler.busy(now);
        } else if round.flushed {
            self.idler.idle(now, NAP_LIMIT, Awaited::Input, || lanes.wakes());
        } else {
            self.idler.idle(now, NAP_LIMIT, Awaited::Horizon, || None);
        }
    }

    fn report(mut self) -> AnsweringReport {
        let left = self.answerer.frames().len() - self.sent;
        self.forget(left);
        let mut plain = Ledger::new();
        self.lanes.queue_counters(&mut plain);
        self.to.queues.iter().for_each(|queue| queue.counters(&mut plain));
        // The frames sent meanwhile have accounts of the same names.
        let mut ledger = Ledger::new();
        for account in plain.accounts() {
            let own = ledger.account(account.stage, &format!("{} (answering)", account.subject));
            for (count, frames) in account.counts() {
                own.add(count, frames);
            }
        }
        self.answerer.counters(ledger.account(Stage::Answer, &self.to.name));
        AnsweringReport { ledger, events: self.lanes.events, failure: self.failure.or(self.lanes.failure) }
    }
}

impl Running {
    /// Ends the answers; what has arrived is answered first.
    pub fn finish(self) -> AnsweringReport {
        self.stop.request();
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// What came of one round.
struct Round {
    /// Frames came.
    moved: bool,
    /// No more will come.
    over: bool,
    /// All answers are on their way.
    flushed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_backends::{open_rx, open_tx};
    use linerate_burst::{Count, Kind};
    use linerate_generate::answer::{Addresses, Own, Vlans};
    use linerate_port::{RxOptions, Spec, TxOptions};
    use std::net::IpAddr;

    const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];

    fn answering(from: &str, to: &str, own: Own) -> Answering {
        let port = |name: &str| Spec::parse(&format!("mem:{name}?stamp=now")).unwrap();
        let from = open_rx(&port(from), &RxOptions::default()).unwrap();
        let to = open_tx(&port(to), &TxOptions::default()).unwrap();
        Answering::new(from, to, Answerer::new(Addresses::new(vec![own]).unwrap(), 100))
    }

    #[test]
    fn two_that_answer_find_each_other() {
        for (name, ips) in [("answer4", ["10.0.0.1", "10.0.0.2"]), ("answer6", ["fd00::1", "fd00::2"])] {
            let ips = ips.map(|ip| ip.parse::<IpAddr>().unwrap());
            let (there, back) = (format!("{name}-there"), format!("{name}-back"));
            let mut one = answering(&back, &there, Own::one(ips[0], MACS[0]));
            let other = answering(&there, &back, Own::one(ips[1], MACS[1])).start().unwrap();
            let hop = Hop::new(ips[1], ips[0], MACS[0], Vlans::NONE).unwrap();
            assert_eq!(one.resolve(&[hop], &Stop::new()).unwrap(), [MACS[1]], "{name}");
            let reports = [one.start().unwrap().finish(), other.finish()];
            for (report, what) in reports.iter().zip([Count::AnswerAsked, Count::Answered]) {
                assert_eq!(
                    (report.ledger.total(what), report.ledger.sum(Stage::Send, Kind::Delivered)),
                    (1, 1),
                    "{name}"
                );
                assert!(report.failure.is_none() && report.ledger.imbalances().is_empty(), "{report:?}");
            }
        }
    }

    #[test]
    fn a_request_to_stop_ends_the_wait() {
        let mut one = answering("answer-x", "answer-y", Own::one([10, 0, 0, 1].into(), MACS[0]));
        let hop = Hop::new([10, 0, 0, 2].into(), [10, 0, 0, 1].into(), MACS[0], Vlans::NONE).unwrap();
        let stop = Stop::new();
        stop.request();
        assert!(matches!(one.resolve(&[hop], &stop), Err(Unresolved::Stopped(_))));
    }
}
