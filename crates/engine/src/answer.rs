//! Answering on an interface while it sends: port -> answers -> port, in a thread of its own.
//!
//! A sender whose addresses nobody answers for gets no traffic through a router or to a host that looks its source up. The
//! frames for this come by a port of their own, which takes nothing away from anybody: `packet`, with a filter in the kernel.

use crate::clock;
use crate::consumer::{Consumer, Demand, End, Order, Round};
use crate::control::Stop;
use crate::died::survive;
use crate::error::ReceiveError;
use crate::outlet::{Done, Outlet, Sent};
use crate::receive::wait::Waiting;
use crate::receive::{Receive, Receiver};
use linerate_burst::{Ledger, Nanos, Stage};
use linerate_generate::answer::{Answerer, Hop, RETRY, Resolution, TRIES};
use linerate_port::{RxPort, TxPort};
use linerate_wire::MacAddr;
use std::net::IpAddr;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long what is to be sent may stay at the end.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// Answers on one interface: a receiving and a sending port of it; or for whoever receives there, which has them in its own run.
pub struct Answering {
    receiver: Receiver,
    answers: Answers,
    stop: Stop,
}

/// What comes is looked at, and what is to be sent is sent.
pub struct Answers {
    to: Outlet,
    done: Done,
    answerer: Answerer,
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
    pub failure: Option<ReceiveError>,
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
    Stopped(IpAddr),
    /// A port does not work.
    #[error(transparent)]
    Port(ReceiveError),
}

impl Answering {
    /// Answers what comes from `from`, through the first queue of `to`.
    pub fn new(from: RxPort, to: TxPort, answerer: Answerer) -> Self {
        let mut answers = Answers::new(to, answerer);
        let stop = Stop::new();
        let receive = Receive { ports: vec![from], waiting: Waiting::Sleep, duration: None, stop: stop.clone() };
        Answering { receiver: Receiver::new(receive, &mut [&mut answers]), answers, stop }
    }

    /// Asks for the MAC addresses of all these next hops at once, in this thread, and waits for them, at most
    /// [`TRIES`] times [`RETRY`]; answers others meanwhile.
    pub fn resolve(&mut self, hops: &[Hop], stop: &Stop) -> Result<Vec<MacAddr>, Unresolved> {
        let now = clock::now();
        hops.iter().for_each(|hop| self.answers.answerer.resolve(*hop, now));
        loop {
            self.receiver.round(&mut [&mut self.answers]);
            let states = hops.iter().map(|hop| (hop, self.answers.answerer.resolution(hop)));
            let mut found = Vec::with_capacity(hops.len());
            let mut asking = None;
            for (hop, state) in states {
                match state {
                    Some(Resolution::At(mac)) => found.push(mac),
                    Some(Resolution::Silent) => {
                        return Err(Unresolved::Silent { hop: *hop, port: self.answers.to.name().to_owned() });
                    }
                    Some(Resolution::Asking) | None => asking = asking.or(Some(hop.target())),
                }
            }
            let Some(asking) = asking else { return Ok(found) };
            let own = self.answers.to.take_failure().map(ReceiveError::Port);
            if let Some(failure) = own.or(self.receiver.take_failure()) {
                return Err(Unresolved::Port(failure));
            }
            if stop.is_requested() {
                return Err(Unresolved::Stopped(asking));
            }
        }
    }

    /// Asks whether any station has one of these addresses ([`Hop::probe`]), in this thread, until one answers or all had the time to;
    /// says who.
    ///
    /// # Errors
    /// What is wrong with a port.
    pub fn probe(&mut self, hops: &[Hop]) -> Result<Option<(IpAddr, MacAddr)>, ReceiveError> {
        let now = clock::now();
        hops.iter().for_each(|hop| self.answers.answerer.resolve(*hop, now));
        loop {
            self.receiver.round(&mut [&mut self.answers]);
            let mut is_over = true;
            for hop in hops {
                match self.answers.answerer.resolution(hop) {
                    Some(Resolution::At(mac)) => return Ok(Some((hop.target(), mac))),
                    state => is_over &= state == Some(Resolution::Silent),
                }
            }
            if is_over {
                return Ok(None);
            }
            let own = self.answers.to.take_failure().map(ReceiveError::Port);
            if let Some(failure) = own.or(self.receiver.take_failure()) {
                return Err(failure);
            }
        }
    }

    /// Goes on in a thread of its own, which has the privileges that the caller has now.
    ///
    /// # Errors
    /// If the system starts no more threads.
    pub fn start(self) -> std::io::Result<Running> {
        let stop = self.stop.clone();
        let thread = std::thread::Builder::new().name("answer".into()).spawn(move || self.run())?;
        Ok(Running { thread, stop })
    }

    /// For a run of its own that has the questions: nothing more is received here.
    pub(crate) fn into_answers(self) -> Answers {
        self.answers
    }

    fn run(self) -> AnsweringReport {
        let Answering { mut receiver, mut answers, .. } = self;
        let died = survive(|| while receiver.round(&mut [&mut answers]) {}).err();
        let received = receiver.finish(&mut [&mut answers], died);
        let ledger = of_answers(&received.ledger);
        AnsweringReport { ledger, events: received.events, failure: received.failure }
    }
}

/// The frames sent meanwhile have accounts of the same names.
fn of_answers(received: &Ledger) -> Ledger {
    let mut ledger = Ledger::new();
    for account in received.accounts() {
        let subject = match account.stage {
            Stage::Answer => account.subject.clone(),
            // Cards are asked by whoever sends.
            Stage::Nic => continue,
            _ => format!("{} (answering)", account.subject),
        };
        let own = ledger.account(account.stage, &subject);
        for (count, frames) in account.counts() {
            own.add(count, frames);
        }
    }
    ledger
}

impl Answers {
    /// Sends through the first queue of `to`.
    pub fn new(to: TxPort, answerer: Answerer) -> Self {
        Answers { to: Outlet::new(to), done: Done::default(), answerer }
    }

    /// Others are answered for from now on, and nobody is known any more; what waits is not sent.
    pub fn renew(&mut self, answerer: Answerer) {
        self.done.give_up(self.answerer.frames());
        self.answerer = answerer;
    }

    /// Tells who is here, without being asked.
    pub fn announce(&mut self) {
        self.answerer.announce(clock::now());
    }

    /// Asks for a next hop, again if it is known.
    pub fn ask(&mut self, hop: Hop) {
        self.answerer.resolve(hop, clock::now());
    }

    /// What is known of a next hop; nothing of one that was never asked for.
    pub fn resolution(&self, hop: &Hop) -> Option<Resolution> {
        self.answerer.resolution(hop)
    }

    /// Answers these frames, which came in a round.
    pub fn answer(&mut self, questions: impl Iterator<Item = Vec<u8>>, round: &mut Round<'_>) {
        questions.for_each(|frame| self.answerer.receive(&frame, round.now));
        self.go_on(round);
    }

    /// Everything accounted for.
    pub fn done(mut self) -> AnsweringReport {
        let mut ledger = Ledger::new();
        self.account(&mut ledger);
        let failure = self.to.take_failure().map(ReceiveError::Port);
        AnsweringReport { ledger: of_answers(&ledger), events: Vec::new(), failure }
    }

    fn go_on(&mut self, round: &mut Round<'_>) {
        self.answerer.tick(round.now);
        if !self.send(round.now) && round.draining.is_none_or(|since| since < STOP_LIMIT) {
            round.keep_busy();
        }
    }

    /// Whatever is still to be sent is not any more.
    fn account(&mut self, ledger: &mut Ledger) {
        let unsent = self.done.give_up(self.answerer.frames());
        self.answerer.clear(unsent);
        self.to.finish(ledger);
        self.answerer.counters(ledger.account(Stage::Answer, self.to.name()));
    }

    /// Hands on what is to be sent; true if nothing is left in hand.
    fn send(&mut self, now: Nanos) -> bool {
        match self.to.send(&mut self.done, self.answerer.frames(), now) {
            Sent::Done { unsent, flushed } => {
                self.answerer.clear(unsent);
                flushed
            }
            Sent::Waits => false,
        }
    }
}

impl Consumer for Answers {
    fn name(&self) -> &'static str {
        "answer"
    }

    fn is_prompt(&self) -> bool {
        true
    }

    fn order(&self) -> Order {
        Order::Any
    }

    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        for (desc, frame) in round.bursts.iter().flat_map(|burst| burst.iter()) {
            if desc.is_truncated() {
                self.answerer.receive_truncated();
            } else {
                self.answerer.receive(frame, round.now);
            }
        }
        self.go_on(round);
        Ok(())
    }

    fn counters(&self, ledger: &mut Ledger) {
        self.to.counters(ledger);
        self.answerer.counters(ledger.account(Stage::Answer, self.to.name()));
    }

    fn demand(&self) -> Demand {
        if self.to.has_failed() { Demand::Failed } else { Demand::More }
    }

    fn finish(&mut self, end: &mut End<'_>) {
        self.account(end.ledger);
        if let Some(failure) = self.to.take_failure() {
            end.fail(failure);
        }
    }
}

impl Running {
    /// Ends the answers; what has arrived is answered first.
    pub fn finish(self) -> AnsweringReport {
        self.stop.request();
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_backends::{open_rx, open_tx};
    use linerate_burst::{Count, Kind};
    use linerate_generate::answer::{Addresses, Own, Vlans};
    use linerate_port::{RxOptions, Spec, TxOptions};

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
    fn a_probe_finds_who_has_an_address() {
        for (name, ips) in [("probe4", ["10.0.0.1", "10.0.0.2"]), ("probe6", ["fd00::1", "fd00::2"])] {
            let ips = ips.map(|ip| ip.parse::<IpAddr>().unwrap());
            let (there, back) = (format!("{name}-there"), format!("{name}-back"));
            let mut one = answering(&back, &there, Own::one([10, 9, 9, 9].into(), MACS[0]));
            let other = answering(&there, &back, Own::one(ips[1], MACS[1])).start().unwrap();
            let probes = ips.map(|ip| Hop::probe(ip, MACS[0]).unwrap());
            assert_eq!(one.probe(&probes[..1]).unwrap(), None, "{name}");
            assert_eq!(one.probe(&probes).unwrap(), Some((ips[1], MACS[1])), "{name}");
            drop((one, other.finish()));
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
