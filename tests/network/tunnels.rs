//! Ports on tun interfaces that the program creates.

use linerate_tests::support::program::{run, start};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, may_make_labs};
use std::net::UdpSocket;
use std::time::Duration;

fn lab() -> Option<Wire> {
    may_make_labs().then(|| Wire::of(&["a:eth0=10.80.0.1/24,b:eth0=10.80.0.2/24"]))
}

#[test]
fn pcap_file_of_a_tunnel_has_its_link_type() {
    let Some(lab) = lab() else { return };
    let (scratch, netns) = (Scratch::new(), lab.namespace("a"));
    let file = scratch.file("tun.pcap");
    let capture =
        start(&["capture", &format!("tun:t0?netns={netns}&address=10.98.0.1/24"), "-c", "1", "-w", &file, "udp"]);
    let socket = linerate_lab::within(&netns, || UdpSocket::bind("10.98.0.1:0").unwrap()).unwrap();
    socket.send_to(b"hello", "10.98.0.2:7").unwrap();
    capture.end().good();
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!((&bytes[20..24], bytes[40] >> 4), (&[101, 0, 0, 0][..], 4), "not an IPv4 packet of LINKTYPE_RAW");
}

#[test]
fn bridge_joins_two_tunnels_but_no_tunnel_and_ethernet() {
    let Some(lab) = lab() else { return };
    let tunnel = |host: &str, own: &str| format!("tun:t1?netns={}&address={own}/32", lab.namespace(host));
    let (one, other) = (tunnel("a", "10.98.0.1"), tunnel("b", "10.98.0.2"));
    let refused = run(&["bridge", &one, &lab.port("b", "eth0", "")]);
    assert!(refused.errors.contains("use mode=tap"), "{}", refused.errors);
    let wire = start(&["bridge", &one, &other, "--json"]);
    lab.ip("a", &["route", "add", "10.98.0.2/32", "dev", "t1"]);
    lab.ip("b", &["route", "add", "10.98.0.1/32", "dev", "t1"]);
    let bind = |host: &str, own: &str| {
        linerate_lab::within(&lab.namespace(host), || UdpSocket::bind((own, 7)).unwrap()).unwrap()
    };
    let (a, b) = (bind("a", "10.98.0.1"), bind("b", "10.98.0.2"));
    b.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    a.send_to(b"hello", "10.98.0.2:7").unwrap();
    let mut buffer = [0; 9];
    assert_eq!(b.recv(&mut buffer).unwrap(), 5);
    let json = wire.interrupt().good().json();
    assert_eq!((&json["balanced"], &json["failure"]), (&true.into(), &serde_json::Value::Null), "{json:#}");
}
