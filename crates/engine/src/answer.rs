//! Replies to ARP, NDP and ping on an interface during a send: port -> answers -> port, in a separate thread.
//!
//! A sender whose addresses are not answered for gets no traffic through a router or to a host that resolves its
//! source. The frames for this arrive by a separate port, which takes nothing away from others: `packet`, with a filter
//! in the kernel.

use crate::clock;
use crate::consumer::{Consumer, Demand, FrameOrder, Round, RunEnd};
use crate::control::Stop;
use crate::error::ReceiveError;
use crate::receive::wait::WaitStrategy;
use crate::receive::{Receive, ReceiveLoop};
use crate::reply_port::{Done, ReplyPort, Sent};
use crate::thread_panic::survive;
use linerate_burst::{Ledger, Nanos, Stage};
use linerate_generate::answer::{Answerer, Hop, RETRY, Resolution, TRIES};
use linerate_headers::MacAddr;
use linerate_port::{RxPort, TxPort};
use std::net::IpAddr;
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest time at the end for frames to leave.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// Answers on one interface: a receiving and a sending port of it; or for a receiver on that interface, which answers
/// in its own run.
pub struct InterfaceResponder {
    receiver: ReceiveLoop,
    answers: Answers,
    stop: Stop,
}

/// Consumer that reads requests and sends replies.
pub struct Answers {
    to: ReplyPort,
    done: Done,
    answerer: Answerer,
}

/// Answers in a thread until they are finished.
#[derive(Debug)]
pub struct ResponderThread {
    thread: JoinHandle<ResponderReport>,
    stop: Stop,
}

/// Result of answering.
#[derive(Debug, Default)]
pub struct ResponderReport {
    /// Packet accounting; the subjects are marked as those of answering.
    pub ledger: Ledger,
    /// Noteworthy events, in order.
    pub events: Vec<String>,
    /// Failure, if any.
    pub failure: Option<ReceiveError>,
}

/// Reason why the MAC address of a next hop is unknown.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// It does not reply.
    #[error(
        "{port}: no reply from {} ({TRIES} {hop} in {} s); check that it is up, on this network, and accepts \
         this source", .hop.target(), RETRY.as_secs() * u64::from(TRIES)
    )]
    Silent {
        /// Next hop.
        hop: Hop,
        /// Port of the requests.
        port: String,
    },
    /// The run was stopped.
    #[error("stopped while waiting for the MAC address of {0}")]
    Stopped(IpAddr),
    /// A port failed.
    #[error(transparent)]
    Port(ReceiveError),
}

impl InterfaceResponder {
    /// Answers requests from `from`, through the first queue of `to`.
    pub fn new(from: RxPort, to: TxPort, answerer: Answerer) -> Self {
        let mut answers = Answers::new(to, answerer);
        let stop = Stop::new();
        let receive = Receive { ports: vec![from], waiting: WaitStrategy::Sleep, duration: None, stop: stop.clone() };
        InterfaceResponder { receiver: ReceiveLoop::new(receive, &mut [&mut answers]), answers, stop }
    }

    /// Resolves the MAC addresses of all these next hops in parallel, in this thread, within at most [`TRIES`] times
    /// [`RETRY`]; answers other requests during the wait.
    pub fn resolve(&mut self, hops: &[Hop], stop: &Stop) -> Result<Vec<MacAddr>, ResolveError> {
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
                        return Err(ResolveError::Silent { hop: *hop, port: self.answers.to.name().to_owned() });
                    }
                    Some(Resolution::Asking) | None => asking = asking.or(Some(hop.target())),
                }
            }
            let Some(asking) = asking else { return Ok(found) };
            let own = self.answers.to.take_failure().map(ReceiveError::Port);
            if let Some(failure) = own.or(self.receiver.take_failure()) {
                return Err(ResolveError::Port(failure));
            }
            if stop.is_requested() {
                return Err(ResolveError::Stopped(asking));
            }
        }
    }

    /// Probes whether any station has one of these addresses ([`Hop::probe`]), in this thread, until one replies or the
    /// time of all is over; returns that one.
    ///
    /// # Errors
    /// If a port fails.
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

    /// Continues in a separate thread, which has the current privileges of the caller.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(self) -> std::io::Result<ResponderThread> {
        let stop = self.stop.clone();
        let thread = std::thread::Builder::new().name("answer".into()).spawn(move || self.run())?;
        Ok(ResponderThread { thread, stop })
    }

    /// Converts to a consumer for a run that receives the requests: this port receives nothing more.
    pub(crate) fn into_answers(self) -> Answers {
        self.answers
    }

    fn run(self) -> ResponderReport {
        let InterfaceResponder { mut receiver, mut answers, .. } = self;
        let died = survive(|| while receiver.round(&mut [&mut answers]) {}).err();
        let received = receiver.finish(&mut [&mut answers], died);
        let ledger = of_answers(&received.ledger);
        ResponderReport { ledger, events: received.events, failure: received.failure }
    }
}

/// Renames the accounts, since the frames sent have accounts of the same names.
fn of_answers(received: &Ledger) -> Ledger {
    let mut ledger = Ledger::new();
    for account in received.accounts() {
        let subject = match account.stage {
            Stage::Answer => account.subject.clone(),
            // Card counters are read by the sender.
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
        Answers { to: ReplyPort::new(to), done: Done::default(), answerer }
    }

    /// Replaces the addresses to answer for, and clears the table of next hops; queued frames are dropped.
    pub fn renew(&mut self, answerer: Answerer) {
        self.done.give_up(self.answerer.frames());
        self.answerer = answerer;
    }

    /// Announces the addresses without a request.
    pub fn announce(&mut self) {
        self.answerer.announce(clock::now());
    }

    /// Requests a next hop, again if it is known.
    pub fn ask(&mut self, hop: Hop) {
        self.answerer.resolve(hop, clock::now());
    }

    /// Returns the state of a next hop; `None` if it was never requested.
    pub fn resolution(&self, hop: &Hop) -> Option<Resolution> {
        self.answerer.resolution(hop)
    }

    /// Answers these frames, which arrived in a round.
    pub fn answer(&mut self, questions: impl Iterator<Item = Vec<u8>>, round: &mut Round<'_>) {
        questions.for_each(|frame| self.answerer.receive(&frame, round.now));
        self.go_on(round);
    }

    /// Returns the result.
    pub fn done(mut self) -> ResponderReport {
        let mut ledger = Ledger::new();
        self.account(&mut ledger);
        let failure = self.to.take_failure().map(ReceiveError::Port);
        ResponderReport { ledger: of_answers(&ledger), events: Vec::new(), failure }
    }

    fn go_on(&mut self, round: &mut Round<'_>) {
        self.answerer.tick(round.now);
        if !self.send(round.now) && round.draining.is_none_or(|since| since < STOP_LIMIT) {
            round.keep_busy();
        }
    }

    /// Accounts for frames that are still queued as unsent.
    fn account(&mut self, ledger: &mut Ledger) {
        let unsent = self.done.give_up(self.answerer.frames());
        self.answerer.clear(unsent);
        self.to.finish(ledger);
        self.answerer.counters(ledger.account(Stage::Answer, self.to.name()));
    }

    /// Sends queued frames; returns true if none is left.
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

    fn order(&self) -> FrameOrder {
        FrameOrder::Any
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

    fn finish(&mut self, end: &mut RunEnd<'_>) {
        self.account(end.ledger);
        if let Some(failure) = self.to.take_failure() {
            end.fail(failure);
        }
    }
}

impl ResponderThread {
    /// Ends the answers; requests that have arrived are answered first.
    pub fn finish(self) -> ResponderReport {
        self.stop.request();
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_backends::{open_rx, open_tx};
    use linerate_burst::{Count, Kind};
    use linerate_generate::answer::{AddressRange, Addresses, Vlans};
    use linerate_port::{RxOptions, Spec, TxOptions};

    const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];

    fn answering(from: &str, to: &str, own: AddressRange) -> InterfaceResponder {
        let port = |name: &str| Spec::parse(&format!("mem:{name}?stamp=now")).unwrap();
        let from = open_rx(&port(from), &RxOptions::default()).unwrap();
        let to = open_tx(&port(to), &TxOptions::default()).unwrap();
        InterfaceResponder::new(from, to, Answerer::new(Addresses::new(vec![own]).unwrap(), 100))
    }

    #[test]
    fn two_responders_resolve_each_other() {
        for (name, ips) in [("answer4", ["10.0.0.1", "10.0.0.2"]), ("answer6", ["fd00::1", "fd00::2"])] {
            let ips = ips.map(|ip| ip.parse::<IpAddr>().unwrap());
            let (there, back) = (format!("{name}-there"), format!("{name}-back"));
            let mut one = answering(&back, &there, AddressRange::one(ips[0], MACS[0]));
            let other = answering(&there, &back, AddressRange::one(ips[1], MACS[1])).start().unwrap();
            let hop = Hop::new(ips[1], ips[0], MACS[0], Vlans::NONE).unwrap();
            assert_eq!(one.resolve(&[hop], &Stop::new()).unwrap(), [MACS[1]], "{name}");
            let reports = [one.start().unwrap().finish(), other.finish()];
            for (report, what) in reports.iter().zip([Count::AnswerRequestsSent, Count::Answered]) {
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
    fn probe_finds_the_owner_of_an_address() {
        for (name, ips) in [("probe4", ["10.0.0.1", "10.0.0.2"]), ("probe6", ["fd00::1", "fd00::2"])] {
            let ips = ips.map(|ip| ip.parse::<IpAddr>().unwrap());
            let (there, back) = (format!("{name}-there"), format!("{name}-back"));
            let mut one = answering(&back, &there, AddressRange::one([10, 9, 9, 9].into(), MACS[0]));
            let other = answering(&there, &back, AddressRange::one(ips[1], MACS[1])).start().unwrap();
            let probes = ips.map(|ip| Hop::probe(ip, MACS[0]).unwrap());
            assert_eq!(one.probe(&probes[..1]).unwrap(), None, "{name}");
            assert_eq!(one.probe(&probes).unwrap(), Some((ips[1], MACS[1])), "{name}");
            drop((one, other.finish()));
        }
    }

    #[test]
    fn a_request_to_stop_ends_the_wait() {
        let mut one = answering("answer-x", "answer-y", AddressRange::one([10, 0, 0, 1].into(), MACS[0]));
        let hop = Hop::new([10, 0, 0, 2].into(), [10, 0, 0, 1].into(), MACS[0], Vlans::NONE).unwrap();
        let stop = Stop::new();
        stop.request();
        assert!(matches!(one.resolve(&[hop], &stop), Err(ResolveError::Stopped(_))));
    }
}
