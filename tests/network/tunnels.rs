//! The program with interfaces that are its own.

use linerate_tests::support::program::start;
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, may_make_labs};
use std::net::UdpSocket;

fn lab() -> Option<Wire> {
    may_make_labs().then(|| Wire::of(&["a:eth0=10.80.0.1/24,b:eth0=10.80.0.2/24"]))
}

#[test]
fn a_pcap_file_of_a_tunnel_has_its_link_type() {
    let Some(lab) = lab() else { return };
    let (scratch, netns) = (Scratch::new(), lab.namespace("a"));
    let file = scratch.file("tun.pcap");
    let capture =
        start(&["capture", &format!("tun:t0?netns={netns}&address=10.98.0.1/24"), "-c", "1", "-w", &file, "udp"]);
    let socket = linerate_lab::within(&netns, || UdpSocket::bind("10.98.0.1:0").unwrap()).unwrap();
    socket.send_to(b"hello", "10.98.0.2:7").unwrap();
    capture.end().good();
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!((&bytes[20..24], bytes[40] >> 4), (&[101, 0, 0, 0][..], 4), "LINKTYPE_RAW, and a packet of IPv4");
}
