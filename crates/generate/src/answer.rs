//! Answers to requests for a sender's addresses, and requests for the MAC addresses of its next hops.
//!
//! A state machine without clock and I/O: [`Answerer::receive`] takes frames, [`Answerer::tick`] the time, and
//! [`Answerer::frames`] returns the frames to send. It answers, only for its own addresses,
//!
//! - ARP requests (RFC 826) and probes (RFC 5227);
//! - neighbor solicitations (RFC 4861), including duplicate address detection (RFC 4862);
//! - pings: echo requests of ICMP (RFC 792) and ICMPv6 (RFC 4443).
//!
//! Input is not trusted: every length and checksum is verified, groups and addresses that no host can have get no
//! answers, and the rate of answers and the number of queued ones are limited. Each frame is counted under one name.
//! Nothing is sent unsolicited except by [`Answerer::announce`].

mod addresses;
mod arp;
mod echo;
mod neighbor;
mod outbox;
mod received;
mod resolve;
#[cfg(test)]
mod tests;

pub use addresses::{AddressRange, Addresses, BadAddresses, Vlans};
pub use resolve::{BadHop, Hop, RETRY, Resolution, TRIES};

use self::outbox::Outbox;
use self::received::{Link, Received};
use self::resolve::Resolver;
use linerate_burst::{Account, Burst, Count, Nanos};
use linerate_headers::{MacAddr, ethernet, icmpv6, ipv6, ndp, registry, vlan};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Default maximum number of answers per second.
pub const ANSWERS_PER_SECOND: u32 = 1000;

/// Filter text for the frames that the state machine needs. Frames with a VLAN tag are matched without it.
pub const FILTER: &str = "arp or icmp or icmp6";

/// Returns whether an Ethernet frame may match [`FILTER`].
pub fn may_be_request(frame: &[u8]) -> bool {
    const TAG: usize = 4;
    let field = |at: usize| frame.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let is_tag = |at: &usize| matches!(field(*at), Some(vlan::CUSTOMER | vlan::SERVICE));
    let tags = (0..Vlans::MOST).take_while(|tag| is_tag(&(12 + tag * TAG))).count();
    let at = 12 + tags * TAG;
    match field(at) {
        Some(ethernet::ARP) => true,
        Some(ethernet::IPV4) => frame.get(at + 2 + 9) == Some(&registry::ICMP),
        Some(ethernet::IPV6) => frame.get(at + 2 + 6) == Some(&registry::ICMPV6),
        _ => false,
    }
}

/// Answers requests for a set of addresses.
#[derive(Debug)]
pub struct Answerer {
    own: Addresses,
    resolver: Resolver,
    outbox: Outbox,
    counts: BTreeMap<Count, u64>,
}

impl Answerer {
    /// Answers for these addresses, at most `per_second` requests per second (0 counts as 1), with bursts of up to one
    /// second's worth.
    pub fn new(own: Addresses, per_second: u32) -> Self {
        Answerer { own, resolver: Resolver::default(), outbox: Outbox::new(per_second), counts: BTreeMap::new() }
    }

    /// Handles an Ethernet frame, without FCS, received at about `now`.
    pub fn receive(&mut self, frame: &[u8], now: Nanos) {
        self.handle(Received::parse(frame), now);
    }

    /// Handles an IP packet of a tunnel; its answer is one too.
    pub fn receive_packet(&mut self, packet: &[u8], now: Nanos) {
        self.handle(Received::of_packet(packet), now);
    }

    fn handle(&mut self, received: Result<Received<'_>, Count>, now: Nanos) {
        self.outbox.set_time(now);
        self.count(Count::AnswerReceived, 1);
        match received.and_then(|received| self.process(&received)) {
            Ok(what) => {
                self.count(Count::Answered, 1);
                self.count(what, 1);
            }
            Err(why) => self.count(why, 1),
        }
    }

    /// Counts a truncated frame, which is not parsed.
    pub fn receive_truncated(&mut self) {
        self.count(Count::AnswerReceived, 1);
        self.count(Count::AnswerMalformed, 1);
    }

    /// Announces the own addresses on the link (RFC 5227 section 2.3, RFC 4861 section 7.2.6): stations that had one of
    /// them at another MAC address update it at once. Only the first of a range of addresses is announced.
    pub fn announce(&mut self, now: Nanos) {
        self.outbox.set_time(now);
        let Answerer { own, outbox, .. } = self;
        let announced = own.runs().iter().filter(|own| announcement(own, outbox)).count();
        self.count(Count::AnswerAnnounced, announced as u64);
    }

    /// Requests a next hop from `now` on, [`TRIES`] times, [`RETRY`] apart.
    pub fn resolve(&mut self, hop: Hop, now: Nanos) {
        self.resolver.ask(hop, now);
        self.tick(now);
    }

    /// Returns the state of a next hop; `None` unless it was requested.
    pub fn resolution(&self, hop: &Hop) -> Option<Resolution> {
        self.resolver.state(hop)
    }

    /// Sends the requests due at `now`; to be called several times per second while next hops are being resolved.
    pub fn tick(&mut self, now: Nanos) {
        self.outbox.set_time(now);
        let requests = self.resolver.tick(now, &mut self.outbox);
        self.count(Count::AnswerRequestsSent, requests);
    }

    /// Returns the frames to send, oldest first, until [`Answerer::clear`].
    pub fn frames(&self) -> Burst<'_> {
        self.outbox.frames()
    }

    /// Clears the frames to send, of which the port did not take the last `unsent`.
    pub fn clear(&mut self, unsent: usize) {
        self.outbox.clear();
        self.count(Count::AnswerUnsent, unsent as u64);
    }

    /// Adds the counts so far to an account of `Stage::Answer`.
    pub fn counters(&self, account: &mut Account) {
        account.add(Count::AnswerReceived, 0).add(Count::Answered, 0);
        for (count, frames) in &self.counts {
            account.add(*count, *frames);
        }
    }

    fn count(&mut self, count: Count, frames: u64) {
        *self.counts.entry(count).or_default() += frames;
    }

    /// Returns the kind of answer sent, or the reason for sending none.
    fn process(&mut self, received: &Received<'_>) -> Result<Count, Count> {
        match received.ether_type {
            ethernet::ARP => self.process_arp(received),
            ethernet::IPV4 => echo::answer_v4(received, &self.own, &mut self.outbox),
            ethernet::IPV6 => self.process_ipv6(received),
            _ => Err(Count::AnswerOther),
        }
    }

    fn process_arp(&mut self, received: &Received<'_>) -> Result<Count, Count> {
        let packet = arp::parse(received)?;
        let sender = IpAddr::V4(packet.sender_ip);
        if self.own.find(sender, received.vlans).is_some_and(|mac| mac != packet.sender_mac) {
            self.count(Count::AnswerConflict, 1);
        }
        if packet.operation == linerate_headers::arp::REPLY {
            return self.resolver.learn(received, sender, packet.sender_mac);
        }
        arp::answer(received, &packet, &self.own, &mut self.outbox)
    }

    fn process_ipv6(&mut self, received: &Received<'_>) -> Result<Count, Count> {
        let packet = ipv6::View::parse(received.payload).map_err(|_| Count::AnswerMalformed)?;
        if packet.next_header() != registry::ICMPV6 {
            return Err(Count::AnswerOther);
        }
        let message = icmpv6::View::parse(packet.payload()).map_err(|_| Count::AnswerMalformed)?;
        let kind = message.kind();
        if !matches!(kind, icmpv6::ECHO_REQUEST | ndp::SOLICITATION | ndp::ADVERTISEMENT) {
            return Err(Count::AnswerOther);
        }
        if packet.is_cut() || packet.payload_len() == 0 || !message.is_checksum_right(&packet.pseudo()) {
            return Err(Count::AnswerMalformed);
        }
        match kind {
            icmpv6::ECHO_REQUEST => echo::answer_v6(received, &packet, &message, &self.own, &mut self.outbox),
            ndp::SOLICITATION => neighbor::answer(received, &packet, &message, &self.own, &mut self.outbox),
            _ => {
                let (target, mac) = neighbor::advertised(&packet, &message)?;
                if self.own.find(IpAddr::V6(target), received.vlans).is_some_and(|own| own != mac) {
                    self.count(Count::AnswerConflict, 1);
                }
                self.resolver.learn(received, IpAddr::V6(target), mac)
            }
        }
    }
}

/// Queues an announcement; false if the queue is full.
fn announcement(own: &AddressRange, outbox: &mut Outbox) -> bool {
    match own.first {
        IpAddr::V4(ip) => {
            let link = Link::new(own.mac, MacAddr::BROADCAST, own.vlans);
            outbox.put(&link, &[&arp::request(ip, ip, own.mac)], &[])
        }
        IpAddr::V6(ip) => neighbor::announce(ip, own.mac, own.vlans, outbox),
    }
}
