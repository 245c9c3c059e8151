//! Interfaces and their capabilities.

use crate::netns::{DIRECTORY as NETNS, within};
use crate::rtnl::{self, IFF_RUNNING, IFF_UP, Rtnetlink};
use crate::sys::bpf::Program;
use crate::sys::ethtool::Ethtool;
use linerate_burst::text::nearest;
use linerate_burst::text::quoted;
use linerate_port::InterfaceInfo;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::os::fd::{AsFd, BorrowedFd};
use std::{fs, io};

/// `ARPHRD_ETHER` and `ARPHRD_LOOPBACK` (linux/if_arp.h): their frames start with an Ethernet header.
pub const ETHERNET_HARDWARE: [u32; 2] = [1, 772];

/// Returns all interfaces of a network namespace (by default of this process), by number.
pub fn interfaces(netns: Option<&str>) -> io::Result<Vec<InterfaceInfo>> {
    within(netns, || {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let names = names(&fs::read_to_string("/proc/thread-self/net/dev")?);
        let mut found: Vec<InterfaceInfo> = names
            .into_iter()
            .map(|name| {
                let mut one = look(&name, socket.as_fd());
                one.netns = netns.unwrap_or_default().to_owned();
                one
            })
            .collect();
        found.sort_by_key(|one| one.index);
        Ok(found)
    })
}

/// Returns whether this thread's network namespace has an interface of this name. (`/sys` may belong to another one.)
pub fn is_here(name: &str) -> bool {
    fs::read_to_string("/proc/thread-self/net/dev").is_ok_and(|devices| names(&devices).iter().any(|one| one == name))
}

/// Returns an interface of this thread's network namespace, queried through `socket`; missing values keep their
/// defaults.
pub(crate) fn look(name: &str, socket: BorrowedFd<'_>) -> InterfaceInfo {
    let mut found = InterfaceInfo { name: name.to_owned(), queues: (1, 1), ..InterfaceInfo::default() };
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
    found.speed_mbps = ask.speed().ok().flatten();
    found.queues = ask.queues().unwrap_or((1, 1));
    found.offloads = ask.features().unwrap_or_default();
    found
}

/// Finds an interface of this thread's network namespace, if its frames start with an Ethernet header.
pub(crate) fn find(name: &str) -> io::Result<InterfaceInfo> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let found = look(name, socket.as_fd());
    if found.index == 0 {
        return Err(io::Error::new(io::ErrorKind::NotFound, missing(name)));
    }
    if !ETHERNET_HARDWARE.contains(&found.hardware) {
        let reason = format!("its frames have no Ethernet header (ARPHRD type {})", found.hardware);
        return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
    }
    Ok(found)
}

/// Returns a note on an interface that is down at open: it may come up later.
pub(crate) fn note_if_down(found: &InterfaceInfo, netns: Option<&str>) -> Option<String> {
    (!found.up).then(|| format!("interface is down; bring it up with: {}", bring_up(&found.name, netns)))
}

/// Returns the command that brings an interface up: in a network namespace, or in the current one.
pub(crate) fn bring_up(interface: &str, netns: Option<&str>) -> String {
    let within = netns.map_or_else(String::new, |netns| format!("-n {} ", quoted(netns)));
    format!("ip {within}link set {} up", quoted(interface))
}

/// Explains that an interface is not in this thread's network namespace.
pub(crate) fn missing(name: &str) -> String {
    let devices = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let names = names(&devices);
    let meant = match nearest(name, names.iter().map(String::as_str)) {
        _ if name.contains(".pcap") || name.contains('/') => format!("; for a capture file use pcap:{name}"),
        _ if name == "any" => "; name each interface, as in eth0,eth1".to_owned(),
        Some(meant) => format!(" (did you mean {meant}?)"),
        None if fs::read_dir(NETNS).is_ok_and(|mut names| names.next().is_some()) => {
            format!("; run linerate ports, or use packet:{name}?netns=NAMESPACE for a network namespace")
        }
        None => "; run linerate ports to list the interfaces".to_owned(),
    };
    format!("no such interface{meant}")
}

/// Returns the uses of an interface in this thread's network namespace, a phrase each; empty if losing its frames has
/// no effect. A link-local address does not count.
pub(crate) fn uses(found: &InterfaceInfo) -> io::Result<Vec<String>> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut uses = Vec::new();
    if let Ok(address) = Ethtool::new(socket.as_fd(), &found.name).and_then(|ask| ask.ipv4()) {
        uses.push(format!("it has the address {address}"));
    }
    // Columns: address, interface number, prefix length, scope (20: link-local), flags, name.
    if has_row("if_inet6", 5, &found.name, |columns| columns[3] != "20") {
        uses.push("it has an IPv6 address".into());
    }
    if is_default_route(&found.name) {
        uses.push("the default route leaves through it".into());
    }
    // Columns: interface of the VLAN, its number, the interface below, with bars between.
    if has_row("vlan/config", 4, &found.name, |_| true) {
        uses.push("a VLAN interface uses it".into());
    }
    let link = Rtnetlink::new()?.link(found.index).unwrap_or_default();
    if rtnl::attribute(&link, rtnl::MASTER).is_some() {
        uses.push("it is a part of a bridge or bond".into());
    }
    Ok(uses)
}

/// Returns whether the IPv4 or IPv6 default route of this thread's network namespace leaves through an interface.
pub fn is_default_route(interface: &str) -> bool {
    // Columns: Iface Destination Gateway Flags RefCnt Use Metric Mask; and, for IPv6, destination, prefix length, ...
    has_row("route", 0, interface, |columns| columns[1] == "00000000" && columns.get(7) == Some(&"00000000"))
        || has_row("ipv6_route", 9, interface, |columns| {
            columns[0].bytes().all(|digit| digit == b'0') && columns[1] == "00" && columns[8] != "00200200"
        })
}

/// Returns whether a table of /proc/net has a row of this interface, named in a column, for which `holds`.
fn has_row(table: &str, column: usize, interface: &str, holds: fn(&[&str]) -> bool) -> bool {
    fs::read_to_string(format!("/proc/thread-self/net/{table}")).is_ok_and(|table| {
        table.lines().any(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            columns.len() > column.max(3) && columns[column] == interface && holds(&columns)
        })
    })
}

/// Returns the name of the BPF program with a number, if it exists and this process may query it.
pub fn program_name(id: u32) -> Option<String> {
    Program::name_of(id).ok()
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
    fn the_command_to_bring_an_interface_up_can_be_pasted() {
        let down = InterfaceInfo { name: "a;$(x)&".into(), up: false, ..InterfaceInfo::default() };
        let note = note_if_down(&down, Some("b's")).expect("it is down");
        assert!(note.ends_with(r": ip -n 'b'\''s' link set 'a;$(x)&' up"), "{note}");
        assert_eq!(bring_up("eth0.5", None), "ip link set eth0.5 up");
    }

    #[test]
    fn a_missing_namespace_is_named() {
        let error = interfaces(Some("no-such-namespace")).unwrap_err().to_string();
        assert!(error.contains("no network namespace \"no-such-namespace\""), "{error}");
        assert!(interfaces(Some("../../etc")).is_err());
    }
}
