//! Several live ports merged into one ordered stream, at the maximum rate of the senders.

use linerate_tests::support::Scratch;
use linerate_tests::support::may_make_labs;
use linerate_tests::support::program::{Ended, linerate, spawn, start};
use linerate_tests::support::records;
use linerate_tests::support::wire::{Wire, numbered, settle};
use rustix::process::Signal;
use std::io::Write;
use std::process::{Child, Stdio};
use std::time::Duration;

const FRAMES: u64 = 150_000;
/// Frame sizes with FCS; the size identifies the sender.
const SIZES: [usize; 2] = [100, 120];

/// Starts a sender of numbered frames at max rate.
fn sender(wire: &Wire, host: &str, size: usize) -> Child {
    let port = wire.port(host, "eth0", "");
    let (count, size) = (FRAMES.to_string(), size.to_string());
    let arguments = ["generate", "--json", "--to", &port, "--udp", "--stamp", "--size", &size, "-c", &count];
    let mut command = linerate(&arguments);
    command.args(["--rate", "max"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("a sender")
}

#[test]
fn two_ports_at_max_rate_are_merged_in_order() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::of(&["a:eth0,c:eth0,mtu=22000", "b:eth0,c:eth1,mtu=22000"]);
    let scratch = Scratch::new();
    let file = scratch.file("both.pcap");
    let roomy = "&lanes=1&ring=128MiB&block=256KiB";
    let (one, other) = (wire.port("c", "eth0", roomy), wire.port("c", "eth1", roomy));
    let count = (2 * FRAMES).to_string();
    let running =
        start(&["capture", "-i", &one, "-i", &other, "-w", &file, "--json", "--lossless", "-c", &count, "--lag", "50"]);
    let senders = [sender(&wire, "a", SIZES[0]), sender(&wire, "b", SIZES[1])];
    for sender in senders {
        Ended::of(sender.wait_with_output().expect("a sender")).good();
    }
    let json = running.end().good().json();
    assert_eq!(json["late"].as_u64(), Some(0), "{json}");
    assert_eq!(json["balanced"].as_bool(), Some(true), "{json}");

    let all = records::read(&file);
    records::assert_times_never_go_back(&all);
    for size in SIZES {
        // The first word of the trailer: stream 0 and the frame's number.
        let numbers = all.iter().filter(|one| one.bytes.len() == size - 4).map(|one| &one.bytes[size - 20..size - 12]);
        let numbers: Vec<u64> = numbers.map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap())).collect();
        assert!(numbers.iter().copied().eq(0..FRAMES), "{} of {FRAMES} frames of {size} bytes", numbers.len());
    }
    let alternations = all.windows(2).filter(|pair| pair[0].bytes.len() != pair[1].bytes.len()).count();
    assert!(alternations > 100, "{alternations}: the senders did not send at the same time");
}

/// The process that shares a ring is stopped, and a pipe stays silent: the live port continues. Its ring is smaller
/// than the traffic received during the stall.
#[test]
fn stopped_ring_and_silent_pipe_do_not_delay_a_live_port() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch) = (Wire::new(), Scratch::new());
    let (sent, file) = (scratch.file("sent.pcap"), scratch.file("got.pcap"));
    let frames = numbered(60_000);
    records::write(&sent, &frames);
    let name = format!("tests-merge-{}", std::process::id());
    let (idle, port) = (wire.port("a", "eth0", ""), wire.port("b", "eth0", "&lanes=1&ring=16MiB&block=128KiB"));
    let sharer = start(&["capture", "-i", &idle, "--share", &name, "--json"]);
    let ring = format!("shm:{name}");
    let mut command = linerate(&["capture", "-i", &port, "-i", &ring, "-r", "-", "-w", &file, "--json"]);
    let mut running = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    running.wait_until_open();
    let pipe = running.take_input().expect("a pipe");
    sharer.signal(Signal::STOP);
    wire.replay_with(&["-r", &sent, "--rate", "20kpps"]);
    settle(&file, &frames);
    let got = records::read(&file).len();
    sharer.signal(Signal::CONT);
    // Old packets written to the pipe count as late.
    let mut pipe = pipe;
    pipe.write_all(&[records::header(), records::body(&frames[..10])].concat()).expect("a running program");
    drop(pipe);
    std::thread::sleep(Duration::from_millis(300));
    let ended = running.interrupt().good();
    let json = ended.json();
    sharer.interrupt().good();
    let number = |name: &str| json[name].as_u64().unwrap_or_else(|| panic!("{name} in {json:#}"));
    assert_eq!((number("lost"), number("frames"), number("late")), (0, 60_010, 10), "{json:#}");
    assert_eq!(got, frames.len(), "packets received while the sharing process was stopped");
    let events: Vec<&str> = json["events"].as_array().unwrap().iter().map(|event| event.as_str().unwrap()).collect();
    let reported =
        |port: &str, what: &str| events.iter().filter(|one| one.starts_with(port) && one.contains(what)).count();
    assert_eq!((reported("pcap:-: ", "behind the clock"), reported("pcap:-: ", "again")), (1, 0), "{events:?}");
    let (stalls, ends) = (reported(&ring, "behind the clock"), reported(&ring, "caught up with the clock"));
    assert!(stalls >= 1 && ends >= 1, "{events:?}");
    let merge = json["accounts"].as_array().unwrap().iter().find(|account| account["stage"] == "merge").unwrap();
    assert!(merge["notes"]["stalls"].as_u64().unwrap() >= 2, "{merge:#}");
}
