//! Received frames equal the streams.

use crate::live::testbed::{Stage, assert_exact, marks, set, single, stream};
use linerate_backends::xdp_counter::CountAction;
use linerate_generate::stream::{Fill, IndexSelection, Order, StreamSet};
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::{Scratch, has_tools, tool};

/// Lengths at the limits of words, of constant stores and of copies, and the longest.
const LENGTHS: [usize; 8] = [60, 61, 63, 256, 257, 1514, 58, 90];

#[test]
fn dropping_and_passing_receivers_count_every_frame() {
    let Some(stage) = Stage::up() else { return };
    for then in [CountAction::Drop, CountAction::Pass] {
        let counting = stage.counting(then);
        let report = stage.send(&set(&[60], 300_000), None);
        assert!(report.failure.is_none(), "{:?}", report.failure);
        assert_exact(&report.ledger, 300_000);
        assert_eq!(
            (report.sent.frames, report.sent.bytes, counting.frames()),
            (300_000, 300_000 * 60, 300_000),
            "{then:?}"
        );
    }
}

#[test]
fn received_frames_equal_the_stream() {
    let Some(stage) = Stage::up() else { return };
    // The capture has to keep up: its ring holds 60,000 frames.
    let set = set(&LENGTHS, 20_000);
    for (scheme, options) in [("packet", "&lanes=1&ring=64MiB&block=256KiB"), ("xdp", "")] {
        let before = linerate_engine::clock::now().0;
        let got = stage.send_and_capture_by(scheme, options, &paced(&set));
        assert_stream(&set, &got, before, scheme);
    }
}

/// The streams at a rate with which any capture keeps up.
fn paced(set: &StreamSet) -> StreamSet {
    StreamSet { rate: Some(linerate_generate::Rate::Frames(100_000.0)), ..set.clone() }
}

/// Asserts that each frame equals the stream's, with times that increase and precede its arrival.
fn assert_stream(set: &StreamSet, got: &[(Vec<u8>, u64)], before: u64, scheme: &str) {
    let stream = &set.streams[0];
    assert_eq!(got.len() as u64, stream.count.unwrap(), "{scheme}");
    let mut last = before;
    for (number, (frame, arrived)) in got.iter().enumerate() {
        let (sequence, time) = marks(frame, *arrived);
        assert_eq!(sequence, number as u64, "{scheme}: a gap in the sequence");
        assert!(last <= time && time <= *arrived, "{scheme}: frame {number}: {last} <= {time} <= {arrived}");
        let wanted = stream.frame(sequence, time, &set.key);
        assert!(*frame == wanted, "{scheme}: frame {number} of {} bytes differs from the stream", frame.len());
        last = time;
    }
}

#[test]
fn recycled_pages_are_overwritten() {
    let Some(stage) = Stage::up() else { return };
    let mut stream = stream(&LENGTHS, 20_000);
    // Random bytes in the longest variant, and lengths in random order.
    stream.variants[5].fills = vec![Fill { offset: 50, length: 1440, seed: 3 }];
    stream.size.pick = IndexSelection::Random { seed: 2 };
    let set = single(stream);
    let worst = stage.counting(CountAction::OverwriteHalf);
    let got = stage.send_and_capture(&set);
    assert_eq!(worst.frames(), 20_000);
    assert!(got.len() > 9_000, "{} frames were passed", got.len());
    let mut last = None;
    for (frame, arrived) in &got {
        let (sequence, time) = marks(frame, *arrived);
        assert!(Some(sequence) > last, "{sequence} after {last:?}");
        let wanted = set.streams[0].frame(sequence, time, &set.key);
        assert!(*frame == wanted, "frame {sequence} differs from the stream: {frame:02x?}");
        last = Some(sequence);
    }
}

#[test]
fn several_streams_arrive_in_order() {
    let Some(stage) = Stage::up() else { return };
    let of = |lengths: &[usize], count, id| linerate_generate::stream::Stream { id, ..stream(lengths, count) };
    let streams = vec![of(&[60, 1514], 3000, 1), of(&[70], 1000, 2), of(&[58, 300], 2000, 3)];
    for order in [Order::Interleaved, Order::Sequential] {
        let set = StreamSet { order, ..StreamSet { streams: streams.clone(), ..single(stream(&[60], 1)) } };
        let mut expected: Vec<(usize, u64)> = Vec::new();
        (0..3).for_each(|index| expected.extend((0..streams[index].count.unwrap()).map(|n| (index, n))));
        if order == Order::Interleaved {
            expected.sort_by_key(|(index, n)| (*n, *index));
        }
        let got = stage.send_and_capture(&set);
        assert_eq!(got.len(), expected.len());
        for ((index, n), (frame, arrived)) in expected.into_iter().zip(&got) {
            let (sequence, time) = marks(frame, *arrived);
            assert_eq!(sequence, n, "{order:?}");
            assert!(*frame == streams[index].frame(n, time, &set.key), "{order:?}: stream {index} frame {n}");
        }
    }
}

#[test]
fn pages_rewritten_by_a_router_are_restored() {
    use linerate_lab::{Plan, TemporaryLab};
    if !linerate_tests::support::may_make_labs() {
        return;
    }
    let links = ["a:eth0,r:eth0=198.18.0.254/24", "r:eth1=198.19.0.1/24,b:eth0"].map(|link| link.parse().unwrap());
    let lab = TemporaryLab::up(&Plan::from_links("route", links.to_vec()).unwrap()).unwrap();
    let stage = Stage { lab };
    let router = stage.namespace("r");
    let inside = |host: &str, program: &str, arguments: &[&str]| {
        let run = stage.lab.exec(host, program).unwrap().args(arguments).output().unwrap();
        assert!(run.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
        String::from_utf8_lossy(&run.stdout).into_owned()
    };
    inside("r", "ethtool", &["-K", "eth0", "gro", "on"]);
    inside(
        "r",
        "sysctl",
        &["-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.eth0.rp_filter=0"],
    );
    inside("r", "ip", &["neigh", "add", "198.19.0.9", "lladdr", "02:00:00:00:00:77", "dev", "eth1"]);
    let mac = linerate_backends::inventory::interfaces(Some(router)).unwrap();
    let mac = &mac.iter().find(|found| found.name == "eth0").unwrap().address;
    let mac: Vec<u8> = mac.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    let mut stream = stream(&[60], 20_000);
    let variant = &mut stream.variants[0];
    variant.changes.clear();
    variant.frame[..6].copy_from_slice(&mac);
    variant.frame[26..34].copy_from_slice(&[198, 18, 0, 1, 198, 19, 0, 9]);
    let set = single(stream);
    // The router decrements the TTL in the page that is reused for a later frame.
    let got = stage.send_and_capture(&set);
    assert_eq!(got.len(), 20_000);
    for (number, (frame, arrived)) in got.iter().enumerate() {
        assert_eq!(frame[22], 63, "wrong TTL: a reused page was not restored");
        let (sequence, time) = marks(frame, *arrived);
        assert_eq!(sequence, number as u64);
        assert!(frame[26..] == set.streams[0].frame(sequence, time, &set.key)[26..], "{frame:02x?}");
    }
}

#[test]
fn checksums_are_valid_for_tshark() {
    let Some(stage) = Stage::up() else { return };
    if !has_tools(&["tshark"]) {
        return;
    }
    let got = stage.send_and_capture(&set(&[60, 61, 257, 1001], 4_000));
    let scratch = Scratch::new();
    let file = scratch.file("frames.pcap");
    let record =
        |(bytes, time): &(Vec<u8>, u64)| Record { time: *time, wire: bytes.len() as u32, bytes: bytes.clone() };
    records::write(&file, &got.iter().map(record).collect::<Vec<_>>());
    // Only checksums: tshark expects other protocols on some of the ports.
    let right = "udp.checksum.status == 1 && ip.checksum.status == 1";
    let options = ["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-Y", right];
    let shown = tool("tshark", &[&["-n", "-r", &file], &options[..]].concat());
    assert_eq!(shown.lines().count(), 4_000);
}
