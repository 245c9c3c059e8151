//! What an endpoint is to be, and to keep to.

use linerate_wire::MacAddr;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The most that a window can promise (RFC 7323 section 2.3).
pub const MOST_WINDOW: u64 = 1 << 30;

/// Ports of an address that answers for connections. It is not configured in the kernel, which would reset them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// The address.
    pub ip: IpAddr,
    /// The ports.
    pub ports: RangeInclusive<u16>,
}

/// When data is acknowledged. At once in any case: where a gap begins or ends, at the end of a stream, when the window opens, and
/// every two full segments while a connection is young, so that its sender finds its pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckPolicy {
    /// When the queue has run dry, and before that as much as is good for a fast sender.
    #[default]
    Adaptive,
    /// Once a burst.
    Burst,
    /// Once so many bytes have come; also when the sender has pushed and the queue is dry, or 40 ms after the data.
    Bytes(u64),
    /// The same for segments.
    Segments(u32),
}

/// What an endpoint is to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses and ports.
    pub listen: Vec<Local>,
    /// The MAC addresses that frames are for; if there are none, any that is not a group's.
    pub stations: Vec<MacAddr>,
    /// The longest IP packet that can arrive: segments of 40 bytes less (IPv6: 60) are asked for.
    pub mtu: u32,
    /// The most bytes beyond the edge of a stream that are ever promised room, if its place has it.
    pub window: u64,
    /// The most connections.
    pub connections: usize,
    /// The most that are half open. Those beyond it are answered by cookies, for which nothing is kept.
    pub backlog: usize,
    /// When data is acknowledged.
    pub acks: AckPolicy,
    /// After how long a connection that brings nothing is given up.
    pub idle: Option<Duration>,
    /// The most gaps in a stream; data that would make more is dropped.
    pub max_gaps: usize,
    /// To be random: from it are made sequence numbers and cookies, which nobody may guess, and the order of tables.
    pub secret: [u64; 2],
    /// Whether segments of no connection are answered by a reset, or by silence.
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

/// A configuration that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadConfig {
    /// No address.
    #[error("no address to receive for: give at least one")]
    NoAddress,
    /// An address that no single host has.
    #[error("{0} is not the address of one host")]
    Address(IpAddr),
    /// No ports.
    #[error("{0} has no ports: give 1 to 65535, the lower one first")]
    Ports(IpAddr),
    /// A group of stations.
    #[error("{0} is not the MAC address of one station")]
    Station(MacAddr),
    /// Packets too short or too long.
    #[error("an MTU of {0} bytes: give 576 to 65575, for IPv6 1280 or more")]
    Mtu(u32),
    /// No window, or more than can be promised.
    #[error("a window of {0} bytes: give 1 to 1 GiB")]
    Window(u64),
    /// None of something.
    #[error("{0} is 0: at least 1 is needed")]
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
            ("bytes of an acknowledgement", if self.acks == AckPolicy::Bytes(0) { 0 } else { 1 }),
            ("segments of an acknowledgement", if self.acks == AckPolicy::Segments(0) { 0 } else { 1 }),
        ];
        match counts.iter().find(|(_, count)| *count == 0) {
            Some((name, _)) => Err(BadConfig::None(name)),
            None => Ok(()),
        }
    }

    /// The longest payload of a segment to ask for.
    pub(super) fn segment(&self, is_v6: bool) -> u16 {
        (self.mtu - if is_v6 { 60 } else { 40 }).min(u16::MAX.into()) as u16
    }

    /// By how many bits windows are shifted where that is agreed on.
    pub(super) fn shift(&self) -> u8 {
        (0..14).find(|shift| self.window >> shift <= u16::MAX.into()).unwrap_or(14)
    }
}

/// Whether an address is one that a single host can have on a link.
pub(super) fn is_host(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !matches!(ip.octets()[0], 0 | 127 | 224..),
        IpAddr::V6(ip) => {
            !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast() && ip.to_ipv4_mapped().is_none()
        }
    }
}
