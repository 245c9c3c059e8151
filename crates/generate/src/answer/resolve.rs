//! Asking for the MAC addresses of next hops.

use super::addresses::{Vlans, is_host, is_station};
use super::outbox::Outbox;
use super::received::{Link, Received};
use super::{arp, neighbor};
use linerate_burst::{Count, Nanos};
use linerate_wire::MacAddr;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// How often a next hop is asked for (RFC 4861 section 10, `MAX_MULTICAST_SOLICIT`), and how long an answer may take
/// (`RETRANS_TIMER`); ARP, which has no such constants, is asked the same way.
pub const TRIES: u32 = 3;
/// See [`TRIES`].
pub const RETRY: Duration = Duration::from_secs(1);
/// How long an answer to a probe may take. Those who have an address answer at once; RFC 5227 has hosts wait for longer because all of them may
/// start at the same time.
const PROBE: Duration = Duration::from_millis(200);

/// A next hop, and who asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    target: IpAddr,
    ip: IpAddr,
    mac: MacAddr,
    vlans: Vlans,
}

/// A next hop that cannot be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHop {
    /// One address is IPv4, the other IPv6.
    #[error("next hop {target} and source {ip} are not of the same family")]
    Families {
        /// The next hop.
        target: IpAddr,
        /// Who asks.
        ip: IpAddr,
    },
    /// An address that no single host has.
    #[error("{0} is not the address of one host")]
    NoHost(IpAddr),
    /// A MAC address that no single station has.
    #[error("{0} is not the MAC address of one station")]
    NoStation(MacAddr),
}

impl Hop {
    /// `target`, asked for by the station `mac` with the address `ip`, in these VLANs.
    pub fn new(target: IpAddr, ip: IpAddr, mac: MacAddr, vlans: Vlans) -> Result<Self, BadHop> {
        if target.is_ipv4() != ip.is_ipv4() {
            return Err(BadHop::Families { target, ip });
        }
        match [target, ip].into_iter().find(|ip| !is_host(*ip)) {
            Some(ip) => Err(BadHop::NoHost(ip)),
            None if !is_station(mac) => Err(BadHop::NoStation(mac)),
            None => Ok(Hop { target, ip, mac, vlans }),
        }
    }

    /// Any station that has the address `target`, which the station `mac` is about to use (RFC 5227 section 2.1, RFC 4862 section 5.4).
    pub fn probe(target: IpAddr, mac: MacAddr) -> Result<Self, BadHop> {
        let nobody: IpAddr = if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        match () {
            () if !is_host(target) => Err(BadHop::NoHost(target)),
            () if !is_station(mac) => Err(BadHop::NoStation(mac)),
            () => Ok(Hop { target, ip: nobody, mac, vlans: Vlans::NONE }),
        }
    }

    fn is_probe(&self) -> bool {
        self.ip.is_unspecified()
    }

    /// How long an answer may take.
    fn wait(&self) -> Duration {
        if self.is_probe() { PROBE } else { RETRY }
    }

    /// Who asks.
    pub fn source(&self) -> IpAddr {
        self.ip
    }

    /// The next hop's address.
    pub fn target(&self) -> IpAddr {
        self.target
    }
}

impl fmt::Display for Hop {
    /// What is asked, as in `ARP requests for 10.0.0.1 from 10.0.0.2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.target.is_ipv4() { "ARP requests" } else { "neighbor solicitations" };
        write!(f, "{what} for {} from {}", self.target, self.ip)
    }
}

/// What is known of a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It has not answered yet.
    Asking,
    /// It is there.
    At(MacAddr),
    /// It has not answered [`TRIES`] questions.
    Silent,
}

/// All next hops asked for.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    asked: Vec<Asked>,
}

#[derive(Debug)]
struct Asked {
    hop: Hop,
    tries: u32,
    /// When to go on; at once where that is farther ahead than [`RETRY`], for then the clock was set back.
    due: Nanos,
    state: Resolution,
}

impl Resolver {
    /// Asks for a next hop from `now` on, again if it is known.
    pub(super) fn ask(&mut self, hop: Hop, now: Nanos) {
        self.asked.retain(|asked| asked.hop != hop);
        self.asked.push(Asked { hop, tries: 0, due: now, state: Resolution::Asking });
    }

    /// What is known; nothing of a hop that was never asked for.
    pub(super) fn state(&self, hop: &Hop) -> Option<Resolution> {
        self.asked.iter().find(|asked| asked.hop == *hop).map(|asked| asked.state)
    }

    /// Asks what is due at `now`; returns how many questions that are.
    pub(super) fn tick(&mut self, now: Nanos, outbox: &mut Outbox) -> u64 {
        let mut questions = 0;
        for asked in self.asked.iter_mut().filter(|asked| asked.state == Resolution::Asking) {
            if now < asked.due && asked.due.since(now) <= asked.hop.wait() {
                continue;
            }
            if asked.tries == TRIES {
                asked.state = Resolution::Silent;
            } else if question(&asked.hop, outbox) {
                (asked.tries, asked.due) = (asked.tries + 1, now.after(asked.hop.wait()));
                questions += 1;
            }
        }
        questions
    }

    /// A station answers that `target` is at `mac`.
    pub(super) fn learn(&mut self, received: &Received<'_>, target: IpAddr, mac: MacAddr) -> Result<Count, Count> {
        let is_asked = |asked: &&mut Asked| {
            let hop = &asked.hop;
            asked.state == Resolution::Asking
                && (hop.target, hop.vlans) == (target, received.vlans)
                // Who looks for duplicates of an IPv6 address is answered by way of the group of all.
                && (hop.mac == received.link.ethernet.destination || hop.is_probe())
        };
        let asked = self.asked.iter_mut().find(is_asked).ok_or(Count::AnswerOther)?;
        if mac == asked.hop.mac {
            return Err(Count::AnswerMartian);
        }
        asked.state = Resolution::At(mac);
        Ok(Count::AnswerResolved)
    }
}

/// Puts a question in; false where there is no room.
fn question(hop: &Hop, outbox: &mut Outbox) -> bool {
    let link = |destination| Link::new(hop.mac, destination, hop.vlans);
    match (hop.target, hop.ip) {
        (IpAddr::V4(target), IpAddr::V4(ip)) => {
            outbox.put(&link(MacAddr::BROADCAST), &[&arp::request(target, ip, hop.mac)], &[])
        }
        (IpAddr::V6(target), IpAddr::V6(ip)) => neighbor::ask(target, link, ip, outbox),
        // A hop is made of one family.
        _ => false,
    }
}
