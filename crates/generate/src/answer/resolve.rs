//! Resolution of the MAC addresses of next hops.

use super::addresses::{Vlans, is_host, is_station};
use super::outbox::Outbox;
use super::received::{Link, Received};
use super::{arp, neighbor};
use linerate_burst::{Count, Nanos};
use linerate_headers::MacAddr;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Number of requests for a next hop (RFC 4861 section 10, `MAX_MULTICAST_SOLICIT`), with [`RETRY`] as timeout
/// (`RETRANS_TIMER`); ARP, which has no such constants, uses the same.
pub const TRIES: u32 = 3;
/// Timeout of a request, see [`TRIES`].
pub const RETRY: Duration = Duration::from_secs(1);
/// Timeout of a probe. Hosts that have an address answer at once; RFC 5227 has hosts wait longer because all of them
/// may start at the same time.
const PROBE: Duration = Duration::from_millis(200);

/// Next hop, and the sender that requests it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    target: IpAddr,
    ip: IpAddr,
    mac: MacAddr,
    vlans: Vlans,
}

/// Invalid next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHop {
    /// One address is IPv4, the other IPv6.
    #[error("next hop {target} and source {ip} have different address families")]
    Families {
        /// Next hop.
        target: IpAddr,
        /// Source address.
        ip: IpAddr,
    },
    /// Address that no single host can have.
    #[error("invalid address {0}; expected that of one host (unicast)")]
    NoHost(IpAddr),
    /// MAC address that no single station can have.
    #[error("invalid MAC address {0}; expected that of one station (unicast)")]
    NoStation(MacAddr),
}

impl Hop {
    /// Creates a next hop `target`, requested by the station `mac` with the address `ip`, in these VLANs.
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

    /// Creates a probe for `target`, an address that the station `mac` is about to use (RFC 5227 section 2.1, RFC 4862
    /// section 5.4).
    pub fn probe(target: IpAddr, mac: MacAddr) -> Result<Self, BadHop> {
        let unspecified: IpAddr =
            if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        match () {
            () if !is_host(target) => Err(BadHop::NoHost(target)),
            () if !is_station(mac) => Err(BadHop::NoStation(mac)),
            () => Ok(Hop { target, ip: unspecified, mac, vlans: Vlans::NONE }),
        }
    }

    fn is_probe(&self) -> bool {
        self.ip.is_unspecified()
    }

    /// Returns the timeout of a request.
    fn wait(&self) -> Duration {
        if self.is_probe() { PROBE } else { RETRY }
    }

    /// Returns the source address.
    pub fn source(&self) -> IpAddr {
        self.ip
    }

    /// Returns the address of the next hop.
    pub fn target(&self) -> IpAddr {
        self.target
    }
}

impl fmt::Display for Hop {
    /// Describes the requests, as in `ARP requests for 10.0.0.1 from 10.0.0.2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.target.is_ipv4() { "ARP requests" } else { "neighbor solicitations" };
        write!(f, "{what} for {} from {}", self.target, self.ip)
    }
}

/// State of a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Awaiting an answer.
    Asking,
    /// Resolved to this MAC address.
    At(MacAddr),
    /// Unresolved: [`TRIES`] requests got no answer.
    Silent,
}

/// All requested next hops.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    asked: Vec<HopRequest>,
}

#[derive(Debug)]
struct HopRequest {
    hop: Hop,
    tries: u32,
    /// Time of the next request or of the timeout; at once if farther ahead than [`RETRY`], because the clock was set
    /// back.
    due: Nanos,
    state: Resolution,
}

impl Resolver {
    /// Starts to request a next hop at `now`, again if it is known.
    pub(super) fn ask(&mut self, hop: Hop, now: Nanos) {
        self.asked.retain(|asked| asked.hop != hop);
        self.asked.push(HopRequest { hop, tries: 0, due: now, state: Resolution::Asking });
    }

    /// Returns the state of a hop; `None` if it was never requested.
    pub(super) fn state(&self, hop: &Hop) -> Option<Resolution> {
        self.asked.iter().find(|asked| asked.hop == *hop).map(|asked| asked.state)
    }

    /// Sends the requests due at `now`; returns their number.
    pub(super) fn tick(&mut self, now: Nanos, outbox: &mut Outbox) -> u64 {
        let mut requests = 0;
        for asked in self.asked.iter_mut().filter(|asked| asked.state == Resolution::Asking) {
            if now < asked.due && asked.due.since(now) <= asked.hop.wait() {
                continue;
            }
            if asked.tries == TRIES {
                asked.state = Resolution::Silent;
            } else if request(&asked.hop, outbox) {
                (asked.tries, asked.due) = (asked.tries + 1, now.after(asked.hop.wait()));
                requests += 1;
            }
        }
        requests
    }

    /// Handles an answer that `target` has the MAC address `mac`.
    pub(super) fn learn(&mut self, received: &Received<'_>, target: IpAddr, mac: MacAddr) -> Result<Count, Count> {
        let is_asked = |asked: &&mut HopRequest| {
            let hop = &asked.hop;
            asked.state == Resolution::Asking
                && (hop.target, hop.vlans) == (target, received.vlans)
                // Duplicate address detection of IPv6 is answered to the all-nodes group.
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

/// Queues a request; false if the queue is full.
fn request(hop: &Hop, outbox: &mut Outbox) -> bool {
    let link = |destination| Link::new(hop.mac, destination, hop.vlans);
    match (hop.target, hop.ip) {
        (IpAddr::V4(target), IpAddr::V4(ip)) => {
            outbox.put(&link(MacAddr::BROADCAST), &[&arp::request(target, ip, hop.mac)], &[])
        }
        (IpAddr::V6(target), IpAddr::V6(ip)) => neighbor::ask(target, link, ip, outbox),
        // Both addresses of a hop have one family.
        _ => false,
    }
}
