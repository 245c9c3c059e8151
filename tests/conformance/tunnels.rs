//! `tun:` with interfaces that others have made, or that go while they are used.

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
fn names_that_no_interface_has_are_refused_as_such() {
    for name in ["lr%d", "abcdefghijklmnop", "a/b", ".."] {
        assert_refused(&format!("tun:{name}"), false, &[name, "1 to 15 bytes"]);
    }
}

/// What another program left: a longer header in front of each packet.
#[test]
fn an_interface_that_was_there_is_used_as_it_is() {
    let Some(veth) = Veth::up(1, None) else { return };
    let netns = veth.lab().host("left").unwrap();
    veth.ip("left", "tuntap add t4 mode tun vnet_hdr");
    veth.ip("left", "link set t4 up txqueuelen 700");
    let text = format!("tun:t4?netns={netns}&address=10.98.0.1/24");
    // TUNSETIFF with IFF_TUN, IFF_NO_PI and IFF_VNET_HDR; TUNSETVNETHDRSZ.
    let leave = "import fcntl, struct; f = open('/dev/net/tun', 'r+b', 0); \
                 fcntl.ioctl(f, 0x400454ca, struct.pack('16sH22x', b't4', 0x5001)); \
                 fcntl.ioctl(f, 0x400454d8, struct.pack('i', 12))";
    match veth.lab().exec("left", "python3").unwrap().args(["-c", leave]).status() {
        Ok(status) => assert!(status.success()),
        Err(_) => eprintln!("SKIPPED in part: needs python3"),
    }
    let mut rx = receive(&text, &RxOptions::default());
    assert!(veth.ip("left", "link show t4").contains("qlen 700"), "nobody asked for another length");
    let socket = within(netns, || UdpSocket::bind("10.98.0.1:0").unwrap()).unwrap();
    socket.send_to(b"hello", "10.98.0.2:7").unwrap();
    let began = Instant::now();
    loop {
        let head = rx.queues[0].fill(now()).unwrap();
        if let Some((_, packet)) = head.burst.iter().find(|(_, packet)| packet.ends_with(b"hello")) {
            assert_eq!((packet[0], packet.len()), (0x45, 33));
            break;
        }
        let shown = head.burst.len();
        rx.queues[0].consume(shown);
        assert!(began.elapsed() < PATIENCE, "it does not come");
    }
}

#[test]
fn what_was_lost_is_counted_after_the_interface_went() {
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
