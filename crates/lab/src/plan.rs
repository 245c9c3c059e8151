//! Requested configuration: hosts, and the links between them.

use serde::{Deserialize, Serialize};

use crate::address::Cidr;
use crate::error::PlanError;
use crate::names;

/// Maximum number of hosts in a lab.
pub const MAX_HOSTS: usize = 64;
/// Maximum number of links in a lab.
pub const MAX_LINKS: usize = 256;
/// Maximum number of queues of an interface, per direction.
pub const MAX_QUEUES: u32 = 64;
/// Maximum number of addresses of an interface.
pub const MAX_ADDRESSES: usize = 16;
/// Minimum MTU in bytes: `ETH_MIN_MTU` (linux/if_ether.h).
pub const MIN_MTU: u32 = 68;
/// Maximum MTU in bytes: `ETH_MAX_MTU` (linux/if_ether.h). Captures taken after GRO need 22,000.
pub const MAX_MTU: u32 = 65_535;
/// Minimum MTU in bytes of an interface with an IPv6 address (RFC 8200 section 5).
pub const MIN_MTU_IPV6: u32 = 1280;

/// Configuration of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Lab name: 1 to 24 of a-z, 0-9 and '-'.
    #[serde(deserialize_with = "crate::text::name")]
    pub name: String,
    /// Hosts, each a network namespace. Hosts named only by links are added by [`Plan::complete`].
    #[serde(default)]
    pub hosts: Vec<Host>,
    /// Links, each a veth pair.
    #[serde(default)]
    pub links: Vec<Link>,
}

/// A test host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Host name: 1 to 24 of a-z, 0-9 and '-'. The namespace is `{lab}-{host}`.
    #[serde(deserialize_with = "crate::text::name")]
    pub name: String,
}

/// A veth pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Ends: on two hosts, or two interfaces of one.
    pub ends: [LinkEnd; 2],
    /// Receive queues and transmit queues of each end: 1 to 64. veth needs equal numbers for XDP.
    #[serde(default = "default_queues", deserialize_with = "crate::text::queues")]
    pub queues: u32,
    /// MTU of both ends in bytes: 68 to 65,535.
    #[serde(default = "default_mtu", deserialize_with = "crate::text::mtu")]
    pub mtu: u32,
    /// `true` keeps the kernel's default offloads; `false` turns checksum, TSO, GSO and GRO off at both ends, so that
    /// frames of the kernel's stack look as on a wire.
    #[serde(default = "default_offloads")]
    pub offloads: bool,
}

/// One end of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkEnd {
    /// Host.
    #[serde(deserialize_with = "crate::text::name")]
    pub host: String,
    /// Interface name in that host.
    #[serde(deserialize_with = "crate::text::interface")]
    pub interface: String,
    /// Addresses; without any, the kernel sends nothing on it unsolicited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Cidr>,
}

impl Plan {
    /// Returns a plan of these links and the hosts they name.
    pub fn from_links(name: &str, links: Vec<Link>) -> Result<Self, PlanError> {
        let mut plan = Self { name: name.to_owned(), hosts: Vec::new(), links };
        plan.complete();
        plan.validate()?;
        Ok(plan)
    }

    /// Adds hosts that links name and [`Plan::hosts`] lacks, in the order of the links.
    pub fn complete(&mut self) {
        for end in self.links.iter().flat_map(|link| &link.ends) {
            if !self.hosts.iter().any(|host| host.name == end.host) {
                self.hosts.push(Host { name: end.host.clone() });
            }
        }
    }

    /// Returns the namespace name of `host`.
    pub fn namespace(&self, host: &str) -> String {
        format!("{}-{host}", self.name)
    }

    /// Checks the plan. The error has the field and valid values.
    pub fn validate(&self) -> Result<(), PlanError> {
        at("name", names::check_name(&self.name))?;
        at("hosts", count_within(self.hosts.len(), 1, MAX_HOSTS, "hosts"))?;
        at("links", count_within(self.links.len(), 0, MAX_LINKS, "links"))?;
        for (h, host) in self.hosts.iter().enumerate() {
            let place = format!("hosts[{h}].name");
            at(&place, names::check_name(&host.name))?;
            if self.hosts[..h].contains(host) {
                return Err(value(&place, format!("duplicate host name {:?}; host names must differ", host.name)));
            }
        }
        for (l, link) in self.links.iter().enumerate() {
            link.validate(&format!("links[{l}]"))?;
        }
        self.validate_ends()
    }

    /// Returns the two ends of every link, with the link's index, in order.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (usize, &Link, &LinkEnd)> {
        self.links.iter().enumerate().flat_map(|(l, link)| link.ends.iter().map(move |end| (l, link, end)))
    }

    /// Checks that all hosts exist, and that interfaces and addresses of a host differ.
    fn validate_ends(&self) -> Result<(), PlanError> {
        let ends: Vec<&LinkEnd> = self.ends().map(|(_, _, end)| end).collect();
        for (e, end) in ends.iter().enumerate() {
            let place = format!("links[{}].ends[{}]", e / 2, e % 2);
            if !self.hosts.iter().any(|host| host.name == end.host) {
                let known: Vec<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
                let problem = format!("unknown host {:?}; expected one of {}", end.host, known.join(", "));
                return Err(value(&format!("{place}.host"), problem));
            }
            let neighbours = || ends[..e].iter().filter(|other| other.host == end.host);
            if neighbours().any(|other| other.interface == end.interface) {
                let problem = format!("{}:{} is used by two links", end.host, end.interface);
                return Err(value(&format!("{place}.interface"), problem));
            }
            let earlier = |a: usize| end.addresses[..a].iter().chain(neighbours().flat_map(|o| &o.addresses));
            for (a, cidr) in end.addresses.iter().enumerate() {
                if earlier(a).any(|other| other.address() == cidr.address()) {
                    let problem = format!("host {}: duplicate address {}", end.host, cidr.address());
                    return Err(value(&format!("{place}.addresses[{a}]"), problem));
                }
            }
        }
        Ok(())
    }
}

impl Link {
    /// Returns a link with one queue per direction, an MTU of 1500 and the kernel's offloads.
    pub fn new(left: LinkEnd, right: LinkEnd) -> Self {
        Self { ends: [left, right], queues: default_queues(), mtu: default_mtu(), offloads: default_offloads() }
    }

    /// Checks a single link.
    pub(crate) fn validate(&self, place: &str) -> Result<(), PlanError> {
        for (e, end) in self.ends.iter().enumerate() {
            let place = format!("{place}.ends[{e}]");
            at(&format!("{place}.host"), names::check_name(&end.host))?;
            at(&format!("{place}.interface"), names::check_interface(&end.interface))?;
            let addresses = count_within(end.addresses.len(), 0, MAX_ADDRESSES, "addresses");
            at(&format!("{place}.addresses"), addresses)?;
        }
        at(&format!("{place}.queues"), check_queues(self.queues))?;
        at(&format!("{place}.mtu"), check_mtu(self.mtu))?;
        let ipv6 = self.ends.iter().flat_map(|end| &end.addresses).any(Cidr::is_ipv6);
        if ipv6 && self.mtu < MIN_MTU_IPV6 {
            let problem = format!("{} bytes, but a link with IPv6 addresses needs {MIN_MTU_IPV6} or more", self.mtu);
            return Err(value(&format!("{place}.mtu"), problem));
        }
        let [left, right] = &self.ends;
        if left.host == right.host && left.interface == right.interface {
            return Err(value(&format!("{place}.ends"), "the two ends are the same interface".into()));
        }
        Ok(())
    }
}

impl LinkEnd {
    /// Returns an end without addresses.
    pub fn new(host: &str, interface: &str) -> Self {
        Self { host: host.to_owned(), interface: interface.to_owned(), addresses: Vec::new() }
    }
}

/// Checks a number of queues. The error has the valid range.
pub(crate) fn check_queues(queues: u32) -> Result<(), String> {
    let legal = (1..=MAX_QUEUES).contains(&queues);
    if legal { Ok(()) } else { Err(format!("{queues} queues: out of range; expected 1 to {MAX_QUEUES}")) }
}

/// Checks an MTU. The error has the valid range.
pub(crate) fn check_mtu(mtu: u32) -> Result<(), String> {
    let legal = (MIN_MTU..=MAX_MTU).contains(&mtu);
    if legal { Ok(()) } else { Err(format!("MTU of {mtu} bytes: out of range; expected {MIN_MTU} to {MAX_MTU}")) }
}

pub(crate) fn default_queues() -> u32 {
    1
}

pub(crate) fn default_mtu() -> u32 {
    1500
}

fn default_offloads() -> bool {
    true
}

fn count_within(count: usize, least: usize, most: usize, what: &str) -> Result<(), String> {
    let legal = (least..=most).contains(&count);
    if legal { Ok(()) } else { Err(format!("{count} {what}: out of range; expected {least} to {most}")) }
}

fn at(place: &str, checked: Result<(), String>) -> Result<(), PlanError> {
    checked.map_err(|problem| value(place, problem))
}

fn value(place: &str, problem: String) -> PlanError {
    PlanError::Value { place: place.to_owned(), problem }
}
