//! Filter expressions, and the frames that tcpdump selects with them.

use super::records::{self, Record};
use super::{Scratch, tool};

/// Filter expressions of every kind: VLAN, protocols, addresses, ports, lengths, bytes, and their combinations.
pub const FILTERS: [&str; 48] = [
    "vlan",
    "vlan 100",
    "vlan 200",
    "not vlan",
    "vlan and ip",
    "vlan and not ip",
    "vlan and vlan",
    "vlan 100 and vlan",
    "vlan and tcp port 80",
    "vlan 100 and udp",
    "vlan and host 10.0.0.2",
    "ip or (vlan and ip)",
    "not ip",
    "ip",
    "ip6",
    "arp",
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "tcp or udp",
    "ip proto 17",
    "host 10.0.0.2",
    "src host 10.0.0.1",
    "dst net 192.168.0.0/16",
    "net 10.0.0.0/8",
    "not net 192.168.0.0/16",
    "port 53",
    "udp port 53 or tcp port 80",
    "src port 443",
    "portrange 1-1023",
    "dst portrange 5000-50000",
    "greater 100",
    "less 80",
    "len > 60 and len < 200",
    "ether proto 0x0806",
    "ether[0] & 1 = 1",
    "ether src 02:00:00:00:00:0a",
    "broadcast",
    "multicast",
    "ether multicast and not ether broadcast",
    "ip[8] < 64",
    "ip[6:2] & 0x1fff != 0",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "tcp[2:2] = 80 or udp[2:2] = 53",
    "ether[12:2] = 0x0800",
    "ip and ip[2:2] - ((ip[0] & 0xf) << 2) > 500",
    "ip6 and ip6[6] = 17 and len > 70",
];

/// Returns the frames that tcpdump selects from a capture file.
pub fn select(file: &str, filter: &str) -> Vec<Record> {
    let scratch = Scratch::new();
    let output = scratch.file("selected.pcap");
    // As root, tcpdump drops privileges to a user who may not enter our directory.
    let arguments = ["-r", file, "--time-stamp-precision=nano", "-Z", "root", "-w", &output, filter];
    let arguments = if super::is_root() { &arguments[..] } else { &[&arguments[..3], &arguments[5..]].concat() };
    tool("tcpdump", arguments);
    records::read(&output)
}

/// Checks that most filters select some frames and not all; other filters prove little.
pub fn assert_selective(selected: &[(&str, usize)], total: usize) {
    let selective = selected.iter().filter(|(_, frames)| (1..total).contains(frames)).count();
    assert!(
        selective * 10 >= selected.len() * 7,
        "only {selective} of these select some frames and not all: {selected:?}"
    );
}
