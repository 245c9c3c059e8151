//! Properties of an interface reported by the kernel and its driver, as far as they decide about packet loss.

use crate::inventory::{self, look};
use crate::nic::losses;
use crate::packet::stamping_clock;
use crate::rtnl::{self, Rtnetlink, XdpFeatures};
use crate::sys::bpf::Program;
use crate::sys::ethtool::Ethtool;
use linerate_port::InterfaceInfo;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

pub use crate::rtnl::{XDP_BASIC, XDP_SENDS, XDP_ZERO_COPY};

/// The driver passes frames in several buffers to a program (`NETDEV_XDP_ACT_RX_SG`).
pub const XDP_BUFFERS: u64 = 1 << 5;
/// `RXH_L4_B_0_1`, `RXH_L4_B_2_3`: hash fields of the ports.
pub const HASHES_PORTS: u64 = 1 << 6 | 1 << 7;

/// Flow types (linux/ethtool.h) whose hash is queried, and their names.
const FLOWS: [(u32, &str); 4] = [(1, "tcp4"), (2, "udp4"), (5, "tcp6"), (6, "udp6")];

/// Properties of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceDetails {
    /// Properties shown by `linerate ports`.
    pub found: InterfaceInfo,
    /// Firmware version reported by the driver.
    pub firmware: String,
    /// Bus address, such as `0000:3b:00.0`.
    pub bus: String,
    /// Current and maximum number of queues.
    pub channels: Option<Channels>,
    /// Descriptors of a receive ring: current and maximum.
    pub rx_ring: Option<(u32, u32)>,
    /// Descriptors of a send ring: current and maximum.
    pub tx_ring: Option<(u32, u32)>,
    /// Pause frames: negotiated, honoured, sent.
    pub pause: Option<[bool; 3]>,
    /// Receive-side scaling.
    pub spread: Option<RssConfig>,
    /// Flow types, and the fields that the hash covers.
    pub hashed: Vec<(&'static str, u64)>,
    /// Offloads that can be changed.
    pub changeable: Vec<String>,
    /// Number of its clock, if it can stamp all received frames and the driver reports it.
    pub stamps_by: Option<u32>,
    /// XDP features of its driver, if the kernel reports them.
    pub xdp_features: Option<u64>,
    /// Attached XDP program: its number, its name, and whether it runs in the driver.
    pub xdp_program: Option<(u32, String, bool)>,
    /// Queueing disciplines, and the number of packets that each has dropped.
    pub disciplines: Vec<(String, u64)>,
    /// Peer of a veth: its number, and its name if it is in this namespace.
    pub peer: Option<(u32, String)>,
    /// Counters of lost frames, above zero.
    pub losses: Vec<(String, u64)>,
    /// Frames received since it was created.
    pub received: u64,
    /// Frames of `rx_dropped` that an XDP program has dropped.
    pub dropped_by_program: u64,
    /// Uses of the interface by the host.
    pub uses: Vec<String>,
}

/// Receive queues, including combined ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Number of receive queues.
    pub rx: u32,
    /// Maximum number of receive queues.
    pub most_rx: u32,
    /// True if a queue receives and sends.
    pub combined: bool,
}

/// Receive-side scaling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RssConfig {
    /// Queue for each remainder of the hash.
    pub table: Vec<u32>,
    /// Hash key.
    pub key: Vec<u8>,
    /// True if the hash is Toeplitz.
    pub toeplitz: bool,
    /// True if the input is made symmetric before (`RXH_XFRM_SYM_XOR`, `RXH_XFRM_SYM_OR_XOR`).
    pub symmetric_input: bool,
}

impl RssConfig {
    /// Returns whether both directions of a conversation use one queue: by the input, or by a key that repeats every 16
    /// bits.
    pub fn is_symmetric(&self) -> bool {
        let repeats = |key: &[u8]| key.len() > 2 && key.iter().skip(2).zip(key).all(|(one, other)| one == other);
        self.symmetric_input || self.toeplitz && repeats(&self.key)
    }
}

/// Returns the properties of an interface of this thread's network namespace.
pub fn facts(name: &str) -> io::Result<InterfaceDetails> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let found = look(name, socket.as_fd());
    if found.index == 0 {
        return Err(io::Error::new(io::ErrorKind::NotFound, inventory::missing(name)));
    }
    let mut facts =
        InterfaceDetails { uses: inventory::uses(&found).unwrap_or_default(), ..InterfaceDetails::default() };
    facts.query_driver(&Ethtool::new(socket.as_fd(), name)?);
    facts.query_kernel(&Rtnetlink::new()?, found.index);
    facts.found = found;
    Ok(facts)
}

impl InterfaceDetails {
    /// Queries the driver by ethtool; missing values keep their defaults.
    fn query_driver(&mut self, ask: &Ethtool<'_>) {
        if let Ok([_, firmware, bus]) = ask.driver_info() {
            (self.firmware, self.bus) = (firmware, bus);
        }
        self.channels = ask.channels().ok().map(|[most_rx, _, _, most_both, rx, _, _, both]| Channels {
            rx: rx.saturating_add(both),
            most_rx: if both > 0 { most_both } else { most_rx.max(most_both) },
            combined: both > 0,
        });
        if let Ok([most_rx, _, _, most_tx, rx, _, _, tx]) = ask.rings() {
            (self.rx_ring, self.tx_ring) = (Some((rx, most_rx)), Some((tx, most_tx)));
        }
        self.pause = ask.pause().ok();
        self.spread =
            ask.spread().ok().filter(|(table, ..)| !table.is_empty()).map(|(table, key, function, input)| RssConfig {
                table,
                key,
                toeplitz: function & 1 != 0,
                symmetric_input: input & 0b11 != 0 && input != u8::MAX,
            });
        // virtio_net has default fields without a hash, too.
        let fields = |(flow, name)| Some((name, ask.hash_fields(flow).ok().filter(|_| self.spread.is_some())?));
        self.hashed = FLOWS.into_iter().filter_map(fields).collect();
        self.changeable = ask.changeable_features().unwrap_or_default();
        self.stamps_by = stamping_clock(ask.stamps().ok()).ok();
        let losses = losses(ask.statistics().unwrap_or_default(), None);
        (self.losses, self.dropped_by_program) = (losses.counters, losses.by_program);
    }

    /// Queries the kernel by netlink.
    fn query_kernel(&mut self, netlink: &Rtnetlink, index: u32) {
        let link = netlink.link(index).unwrap_or_default();
        let number = |within: &[u8], wanted| rtnl::number(rtnl::attribute(within, wanted)?);
        if let Some(xdp) = rtnl::attribute(&link, rtnl::XDP) {
            let in_driver = rtnl::attribute(xdp, rtnl::XDP_ATTACHED).is_some_and(|mode| mode != [2]);
            self.xdp_program =
                number(xdp, rtnl::XDP_PROGRAM).map(|id| (id, Program::name_of(id).unwrap_or_default(), in_driver));
        }
        // Interfaces of two namespaces may have the same number.
        let is_here = rtnl::attribute(&link, rtnl::LINK_NETNSID).is_none();
        self.peer = number(&link, rtnl::LINK).filter(|peer| *peer > 0 && !(is_here && *peer == index)).map(|peer| {
            let name = netlink.link(peer).filter(|_| is_here).and_then(|link| rtnl::name(&link)).unwrap_or_default();
            (peer, name)
        });
        if let Some(counts) = crate::nic::parse(&link) {
            self.received = counts.rx_packets;
            let own = [
                ("rx_errors", counts.rx_errors),
                ("rx_dropped", counts.rx_dropped.saturating_sub(self.dropped_by_program)),
                ("rx_missed", counts.rx_missed),
                ("tx_dropped", counts.tx_dropped),
            ];
            let own = own.into_iter().filter(|(_, value)| *value > 0).map(|(name, value)| (name.to_owned(), value));
            self.losses.splice(0..0, own);
        }
        self.disciplines = netlink.disciplines(index);
        self.xdp_features = XdpFeatures::new().and_then(|ask| ask.of(index));
    }
}

/// Changes an interface; works in the network namespace it was created in, and never on another interface that takes
/// over the name.
#[derive(Debug)]
pub struct Changer {
    socket: OwnedFd,
    name: String,
    index: u32,
}

impl Changer {
    /// Opens an interface of this thread's network namespace, by its name and number.
    pub fn new(name: &str, index: u32) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Changer { socket, name: name.to_owned(), index })
    }

    fn ask(&self) -> io::Result<Ethtool<'_>> {
        let ask = Ethtool::new(self.socket.as_fd(), &self.name)?;
        if ask.index()? != self.index {
            let reason = format!("{} is now another interface", self.name);
            return Err(io::Error::new(io::ErrorKind::NotFound, reason));
        }
        Ok(ask)
    }

    /// Returns whether an offload is on.
    pub fn has_feature(&self, feature: &str) -> io::Result<bool> {
        Ok(self.ask()?.features()?.iter().any(|one| one == feature))
    }

    /// Turns an offload on or off, and returns its previous state; an error if the driver does not change it.
    pub fn set_feature(&self, feature: &str, on: bool) -> io::Result<bool> {
        let ask = self.ask()?;
        let was = self.has_feature(feature)?;
        ask.set_feature(feature, on)?;
        let failure = match self.has_feature(feature) {
            Ok(is_on) if is_on == on => return Ok(was),
            Ok(_) => io::Error::other("the driver does not change it"),
            Err(error) => error,
        };
        // The kernel would otherwise keep the request, and apply it at a later change.
        let _ = ask.set_feature(feature, was);
        Err(failure)
    }

    /// Returns the descriptors of a receive ring.
    pub fn rx_ring(&self) -> io::Result<u32> {
        Ok(self.ask()?.rings()?[4])
    }

    /// Sets the descriptors of the receive rings, and returns the previous number.
    pub fn set_rx_ring(&self, descriptors: u32) -> io::Result<u32> {
        let was = self.rx_ring()?;
        self.ask()?.set_rx_ring(descriptors).map(|()| was)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_interface_has_facts() {
        let facts = facts("lo").unwrap();
        assert_eq!((facts.found.index, &facts.peer, &facts.xdp_program), (1, &None, &None));
        assert!(!facts.changeable.is_empty() && facts.uses.iter().any(|one| one.contains("127.0.0.1")), "{facts:?}");
        assert!(super::facts("no-such-interface").unwrap_err().to_string().contains("no such interface"));
    }

    #[test]
    fn other_interface_with_the_same_name_is_not_changed() {
        assert!(Changer::new("lo", 1).unwrap().has_feature("rx-gro").is_ok());
        let other = Changer::new("lo", u32::MAX).unwrap();
        let refused = [other.set_feature("rx-gro", true).unwrap_err(), other.set_rx_ring(1).unwrap_err()];
        assert!(refused.iter().all(|error| error.to_string().contains("another interface")), "{refused:?}");
    }

    #[test]
    fn repeating_rss_key_is_symmetric() {
        let of = |key: &[u8]| RssConfig { key: key.to_vec(), toeplitz: true, ..RssConfig::default() };
        assert!(of(&[0x6d, 0x5a].repeat(20)).is_symmetric());
        assert!(!of(&[0x6d, 0x5a, 0x6d, 0x5b].repeat(10)).is_symmetric() && !of(&[]).is_symmetric());
        assert!(!RssConfig { toeplitz: false, ..of(&[0x6d, 0x5a].repeat(20)) }.is_symmetric());
        assert!(RssConfig { symmetric_input: true, ..of(&[1, 2, 3, 4]) }.is_symmetric());
    }
}
