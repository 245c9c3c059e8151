//! The interface's own counters, as a [`Monitor`]: link statistics by rtnetlink, driver statistics by
//! ethtool.

use crate::rtnl::{self, Rtnetlink};
use crate::sys::ethtool::Ethtool;
use linerate_burst::{Count, Ledger, Stage};
use linerate_port::Monitor;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Counts the traffic of an interface since it was opened. Works after privileges are dropped, and from outside the
/// interface's network namespace: both sockets stay inside it.
pub(crate) struct NicMonitor {
    subject: String,
    interface: String,
    index: u32,
    netlink: Rtnetlink,
    socket: OwnedFd,
    sending: bool,
    base: Option<LinkCounts>,
    base_details: Vec<(String, u64)>,
}

/// Fields in use of `struct rtnl_link_stats64` (linux/if_link.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkCounts {
    pub rx_packets: u64,
    tx_packets: u64,
    pub rx_errors: u64,
    pub rx_dropped: u64,
    pub tx_dropped: u64,
    pub rx_missed: u64,
}

impl NicMonitor {
    /// Starts counting; call it inside the interface's network namespace.
    pub(crate) fn new(subject: &str, interface: &str, index: u32, sending: bool) -> io::Result<Self> {
        let netlink = Rtnetlink::new()?;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let mut monitor = NicMonitor {
            subject: subject.to_owned(),
            interface: interface.to_owned(),
            index,
            netlink,
            socket,
            sending,
            base: None,
            base_details: Vec::new(),
        };
        monitor.base = monitor.read();
        monitor.base_details = monitor.read_details();
        Ok(monitor)
    }

    /// Reads the statistics of the link; `None` if it is gone.
    fn read(&self) -> Option<LinkCounts> {
        parse(&self.netlink.link(self.index)?)
    }

    fn read_details(&self) -> Vec<(String, u64)> {
        let ask = Ethtool::new(self.socket.as_fd(), &self.interface);
        ask.and_then(|ask| ask.statistics()).unwrap_or_default()
    }
}

impl Monitor for NicMonitor {
    fn counters(&self, ledger: &mut Ledger) {
        self.add_counters(ledger, || None);
    }
}

impl NicMonitor {
    /// Adds the counters; `own_drops` returns how many frames our XDP program has dropped, if known.
    pub(crate) fn add_counters(&self, ledger: &mut Ledger, own_drops: impl FnOnce() -> Option<u64>) {
        let (Some(base), Some(now)) = (self.base, self.read()) else { return };
        let account = ledger.account(Stage::Nic, &self.subject);
        let grown = |read: fn(&LinkCounts) -> u64| read(&now).saturating_sub(read(&base));
        let before =
            |name: &str| self.base_details.iter().find(|(other, _)| other == name).map_or(0, |(_, value)| *value);
        let details = self.read_details().into_iter();
        let details = details.map(|(name, value)| (before(&name), name, value));
        let details = details.map(|(before, name, value)| (name, value.saturating_sub(before))).collect();
        // Read later: the driver has not counted more.
        let losses = losses(details, own_drops());
        if self.sending {
            account.add(Count::NicSent, grown(|counts| counts.tx_packets));
            account.add(Count::NicSendDropped, grown(|counts| counts.tx_dropped));
        } else {
            account.add(Count::NicReceived, grown(|counts| counts.rx_packets));
            account.add(Count::NicMissed, grown(|counts| counts.rx_missed) + losses.before_program);
            account.add(Count::NicErrors, grown(|counts| counts.rx_errors));
            account.add(Count::NicDropped, grown(|counts| counts.rx_dropped).saturating_sub(losses.by_program));
        }
        losses.counters.iter().for_each(|(name, value)| ledger.add_detail(&self.subject, name, *value));
    }
}

/// Returns whether a driver's counter counts lost frames.
pub(crate) fn names_a_loss(name: &str) -> bool {
    ["drop", "miss", "err", "discard", "fail", "no_buf", "nobuf", "nodesc", "full", "overrun"]
        .iter()
        .any(|part| name.contains(part))
}

/// Lost frames by the counters of a driver. Those that an XDP program has dropped are not lost, such as ours after it
/// has copied them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DriverLosses {
    /// Counters of lost frames, without frames that a program has dropped.
    pub counters: Vec<(String, u64)>,
    /// Frames that a program has dropped and the link's `rx_dropped` includes.
    pub by_program: u64,
    /// Frames that the driver dropped before the program, and counts like those of the program (virtio_net).
    before_program: u64,
}

/// Returns the losses; `own_drops` is the number of frames that our program has dropped, if known.
pub(crate) fn losses(counters: Vec<(String, u64)>, own_drops: Option<u64>) -> DriverLosses {
    // Frames that XDP could not send are lost (`tx_xdp_tx_drops`).
    let is_by_program = |name: &str| name.contains("xdp") && name.contains("drop") && !name.contains("tx");
    let by_program = |of: &str| {
        let own = counters.iter().find(|(name, _)| is_by_program(name) && name.trim().replace("xdp_", "") == of);
        own.map_or(0, |(_, value)| *value)
    };
    // The counter of all queues in virtio_net, next to `rx_xdp_drops`.
    let includes = counters.iter().any(|(name, _)| name == "rx_drops");
    let dropped = if includes { by_program("rx_drops") } else { 0 };
    let before_program = own_drops.map_or(0, |own| dropped.saturating_sub(own));
    let lost = counters.iter().filter(|(name, _)| names_a_loss(name) && !is_by_program(name));
    let lost = lost.map(|(name, value)| {
        let before = if name == "rx_drops" { before_program } else { 0 };
        (name.trim().to_owned(), value.saturating_sub(by_program(name.trim())) + before)
    });
    let lost = lost.filter(|(_, value)| *value > 0).collect();
    DriverLosses { counters: lost, by_program: dropped - before_program, before_program }
}

/// Extracts the statistics from the attributes of a link.
pub(crate) fn parse(attributes: &[u8]) -> Option<LinkCounts> {
    let stats = rtnl::attribute(attributes, rtnl::STATS64)?;
    let word = |index: usize| Some(u64::from_ne_bytes(stats.get(8 * index..8 * index + 8)?.try_into().ok()?));
    Some(LinkCounts {
        rx_packets: word(0)?,
        tx_packets: word(1)?,
        rx_errors: word(4)?,
        rx_dropped: word(6)?,
        tx_dropped: word(7)?,
        rx_missed: word(15)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_counted() {
        let monitor = NicMonitor::new("packet:lo", "lo", 1, false).unwrap();
        let mut ledger = Ledger::new();
        monitor.counters(&mut ledger);
        let account = ledger.accounts().first().expect("the loopback interface has statistics");
        assert!(account.counts().any(|(count, _)| count == Count::NicMissed));
    }

    #[test]
    fn a_removed_interface_has_no_counters() {
        let monitor = NicMonitor::new("packet:x", "x", u32::MAX >> 1, false).unwrap();
        let mut ledger = Ledger::new();
        monitor.counters(&mut ledger);
        assert!(ledger.accounts().is_empty());
    }

    #[test]
    fn frames_dropped_by_a_program_are_not_lost() {
        let losses_with = |counters: &[(&str, u64)], own: Option<u64>| {
            losses(counters.iter().map(|(name, value)| ((*name).into(), *value)).collect(), own)
        };
        let losses = |counters: &[(&str, u64)]| losses_with(counters, None);
        let virtio = [
            ("rx_drops", 2905),
            ("rx_xdp_drops", 2900),
            ("rx0_drops", 2900),
            ("rx0_xdp_drops", 2900),
            ("rx1_drops", 5),
        ];
        let two = |all, of_queue| vec![("rx_drops".to_owned(), all), ("rx1_drops".to_owned(), of_queue)];
        assert_eq!(losses(&virtio), DriverLosses { counters: two(5, 5), by_program: 2900, before_program: 0 });
        // Our program has dropped 2,880, the driver 20 before it.
        let before = DriverLosses { counters: two(25, 5), by_program: 2880, before_program: 20 };
        assert_eq!(losses_with(&virtio, Some(2880)), before);
        assert_eq!(losses_with(&virtio, Some(3000)), losses(&virtio));
        assert_eq!(
            losses(&[("     xdp drops", 400), ("  drv dropped rx total", 7), ("rx_packets", 9)]).counters,
            [("drv dropped rx total".into(), 7)]
        );
        assert_eq!(losses(&[("rx_queue_0_xdp_drops", 3)]), DriverLosses::default());
        assert_eq!(losses(&[("tx_xdp_tx_drops", 3)]).counters, [("tx_xdp_tx_drops".to_owned(), 3)]);
    }

    #[test]
    fn statistics_are_found_among_attributes() {
        let mut message = Vec::new();
        // An attribute of 5 bytes, padded to 8, then the statistics.
        message.extend([5u16, 3].iter().flat_map(|half| half.to_ne_bytes()).chain([0; 4]));
        message.extend([4 + 25 * 8, rtnl::STATS64].iter().flat_map(|half| half.to_ne_bytes()));
        message.extend((0u64..25).flat_map(|word| (100 + word).to_ne_bytes()));
        let counts = parse(&message).unwrap();
        assert_eq!((counts.rx_packets, counts.tx_dropped, counts.rx_missed), (100, 107, 115));
    }
}
