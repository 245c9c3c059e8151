//! The same stream file gives the same frames on every path, in the same order.

use crate::generate::testbed::{SCHEMES, Stage, generate};
use linerate_backends::{open_rx, open_tx};
use linerate_burst::Horizon;
use linerate_engine::clock::now;
use linerate_engine::streams::{StreamRun, Streams};
use linerate_generate::file;
use linerate_port::{RxOptions, Spec, TxOptions};
use linerate_tests::support::program::{launch, run, start};
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::{Scratch, wait_until};
use std::sync::atomic::{AtomicU32, Ordering};

/// Stream file of a test.
struct File {
    name: &'static str,
    text: &'static str,
    /// True if `xdp-live` builds the frames itself.
    live: bool,
    /// True if frames have trailers, which carry the send time.
    stamped: bool,
}

const FILES: [File; 6] = [
    File {
        name: "loops within loops, bursts",
        text: r#"
order = "sequential"
seed = 7
[[stream]]
name = "connect"
packet = "ip(src=10.0.0.1..10.0.0.7 @c)/tcp(sport=1025..1031 @c, flags=syn, mss=1460)"
size = 80
rate = "200kpps"
count = 9
check = "no"
[[stream]]
name = "talk"
packet = "ip(src=10.0.0.1..10.0.0.7 @c)/tcp(sport=1025..1031 @c, flags=psh+ack, seq=1..90000/1000)/payload(noise)"
size = "128..1518/139"
rate = "1gbps"
burst = { frames = 4, gap = "50us" }
count = 31
check = "no"
next = "goto connect x4"
[[stream]]
name = "aside"
packet = "udp(sport=9..1, dport=[53:3, 80:1])"
rate = "max"
count = 5
check = "no"
next = "goto talk x3"
[[stream]]
packet = "arp(spa=198.18.0.1, tpa=198.18.0.2)"
rate = "1kpps"
count = 1
check = "no"
next = "stop"
"#,
        live: true,
        stamped: false,
    },
    File {
        name: "turns until each has ended",
        text: r#"
[[stream]]
packet = "vlan(id=1..100)/ip(pattern=mesh, src=10.0.0.0/28, dst=10.1.0.0/27)/udp(dport=zipf(1..1000, 1.1))"
size = "imix"
rate = "30kpps"
count = 333
check = "no"
[[stream]]
packet = "ip6(src=2001:2::/64 random, dst=2001:2::1)/tcp(sport=random)/payload(pattern=0a0b)"
size = "[100:3, 300:1]"
rate = "30kpps"
count = 50
check = "no"
[[stream]]
packet = "vxlan(vni=1..100)/eth/ip(src=10.0.7.1, src&0.0.255.0=0..255)/udp/payload(noise)"
size = 200
rate = "30kpps"
count = 200
check = "no"
"#,
        live: true,
        stamped: false,
    },
    File {
        name: "top speed, whole frames",
        text: r#"
[[stream]]
packet = "raw(02000000000202000000000188b5000102030405060708090a0b0c0d0e0f)"
rate = "max"
count = 20
[[stream]]
packet = "mpls(label=16..1000)/mpls/ip/icmp(id=1, seq=1..9)"
rate = "max"
count = 300
check = "no"
"#,
        live: true,
        stamped: false,
    },
    File {
        name: "a rate of all, shared; any length",
        text: r#"
rate = "60kpps"
[[stream]]
packet = "ip/sctp(dport=1..9)/payload(noise)"
size = "random(64..1518)"
rate = "3pps"
count = 600
check = "no"
[[stream]]
packet = "ip(dst=random(10.0.0.1..10.255.255.255))/udp"
rate = "1pps"
poisson = true
count = 200
check = "no"
"#,
        live: false,
        stamped: false,
    },
    File {
        name: "trailers in a sequence",
        text: r#"
order = "sequential"
key = 77
[[stream]]
name = "a"
packet = "ip(src=10.0.0.1..10.0.0.9)/udp(dport=1..1000 random)"
rate = "50kpps"
count = 77
[[stream]]
packet = "ip(src=10.0.0.1..10.0.0.9)/udp/payload(noise)"
size = "imix"
rate = "100mbps"
id = 4000000
count = 111
next = "goto a x5"
"#,
        live: true,
        stamped: true,
    },
    File {
        name: "trailers in turns",
        text: r#"
[[stream]]
packet = "udp(sport=1024..65535)"
size = "64..1518/97"
rate = "40kpps"
count = 500
[[stream]]
packet = "udp(sport=[7, 9, 13])"
rate = "40kpps"
count = 300
"#,
        live: true,
        stamped: true,
    },
];

/// Returns the bytes that are the same on every path: without the send time and the checksums that depend on it.
fn constant(file: &File, frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if file.stamped {
        let length = frame.len();
        // Check and time of the trailer, and the UDP checksum.
        frame[length - 8..].fill(0);
        frame[40..42].fill(0);
    }
    frame
}

#[track_caller]
fn assert_same(file: &File, path: &str, got: &[Vec<u8>], wanted: &[Vec<u8>]) {
    let (got, wanted): (Vec<_>, Vec<_>) =
        [got, wanted].map(|frames| frames.iter().map(|frame| constant(file, frame)).collect()).into();
    if let Some(at) = got.iter().zip(&wanted).position(|(got, wanted)| got != wanted) {
        panic!("{}, {path}: frame {at} differs\n got      {:02x?}\n expected {:02x?}", file.name, got[at], wanted[at]);
    }
    assert_eq!(got.len(), wanted.len(), "{}, {path}: the number of frames", file.name);
}

fn bytes(path: &str) -> Vec<Vec<u8>> {
    records::read(path).into_iter().map(|Record { bytes, .. }| bytes).collect()
}

/// Returns the packets of a stream file as written to a capture file.
fn in_a_file(file: &File, scratch: &Scratch) -> Vec<Vec<u8>> {
    let (streams, output) = (scratch.file("streams.toml"), scratch.file("wanted.pcap"));
    std::fs::write(&streams, file.text).unwrap();
    run(&["generate", "-q", "--to", &format!("pcap:{output}"), "--streams", &streams]).good();
    bytes(&output)
}

/// Returns the packets of a stream file, sent and received within this process.
fn in_memory(file: &File) -> Vec<Vec<u8>> {
    static OPENED: AtomicU32 = AtomicU32::new(0);
    let set = file::streams(file.name, file.text, &file::Setup::default()).unwrap();
    let spec = Spec::parse(&format!("mem:paths-{}", OPENED.fetch_add(1, Ordering::Relaxed))).unwrap();
    let mut port = open_rx(&spec, &RxOptions::default()).unwrap();
    let streams = Streams::new(&set, open_tx(&spec, &TxOptions::default()).unwrap()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(streams.run(&StreamRun::default()).failure.is_none()));
        let mut got = Vec::new();
        loop {
            let head = port.queues[0].fill(now()).unwrap();
            got.extend(head.burst.iter().map(|(_, frame)| frame.to_vec()));
            let (frames, ended) = (head.burst.len(), head.horizon == Horizon::Ended);
            port.queues[0].consume(frames);
            match (frames, ended) {
                (0, true) => return got,
                (0, false) => std::thread::yield_now(),
                _ => {}
            }
        }
    })
}

#[test]
fn files_and_memory_get_the_same_frames() {
    let scratch = Scratch::new();
    for file in &FILES {
        let wanted = in_a_file(file, &scratch);
        assert!(wanted.len() >= 300, "{}: {} frames", file.name, wanted.len());
        assert_same(file, "memory", &in_memory(file), &wanted);
    }
}

#[test]
fn shared_memory_ring_gets_the_same_frames() {
    let scratch = Scratch::new();
    let (ring, output) = (format!("paths-{}", std::process::id()), scratch.file("got.pcap"));
    for file in &FILES {
        let wanted = in_a_file(file, &scratch);
        // The ring is small enough to wrap, and the sender starts once its reader has attached.
        let to = format!("shm:{ring}?wait=1&memory=4MiB&lossless=yes&timeout=60");
        let sender = launch(&["generate", "--json", "--to", &to, "--streams", &scratch.file("streams.toml")]);
        wait_until("the ring exists", || std::fs::read_to_string("/proc/net/unix").unwrap().contains(&ring));
        run(&["capture", "-q", &format!("shm:{ring}?mode=lossless"), "-w", &output]).good();
        let json = sender.end().good().json();
        assert_eq!((&json["balanced"], &json["frames"]), (&true.into(), &wanted.len().into()), "{}: {json}", file.name);
        assert_same(file, "shm", &bytes(&output), &wanted);
    }
}

#[test]
fn every_interface_backend_sends_the_same_frames() {
    let Some(stage) = Stage::up() else { return };
    let (scratch, output) = (Scratch::new(), Scratch::new());
    // Captured at the driver: above it, GRO delays packets.
    let (output, from) = (output.file("got.pcap"), stage.port("xdp", "b"));
    for file in &FILES {
        let wanted = in_a_file(file, &scratch);
        for scheme in SCHEMES {
            let frames = wanted.len().to_string();
            let capture = start(&["capture", "-q", "-i", &from, "-w", &output, "-c", &frames, "--duration", "20"]);
            let to = stage.port(scheme, "a");
            let json = generate(&["--to", &to, "--streams", &scratch.file("streams.toml")]).good().json();
            assert_eq!(json["frames"], wanted.len(), "{}, {scheme}: {json}", file.name);
            let generated_by = if scheme == "xdp-live" && file.live { "port" } else { "process" };
            assert_eq!(json["generated_by"], generated_by, "{}, {scheme}", file.name);
            capture.end().good();
            assert_same(file, scheme, &bytes(&output), &wanted);
        }
    }
}
