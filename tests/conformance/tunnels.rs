//! `tun:` with interfaces created by other programs, or removed while in use.

use crate::conformance::backends::{Veth, receive};
use crate::conformance::errors::assert_refused;
use crate::conformance::wire::PATIENCE;
use linerate_burst::{Count, Ledger};
use linerate_engine::clock::now;
use linerate_lab::within;
use linerate_port::RxOptions;
use std::net::UdpSocket;
use std::time::Instant;

#[test]
fn invalid_interface_names_are_rejected() {
    for name in ["lr%d", "abcdefghijklmnop", "a/b", ".."] {
        assert_refused(&format!("tun:{name}"), false, &[name, "1 to 15 bytes"]);
    }
}

/// Another program left a longer header before each packet.
#[test]
fn existing_interface_keeps_its_settings() {
    let Some(veth) = Veth::up(1, None) else { return };
    let netns = veth.lab().host("left").unwrap();
    veth.ip("left", "tuntap add t4 mode tun vnet_hdr");
    veth.ip("left", "link set t4 up txqueuelen 700");
    let text = format!("tun:t4?netns={netns}&address=10.98.0.1/24");
    // TUNSETIFF with IFF_TUN, IFF_NO_PI and IFF_VNET_HDR; TUNSETVNETHDRSZ.
    let set_header_length = "import fcntl, struct; f = open('/dev/net/tun', 'r+b', 0); \
                 fcntl.ioctl(f, 0x400454ca, struct.pack('16sH22x', b't4', 0x5001)); \
                 fcntl.ioctl(f, 0x400454d8, struct.pack('i', 12))";
    match veth.lab().exec("left", "python3").unwrap().args(["-c", set_header_length]).status() {
        Ok(status) => assert!(status.success()),
        Err(_) => eprintln!("SKIPPED in part: needs python3"),
    }
    let mut rx = receive(&text, &RxOptions::default());
    assert!(veth.ip("left", "link show t4").contains("qlen 700"), "the queue length changed");
    let socket = within(netns, || UdpSocket::bind("10.98.0.1:0").unwrap()).unwrap();
    socket.send_to(b"hello", "10.98.0.2:7").unwrap();
    let start_time = Instant::now();
    loop {
        let head = rx.queues[0].fill(now()).unwrap();
        if let Some((_, packet)) = head.burst.iter().find(|(_, packet)| packet.ends_with(b"hello")) {
            assert_eq!((packet[0], packet.len()), (0x45, 33));
            break;
        }
        let shown = head.burst.len();
        rx.queues[0].consume(shown);
        assert!(start_time.elapsed() < PATIENCE, "the packet does not arrive");
    }
}

#[test]
fn losses_are_counted_after_the_interface_is_removed() {
    let Some(veth) = Veth::up(1, None) else { return };
    let netns = veth.lab().host("left").unwrap();
    let text = format!("tun:t5?netns={netns}&address=10.98.0.1/24&queue=10");
    let rx = receive(&text, &RxOptions::default());
    let socket = within(netns, || UdpSocket::bind("10.98.0.1:0").unwrap()).unwrap();
    for _ in 0..100 {
        socket.send_to(b"x", "10.98.0.2:7").unwrap();
    }
    let lost = || {
        let mut ledger = Ledger::new();
        rx.queues[0].counters(&mut ledger);
        ledger.total(Count::RingFull)
    };
    let before = lost();
    assert!(before >= 90, "{before}");
    veth.ip("left", "link del t5");
    assert_eq!(lost(), before);
}
