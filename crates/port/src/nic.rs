//! The interface's own counters, as a [`Monitor`]: link statistics by rtnetlink, driver statistics by
//! ethtool.

use crate::backends::sys::ethtool::Ethtool;
use crate::contract::Monitor;
use linerate_burst::{Count, Ledger, Stage};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Counts what an interface has seen since it was made. Works on after the privileges are gone, and
/// from outside the interface's network namespace: both sockets stay inside it.
pub struct NicMonitor {
    subject: String,
    interface: String,
    index: u32,
    netlink: OwnedFd,
    socket: OwnedFd,
    sending: bool,
    base: Option<LinkCounts>,
    base_details: Vec<(String, u64)>,
}

/// What is used of `struct rtnl_link_stats64` (linux/if_link.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LinkCounts {
    rx_packets: u64,
    tx_packets: u64,
    rx_errors: u64,
    rx_dropped: u64,
    tx_dropped: u64,
    rx_missed: u64,
}

impl NicMonitor {
    /// Starts counting; call it inside the interface's network namespace.
    pub fn new(subject: &str, interface: &str, index: u32, sending: bool) -> io::Result<Self> {
        let netlink = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
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

    /// Asks for the link; `None` where it is gone.
    fn read(&self) -> Option<LinkCounts> {
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.netlink, &request(self.index), SendFlags::empty(), &kernel).ok()?;
        let mut answer = vec![0u8; 16 << 10];
        let (length, _) = recv(&self.netlink, &mut answer[..], RecvFlags::DONTWAIT).ok()?;
        parse(answer.get(..length)?)
    }

    fn read_details(&self) -> Vec<(String, u64)> {
        let ask = Ethtool::new(self.socket.as_fd(), &self.interface);
        ask.and_then(|ask| ask.statistics()).unwrap_or_default()
    }
}

impl Monitor for NicMonitor {
    fn counters(&self, ledger: &mut Ledger) {
        let (Some(base), Some(now)) = (self.base, self.read()) else { return };
        let account = ledger.account(Stage::Nic, &self.subject);
        let grown = |read: fn(&LinkCounts) -> u64| read(&now).saturating_sub(read(&base));
        if self.sending {
            account.add(Count::NicSent, grown(|counts| counts.tx_packets));
            account.add(Count::NicSendDropped, grown(|counts| counts.tx_dropped));
        } else {
            account.add(Count::NicReceived, grown(|counts| counts.rx_packets));
            account.add(Count::NicMissed, grown(|counts| counts.rx_missed));
            account.add(Count::NicErrors, grown(|counts| counts.rx_errors));
            account.add(Count::NicDropped, grown(|counts| counts.rx_dropped));
        }
        for (name, value) in self.read_details() {
            let before = self.base_details.iter().find(|(other, _)| *other == name).map_or(0, |(_, value)| *value);
            if value > before && names_a_loss(&name) {
                ledger.add_detail(&self.subject, &name, value - before);
            }
        }
    }
}

/// Whether a driver's counter is about frames that did not get through.
fn names_a_loss(name: &str) -> bool {
    ["drop", "miss", "err", "discard", "fail", "no_buf", "nobuf", "nodesc", "full", "overrun"]
        .iter()
        .any(|part| name.contains(part))
}

const NLMSG_HEADER: usize = 16;
const IFINFOMSG: usize = 16;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const IFLA_STATS64: u16 = 23;

/// RTM_GETLINK for one interface: struct nlmsghdr, then struct ifinfomsg (rtnetlink(7)).
fn request(index: u32) -> [u8; NLMSG_HEADER + IFINFOMSG] {
    let mut message = [0; NLMSG_HEADER + IFINFOMSG];
    message[0..4].copy_from_slice(&((NLMSG_HEADER + IFINFOMSG) as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&RTM_GETLINK.to_ne_bytes());
    message[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    message[20..24].copy_from_slice(&index.to_ne_bytes());
    message
}

/// Finds the statistics among the attributes of an RTM_NEWLINK message.
fn parse(message: &[u8]) -> Option<LinkCounts> {
    let half = |bytes: &[u8], at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    if half(message, 4)? != RTM_NEWLINK {
        return None;
    }
    let mut rest = message.get(NLMSG_HEADER + IFINFOMSG..)?;
    while let (Some(length), Some(kind)) = (half(rest, 0), half(rest, 2)) {
        let attribute = rest.get(4..usize::from(length))?;
        if kind == IFLA_STATS64 {
            let word =
                |index: usize| Some(u64::from_ne_bytes(attribute.get(8 * index..8 * index + 8)?.try_into().ok()?));
            return Some(LinkCounts {
                rx_packets: word(0)?,
                tx_packets: word(1)?,
                rx_errors: word(4)?,
                rx_dropped: word(6)?,
                tx_dropped: word(7)?,
                rx_missed: word(15)?,
            });
        }
        rest = rest.get(usize::from(length).next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_loopback_interface_is_counted() {
        let monitor = NicMonitor::new("packet:lo", "lo", 1, false).unwrap();
        let mut ledger = Ledger::new();
        monitor.counters(&mut ledger);
        let account = ledger.accounts().first().expect("the loopback interface has statistics");
        assert!(account.counts().any(|(count, _)| count == Count::NicMissed));
    }

    #[test]
    fn an_interface_that_is_gone_has_no_counters() {
        let monitor = NicMonitor::new("packet:x", "x", u32::MAX >> 1, false).unwrap();
        let mut ledger = Ledger::new();
        monitor.counters(&mut ledger);
        assert!(ledger.accounts().is_empty());
    }

    #[test]
    fn statistics_are_found_among_attributes() {
        let mut message = vec![0; NLMSG_HEADER + IFINFOMSG];
        message[4..6].copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
        // An attribute of 5 bytes, padded to 8, then the statistics.
        message.extend([5u16, 3].iter().flat_map(|half| half.to_ne_bytes()).chain([0; 4]));
        message.extend([4 + 25 * 8, IFLA_STATS64].iter().flat_map(|half| half.to_ne_bytes()));
        message.extend((0u64..25).flat_map(|word| (100 + word).to_ne_bytes()));
        let counts = parse(&message).unwrap();
        assert_eq!((counts.rx_packets, counts.tx_dropped, counts.rx_missed), (100, 107, 115));
    }

    proptest! {
        #[test]
        fn no_answer_panics_or_hangs(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut message = bytes;
            if message.len() > 6 {
                message[4..6].copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
            }
            let _ = parse(&message);
        }
    }
}
