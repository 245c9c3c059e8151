//! Frames from the kernel's own stack: partial checksums, super-frames, outgoing frames.

use crate::conformance::backends::{Harness, Veth, receive, transmit};
use crate::conformance::frames::{assert_all_arrived, frames};
use crate::conformance::wire::{Got, PATIENCE, Receiver, Wire};
use linerate_burst::{Count, Flags, Ledger};
use linerate_engine::{CountConsumer, Receive, Selection};
use linerate_lab::within;
use linerate_port::RxOptions;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

const ADDRESSED: &str = "left:eth0=10.77.0.1/24,right:eth0=10.77.0.2/24";
const RIGHT: &str = "10.77.0.2:7007";
const MARK: &[u8] = b"linerate conformance datagram";

fn is_marked(got: &&Got) -> bool {
    got.bytes.windows(MARK.len()).any(|window| window == MARK)
}

/// Sends `count` marked datagrams from left to right, and waits for each.
fn datagrams(veth: &Veth, count: usize) {
    let right = within(veth.lab().host("right").unwrap(), || UdpSocket::bind(RIGHT)).unwrap().unwrap();
    let left = within(veth.lab().host("left").unwrap(), || UdpSocket::bind("10.77.0.1:0")).unwrap().unwrap();
    right.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buffer = [0; 128];
    for _ in 0..count {
        left.send_to(MARK, RIGHT).unwrap();
        assert_eq!(right.recv(&mut buffer).unwrap(), MARK.len());
    }
}

/// Returns the marked datagrams from left to right seen by a port on a host's interface.
fn seen(veth: &Veth, host: &str, more: &str, count: usize, expected: usize) -> (Vec<Got>, Ledger) {
    seen_by(veth, host, more, (count, expected), &RxOptions::default())
}

/// Returns the marked datagrams seen by a port with these options.
fn seen_by(
    veth: &Veth,
    host: &str,
    more: &str,
    (count, expected): (usize, usize),
    options: &RxOptions,
) -> (Vec<Got>, Ledger) {
    let port = receive(&veth.receiver(host, more), options);
    let mut receiver = Receiver::new(port.queues);
    datagrams(veth, count);
    let settled = Instant::now() + Duration::from_millis(50);
    receiver
        .run_until(|receiver| receiver.got().iter().filter(is_marked).count() >= expected && Instant::now() > settled);
    let outcome = receiver.finish(Ledger::new());
    assert_eq!(outcome.ledger.imbalances(), [], "{more}");
    (outcome.got.into_iter().filter(|got| is_marked(&got)).collect(), outcome.ledger)
}

#[test]
fn partial_checksum_is_flagged() {
    let Some(veth) = Veth::with(ADDRESSED, Some(1)) else { return };
    let (got, ledger) = seen(&veth, "right", "", 10, 10);
    assert_eq!(got.len(), 10);
    assert!(got.iter().all(|got| got.desc.flags.contains(Flags::CHECKSUM_PARTIAL)), "{:?}", got[0].desc);
    assert!(ledger.total(Count::ChecksumPartial) >= 10);

    let Some(veth) = Veth::with(&format!("{ADDRESSED},offloads=off"), Some(1)) else { return };
    let (got, ledger) = seen(&veth, "right", "", 10, 10);
    assert_eq!(got.len(), 10);
    assert!(!got.iter().any(|got| got.desc.flags.contains(Flags::CHECKSUM_PARTIAL)), "{:?}", got[0].desc);
    assert_eq!(ledger.total(Count::ChecksumPartial), 0);
}

#[test]
fn port_receives_only_its_direction() {
    let watching = RxOptions { outgoing: true, ..RxOptions::default() };
    for lanes in [Some(1), Some(2)] {
        let Some(veth) = Veth::with(ADDRESSED, lanes) else { return };
        for (host, more, expected) in [
            ("left", "", 20),
            ("left", "&direction=in", 0),
            ("left", "&direction=out", 20),
            ("left", "&direction=inout", 20),
            ("right", "", 20),
            ("right", "&direction=in", 20),
            ("right", "&direction=out", 0),
        ] {
            for filter in ["", "udp"] {
                let options = RxOptions { filter: filter.into(), ..watching.clone() };
                let (got, _) = seen_by(&veth, host, more, (20, expected), &options);
                assert_eq!(got.len(), expected, "lanes {lanes:?}: {host}{more} {filter}");
                let is_outgoing = |got: &Got| got.desc.flags.contains(Flags::OUTGOING);
                assert!(got.iter().all(|got| is_outgoing(got) == (host == "left")), "{host}{more} {filter}");
            }
        }
        let (got, _) = seen(&veth, "left", "", 20, 0);
        assert_eq!(got.len(), 0, "lanes {lanes:?}: outgoing frames are received by default");
        let (got, _) = seen(&veth, "left", "&direction=in", 20, 0);
        assert_eq!(got.len(), 0, "lanes {lanes:?}: direction=in");
        let (got, _) = seen(&veth, "left", "&direction=inout", 20, 20);
        assert_eq!(got.len(), 20, "lanes {lanes:?}: direction=inout");
        assert!(got.iter().all(|got| got.desc.flags.contains(Flags::OUTGOING)), "lanes {lanes:?}: {:?}", got[0].desc);
        let (got, _) = seen(&veth, "right", "&direction=inout", 20, 20);
        assert!(!got.iter().any(|got| got.desc.flags.contains(Flags::OUTGOING)), "lanes {lanes:?}");
    }
}

/// The kernel runs the filter of the port; consumers run their own filters.
#[test]
fn kernel_filter_does_not_replace_filters_of_consumers() {
    for receiver in ["packet", "xdp"] {
        let Some(veth) = Veth::up(1, Some(1)) else { return };
        let veth = veth.using("packet", receiver, "");
        let options = RxOptions { filter: "len > 1000".into(), ..RxOptions::default() };
        let port = receive(&veth.receiver("right", ""), &options);
        assert_eq!(port.filter, "len > 1000", "{receiver}");
        let mut wire = Wire::live(transmit(&veth.sender("left"), 1), receive(&veth.receiver("left", ""), &options));
        wire.send(0, &frames(0, 300, &[60, 1400, 1500]));
        let select = |filter: &str, frames| {
            CountConsumer::new(Selection { filter: filter.into(), frames: Some(frames), ..Selection::default() }, false)
        };
        let (mut longest, mut long) = (select("len > 1450", 100), select("len > 1000", 200));
        let run = Receive::all(vec![port]).run(&mut [&mut longest, &mut long]);
        assert!(run.failure.is_none(), "{receiver}: {:?}", run.failure);
        let bytes = [longest, long].map(|counting| counting.done().all.traffic.bytes);
        assert_eq!(bytes, [100 * 1500, 100 * (1500 + 1400)], "{receiver}");
    }
}

/// A port does not receive frames sent by a port on the same interface.
#[test]
fn frames_sent_by_a_port_are_not_received_on_its_interface() {
    let Some(veth) = Veth::up(1, Some(2)) else { return };
    let port = receive(&veth.receiver("left", ""), &RxOptions::default());
    let own = Receiver::new(port.queues);
    let sent = [frames(0, 100, &[60])];
    let outcome = veth.open(&RxOptions::default()).exchange(&sent);
    assert_all_arrived(veth.name(), &sent, &outcome.got);
    let outcome = own.finish(Ledger::new());
    assert_eq!(outcome.got.len(), 0);
    assert_eq!(outcome.ledger.total(Count::Received), 0);
}

#[test]
fn frame_above_the_mtu_is_a_super_frame() {
    const BYTES: usize = 4 << 20;
    let Some(veth) = Veth::with(ADDRESSED, Some(1)) else { return };
    let port = receive(&veth.receiver("right", ""), &RxOptions::default());
    let mut receiver = Receiver::new(port.queues);
    let listener = within(veth.lab().host("right").unwrap(), || TcpListener::bind(RIGHT)).unwrap().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut left = within(veth.lab().host("left").unwrap(), || TcpStream::connect(RIGHT)).unwrap().unwrap();
            left.write_all(&vec![7; BYTES]).unwrap();
        });
        let reader = scope.spawn(|| {
            let (mut right, _) = listener.accept().unwrap();
            right.read_to_end(&mut Vec::new()).unwrap()
        });
        receiver.run_until(|_| reader.is_finished());
        assert_eq!(reader.join().unwrap(), BYTES);
    });
    let outcome = receiver.finish(Ledger::new());
    let flagged = |got: &Got| got.desc.flags.contains(Flags::SUPER_FRAME);
    let above_mtu: Vec<&Got> = outcome.got.iter().filter(|got| got.desc.wire > 1514).collect();
    assert!(!above_mtu.is_empty(), "no frame above the MTU");
    assert!(above_mtu.iter().all(|got| flagged(got)), "a frame above the MTU is not flagged");
    let supers = outcome.got.iter().filter(|got| flagged(got)).count() as u64;
    assert_eq!(outcome.ledger.total(Count::SuperFrames), supers);
    let is_complete =
        outcome.got.iter().all(|got| got.desc.captured == got.desc.wire && got.bytes.len() as u32 == got.desc.wire);
    assert!(is_complete, "a super-frame was cut");
    let tcp: usize = outcome.got.iter().filter(|got| got.bytes.len() > 100).map(|got| got.bytes.len() - 66).sum();
    let lost = outcome.ledger.lost();
    assert!(lost > 0 || tcp >= BYTES, "{tcp} of {BYTES} bytes of TCP received, and no frame was lost");
}
