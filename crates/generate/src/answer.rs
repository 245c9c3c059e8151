//! Answering those who ask for a sender's addresses, and asking for the MAC addresses of its next hops.
//!
//! A state machine without clock and I/O: [`Answerer::receive`] is given frames, [`Answerer::tick`] the time, and
//! [`Answerer::frames`] are what to send. It answers, for its own addresses alone,
//!
//! - ARP requests (RFC 826) and probes (RFC 5227);
//! - neighbor solicitations (RFC 4861), those that look for duplicate addresses (RFC 4862) too;
//! - pings: echo requests of ICMP (RFC 792) and ICMPv6 (RFC 4443).
//!
//! What comes in is not trusted: every length and checksum is looked at, nothing is answered to a group or to an
//! address that no host has, so many answers a second are made and no more, and so many wait and no more. Each frame
//! is counted under one name. Nothing is said unasked but by [`Answerer::announce`].

mod addresses;
mod arp;
mod echo;
mod neighbor;
mod outbox;
mod received;
mod resolve;
#[cfg(test)]
mod tests;

pub use addresses::{Addresses, BadAddresses, Own, Vlans};
pub use resolve::{BadHop, Hop, RETRY, Resolution, TRIES};

use self::outbox::Outbox;
use self::received::{Link, Received};
use self::resolve::Resolver;
use linerate_burst::{Account, Burst, Count, Nanos};
use linerate_wire::{MacAddr, ethernet, icmpv6, ipv6, ndp, registry, vlan};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// How many questions are answered a second unless said otherwise.
pub const ANSWERS_PER_SECOND: u32 = 1000;

/// What frames the state machine needs to see, as filter text. Frames with a VLAN tag are looked at as they are behind it.
pub const FILTER: &str = "arp or icmp or icmp6";

/// The same for an Ethernet frame that is seen here: whether it may be such a one.
pub fn may_be_asked(frame: &[u8]) -> bool {
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

/// Answers for a set of addresses.
#[derive(Debug)]
pub struct Answerer {
    own: Addresses,
    resolver: Resolver,
    outbox: Outbox,
    counts: BTreeMap<Count, u64>,
}

impl Answerer {
    /// For these addresses, at most `per_second` questions a second (0 counts as 1); a second's worth may come at once.
    pub fn new(own: Addresses, per_second: u32) -> Self {
        Answerer { own, resolver: Resolver::default(), outbox: Outbox::new(per_second), counts: BTreeMap::new() }
    }

    /// Looks at an Ethernet frame, without FCS, that came at about `now`.
    pub fn receive(&mut self, frame: &[u8], now: Nanos) {
        self.hear(Received::parse(frame), now);
    }

    /// The same of an IP packet of a tunnel; its answer is one too.
    pub fn receive_packet(&mut self, packet: &[u8], now: Nanos) {
        self.hear(Received::of_packet(packet), now);
    }

    fn hear(&mut self, received: Result<Received<'_>, Count>, now: Nanos) {
        self.outbox.set_time(now);
        self.count(Count::AnswerReceived, 1);
        match received.and_then(|received| self.judge(&received)) {
            Ok(what) => {
                self.count(Count::Answered, 1);
                self.count(what, 1);
            }
            Err(why) => self.count(why, 1),
        }
    }

    /// Counts a frame of which the end is missing: it is not looked at.
    pub fn receive_truncated(&mut self) {
        self.count(Count::AnswerReceived, 1);
        self.count(Count::AnswerMalformed, 1);
    }

    /// Tells the link where the own addresses are, unasked (RFC 5227 section 2.3, RFC 4861 section 7.2.6): who knew one of them at
    /// another station goes on at once. Of a run of addresses the first is told.
    pub fn announce(&mut self, now: Nanos) {
        self.outbox.set_time(now);
        let Answerer { own, outbox, .. } = self;
        let told = own.runs().iter().filter(|own| announcement(own, outbox)).count();
        self.count(Count::AnswerAnnounced, told as u64);
    }

    /// Asks for a next hop from `now` on, [`TRIES`] times, [`RETRY`] apart.
    pub fn resolve(&mut self, hop: Hop, now: Nanos) {
        self.resolver.ask(hop, now);
        self.tick(now);
    }

    /// What is known of a next hop; nothing unless it was asked for.
    pub fn resolution(&self, hop: &Hop) -> Option<Resolution> {
        self.resolver.state(hop)
    }

    /// Does what is due at `now`; to be called several times a second while next hops are asked for.
    pub fn tick(&mut self, now: Nanos) {
        self.outbox.set_time(now);
        let questions = self.resolver.tick(now, &mut self.outbox);
        self.count(Count::AnswerAsked, questions);
    }

    /// What is to be sent, oldest first, until [`Answerer::clear`].
    pub fn frames(&self) -> Burst<'_> {
        self.outbox.frames()
    }

    /// Forgets what was to be sent, of which the port did not take the last `unsent`.
    pub fn clear(&mut self, unsent: usize) {
        self.outbox.clear();
        self.count(Count::AnswerUnsent, unsent as u64);
    }

    /// Adds what was counted so far to an account of `Stage::Answer`.
    pub fn counters(&self, account: &mut Account) {
        account.add(Count::AnswerReceived, 0).add(Count::Answered, 0);
        for (count, frames) in &self.counts {
            account.add(*count, *frames);
        }
    }

    fn count(&mut self, count: Count, frames: u64) {
        *self.counts.entry(count).or_default() += frames;
    }

    /// What was answered, or why nothing was.
    fn judge(&mut self, received: &Received<'_>) -> Result<Count, Count> {
        match received.ether_type {
            ethernet::ARP => self.judge_arp(received),
            ethernet::IPV4 => echo::answer_v4(received, &self.own, &mut self.outbox),
            ethernet::IPV6 => self.judge_ipv6(received),
            _ => Err(Count::AnswerOther),
        }
    }

    fn judge_arp(&mut self, received: &Received<'_>) -> Result<Count, Count> {
        let packet = arp::parse(received)?;
        let sender = IpAddr::V4(packet.sender_ip);
        if self.own.find(sender, received.vlans).is_some_and(|mac| mac != packet.sender_mac) {
            self.count(Count::AnswerConflict, 1);
        }
        if packet.operation == linerate_wire::arp::REPLY {
            return self.resolver.learn(received, sender, packet.sender_mac);
        }
        arp::answer(received, &packet, &self.own, &mut self.outbox)
    }

    fn judge_ipv6(&mut self, received: &Received<'_>) -> Result<Count, Count> {
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
                let (target, mac) = neighbor::told(&packet, &message)?;
                if self.own.find(IpAddr::V6(target), received.vlans).is_some_and(|own| own != mac) {
                    self.count(Count::AnswerConflict, 1);
                }
                self.resolver.learn(received, IpAddr::V6(target), mac)
            }
        }
    }
}

/// Puts an announcement in; false where there is no room.
fn announcement(own: &Own, outbox: &mut Outbox) -> bool {
    match own.first {
        IpAddr::V4(ip) => {
            let link = Link::new(own.mac, MacAddr::BROADCAST, own.vlans);
            outbox.put(&link, &[&arp::request(ip, ip, own.mac)], &[])
        }
        IpAddr::V6(ip) => neighbor::announce(ip, own.mac, own.vlans, outbox),
    }
}
