//! `linerate send` against receivers of the standard library: every byte, chunk times, and every failure.

use linerate::transport::pattern::Pattern;
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

/// Starts a receiver that checks N connections against the pattern of a key and returns the bytes of each.
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

/// Starts a receiver that runs `work` on its only connection.
fn receiver<T: Send + 'static>(work: impl FnOnce(TcpStream) -> T + Send + 'static) -> (String, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Accepted connections inherit it from the listening socket.
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
fn chunks_of_several_sizes_arrive_complete_with_their_times() {
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
        // Chunks are sent one after the other, so their times add up to at most the total.
        assert!(20.0 * average <= 1e6 * number(row, "seconds") + 1.0, "{row}");
        let gbps = 20.0 * chunk as f64 * 8.0 / number(row, "seconds") / 1e9;
        assert!((gbps / number(row, "gbps") - 1.0).abs() < 1e-6, "{row}");
    }
}

/// A chunk ends when it is acknowledged, not when it is handed to the kernel.
#[test]
fn chunk_time_includes_a_slow_receiver() {
    const WAITS: Duration = Duration::from_millis(300);
    let (to, end) = receiver(|stream| {
        thread::sleep(WAITS);
        check(stream, 0)
    });
    let ended = sent(&to, &["--chunk", "16MiB", "--chunks", "3", "--json"]).good();
    assert_eq!(end.join().unwrap(), 48 * MIB);
    let row = ended.json()["rows"][0].clone();
    // The receiver sleeps after it accepts; on a slow machine part of that passes before the first chunk.
    assert!(number(&row, "max_us") > 200_000.0, "{row}");
    assert!(number(&row, "p50_us") < number(&row, "max_us"), "{row}");
}

#[test]
fn every_connection_sends_all_data_over_ipv4_and_ipv6() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (to, all) = checking(address, 3, 0);
        let ended = sent(&to.to_string(), &["--size", "5000001", "--connections", "3", "--cpu", "0", "-q"]).good();
        assert_eq!(all.join().unwrap(), [5_000_001; 3]);
        ended.shows("15,000,003 bytes acknowledged");
    }
}

#[test]
fn zeros_files_and_pipes_are_sent() {
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
    // Empty input is valid.
    let (to, bytes) = collected();
    sent(&to, &[]).good().shows("0 bytes acknowledged");
    assert!(bytes.join().unwrap().is_empty());
}

#[test]
fn reset_connection_reports_acknowledged_bytes() {
    let (to, read) = receiver(|mut stream| {
        let mut bytes = vec![0; 1 << 20];
        stream.read_exact(&mut bytes).unwrap();
        set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        bytes.len() as u64
    });
    let ended = sent(&to, &["--size", "1GiB", "--json"]).with_status(1).says("connection reset by the peer");
    let (document, read) = (ended.json(), read.join().unwrap());
    let (acknowledged, written) = (number(&document, "acknowledged"), number(&document, "written"));
    // Up to two segments may be read but unacknowledged (RFC 9293 section 3.8.6.3); segments on lo are 64 KiB.
    let pending = f64::from(2 << 16);
    assert!(read as f64 <= acknowledged + pending && acknowledged <= written && written < 1e9, "{document}");
    ended.says("bytes acknowledged");
}

#[test]
fn errors_name_the_destination_and_the_cause() {
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
    // From a shell or from cron: input on standard input never replaces data described by options.
    for described in [&["--key", "5"][..], &["--pattern", "none"]] {
        sent(&free, described).with_status(2).says(" needs --size").says("standard input is sent");
    }
    sent(&free, &["--connections", "2"]).with_status(2).says("standard input");
    // The file is opened before anything is sent.
    sent(&free, &["-r", "/nosuch"]).with_status(1).says("/nosuch: No such file");
    sent(&free, &["-r", "/"]).with_status(1).says("/: is a directory; expected a file");
    let (to, _) = receiver(drop);
    sent(&to, &["--size", "1", "--congestion", "none-such"]).with_status(1).says("none-such").says("available: ");
    sent(&to, &["--size", "1MiB", "--cpu", "1000"]).with_status(1).says("processor 1000");
}

#[test]
fn every_wait_has_a_limit() {
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

/// The time limit covers all connections together, however many there are.
#[test]
fn stalled_receivers_are_closed_at_the_same_time() {
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

/// A pipe from another program can stay quiet forever.
#[test]
fn quiet_pipe_does_not_block_the_end() {
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
                // The rest of the second datagram can still arrive until the time is over.
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
fn send_ends_at_its_duration_or_on_interrupt_with_a_report() {
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
fn datagrams_carry_their_offset() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let socket = UdpSocket::bind(address).unwrap();
        let to = socket.local_addr().unwrap().to_string();
        // All datagrams fit in the receive buffer, so a slow reader loses none.
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
    sent(&free, &["--udp", "--size", "1", "--datagram", "8"]).with_status(2).says("expected 9 to 65507");
    sent(&free, &["--udp", "--size", "1", "--chunk", "1"]).with_status(2).says("datagrams are not acknowledged");
}

#[test]
fn sent_datagrams_are_reported_when_the_link_goes_down() {
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

/// The kernel no longer splits datagrams that exceed the path MTU (UDP GSO), so each one is sent separately.
#[test]
fn smaller_mtu_does_not_stop_datagrams() {
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
fn source_address_netns_and_congestion_control_apply() {
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
