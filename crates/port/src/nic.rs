//! The interface's own counters, from `/proc/net/dev` and `ethtool -S`, as a [`Monitor`].

use crate::backends::sys::ethtool::Ethtool;
use crate::contract::Monitor;
use linerate_burst::{Count, Ledger, Stage};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};

/// Counts what an interface has seen since it was made. Works on after the privileges are gone, and
/// from outside the interface's network namespace: both descriptors stay inside it.
pub struct NicMonitor {
    subject: String,
    interface: String,
    table: File,
    socket: OwnedFd,
    sending: bool,
    base: Option<LinkCounts>,
    base_details: Vec<(String, u64)>,
}

/// The columns of `/proc/net/dev` used here (net/core/net-procfs.c, `dev_seq_printf_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LinkCounts {
    rx_packets: u64,
    rx_errors: u64,
    /// Dropped by the driver and missed by the card.
    rx_dropped: u64,
    tx_packets: u64,
    tx_dropped: u64,
}

impl NicMonitor {
    /// Starts counting; call it inside the interface's network namespace.
    pub fn new(subject: &str, interface: &str, sending: bool) -> io::Result<Self> {
        let table = File::open("/proc/thread-self/net/dev")?;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let mut monitor = NicMonitor {
            subject: subject.to_owned(),
            interface: interface.to_owned(),
            table,
            socket,
            sending,
            base: None,
            base_details: Vec::new(),
        };
        monitor.base = monitor.read();
        monitor.base_details = monitor.read_details();
        Ok(monitor)
    }

    fn read(&self) -> Option<LinkCounts> {
        let mut text = String::new();
        (&self.table).rewind().ok()?;
        (&self.table).read_to_string(&mut text).ok()?;
        parse(&text, &self.interface)
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
            account.add(Count::NicDropped, grown(|counts| counts.rx_dropped));
            account.add(Count::NicErrors, grown(|counts| counts.rx_errors));
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

fn parse(text: &str, interface: &str) -> Option<LinkCounts> {
    let numbers = text.lines().find_map(|line| {
        let (name, numbers) = line.rsplit_once(':')?;
        (name.trim() == interface).then_some(numbers)
    })?;
    let columns: Vec<u64> = numbers.split_whitespace().map_while(|number| number.parse().ok()).collect();
    (columns.len() >= 12).then(|| LinkCounts {
        rx_packets: columns[1],
        rx_errors: columns[2],
        rx_dropped: columns[3],
        tx_packets: columns[9],
        tx_dropped: columns[11],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_by_name() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes\n\
                    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  eth0: 100 200 1 2 0 0 0 0 300 400 0 5 0 0 0 0\n";
        let counts = parse(text, "eth0").unwrap();
        assert_eq!((counts.rx_packets, counts.rx_errors, counts.rx_dropped), (200, 1, 2));
        assert_eq!((counts.tx_packets, counts.tx_dropped), (400, 5));
        assert_eq!(parse(text, "eth"), None);
        assert_eq!(parse("eth0: 1 2 x", "eth0"), None);
    }

    #[test]
    fn the_loopback_interface_is_counted() {
        let monitor = NicMonitor::new("packet:lo", "lo", false).unwrap();
        let mut ledger = Ledger::new();
        monitor.counters(&mut ledger);
        assert_eq!(ledger.account(Stage::Nic, "packet:lo").get(Count::NicDropped), 0);
        assert!(monitor.base.is_some());
    }
}
