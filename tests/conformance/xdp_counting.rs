//! XDP programs that also pass frames to the host, and programs that only count frames.

use crate::conformance::backends::{Veth, receive, transmit};
use crate::conformance::frames::{CUSTOMER, SERVICE, assert_all_arrived, frames, tagged};
use crate::conformance::wire::{PATIENCE, PAUSE, Receiver, Wire};
use linerate_backends::open_rx;
use linerate_burst::{Count, Horizon, Ledger, Sizes};
use linerate_engine::clock::now;
use linerate_port::{FrameTally, RxOptions, RxPort, Spec};
use std::thread::sleep;
use std::time::Instant;

fn tallying() -> RxOptions {
    RxOptions { shared: true, tally: true, ..RxOptions::default() }
}

/// Fills until all queues have ended.
fn drain(port: &mut RxPort) {
    for queue in &mut port.queues {
        queue.detach();
        let deadline = Instant::now() + PATIENCE;
        while queue.fill(now()).unwrap().horizon != Horizon::Ended {
            assert!(Instant::now() < deadline, "the queue did not end");
            sleep(PAUSE);
        }
    }
}

/// Returns the expected counts for frames of these lengths.
fn counted(frames: impl Iterator<Item = usize>) -> FrameTally {
    let mut tallied = FrameTally::default();
    for length in frames.map(|length| length as u32) {
        let (least, most) = tallied.lengths.unwrap_or((length, length));
        tallied.frames += 1;
        tallied.bytes += u64::from(length);
        tallied.lengths = Some((least.min(length), most.max(length)));
        tallied.sizes.0[Sizes::bucket(length)] += 1;
    }
    tallied
}

#[test]
fn program_counts_frames_per_queue_and_delivers_none() {
    for queues in [1, 4] {
        let Some(veth) = Veth::up(queues, None) else { return };
        let veth = veth.using("packet", "xdp", "");
        let lengths = [60, 61, 123, 124, 251, 252, 508, 1020, 1514, 1515, 9014];
        for round in 0..2 {
            let mut port = receive(&veth.receiver("right", ""), &tallying());
            assert!(port.notes.iter().any(|note| note.contains("counts")), "{:?}", port.notes);
            let mut tx = transmit(&veth.sender("left"), queues as usize);
            let sent: Vec<_> = (0..queues).map(|queue| frames(queue as u8, 1000 + 10 * queue, &lengths)).collect();
            for (queue, frames) in tx.queues.iter_mut().zip(&sent) {
                crate::conformance::wire::send_all(queue.as_mut(), frames);
            }
            drain(&mut port);
            let mut ledger = Ledger::new();
            let mut got = Vec::new();
            for queue in &port.queues {
                queue.counters(&mut ledger);
                got.push(*queue.tallied().expect("it counts"));
            }
            let lengths = sent.iter().flatten().map(|frame| frame.bytes.len());
            let expected = counted(lengths);
            assert_eq!(got.iter().map(|port_count| port_count.frames).sum::<u64>(), expected.frames, "round {round}");
            assert_eq!(got.iter().map(|port_count| port_count.bytes).sum::<u64>(), expected.bytes);
            assert_eq!(got.iter().filter_map(|port_count| port_count.lengths).map(|(least, _)| least).min(), Some(60));
            assert_eq!(got.iter().filter_map(|port_count| port_count.lengths).map(|(_, most)| most).max(), Some(9014));
            let bucket = |at: usize| got.iter().map(|port_count| port_count.sizes.0[at]).sum::<u64>();
            assert_eq!(std::array::from_fn(bucket), expected.sizes.0);
            assert_eq!(
                (ledger.total(Count::Received), ledger.total(Count::Delivered)),
                (expected.frames, expected.frames)
            );
            assert_eq!((ledger.imbalances(), ledger.lost()), (vec![], 0));
        }
    }
}

#[test]
fn each_queue_may_be_a_counting_port() {
    let Some(veth) = Veth::up(2, None) else { return };
    let veth = veth.using("packet", "xdp", "");
    let port = |queue: u32| veth.receiver("right", "").replace("eth0?", &format!("eth0@{queue}?"));
    let ports = [receive(&port(0), &tallying()), receive(&port(1), &tallying())];
    assert!(ports.iter().all(|port| port.queues[0].tallied().is_some()));
    let again = open_rx(&Spec::parse(&port(1)).unwrap(), &tallying()).err().unwrap().to_string();
    assert!(again.contains("already open for receiving"), "{again}");
    let shown = open_rx(&Spec::parse(&port(1)).unwrap(), &RxOptions::default()).err().unwrap().to_string();
    assert!(shown.contains("only counts frames"), "{shown}");
}

/// A stripped tag is not visible to XDP, but counts as part of the frame.
#[test]
fn stripped_vlan_tag_counts() {
    let Some(veth) = Veth::up(1, None) else { return };
    let veth = veth.using("packet", "xdp", "");
    let host = |name: &str| veth.lab().host(name).unwrap().to_owned();
    for step in [
        "link add br0 type bridge mcast_snooping 0",
        "link add eth1 type veth peer name far",
        "link set eth0 master br0 arp off",
        "link set eth1 master br0 arp off",
        "link set br0 arp off addrgenmode none",
        "link set eth1 addrgenmode none up",
        "link set far addrgenmode none arp off up",
        "link set br0 up",
    ] {
        veth.ip("right", step);
    }
    let stacks: [&[(u16, u16)]; 3] = [&[(CUSTOMER, 42)], &[(SERVICE, 7), (CUSTOMER, 8)], &[]];
    let sent: Vec<_> = (0..30).map(|number| tagged(0, number, 100, stacks[number as usize % 3])).collect();
    let mut port = receive(&format!("xdp:far?netns={}", host("right")), &tallying());
    if !port.notes.iter().any(|note| note.contains("reports stripped VLAN tags")) {
        eprintln!("SKIPPED: this kernel's veth does not report VLAN tags");
        return;
    }
    let mut tx = transmit(&format!("packet:eth0?netns={}", host("left")), 1);
    crate::conformance::wire::send_all(tx.queues[0].as_mut(), &sent);
    let deadline = Instant::now() + PATIENCE;
    let mut frames = || {
        let _ = port.queues[0].fill(now()).unwrap();
        port.queues[0].tallied().unwrap().frames
    };
    while frames() < 30 && Instant::now() < deadline {
        sleep(PAUSE);
    }
    drain(&mut port);
    assert_eq!(*port.queues[0].tallied().unwrap(), counted(sent.iter().map(|frame| frame.bytes.len())));
    let mut ledger = Ledger::new();
    port.queues[0].counters(&mut ledger);
    assert_eq!(ledger.total(Count::VlanRestored), 20);
}

#[test]
fn ports_with_consumers_do_not_only_count() {
    let Some(veth) = Veth::up(1, None) else { return };
    let veth = veth.using("packet", "xdp", "");
    for (options, more) in [
        (RxOptions { filter: "udp".into(), ..tallying() }, ""),
        (tallying(), "&mode=ring"),
        (tallying(), "&mode=generic"),
        (RxOptions { tally: false, ..tallying() }, ""),
    ] {
        let port = receive(&veth.receiver("right", more), &options);
        assert!(port.queues[0].tallied().is_none(), "{more}");
    }
    let faulty = format!("faulty:{}", veth.receiver("right", ""));
    assert!(receive(&faulty, &tallying()).queues[0].tallied().is_none());
}

/// Complete, in order and with tags, including frames that are filtered out or find the ring full.
#[test]
fn host_receives_all_frames_with_pass() {
    for (more, filter, written) in [("", "", 600), ("", "len > 1000", 300), ("&ring=64", "", 64)] {
        let Some(veth) = Veth::up(1, None) else { return };
        let veth = veth.using("packet", "xdp", "");
        let options = RxOptions { shared: true, filter: filter.into(), ..RxOptions::default() };
        let rx = receive(&veth.receiver("right", &format!("&pass=yes{more}")), &options);
        assert!(rx.notes.iter().any(|note| note.contains("the host receives the frames too")), "{:?}", rx.notes);
        let host = receive(&veth.sender("right"), &RxOptions::default());
        let mut wire = Wire::live(transmit(&veth.sender("left"), 1), rx);
        let sent = [frames(0, 600, &[60, 1500, 61, 1400])];
        wire.send(0, &sent[0]);
        let mut receiver = Receiver::new(std::mem::take(wire.queues()));
        receiver.run_until(|receiver| receiver.arrived() >= written);
        wire.close_sender();
        let outcome = receiver.finish(wire.sent);
        let total = |count| outcome.ledger.total(count);
        assert_eq!((outcome.ledger.imbalances(), total(Count::Received)), (vec![], 600), "{filter} {more}");
        assert_eq!(total(Count::Delivered), written as u64, "{filter} {more}");
        assert_eq!(total(Count::KernelFiltered) + total(Count::RingFull), 600 - written as u64);
        let mut receiver = Receiver::new(host.queues);
        receiver.run_until(|receiver| receiver.arrived() >= 600);
        assert_all_arrived("the host", &sent, &receiver.finish(Ledger::new()).got);
    }
}

#[test]
fn interface_in_use_by_the_host_is_shared() {
    let Some(veth) = Veth::up(1, None) else { return };
    let veth = veth.using("packet", "xdp", "");
    veth.ip("right", "addr add 192.0.2.1/24 dev eth0");
    let open = |more: &str, options: &RxOptions| {
        open_rx(&Spec::parse(&veth.receiver("right", more)).unwrap(), options).map_err(|error| error.to_string())
    };
    let shared = RxOptions { shared: true, ..RxOptions::default() };
    let port = open("", &shared).unwrap();
    assert!(port.notes.iter().any(|note| note.contains("192.0.2.1") && note.contains("--take")), "{:?}", port.notes);
    drop(port);
    for (more, options, expected) in [
        ("&pass=no", &shared, "--take"),
        ("&mode=af_xdp", &shared, "--take"),
        ("&mode=generic", &shared, "--take"),
        ("", &RxOptions::default(), "--take"),
        ("&pass=yes", &RxOptions::default(), "answered or forwarded"),
        ("&pass=yes", &RxOptions { take: true, ..shared.clone() }, "--take takes them away"),
        ("&pass=yes&mode=af_xdp", &shared, "AF_XDP, which takes frames away"),
        ("&pass=maybe", &shared, "yes or no"),
    ] {
        let refused = open(more, options).err().unwrap_or_default();
        assert!(refused.contains(expected), "{more}: {refused}");
    }
    // Two ports on one interface share one program.
    let _first = open("", &shared).unwrap();
    let refused = open("&pass=no", &RxOptions { take: true, ..shared.clone() }).err().unwrap();
    assert!(refused.contains("passes frames to the host too"), "{refused}");
}
