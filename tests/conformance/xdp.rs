//! AF_XDP: the suite over it, in driver and generic mode, and tests specific to it.

use crate::conformance::backends::{Harness, Veth, receive, transmit};
use crate::conformance::checks::run;
use crate::conformance::faulty::run_faulty;
use crate::conformance::frames::{CUSTOMER, SERVICE, assert_all_arrived, frames, tagged};
use crate::conformance::wire::{Receiver, Wire};
use linerate_backends::open_rx;
use linerate_burst::{Count, Flags, Ledger};
use linerate_port::{RxOptions, Spec};
use std::thread;

#[test]
fn xdp_in_driver_mode_with_one_queue() {
    run_on(1, "packet", "&mode=native");
}

#[test]
fn xdp_in_driver_mode_with_four_queues() {
    run_on(4, "packet", "&mode=native");
}

#[test]
fn xdp_in_ring_mode_with_one_queue() {
    run_on(1, "packet", "&mode=ring");
}

#[test]
fn xdp_in_ring_mode_with_four_queues() {
    run_on(4, "packet", "&mode=ring");
}

#[test]
fn xdp_in_generic_mode_with_one_queue() {
    run_on(1, "packet", "&mode=generic");
}

#[test]
fn xdp_in_generic_mode_with_four_queues() {
    run_on(4, "packet", "&mode=generic");
}

#[test]
fn xdp_to_xdp_with_four_queues() {
    run_on(4, "xdp", "&mode=native");
}

#[test]
fn faulty_xdp() {
    run_faulty(|| Some(Veth::up(1, None)?.using("xdp", "xdp", "&mode=native&ring=8192")));
    run_faulty(|| Some(Veth::up(1, None)?.using("packet", "xdp", "&mode=generic&ring=8192")));
    run_faulty(|| Some(Veth::up(1, None)?.using("packet", "xdp", "&mode=ring&ring=8192")));
}

fn run_on(queues: u32, sender: &'static str, options: &'static str) {
    if let Some(veth) = Veth::up(queues, None) {
        run(&veth.using(sender, "xdp", options));
    }
}

/// Smallest ring.
const TINY: &str = "&ring=64";

#[test]
fn frames_that_do_not_fit_the_ring_are_counted_exactly() {
    for mode in ["&mode=ring", "&mode=native", "&mode=generic"] {
        let Some(veth) = Veth::up(1, None) else { return };
        let veth = veth.using("packet", "xdp", mode);
        let mut wire = veth.open_with(&RxOptions::default(), TINY);
        wire.send(0, &frames(0, 3000, &[60, 1000]));
        let mut receiver = Receiver::new(std::mem::take(wire.queues()));
        receiver.run_until(|receiver| receiver.arrived() >= 64);
        wire.send(0, &frames(1, 20, &[60]));
        receiver.run_until(|receiver| receiver.arrived() >= 84);
        wire.close_sender();
        let outcome = receiver.finish(wire.sent);
        let ledger = &outcome.ledger;
        let total = |count| ledger.total(count);
        assert_eq!(ledger.imbalances(), [], "{mode}: {ledger:#?}");
        assert_eq!((total(Count::Sent), total(Count::Received)), (3020, 3020), "{mode}: {ledger:#?}");
        assert_eq!((total(Count::Delivered), outcome.got.len()), (84, 84), "{mode}: {ledger:#?}");
        assert_eq!(total(Count::RingFull) + total(Count::NoBuffer), 2936, "{mode}: {ledger:#?}");
    }
}

/// Each chunk is reused many times.
#[test]
fn chunks_are_reused() {
    for mode in ["&mode=ring", "&mode=native"] {
        let Some(veth) = Veth::up(1, None) else { return };
        let veth = veth.using("packet", "xdp", mode);
        let wire = veth.open_with(&RxOptions::default(), "&ring=256").with_window(64);
        let sent = [frames(0, 20_000, &[60, 333, 1514, 9014])];
        let outcome = wire.exchange(&sent);
        assert_all_arrived(veth.name(), &sent, &outcome.got);
        assert_eq!((outcome.ledger.imbalances(), outcome.ledger.lost()), (vec![], 0));
    }
}

/// A reader that stalls finds its frames in both rings of the memory, in order; each ring turns several times.
#[test]
fn second_ring_takes_what_the_first_has_no_room_for() {
    let Some(veth) = Veth::up(1, None) else { return };
    let veth = veth.using("packet", "xdp", "&mode=ring");
    let mut wire = veth.open(&RxOptions::default());
    let mut receiver = Receiver::new(std::mem::take(wire.queues()));
    let sent = frames(0, 24_000, &[60, 333, 1514, 9014]);
    for (round, part) in sent.chunks(4000).enumerate() {
        wire.send(0, part);
        receiver.run_until(|receiver| receiver.arrived() >= (round + 1) * 4000);
    }
    wire.close_sender();
    let outcome = receiver.finish(wire.sent);
    assert_all_arrived(veth.name(), &[sent], &outcome.got);
    assert_eq!((outcome.ledger.imbalances(), outcome.ledger.lost()), (vec![], 0));
}

#[test]
fn frames_of_several_buffers_are_joined_and_counted() {
    let Some(veth) = Veth::up(1, None) else { return };
    let veth = veth.using("packet", "xdp", "&mode=native");
    let sent = [frames(0, 60, &[3000, 9014, 21_942])];
    let outcome = veth.open(&RxOptions::default()).exchange(&sent);
    assert_all_arrived(veth.name(), &sent, &outcome.got);
    for got in &outcome.got {
        assert_eq!(got.desc.flags.contains(Flags::JOINED), got.bytes.len() > 4000, "{} bytes", got.bytes.len());
    }
    assert_eq!(outcome.ledger.total(Count::Joined), 40);
    assert_eq!(outcome.ledger.total(Count::Unstamped), 0);
}

/// Long frames are held back until there is room in the memory for joined frames.
#[test]
fn long_frames_wait_for_room_to_be_joined() {
    let Some(veth) = Veth::up(1, None) else { return };
    let veth = veth.using("packet", "xdp", "&mode=native&ring=8192");
    let mut wire = veth.open(&RxOptions::default());
    // 200 frames of 64 KiB exceed the 8 MiB for joined frames.
    wire.send(0, &frames(0, 200, &[65_549]));
    let mut receiver = Receiver::new(std::mem::take(wire.queues()));
    receiver.run_until(|receiver| receiver.arrived() >= 200);
    let outcome = receiver.finish(Ledger::new());
    assert_eq!((outcome.got.len(), outcome.ledger.lost()), (200, 0), "{:#?}", outcome.ledger);
}

/// Sends and receives on the same queues of both ends at the same time.
#[test]
fn queues_are_shared_by_both_directions() {
    let Some(veth) = Veth::up(2, None) else { return };
    let veth = veth.using("xdp", "xdp", "");
    let options = RxOptions::default();
    let [there, back] = ["right", "left"].map(|host| receive(&veth.receiver(host, ""), &options));
    let [from_left, from_right] = ["left", "right"].map(|host| transmit(&veth.sender(host), 2));
    thread::scope(|scope| {
        for (index, (tx, rx)) in [(from_left, there), (from_right, back)].into_iter().enumerate() {
            let veth = &veth;
            scope.spawn(move || {
                let sent = [frames(2 * index as u8, 5000, &[60, 1514]), frames(2 * index as u8 + 1, 5000, &[60, 9014])];
                let outcome = Wire::live(tx, rx).with_window(1024).exchange(&sent);
                assert_all_arrived(veth.name(), &sent, &outcome.got);
                assert_eq!((outcome.ledger.imbalances(), outcome.ledger.lost()), (vec![], 0));
            });
        }
    });
}

#[test]
fn other_queues_are_left_to_the_host() {
    let Some(veth) = Veth::up(4, None) else { return };
    let veth = veth.using("xdp", "xdp", "");
    let port = veth.receiver("right", "").replace("eth0?", "eth0@1-2?");
    let rx = receive(&port, &RxOptions::default());
    assert_eq!(rx.queues.len(), 2);
    let mut wire = Wire::live(transmit(&veth.sender("left"), 4), rx);
    for sender in 0..4 {
        wire.send(sender, &frames(sender as u8, 10, &[60]));
    }
    wire.wait_for(20);
    let host: serde_json::Value = serde_json::from_str(&veth.ip("right", "-s -j link show dev eth0")).unwrap();
    assert_eq!(host[0]["stats64"]["rx"]["packets"], 40, "{host}");
    wire.close_sender();
    let outcome = Receiver::new(std::mem::take(wire.queues())).finish(wire.sent);
    assert_eq!(outcome.ledger.total(Count::Received), 20);
}

/// A bridge passes the tag outside the frame, where XDP sees it only by asking the driver.
#[test]
fn stripped_vlan_tag_is_restored() {
    let Some(veth) = Veth::with("left:eth0,middle:eth0,mtu=65535", None) else { return };
    let host = |name: &str| veth.lab().host(name).unwrap().to_owned();
    let (left, middle) = (host("left"), host("middle"));
    for step in [
        "link add eth1 mtu 65535 type veth peer name far mtu 65535",
        "link add br0 type bridge mcast_snooping 0",
        "link set eth0 master br0 arp off",
        "link set eth1 master br0 arp off",
        "link set br0 arp off addrgenmode none",
        "link set eth1 addrgenmode none up",
        "link set far addrgenmode none arp off up",
        "link set br0 up",
    ] {
        veth.ip("middle", step);
    }
    let stacks: [&[(u16, u16)]; 3] = [&[(CUSTOMER, 42)], &[(SERVICE, 7), (CUSTOMER, 8)], &[]];
    let sent = [(0..30).map(|number| tagged(0, number, 100, stacks[number as usize % 3])).collect::<Vec<_>>()];
    for snap in [0u32, 64, 14, 3] {
        let rx = receive(&format!("xdp:far?netns={middle}&ring=2048"), &RxOptions { snap, ..RxOptions::default() });
        let reports_tags = rx.notes.iter().any(|note| note.contains("reports stripped VLAN tags"));
        let outcome = Wire::live(transmit(&format!("packet:eth0?netns={left}"), 1), rx).exchange(&sent);
        if !reports_tags {
            eprintln!("SKIPPED: this kernel's veth does not report VLAN tags");
            return;
        }
        assert_eq!(outcome.ledger.total(Count::VlanRestored), 20, "snap {snap}");
        if snap == 0 {
            assert_all_arrived("through a bridge", &sent, &outcome.got);
            continue;
        }
        // As on any port, the snap length applies to the frame without its tag, and keeps at least the Ethernet header.
        for (number, (got, frame)) in outcome.got.iter().zip(&sent[0]).enumerate() {
            let tag = if number % 3 < 2 { 4 } else { 0 };
            let kept = frame.bytes.len().min(snap.max(14) as usize + tag);
            let lengths = (got.desc.captured as usize, got.desc.wire as usize);
            assert_eq!(lengths, (kept, frame.bytes.len()), "snap {snap}, frame {number}");
            assert_eq!(got.bytes, frame.bytes[..kept], "snap {snap}, frame {number}");
        }
    }
}

/// The program filters frames before it writes them; frames with a stripped tag are filtered after its restoration.
#[test]
fn frames_filtered_in_the_kernel_are_counted() {
    for (mode, is_counted) in [("&mode=ring", true), ("&mode=native", false)] {
        let Some(veth) = Veth::up(1, None) else { return };
        let veth = veth.using("packet", "xdp", mode);
        // Lengths alternate; ports without a kernel filter deliver all.
        let options = RxOptions { filter: "len > 1000".into(), snap: 40, ..RxOptions::default() };
        let sent = [frames(0, 600, &[60, 1500, 61, 9000])];
        let mut wire = veth.open(&options);
        wire.send(0, &sent[0]);
        let mut receiver = Receiver::new(std::mem::take(wire.queues()));
        receiver.run_until(|receiver| receiver.arrived() >= if is_counted { 300 } else { 600 });
        wire.close_sender();
        let outcome = receiver.finish(wire.sent);
        let ledger = &outcome.ledger;
        assert_eq!((ledger.imbalances(), ledger.lost()), (vec![], 0), "{mode}: {ledger:#?}");
        assert_eq!(ledger.total(Count::Received), 600, "{mode}");
        assert_eq!(ledger.total(Count::KernelFiltered), if is_counted { 300 } else { 0 }, "{mode}");
        let expected: Vec<_> = sent[0].iter().filter(|frame| !is_counted || frame.bytes.len() > 1000).collect();
        assert_eq!(outcome.got.len(), expected.len(), "{mode}");
        for (got, frame) in outcome.got.iter().zip(expected) {
            let kept = if is_counted { 40 } else { frame.bytes.len() };
            assert_eq!((got.desc.captured as usize, got.desc.wire as usize), (kept, frame.bytes.len()), "{mode}");
            assert_eq!(got.bytes, frame.bytes[..kept], "{mode}");
        }
    }
    let Some(veth) = Veth::up(1, None) else { return };
    let veth = veth.using("packet", "xdp", "");
    let port = |filter: &str| {
        let options = RxOptions { filter: filter.into(), ..RxOptions::default() };
        open_rx(&Spec::parse(&veth.receiver("right", "")).unwrap(), &options).map(|port| port.filter)
    };
    assert_eq!(port("tcp").unwrap(), "tcp");
    // The kernel accepts no filter with a loop.
    assert_eq!(port("ip6 protochain 6").unwrap(), "");
    assert!(port("no such filter").unwrap_err().to_string().contains("no such filter"));
}

/// The socket stays open while a sender uses it, although its receive side is closed.
#[test]
fn host_receives_again_after_a_lane_is_dropped() {
    let Some(veth) = Veth::up(1, None) else { return };
    let veth = veth.using("xdp", "xdp", "");
    let lanes = receive(&veth.receiver("right", ""), &RxOptions::default());
    let _stays = transmit(&veth.sender("right"), 1);
    drop(lanes);
    let host = receive(&veth.sender("right").replace("xdp:", "packet:"), &RxOptions::default());
    let mut wire = Wire::live(transmit(&veth.sender("left"), 1), host);
    wire.send(0, &frames(0, 10, &[60]));
    wire.wait_for(10);
}

#[test]
fn port_with_another_mode_than_the_first_is_rejected() {
    let Some(veth) = Veth::up(2, None) else { return };
    let veth = veth.using("xdp", "xdp", "");
    let port = |queue: u32, more: &str| veth.receiver("right", more).replace("eth0?", &format!("eth0@{queue}?"));
    for (mode, others) in [("native", ["generic", "ring"]), ("ring", ["generic", "native"])] {
        let _first = receive(&port(0, &format!("&mode={mode}")), &RxOptions::default());
        for other in others {
            let second = Spec::parse(&port(1, &format!("&mode={other}"))).unwrap();
            let refused = open_rx(&second, &RxOptions::default()).err().expect("one program per interface").to_string();
            assert!(refused.contains("already runs in the driver"), "{refused}");
        }
        let _third = receive(&port(1, ""), &RxOptions::default());
    }
}

#[test]
fn interface_in_use_by_the_host_needs_take() {
    let Some(veth) = Veth::up(1, None) else { return };
    let veth = veth.using("packet", "xdp", "");
    veth.ip("right", "addr add 192.0.2.1/24 dev eth0");
    let spec = Spec::parse(&veth.receiver("right", "")).unwrap();
    let refused = open_rx(&spec, &RxOptions::default()).err().unwrap().to_string();
    for part in ["192.0.2.1", "--take", "packet:eth0"] {
        assert!(refused.contains(part), "{refused}");
    }
    assert!(open_rx(&spec, &RxOptions { take: true, ..RxOptions::default() }).is_ok());
    veth.ip("right", "addr del 192.0.2.1/24 dev eth0");
    assert!(open_rx(&spec, &RxOptions::default()).is_ok());
    veth.ip("right", "link add br0 type bridge");
    veth.ip("right", "link set eth0 master br0");
    let refused = open_rx(&spec, &RxOptions::default()).err().unwrap().to_string();
    assert!(refused.contains("part of a bridge"), "{refused}");
}
