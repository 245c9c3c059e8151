//! `linerate send` against receivers of the standard library: every byte, how long chunks take, and every way to fail.

use linerate::receive::pattern::Pattern;
use linerate_tests::support::program::{Ended, launch, linerate, run, spawn};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, may_make_labs};
use rustix::net::sockopt::{set_socket_linger, set_socket_recv_buffer_size};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// A receiver of so many connections that checks every byte of each by the pattern of a key, and returns how many there were.
fn checking(address: &str, connections: usize, key: u64) -> (SocketAddr, JoinHandle<Vec<u64>>) {
    let listener = TcpListener::bind(address).unwrap();
    let local = listener.local_addr().unwrap();
    let all = thread::spawn(move || {
        let accept = |_| listener.accept().unwrap().0;
        let threads: Vec<_> = (0..connections).map(accept).map(|one| thread::spawn(move || check(one, key))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    (local, all)
}

fn check(mut stream: TcpStream, key: u64) -> u64 {
    let pattern = Pattern::new(key);
    let (mut at, mut buffer) = (0, vec![0; 1 << 16]);
    loop {
        let got = stream.read(&mut buffer).unwrap();
        if got == 0 {
            return at;
        }
        assert_eq!(pattern.check(at, &buffer[..got]), Ok(()));
        at += got as u64;
    }
}

/// A receiver that does this with its one connection.
fn receiver<T: Send + 'static>(work: impl FnOnce(TcpStream) -> T + Send + 'static) -> (String, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Of listening sockets, those that come have it.
    set_socket_recv_buffer_size(&listener, 64 << 10).unwrap();
    let local = listener.local_addr().unwrap().to_string();
    (local, thread::spawn(move || work(listener.accept().unwrap().0)))
}

fn sent(to: &str, arguments: &[&str]) -> Ended {
    run(&[&["send", to], arguments].concat())
}

fn number(document: &Value, name: &str) -> f64 {
    document[name].as_f64().unwrap_or_else(|| panic!("{name} in {document}"))
}

#[test]
fn chunks_of_several_sizes_arrive_whole_and_their_times_are_told() {
    let (to, all) = checking("127.0.0.1:0", 1, 7);
    let ended = sent(&to.to_string(), &["--chunk", "64KiB,1MiB", "--chunks", "20", "--key", "7", "--json"]).good();
    let total = 20 * (MIB / 16 + MIB);
    assert_eq!(all.join().unwrap(), [total]);
    let document = ended.json();
    assert_eq!((document["schema"].as_str(), document["protocol"].as_str()), (Some("linerate/send/1"), Some("tcp")));
    assert_eq!((number(&document, "written"), number(&document, "acknowledged")), (total as f64, total as f64));
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for (row, chunk) in rows.iter().zip([MIB / 16, MIB]) {
        assert_eq!((number(row, "chunk"), number(row, "chunks")), (chunk as f64, 20.0));
        assert_eq!(number(row, "bytes"), 20.0 * chunk as f64);
        let [average, p50, p99, max] = ["average_us", "p50_us", "p99_us", "max_us"].map(|name| number(row, name));
        assert!(0.0 < p50 && p50 <= p99 && p99 <= max && average <= max, "{row}");
        // One waits for the other: all of them take no longer than the whole.
        assert!(20.0 * average <= 1e6 * number(row, "seconds") + 1.0, "{row}");
        let gbps = 20.0 * chunk as f64 * 8.0 / number(row, "seconds") / 1e9;
        assert!((gbps / number(row, "gbps") - 1.0).abs() < 1e-6, "{row}");
    }
}

/// A chunk is over when it is acknowledged, not when it is handed to the kernel.
#[test]
fn a_chunk_takes_as_long_as_its_receiver() {
    const WAITS: Duration = Duration::from_millis(300);
    let (to, end) = receiver(|stream| {
        thread::sleep(WAITS);
        check(stream, 0)
    });
    let ended = sent(&to, &["--chunk", "16MiB", "--chunks", "3", "--json"]).good();
    assert_eq!(end.join().unwrap(), 48 * MIB);
    let row = ended.json()["rows"][0].clone();
    // From accepting the connection on it waits; before, a slow machine may.
    assert!(number(&row, "max_us") > 200_000.0, "{row}");
    assert!(number(&row, "p50_us") < number(&row, "max_us"), "{row}");
}

#[test]
fn connections_send_all_of_it_each_by_ipv4_and_ipv6() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (to, all) = checking(address, 3, 0);
        let ended = sent(&to.to_string(), &["--size", "5000001", "--connections", "3", "--cpu", "0", "-q"]).good();
        assert_eq!(all.join().unwrap(), [5_000_001; 3]);
        ended.shows("15,000,003 bytes acknowledged");
    }
}

#[test]
fn zeros_files_and_what_others_write_are_sent() {
    let collected = || {
        receiver(|mut stream| {
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            bytes
        })
    };
    let scratch = Scratch::new();
    let (path, data): (_, Vec<u8>) = (scratch.file("data"), (0..300_000_u32).map(|at| (at % 251) as u8).collect());
    std::fs::write(&path, &data).unwrap();
    let (to, bytes) = collected();
    sent(&to, &["-r", &path]).good().shows("300,000 bytes acknowledged");
    assert!(bytes.join().unwrap() == data);
    let (to, bytes) = collected();
    sent(&to, &["--pattern", "none", "--size", "99999"]).good();
    assert!(bytes.join().unwrap() == vec![0; 99_999]);
    let (to, bytes) = collected();
    let mut running = spawn(linerate(&["send", &to]).stdin(Stdio::piped()).stdout(Stdio::piped()));
    running.take_input().unwrap().write_all(&data).unwrap();
    running.end().good().shows("300,000 bytes acknowledged");
    assert!(bytes.join().unwrap() == data);
    // Nothing at all is something too.
    let (to, bytes) = collected();
    sent(&to, &[]).good().shows("0 bytes acknowledged");
    assert!(bytes.join().unwrap().is_empty());
}

#[test]
fn a_connection_that_is_reset_says_how_much_had_arrived() {
    let (to, read) = receiver(|mut stream| {
        let mut bytes = vec![0; 1 << 20];
        stream.read_exact(&mut bytes).unwrap();
        set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        bytes.len() as u64
    });
    let ended = sent(&to, &["--size", "1GiB", "--json"]).with_status(1).says("connection reset by the peer");
    let (document, read) = (ended.json(), read.join().unwrap());
    let (acknowledged, written) = (number(&document, "acknowledged"), number(&document, "written"));
    // Up to two segments may have been read before they are acknowledged (RFC 9293 section 3.8.6.3); those of lo have 64 KiB.
    let pending = f64::from(2 << 16);
    assert!(read as f64 <= acknowledged + pending && acknowledged <= written && written < 1e9, "{document}");
    ended.says("bytes acknowledged");
}

#[test]
fn whoever_cannot_be_reached_is_named_with_the_reason() {
    // A port that was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let size = ["--size", "1MiB"];
    sent(&free, &size).with_status(1).says(&free).says("connection refused");
    for udp in [&[][..], &["--udp"]] {
        let ended = sent(&free, &[&["--size", "1MiB", "--source", "192.0.2.77"], udp].concat());
        ended.with_status(1).says("from 192.0.2.77").says("choose an address of this host");
    }
    sent(&free, &["--size", "1MiB", "--source", "::1"]).with_status(1).says("family");
    sent("127.0.0.1", &size).with_status(2).says("no port");
    sent(&free, &["--size", "none"]).with_status(2).says("such as 512KiB");
    sent(&free, &["--pattern", "none", "--key", "4", "--size", "1"]).with_status(2).says("zeros have no key");
    // By hand or by cron: what is described is not replaced by what happens to come in.
    for described in [&["--key", "5"][..], &["--pattern", "none"]] {
        sent(&free, described).with_status(2).says(" needs --size").says("standard input is sent");
    }
    sent(&free, &["--connections", "2"]).with_status(2).says("standard input");
    // What is to be sent is looked for first.
    sent(&free, &["-r", "/nosuch"]).with_status(1).says("/nosuch: No such file");
    sent(&free, &["-r", "/"]).with_status(1).says("/: is a directory; expected a file");
    let (to, _) = receiver(drop);
    sent(&to, &["--size", "1", "--congestion", "none-such"]).with_status(1).says("none-such").says("available: ");
    sent(&to, &["--size", "1MiB", "--cpu", "1000"]).with_status(1).says("processor 1000");
}

#[test]
fn nobody_waits_without_end() {
    let stalled = || receiver(|stream| (thread::sleep(Duration::from_secs(4)), stream).1);
    let (to, _end) = stalled();
    let began = Instant::now();
    sent(&to, &["--size", "1GiB", "--silence", "0.5"]).with_status(1).says("no acknowledgement for 0.5 s");
    assert!(began.elapsed() < Duration::from_secs(4));
    let (to, _end) = stalled();
    let running = launch(&["send", &to, "--size", "1GiB"]);
    running.wait_until_open();
    thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    running.interrupt().good().shows("sent but not acknowledged");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

/// However many they are: one waits beside the other.
#[test]
fn receivers_that_do_not_read_are_left_together() {
    const MANY: usize = 8;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    set_socket_recv_buffer_size(&listener, 64 << 10).unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let all = thread::spawn(move || -> Vec<TcpStream> { (0..MANY).map(|_| listener.accept().unwrap().0).collect() });
    let running = launch(&["send", &to, "--size", "1GiB", "--connections", &MANY.to_string()]);
    running.wait_until_open();
    thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    running.interrupt().good().shows("sent but not acknowledged");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(all.join().unwrap().len(), MANY);
}

/// What another program writes may be quiet for ever.
#[test]
fn a_pipe_that_is_quiet_holds_nobody_up() {
    for udp in [&[][..], &["--udp", "--datagram", "1008"]] {
        for by_time in [false, true] {
            let (stream, end) = receiver(|stream| check(stream, 0));
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let to = if udp.is_empty() { stream } else { socket.local_addr().unwrap().to_string() };
            let time: &[&str] = if by_time { &["-r", "-", "-T", "1"] } else { &[] };
            let arguments = [&["send", &to], udp, time].concat();
            let mut running = spawn(linerate(&arguments).stdin(Stdio::piped()).stdout(Stdio::piped()));
            let mut input = running.take_input().unwrap();
            let bytes = if by_time { 1500 } else { 1000 };
            let mut data = vec![0; bytes];
            Pattern::new(0).fill(0, &mut data);
            input.write_all(&data).unwrap();
            running.wait_until_open();
            let closing = thread::spawn(move || (thread::sleep(Duration::from_secs(8)), input).0);
            thread::sleep(Duration::from_millis(300));
            let began = Instant::now();
            let ended = if by_time { running.end() } else { running.interrupt() };
            assert!(began.elapsed() < Duration::from_secs(5), "{arguments:?}: {:?}", began.elapsed());
            let shown = match (udp.is_empty(), by_time) {
                (true, true) => "1,500 bytes acknowledged",
                (true, false) => "1,000 bytes acknowledged",
                // What would fill the second one may still come, until the time is over.
                (false, true) => "2 datagrams with 1,500 bytes",
                (false, false) => "1 datagram with 1,000 bytes",
            };
            ended.good().shows(shown);
            if udp.is_empty() {
                assert_eq!(end.join().unwrap(), bytes as u64);
            }
            drop(closing);
        }
    }
}

#[test]
fn it_ends_by_time_and_with_a_report_when_it_is_asked_to() {
    let (to, all) = checking("127.0.0.1:0", 1, 0);
    let document = sent(&to.to_string(), &["-T", "0.3", "--chunk", "1MiB,2MiB", "--json"]).good().json();
    let seconds: Vec<f64> = document["rows"].as_array().unwrap().iter().map(|row| number(row, "seconds")).collect();
    assert!(seconds.len() == 2 && seconds.iter().all(|seconds| (0.3..3.0).contains(seconds)), "{document}");
    assert_eq!(all.join().unwrap(), [number(&document, "acknowledged") as u64]);
    let (to, all) = checking("127.0.0.1:0", 1, 0);
    let running = launch(&["send", &to.to_string(), "--size", "1000GiB", "--chunk", "1MiB", "--json"]);
    running.wait_until_open();
    thread::sleep(Duration::from_millis(300));
    let document = running.interrupt().good().json();
    assert_eq!(all.join().unwrap(), [number(&document, "acknowledged") as u64]);
    assert!(number(&document["rows"][0], "chunks") > 1.0, "{document}");
}

#[test]
fn datagrams_say_where_they_belong() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let socket = UdpSocket::bind(address).unwrap();
        let to = socket.local_addr().unwrap().to_string();
        // All of it fits the buffer: none is lost however slow this is.
        let arguments = ["--udp", "--size", "60500", "--datagram", "1008", "--rate", "100mbps", "--key", "3", "--json"];
        let document = sent(&to, &arguments).good().json();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let (pattern, mut at, mut buffer) = (Pattern::new(3), 0, [0; 2000]);
        while at < 60_500 {
            let got = socket.recv(&mut buffer).unwrap();
            assert_eq!(u64::from_be_bytes(buffer[..8].try_into().unwrap()), at);
            assert_eq!(got, 8 + 1000.min(60_500 - at as usize));
            assert_eq!(pattern.check(at, &buffer[8..got]), Ok(()));
            at += got as u64 - 8;
        }
        assert_eq!((number(&document, "datagrams"), number(&document, "written")), (61.0, 60_500.0));
        // 61 frames of up to 1,054 or 1,074 bytes and their FCS.
        let bits = number(&document, "written") * 8.0 / number(&document, "seconds");
        assert!(bits < 110e6, "{document}");
    }
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let ended = sent(&free, &["--udp", "--size", "50000", "--datagram", "508", "--rate", "10mbps"]);
    ended.with_status(1).says("port unreachable");
    sent(&free, &["--udp", "--size", "1", "--datagram", "8"]).with_status(2).says("9..=65507");
    sent(&free, &["--udp", "--size", "1", "--chunk", "1"]).with_status(2).says("datagrams are not acknowledged");
}

#[test]
fn datagrams_that_went_out_are_told_when_the_way_is_gone() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::of(&["a:eth0=192.0.2.1/24,b:eth0=192.0.2.2/24"]);
    let _socket = linerate_lab::within(&wire.namespace("b"), || UdpSocket::bind("192.0.2.2:5001").unwrap()).unwrap();
    let netns = wire.namespace("a");
    let arguments = ["--udp", "--rate", "1mbps", "-T", "60", "--netns", &netns, "--json"];
    let running = launch(&[&["send", "192.0.2.2:5001"], &arguments[..]].concat());
    running.wait_until_open();
    thread::sleep(Duration::from_millis(500));
    wire.ip("a", &["link", "set", "eth0", "down"]);
    let ended = running.end().with_status(1).says("network unreachable");
    let document = ended.json();
    assert!(number(&document, "datagrams") > 1.0 && number(&document, "seconds") > 0.1, "{document}");
    assert!(number(&document, "written") > 1.0, "{document}");
}

/// The kernel cuts no datagrams any more that have become too long for one packet: each is handed over by itself.
#[test]
fn a_way_that_gets_narrower_is_no_end_of_datagrams() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::of(&["a:eth0=192.0.2.1/24,b:eth0=192.0.2.2/24"]);
    let _socket = linerate_lab::within(&wire.namespace("b"), || UdpSocket::bind("192.0.2.2:5001").unwrap()).unwrap();
    let netns = wire.namespace("a");
    let arguments = ["--udp", "--datagram", "1008", "--rate", "300mbps", "-T", "2", "--netns", &netns, "--json"];
    let running = launch(&[&["send", "192.0.2.2:5001"], &arguments[..]].concat());
    running.wait_until_open();
    thread::sleep(Duration::from_millis(300));
    wire.ip("a", &["link", "set", "eth0", "mtu", "700"]);
    let document = running.end().good().json();
    assert!(number(&document, "seconds") > 1.9, "{document}");
    assert_eq!(number(&document, "written"), 1000.0 * number(&document, "datagrams"), "{document}");
}

#[test]
fn it_sends_from_where_it_is_told_to() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::of(&["a:eth0=192.0.2.1/24,b:eth0=192.0.2.2/24"]);
    let listener = linerate_lab::within(&wire.namespace("b"), || TcpListener::bind("192.0.2.2:0").unwrap()).unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let end = thread::spawn(move || {
        let (stream, from) = listener.accept().unwrap();
        (check(stream, 9), from.ip().to_string())
    });
    let netns = wire.namespace("a");
    let arguments = ["--netns", &netns, "--source", "192.0.2.1", "--size", "20MiB", "--key", "9", "--buffer", "1MiB"];
    let ended = sent(&to, &[&arguments[..], &["--congestion", "cubic"]].concat()).good().shows("20,971,520 bytes");
    assert_eq!(end.join().unwrap(), (20 * MIB, "192.0.2.1".to_owned()));
    ended.says("(cubic)").says("from 192.0.2.1:");
    sent("198.51.100.1:9", &["--netns", &netns, "--size", "1"]).with_status(1).says("network unreachable");
    sent("192.0.2.9:9", &["--netns", &netns, "--size", "1", "--silence", "0.4"])
        .with_status(1)
        .says("no answer within 0.4 s");
}
