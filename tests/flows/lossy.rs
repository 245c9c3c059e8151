//! Connections over a path that loses frames in both directions, metered at both ends and compared with the sockets.

use crate::flows::kernel::{SHOW, Socket};
use crate::flows::metered::{Metered, Record, TCP};
use crate::flows::socket_counters::{check_negotiated, check_retransmissions, number, retransmissions_seen, sides};
use crate::flows::testbed::{CLIENT, SERVER};
use linerate_tests::support::program::{Running, start};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, has_tools, may_make_labs, tool, wait_until};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

const PORT: u16 = 7010;
/// Faults in both directions, and the minimum round-trip time in ns that their delay causes.
const FAULTS: &str = "drop=2%&delay=5ms";
const LEAST: u64 = 10_000_000;
/// Bytes sent by each end.
const BYTES: usize = 500_000;
/// Options of a ring that holds all frames of a direction, with blocks for seconds of stall.
const PATIENT: &str = "&direction=inout&ring=16MiB&block=64KiB&timeout=50";
/// A pacing kernel stamps a segment with its departure time and sends it slightly earlier: tolerance in ns.
const PACING: u64 = 1_000_000;
/// Tolerance in ns for the kernel's minimum round trip, which has more samples than ours.
const SPREAD: u64 = 20_000_000;

/// Settings in `/proc/sys/net/ipv4` before each connection: host, name, value.
const SETTINGS: [&[(&str, &str, &str)]; 4] = [
    &[("client", "tcp_rmem", "4096 131072 1048576")],
    &[("server", "tcp_timestamps", "0")],
    &[("server", "tcp_timestamps", "1"), ("server", "tcp_sack", "0")],
    &[("server", "tcp_sack", "1"), ("client", "tcp_window_scaling", "0")],
];

#[test]
fn retransmissions_match_the_socket_counters() {
    if !may_make_labs() || !has_tools(&["ip", "ss"]) {
        return;
    }
    let path = Path::up();
    let meters = ["client", "server"].map(|host| path.meter(host));
    let streams = path.connect();
    exchange(&streams);
    let sockets = path.settled();
    let metered = meters.map(|(meter, file)| Metered::new(meter.interrupt().good().json(), None, &file));
    let [Some(client), Some(server)] = metered else { return };
    let wire = path.wire.interrupt().good().json();
    drop(streams);
    let (mut retransmitted_by_end, mut seen_at_far_end, mut disordered) = ([0; 2], [0; 2], [0; 2]);
    for near in &sockets[0] {
        let far = sockets[1].iter().find(|far| far.peer_port == near.local_port).expect("the other end");
        let records = [&client, &server].map(|metered| metered.only(TCP, near.local_port, PORT.into()));
        for record in records {
            check_negotiated(record, near, far);
            check_unique(record, [near, far]);
        }
        for (side, socket) in [near, far].into_iter().enumerate() {
            check_retransmissions(records[side], side, socket);
            check_round_trips(sides(records[side])[side], socket);
            retransmitted_by_end[side] += socket.retransmissions();
            seen_at_far_end[side] += retransmissions_seen(records[1 - side], side);
            disordered[side] += number(sides(records[1 - side])[side], "out_of_order");
        }
        check_handshake(&records[0].json["tcp"]["syn_to_syn_ack_ns"]);
        check_handshake(&records[1].json["tcp"]["syn_ack_to_ack_ns"]);
    }
    println!("retransmitted {retransmitted_by_end:?}, of these seen at the far end {seen_at_far_end:?}");
    for side in [0, 1] {
        let lost = dropped(&wire, side);
        assert!(retransmitted_by_end[side] > 10, "too few to compare: {retransmitted_by_end:?}, {lost} lost");
        // If the original was lost, the far end cannot tell a retransmission from the first copy.
        // A busy machine reorders some segments that are not copies.
        let copies = seen_at_far_end[side] - disordered[side];
        assert!(
            copies <= retransmitted_by_end[side],
            "{seen_at_far_end:?} of {retransmitted_by_end:?}, {disordered:?} out of order"
        );
        assert!(
            retransmitted_by_end[side].saturating_sub(seen_at_far_end[side]) <= lost,
            "{seen_at_far_end:?} of {retransmitted_by_end:?}, {lost} lost"
        );
    }
}

/// Returns the frames received at this end that the bridge dropped.
fn dropped(wire: &Value, end: usize) -> u64 {
    let subject = format!("faulty:packet:p{end}@");
    let mut accounts = wire["accounts"].as_array().expect("accounts").iter();
    let account = accounts.find(|account| account["subject"].as_str().is_some_and(|name| name.starts_with(&subject)));
    let count = account.and_then(|account| account["drops"]["fault_dropped"].as_u64());
    count.unwrap_or_else(|| panic!("no frame was dropped at p{end}: {wire:#}"))
}

/// Checks at both sensors that unique bytes match the bytes that the other end received. Bytes of a gap that was
/// forgotten before they arrived, as only four are kept, count as missing and as retransmitted.
fn check_unique(record: &Record, sockets: [&Socket; 2]) {
    for side in [0, 1] {
        let (tcp, received) = (sides(record)[side], sockets[1 - side].number("bytes_received"));
        let known = record.sides[side].payload_bytes - number(tcp, "retransmitted_bytes");
        let unique = known + number(tcp, "gap_bytes");
        assert_eq!([unique, received], [BYTES as u64; 2], "side {side}: {:#}", record.json);
    }
}

/// Checks round trips of segments sent at the sensor: at least the path's, and near the kernel's minimum.
fn check_round_trips(tcp: &Value, socket: &Socket) {
    let (rtt, what) = (&tcp["rtt"], format!("{}: {socket:?}", tcp["rtt"]));
    let [count, least, most] = ["count", "min_ns", "max_ns"].map(|name| number(rtt, name));
    let mean = rtt["mean_ns"].as_f64().expect("a mean");
    assert!(count > 0 && least + 1024 >= LEAST, "{what}");
    assert!((least as f64..=most as f64).contains(&mean), "{what}");
    let shortest = socket.milliseconds("minrtt").expect("minrtt");
    assert!(shortest + PACING >= LEAST && least <= shortest + SPREAD, "{what}");
}

/// The time is null if it is unknown which SYN was answered.
fn check_handshake(time: &Value) {
    assert!(time.as_u64().is_none_or(|time| time + 1024 >= LEAST), "{time}");
}

/// Sends and receives on all connections at once.
fn exchange(streams: &[[TcpStream; 2]]) {
    thread::scope(|scope| {
        for mut stream in streams.iter().flatten() {
            scope.spawn(move || stream.write_all(&[b'x'; BYTES]).expect("a connection"));
            scope.spawn(move || stream.read_exact(&mut [0; BYTES]).expect("all that was sent"));
        }
    });
}

/// Hosts `client` and `server`, joined by a lossy bridge.
struct Path {
    wire: Running,
    lab: Wire,
    scratch: Scratch,
}

impl Path {
    fn up() -> Self {
        let ends = [("client", CLIENT, "p0"), ("server", SERVER, "p1")];
        let links = ends.map(|(host, address, port)| format!("{host}:eth0={address}/24,mid:{port},offloads=off"));
        let lab = Wire::of(&[&links[0], &links[1]]);
        // Both ends announce different MSS values.
        lab.ip("server", &["route", "add", CLIENT, "dev", "eth0", "advmss", "1200"]);
        let [one, other] = ["p0", "p1"].map(|port| lab.port("mid", port, ""));
        let wire = start(&["bridge", &one, &other, "--faults", FAULTS, "--seed", "6", "--json"]);
        Path { wire, lab, scratch: Scratch::new() }
    }

    /// Starts `linerate flows` at a host's interface and returns it with its output file.
    fn meter(&self, host: &str) -> (Running, String) {
        let port = self.lab.port(host, "eth0", PATIENT);
        let file = self.scratch.file(host);
        (start(&["flows", "-i", &port, "--level", "tcp", "--write", &file, "--json"]), file)
    }

    /// Opens a connection for each of the settings.
    fn connect(&self) -> Vec<[TcpStream; 2]> {
        let listener = self.within("server", || TcpListener::bind((SERVER, PORT))).expect("a free port");
        let one = |settings: &&[(&str, &str, &str)]| {
            for (host, name, value) in *settings {
                let written = self.within(host, || std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value));
                written.unwrap_or_else(|error| panic!("{name}: {error}"));
            }
            let client = self.within("client", || TcpStream::connect((SERVER, PORT))).expect("a connection");
            [client, listener.accept().expect("a connection").0]
        };
        SETTINGS.iter().map(one).collect()
    }

    /// Returns the sockets of both hosts once everything is acknowledged and nothing is in flight.
    fn settled(&self) -> [Vec<Socket>; 2] {
        let look = || {
            ["client", "server"].map(|host| {
                let namespace = self.lab.namespace(host);
                Socket::all(&tool("ip", &[&["netns", "exec", &namespace, "ss"], &SHOW[..]].concat()))
            })
        };
        wait_until("everything is acknowledged", || look().iter().flatten().all(|socket| !socket.says("unacked")));
        thread::sleep(Duration::from_millis(200));
        look()
    }

    fn within<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> T {
        linerate_lab::within(&self.lab.namespace(host), work).expect("a host")
    }
}
