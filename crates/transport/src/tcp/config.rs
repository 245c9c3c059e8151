//! Configuration of an endpoint.

use linerate_headers::MacAddr;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Maximum receive window (RFC 7323 section 2.3).
pub const MOST_WINDOW: u64 = 1 << 30;

/// Local address and ports that accept connections. The kernel must not have the address: it would reset the
/// connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// IP address.
    pub ip: IpAddr,
    /// Port range.
    pub ports: RangeInclusive<u16>,
}

/// When data is acknowledged. In any policy an ACK is immediate where a gap opens or is filled, at the end of a stream
/// and when the window opens, and is sent every two full segments while a connection is young, for the sender's slow
/// start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckPolicy {
    /// When the queue is dry, and before that often enough to keep a fast sender going.
    #[default]
    Adaptive,
    /// Once per burst.
    Burst,
    /// After this number of bytes; also when the sender set PSH and the queue is dry, or 40 ms after the data.
    Bytes(u64),
    /// The same, in segments.
    Segments(u32),
}

/// Configuration of an endpoint.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses and ports.
    pub listen: Vec<Local>,
    /// Accepted destination MAC addresses; if empty, any unicast address.
    pub stations: Vec<MacAddr>,
    /// Maximum IP packet size that can arrive: the MSS option is 40 bytes less (IPv6: 60).
    pub mtu: u32,
    /// Maximum receive window in bytes, as far as the place has room.
    pub window: u64,
    /// Maximum number of connections.
    pub connections: usize,
    /// Maximum number of half-open connections. Beyond it SYNs are answered by SYN cookies, which keep no state.
    pub backlog: usize,
    /// When data is acknowledged.
    pub acks: AckPolicy,
    /// Idle timeout of a connection.
    pub idle: Option<Duration>,
    /// Maximum number of gaps in a stream; data that would open more is dropped.
    pub max_gaps: usize,
    /// Random secret: the source of sequence numbers, SYN cookies and the order of tables. It must not be predictable.
    pub secret: [u64; 2],
    /// True to answer segments of unknown connections by a RST, false to drop them silently.
    pub reset_unknown: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: Vec::new(),
            stations: Vec::new(),
            mtu: 1500,
            window: 64 << 20,
            connections: 4096,
            backlog: 1024,
            acks: AckPolicy::Adaptive,
            idle: Some(Duration::from_secs(2 * 60 * 60)),
            max_gaps: 64,
            secret: [0; 2],
            reset_unknown: true,
        }
    }
}

/// Invalid configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadConfig {
    /// `listen` is empty.
    #[error("no address to listen on; give at least one")]
    NoAddress,
    /// Not a unicast host address.
    #[error("{0}: not a unicast host address")]
    Address(IpAddr),
    /// Empty port range, or port 0.
    #[error("{0}: invalid port range; expected 1 to 65535, the lower one first")]
    Ports(IpAddr),
    /// Multicast MAC address.
    #[error("{0}: not a unicast MAC address")]
    Station(MacAddr),
    /// MTU out of range.
    #[error("MTU of {0} bytes: out of range; expected 576 to 65575 (IPv6: from 1280)")]
    Mtu(u32),
    /// Window out of range.
    #[error("receive window of {0} bytes: out of range; expected 1 byte to 1 GiB")]
    Window(u64),
    /// A value that must not be 0.
    #[error("{0}: must be at least 1")]
    None(&'static str),
}

impl Config {
    pub(super) fn check(&self) -> Result<(), BadConfig> {
        if self.listen.is_empty() {
            return Err(BadConfig::NoAddress);
        }
        for local in &self.listen {
            if !is_host(local.ip) {
                return Err(BadConfig::Address(local.ip));
            }
            if local.ports.is_empty() || local.ports.contains(&0) {
                return Err(BadConfig::Ports(local.ip));
            }
        }
        if let Some(group) = self.stations.iter().find(|mac| mac.is_multicast()) {
            return Err(BadConfig::Station(*group));
        }
        let least = if self.listen.iter().any(|local| local.ip.is_ipv6()) { 1280 } else { 576 };
        if !(least..=65575).contains(&self.mtu) {
            return Err(BadConfig::Mtu(self.mtu));
        }
        if !(1..=MOST_WINDOW).contains(&self.window) {
            return Err(BadConfig::Window(self.window));
        }
        let counts = [
            ("connections", self.connections as u64),
            ("max_gaps", self.max_gaps as u64),
            ("bytes per ACK", if self.acks == AckPolicy::Bytes(0) { 0 } else { 1 }),
            ("segments per ACK", if self.acks == AckPolicy::Segments(0) { 0 } else { 1 }),
        ];
        match counts.iter().find(|(_, count)| *count == 0) {
            Some((name, _)) => Err(BadConfig::None(name)),
            None => Ok(()),
        }
    }

    /// Returns the MSS to announce.
    pub(super) fn segment(&self, is_v6: bool) -> u16 {
        (self.mtu - if is_v6 { 60 } else { 40 }).min(u16::MAX.into()) as u16
    }

    /// Returns our window scale, if the option is negotiated.
    pub(super) fn shift(&self) -> u8 {
        (0..14).find(|shift| self.window >> shift <= u16::MAX.into()).unwrap_or(14)
    }
}

/// Returns whether an address can be the unicast address of a host on a link.
pub(super) fn is_host(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !matches!(ip.octets()[0], 0 | 127 | 224..),
        IpAddr::V6(ip) => {
            !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast() && ip.to_ipv4_mapped().is_none()
        }
    }
}
