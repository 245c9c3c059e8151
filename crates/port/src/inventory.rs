//! What interfaces there are, and what they can do.

use crate::backends::sys::ethtool::Ethtool;
use crate::netns::within;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::os::fd::{AsFd, BorrowedFd};
use std::{fs, io};

/// One interface as found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// Its number in its network namespace.
    pub index: u32,
    /// The driver's name; empty for interfaces without one, as `lo`.
    pub driver: String,
    /// MAC address as text; empty where there is none.
    pub address: String,
    /// Longest network packet, in bytes.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether it has a carrier.
    pub running: bool,
    /// Speed in Mb/s where the driver knows it.
    pub speed_mbps: Option<u64>,
    /// Receive and send queues.
    pub queues: (u32, u32),
    /// `ARPHRD_*` number: 1 for Ethernet, 772 for loopback (linux/if_arp.h).
    pub hardware: u32,
    /// Offloads that are on, by their ethtool names.
    pub offloads: Vec<String>,
    /// The network namespace it was looked up in; empty for this process's own.
    pub netns: String,
}

/// `ARPHRD_ETHER` and `ARPHRD_LOOPBACK` (linux/if_arp.h): their frames begin with an Ethernet header.
pub const ETHERNET_HARDWARE: [u32; 2] = [1, 772];

/// Every interface of a network namespace (this process's own where none is named), by number.
pub fn interfaces(netns: Option<&str>) -> io::Result<Vec<Found>> {
    within(netns, || {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let names = names(&fs::read_to_string("/proc/thread-self/net/dev")?);
        let mut found: Vec<Found> = names
            .into_iter()
            .map(|name| {
                let mut one = look(&name, socket.as_fd());
                one.speed_mbps = netns.is_none().then(|| speed(&name)).flatten();
                one.netns = netns.unwrap_or_default().to_owned();
                one
            })
            .collect();
        found.sort_by_key(|one| one.index);
        Ok(found)
    })
}

/// One interface of this thread's network namespace, asked through `socket`; what the kernel does not say
/// stays at its default.
pub(crate) fn look(name: &str, socket: BorrowedFd<'_>) -> Found {
    let mut found = Found { name: name.to_owned(), queues: (1, 1), ..Found::default() };
    let Ok(ask) = Ethtool::new(socket, name) else { return found };
    found.index = ask.index().unwrap_or_default();
    found.mtu = ask.mtu().unwrap_or_default();
    let flags = ask.flags().unwrap_or_default();
    found.up = flags & IFF_UP != 0;
    found.running = flags & IFF_RUNNING != 0;
    if let Ok((hardware, address)) = ask.hardware() {
        found.hardware = hardware;
        if hardware == ETHERNET_HARDWARE[0] {
            found.address = address.map(|byte| format!("{byte:02x}")).join(":");
        }
    }
    found.driver = ask.driver().unwrap_or_default();
    found.queues = ask.queues().unwrap_or((1, 1));
    found.offloads = ask.features().unwrap_or_default();
    found
}

const IFF_UP: u32 = 1;
const IFF_RUNNING: u32 = 0x40;

/// sysfs shows the namespace it was mounted in, so this is for that one alone.
fn speed(name: &str) -> Option<u64> {
    fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?.trim().parse().ok()
}

fn names(table: &str) -> Vec<String> {
    table.lines().skip(2).filter_map(|line| Some(line.rsplit_once(':')?.0.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_found() {
        let found = interfaces(None).unwrap();
        let lo = found.iter().find(|one| one.name == "lo").expect("every namespace has lo");
        assert_eq!((lo.index, lo.hardware), (1, ETHERNET_HARDWARE[1]));
        assert!(lo.mtu >= 1500, "{lo:?}");
    }

    #[test]
    fn a_namespace_that_is_not_there_is_named() {
        let error = interfaces(Some("no-such-namespace")).unwrap_err().to_string();
        assert!(error.contains("no network namespace \"no-such-namespace\""), "{error}");
        assert!(interfaces(Some("../../etc")).is_err());
    }
}
