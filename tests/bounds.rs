//! Limits on what untrusted traffic can cause: memory use of hostile packets, and effects of wrong time stamps.
//!
//! Memory is the peak resident set size (VmHWM), compared with the bound that the program announces.

use linerate_generate::trailer::{Key, Trailer};
use linerate_headers::build::Frame;
use linerate_headers::{MacAddr, ethernet, ipv4, ipv6, registry, tcp, udp, vlan};
use linerate_tests::support::program::{Ended, Running, linerate, run, spawn};
use linerate_tests::support::{Scratch, records, wait_until};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;
/// Memory in addition to the announced limit: buffers of the reader, the largest flows, the allocator.
const ALLOWANCE: u64 = 16 << 20;

/// The program with a capture on its standard input, which stays open.
struct Fed {
    running: Running,
    input: ChildStdin,
}

impl Fed {
    fn start(arguments: &[&str]) -> Fed {
        let mut running = spawn(linerate(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut input = running.take_input().unwrap();
        let header = [0xa1b2_3c4du32, 2 | 4 << 16, 0, 0, 262_144, 1].map(u32::to_le_bytes).concat();
        input.write_all(&header).unwrap();
        Fed { running, input }
    }

    fn send(&mut self, frames: impl Iterator<Item = (u64, u32, Vec<u8>)>) {
        let mut bytes = Vec::new();
        for (time, wire, frame) in frames {
            for word in [(time / SECOND) as u32, (time % SECOND) as u32, frame.len() as u32, wire] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(frame);
            if bytes.len() > 1 << 16 {
                self.input.write_all(&bytes).unwrap();
                bytes.clear();
            }
        }
        self.input.write_all(&bytes).unwrap();
    }

    /// Waits until all input is read and ends the run; returns the peak resident memory in bytes and the result.
    fn end(self) -> (u64, Ended) {
        let mut before = None;
        // At most a pipe's capacity is still unread.
        wait_until("memory stops growing", || {
            std::thread::sleep(Duration::from_millis(300));
            let most = self.running.proc_status("VmHWM");
            std::mem::replace(&mut before, most.clone()) == most
        });
        let status = |name| -> u64 {
            let text = self.running.proc_status(name).unwrap();
            text.trim_end_matches(" kB").parse::<u64>().unwrap() << 10
        };
        // Pages of the executable are the kernel's page cache; how many are mapped depends on what else runs.
        let most = status("VmHWM") - status("RssFile");
        drop(self.input);
        (most, self.running.end().good())
    }
}

fn link(ether_type: u16) -> ethernet::Header {
    ethernet::Header { source: MacAddr([2; 6]), destination: MacAddr([4; 6]), ether_type }
}

/// A UDP packet of a separate flow per number.
fn packet(number: u32) -> Vec<u8> {
    let network = ipv4::Header {
        source: (0x0a00_0000 + number).into(),
        destination: 0x0aff_0001.into(),
        ..ipv4::Header::new(registry::UDP)
    };
    let ports = udp::Header { source_port: 1000, destination_port: 53 };
    Frame::new(&[&link(0), &network, &ports], &[7; 20]).to_vec().unwrap()
}

/// One packet with a wrong time, read from an open pipe, does not reduce the number of records.
#[test]
fn one_wrong_time_does_not_stop_flow_expiry() {
    const FRAMES: u64 = 6000;
    for workers in ["1", "2"] {
        for wrong in [None, Some(START + 400 * 86_400 * SECOND), Some(START + 7200 * SECOND), Some(0)] {
            let arguments = ["flows", "-r", "-", "--write", "-", "--idle", "5", "-q", "--workers", workers];
            let mut fed = Fed::start(&arguments);
            let found = Arc::new(AtomicUsize::new(0));
            let (output, count) = (fed.running.take_output().unwrap(), Arc::clone(&found));
            let reader = std::thread::spawn(move || {
                BufReader::new(output).lines().for_each(|_| _ = count.fetch_add(1, Ordering::Relaxed));
            });
            let frame = |number: u64| {
                let frame = packet(number as u32);
                (START + number * SECOND, frame.len() as u32, frame)
            };
            fed.send([frame(0)].into_iter().chain(wrong.map(|time| (time, 62, packet(1)))));
            std::thread::sleep(Duration::from_millis(50));
            for some in (2..FRAMES).step_by(500) {
                fed.send((some..FRAMES.min(some + 500)).map(frame));
                std::thread::sleep(Duration::from_millis(5));
            }
            let enough = FRAMES as usize - 50;
            wait_until(&format!("{enough} records with time {wrong:?} and {workers} workers"), || {
                found.load(Ordering::Relaxed) >= enough
            });
            drop(fed.input);
            fed.running.end().good();
            reader.join().unwrap();
            assert_eq!(found.load(Ordering::Relaxed) as u64, FRAMES - u64::from(wrong.is_none()));
        }
    }
}

/// IPv6 TCP after two VLAN tags, with all events on both sides that take memory.
fn heavy_flow(flow: u32) -> Vec<(u32, Vec<u8>)> {
    let address = |host: u128| (0x2001_0db8 << 96 | host).into();
    let (client, server) = (address(u128::from(flow) << 1 | 1), address(1 << 40));
    let outer = vlan::Header { id: 7, priority: 0, drop_eligible: false, ether_type: 0 };
    let one = |side: bool, flags: u16, sequence: u32, window: u16, payload: usize| {
        let (source, destination) = if side { (server, client) } else { (client, server) };
        let network = ipv6::Header { source, destination, ..ipv6::Header::new(registry::TCP) };
        let ports = if side { (80, 1000) } else { (1000, 80) };
        let header = tcp::Header {
            source_port: ports.0,
            destination_port: ports.1,
            flags: tcp::Flags(flags),
            sequence,
            window,
            ..tcp::Header::default()
        };
        let frame = Frame::new(&[&link(0), &outer, &outer, &network, &header], &vec![7; payload]).to_vec().unwrap();
        // The wire length exceeds the packet's length field by more than a counter holds.
        (60_000, frame)
    };
    let of = |side, syn| {
        [
            one(side, syn, 100, 9, 0),
            one(side, 16, 5000, 9, 9),
            one(side, 16, 200, 0, 9),
            one(side, 16, 5009, 0, 0),
            one(side, 5, 5009, 9, 0),
        ]
    };
    [of(false, 3), of(true, 19)].concat()
}

#[test]
fn flow_flood_stays_within_announced_memory() {
    const FLOWS: u32 = 40_000;
    let frames: Vec<_> = (0..FLOWS).flat_map(heavy_flow).collect();
    for level in ["counters", "tcp", "stats"] {
        for workers in ["1", "3"] {
            let arguments =
                ["flows", "-r", "-", "--max-flows", "40000", "--level", level, "--json", "--workers", workers];
            let mut fed = Fed::start(&arguments);
            fed.send(frames.iter().enumerate().map(|(at, (wire, frame))| (START + at as u64, *wire, frame.clone())));
            let (most, ended) = fed.end();
            let json = ended.json();
            let announced = json["max_bytes"].as_u64().unwrap();
            assert!(json["peak_flows"].as_u64().unwrap() > 30_000, "{json}");
            let (found, bound) = (most >> 20, (announced + ALLOWANCE) >> 20);
            assert!(found <= bound, "level {level}, {workers} workers: {found} MiB of {bound}");
            // The bound is not trivial: at least a third of it is used.
            assert!(most > announced / 3, "level {level}, {workers} workers: {found} MiB of {bound}");
        }
    }
}

#[test]
fn fragments_stay_within_announced_memory() {
    let mut fed = Fed::start(&["flows", "-r", "-", "--max-flows", "1024", "--json"]);
    let mut frame = packet(1);
    frame.resize(60, 7);
    let of = |offset: u16, number: u16| {
        let mut frame = frame.clone();
        frame[18..20].copy_from_slice(&number.to_be_bytes());
        frame[20..22].copy_from_slice(&offset.to_be_bytes());
        (START + u64::from(offset) * 100_000 + u64::from(number), 60, frame)
    };
    fed.send(
        (1..=64)
            .flat_map(|offset| (0..4096).map(move |number| (offset, number)))
            .map(|(offset, number)| of(offset, number)),
    );
    let (most, ended) = fed.end();
    let json = ended.json();
    let announced = json["max_bytes"].as_u64().unwrap();
    assert!(announced < 16 << 20, "{announced}");
    assert!(most <= announced + ALLOWANCE, "{} MiB, announced {} MiB", most >> 20, announced >> 20);
    let count = |name: &str| json[name].as_u64().unwrap();
    assert_eq!(count("fragments_held") + count("fragments_no_room"), 64 * 4096);
    assert_eq!(count("fragments_orphaned"), 64 * 4096);
    run(&["flows", "-r", "/dev/null", "--max-flows", "1024"]).says("up to 1,024 flows, ");
}

/// Flow ids cannot be forged to collide across runs or seeds.
#[test]
fn flow_ids_depend_on_the_run_or_the_seed() {
    let scratch = Scratch::new();
    let file = scratch.file("ids.pcap");
    let of = |number: usize, protocol: u8, ports: (u16, u16)| {
        let network = ipv4::Header {
            source: [29, 223, 87, 198].into(),
            destination: [132, 226, 50, 81].into(),
            ..ipv4::Header::new(protocol)
        };
        let ports = udp::Header { source_port: ports.0, destination_port: ports.1 };
        let mut bytes = Frame::new(&[&link(0), &network, &ports], &[7; 20]).to_vec().unwrap();
        bytes[23] = protocol;
        records::Record { time: START + number as u64, wire: bytes.len() as u32, bytes }
    };
    records::write(&file, &[of(0, 17, (1111, 53)), of(1, 17, (2222, 443)), of(2, 17, (3333, 80)), of(3, 97, (1, 2))]);
    let ids = |more: &[&str]| -> BTreeSet<String> {
        let output = run(&[&["flows", "-q", "--write", "-", "-r", &file][..], more].concat()).good().output;
        let id = |line: &str| {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            record["id"].as_str().unwrap().to_owned()
        };
        output.lines().map(id).collect()
    };
    let (one, other) = (ids(&[]), ids(&[]));
    assert_eq!((one.len(), other.len()), (4, 4), "ids are unique");
    assert!(one.is_disjoint(&other), "each run has ids of its own");
    let (one, other) =
        (ids(&["--id-seed", "sensors of ours"]), ids(&["--id-seed", "sensors of ours", "--workers", "3"]));
    assert_eq!((one.len(), &one), (4, &other));
    assert!(one.is_disjoint(&ids(&["--id-seed", "sensors of yours"])));
}

/// Trailers can be forged.
#[test]
fn forged_streams_stay_within_announced_memory() {
    const STREAMS: u32 = 150_000;
    let frame = packet(1);
    let forged = |number: u32| {
        let stream = number * 111;
        let trailer = Trailer { stream, sequence: 1, time: START }.bytes(&Key::default());
        let mut frame = frame.clone();
        let end = frame.len();
        frame[end - trailer.len()..].copy_from_slice(&trailer);
        (START + u64::from(number), end as u32, frame)
    };
    for (more, streams, announced) in [(&[][..], 65_536, 188), (&["--max-streams", "1000"], 1000, 66)] {
        let mut fed = Fed::start(&[&["check", "-r", "-", "--json"][..], more].concat());
        fed.send((0..STREAMS).map(forged));
        let (most, ended) = fed.end();
        let last = ended.output.lines().last().unwrap();
        let json: serde_json::Value = serde_json::from_str(last).unwrap();
        assert_eq!(json["over_limit"], u64::from(STREAMS) - streams, "{json}");
        assert!(most <= (announced << 20) + ALLOWANCE, "{streams} streams: {} MiB", most >> 20);
        let bound = format!("at most {announced} MiB");
        run(&[&["check", "-r", "/dev/null"][..], more].concat()).says(&bound);
    }
}
