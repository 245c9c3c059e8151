//! Delay of single frames from the wire to a reader in another process.

use crate::share::fixtures::{Feed, frames, lossless, number, ring_name};
use linerate_backends::open_tx;
use linerate_burst::{Block, Desc, Nanos};
use linerate_port::{Spec, TxOptions, TxPort};
use linerate_tests::support::program::{linerate, spawn, start};
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{judge, may_make_labs};
use std::io::Read;
use std::process::{ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Number of frames per measurement.
const FRAMES: u32 = 30;

/// Frames read from the standard output of a reader, each with its time of arrival.
fn arrivals(mut output: ChildStdout) -> Receiver<(Instant, Record)> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut head = [0; 24];
        if output.read_exact(&mut head).is_err() {
            return;
        }
        let mut record = [0; 16];
        while output.read_exact(&mut record).is_ok() {
            let captured = u32::from_le_bytes(record[8..12].try_into().unwrap());
            let mut bytes = vec![0; captured as usize];
            if output.read_exact(&mut bytes).is_err() {
                return;
            }
            let now = Instant::now();
            let file = [&head[..], &record, &bytes].concat();
            let Some(one) = records::parse(&file).pop() else { return };
            if sender.send((now, one)).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Sends one frame.
fn send(tx: &mut TxPort, record: &Record) {
    let mut block = Block::new(record.bytes.len() + 64, 1);
    assert!(block.push(&Desc::new(Nanos::ZERO, 0, record.bytes.len() as u32), &record.bytes));
    let queue = &mut tx.queues[0];
    assert_eq!(queue.send(block.burst()).unwrap(), 1);
    while !queue.flush(linerate_engine::clock::now()).unwrap() {}
}

/// Sorted delays of frames from the network through a port and a ring to a reader, with `gaps` between frames.
fn delays(port: &str, gaps: &[Duration]) -> Option<Vec<Duration>> {
    if !may_make_labs() {
        return None;
    }
    let (wire, name) = (Wire::new(), ring_name());
    let port = wire.port("b", "eth0", "").replace("packet:", port);
    let writer = start(&["capture", "-i", &port, "--share", &name, "--lossless-readers", "--json"]);
    let mut reader = spawn(linerate(&["capture", "-q", "-i", &lossless(&name), "-w", "-"]).stdout(Stdio::piped()));
    let arrived = arrivals(reader.take_output().unwrap());
    reader.wait_until_open();
    let to = wire.port("a", "eth0", "");
    let mut tx = open_tx(&Spec::parse(&to).unwrap(), &TxOptions::default()).unwrap();
    // Lets the first readers settle.
    thread::sleep(Duration::from_millis(50));
    let mut delays = Vec::new();
    for (frame, gap) in frames(0..gaps.len() as u32).iter().zip(gaps) {
        let sent = Instant::now();
        send(&mut tx, frame);
        let (seen, got) = arrived.recv_timeout(Duration::from_secs(10)).expect("the frame arrives");
        assert_eq!((number(&got), &got.bytes), (number(frame), &frame.bytes));
        delays.push(seen - sent);
        thread::sleep(*gap);
    }
    let json = writer.interrupt().good().json();
    reader.end().good();
    assert_eq!((json["frames"].as_u64(), json["balanced"].as_bool()), (Some(gaps.len() as u64), Some(true)));
    delays.sort();
    Some(delays)
}

fn assert_soon(what: &str, delays: &[Duration], limit: Duration) {
    let (median, most) = (delays[delays.len() / 2], delays[delays.len() - 1]);
    eprintln!("{what}: delay median {:.2} ms, maximum {:.2} ms", ms(median), ms(most));
    judge(median < limit, &format!("{what}: median delay {:.2} ms", ms(median)));
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// Irregular pauses, so that no timer synchronises with them.
fn pauses() -> Vec<Duration> {
    (0..FRAMES).map(|number| Duration::from_micros(8_000 + u64::from(number * 7919 % 13_000))).collect()
}

#[test]
fn single_frame_from_a_packet_port_arrives_at_once() {
    // Target: 5 ms.
    let Some(delays) = delays("packet:", &pauses()) else { return };
    assert_soon("packet", &delays, Duration::from_millis(20));
}

#[test]
fn single_frame_from_an_xdp_port_arrives_at_once() {
    // Target: 1 ms.
    let Some(delays) = delays("xdp:", &pauses()) else { return };
    assert_soon("xdp", &delays, Duration::from_millis(10));
}

#[test]
fn one_frame_per_second_arrives_at_once() {
    let Some(delays) = delays("packet:", &[Duration::from_secs(1); 4]) else { return };
    assert_soon("packet, 1 frame/s", &delays, Duration::from_millis(20));
}

#[test]
fn single_frame_from_a_pipe_reaches_every_reader() {
    let name = ring_name();
    let mut feed = Feed::start(&name, 3, &[]);
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let port = lossless(&name);
            let mut reader = spawn(linerate(&["capture", "-q", "-i", &port, "-w", "-"]).stdout(Stdio::piped()));
            let arrived = arrivals(reader.take_output().unwrap());
            (reader, arrived)
        })
        .collect();
    let mut delays = Vec::new();
    for pause in pauses() {
        let sent = Instant::now();
        feed.send(1);
        for (_, arrived) in &readers {
            delays.push(arrived.recv_timeout(Duration::from_secs(10)).expect("the frame arrives").0 - sent);
        }
        thread::sleep(pause);
    }
    delays.sort();
    assert_soon("pipe", &delays, Duration::from_millis(20));
    feed.end().good();
    readers.into_iter().for_each(|(reader, _)| drop(reader.end().good()));
}
