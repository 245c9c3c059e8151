//! Connections over a path that loses frames both ways, seen at both ends, beside both ends' sockets.

use crate::flows::kernel::{SHOW, Socket};
use crate::flows::metered::{Metered, Record, TCP};
use crate::flows::sent::{check_negotiated, check_sent_again, number, seen_again, sides};
use crate::flows::stage::{CLIENT, SERVER};
use linerate_tests::support::program::{Running, start};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, has_tools, may_make_labs, tool, wait_until};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

const PORT: u16 = 7010;
/// Both ways: what is lost, and half of the least round trip.
const FAULTS: &str = "drop=2%&delay=5ms";
const LEAST: u64 = 10_000_000;
/// What either end sends.
const BYTES: usize = 500_000;
/// All frames of a direction fit, and so many blocks that a program may stand still for seconds.
const PATIENT: &str = "&direction=inout&ring=16MiB&block=64KiB&timeout=50";
/// A kernel that paces stamps a segment with when it is to leave, and sends a bit sooner.
const PACING: u64 = 1_000_000;
/// What a kernel's smallest round trip may lie below all of ours by, which are fewer.
const SPREAD: u64 = 20_000_000;

/// Who is set to what in front of which connection: in `/proc/sys/net/ipv4`.
const SETTINGS: [&[(&str, &str, &str)]; 4] = [
    &[("client", "tcp_rmem", "4096 131072 1048576")],
    &[("server", "tcp_timestamps", "0")],
    &[("server", "tcp_timestamps", "1"), ("server", "tcp_sack", "0")],
    &[("server", "tcp_sack", "1"), ("client", "tcp_window_scaling", "0")],
];

#[test]
fn what_is_sent_again_is_what_the_sockets_count() {
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
    let (mut sent_again, mut arrived_again, mut disordered) = ([0; 2], [0; 2], [0; 2]);
    for near in &sockets[0] {
        let far = sockets[1].iter().find(|far| far.peer_port == near.local_port).expect("the other end");
        let records = [&client, &server].map(|metered| metered.only(TCP, near.local_port, PORT.into()));
        for record in records {
            check_negotiated(record, near, far);
            check_unique(record, [near, far]);
        }
        for (side, socket) in [near, far].into_iter().enumerate() {
            check_sent_again(records[side], side, socket);
            check_round_trips(sides(records[side])[side], socket);
            sent_again[side] += socket.retransmissions();
            arrived_again[side] += seen_again(records[1 - side], side);
            disordered[side] += number(sides(records[1 - side])[side], "out_of_order");
        }
        check_handshake(&records[0].json["tcp"]["syn_to_syn_ack_ns"]);
        check_handshake(&records[1].json["tcp"]["syn_ack_to_ack_ns"]);
    }
    println!("sent again {sent_again:?}, of them behind the loss {arrived_again:?}");
    for side in [0, 1] {
        let lost = dropped(&wire, side);
        assert!(sent_again[side] > 10, "too few to compare: {sent_again:?}, {lost} lost");
        // What arrives as the first of its bytes, as the one before was lost, nobody there can know to be sent again.
        // A busy machine changes the order of some that are no copies.
        let copies = arrived_again[side] - disordered[side];
        assert!(copies <= sent_again[side], "{arrived_again:?} of {sent_again:?}, {disordered:?} out of order");
        assert!(
            sent_again[side].saturating_sub(arrived_again[side]) <= lost,
            "{arrived_again:?} of {sent_again:?}, {lost} lost"
        );
    }
}

/// Frames that the wire dropped of those that came in at this end.
fn dropped(wire: &Value, end: usize) -> u64 {
    let subject = format!("faulty:packet:p{end}@");
    let mut accounts = wire["accounts"].as_array().expect("accounts").iter();
    let account = accounts.find(|account| account["subject"].as_str().is_some_and(|name| name.starts_with(&subject)));
    let count = account.and_then(|account| account["drops"]["fault_dropped"].as_u64());
    count.unwrap_or_else(|| panic!("no frame is dropped at p{end}: {wire:#}"))
}

/// Wherever it is seen, what was seen once is what the other end has received. Bytes of a hole that came after it was not
/// known any more, as there were more than four, count as missing and as seen before.
fn check_unique(record: &Record, sockets: [&Socket; 2]) {
    for side in [0, 1] {
        let (tcp, received) = (sides(record)[side], sockets[1 - side].number("bytes_received"));
        let known = record.sides[side].payload_bytes - number(tcp, "retransmitted_bytes");
        let unique = known + number(tcp, "gap_bytes");
        assert_eq!([unique, received], [BYTES as u64; 2], "side {side}: {:#}", record.json);
    }
}

/// Round trips of what the end sends where the sensor is: no shorter than the path, nor longer than its kernel's.
fn check_round_trips(tcp: &Value, socket: &Socket) {
    let (rtt, what) = (&tcp["rtt"], format!("{}: {socket:?}", tcp["rtt"]));
    let [count, least, most] = ["count", "min_ns", "max_ns"].map(|name| number(rtt, name));
    let mean = rtt["mean_ns"].as_f64().expect("a mean");
    assert!(count > 0 && least + 1024 >= LEAST, "{what}");
    assert!((least as f64..=most as f64).contains(&mean), "{what}");
    let shortest = socket.milliseconds("minrtt").expect("minrtt");
    assert!(shortest + PACING >= LEAST && least <= shortest + SPREAD, "{what}");
}

/// Not there if it is not known which SYN was answered.
fn check_handshake(time: &Value) {
    assert!(time.as_u64().is_none_or(|time| time + 1024 >= LEAST), "{time}");
}

/// All of them send and receive at once.
fn exchange(streams: &[[TcpStream; 2]]) {
    thread::scope(|scope| {
        for mut stream in streams.iter().flatten() {
            scope.spawn(move || stream.write_all(&[b'x'; BYTES]).expect("a connection"));
            scope.spawn(move || stream.read_exact(&mut [0; BYTES]).expect("all that was sent"));
        }
    });
}

/// Hosts `client` and `server` with a wire between them that loses.
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
        // So that both ends announce something else.
        lab.ip("server", &["route", "add", CLIENT, "dev", "eth0", "advmss", "1200"]);
        let [one, other] = ["p0", "p1"].map(|port| lab.port("mid", port, ""));
        let wire = start(&["bridge", &one, &other, "--faults", FAULTS, "--seed", "6", "--json"]);
        Path { wire, lab, scratch: Scratch::new() }
    }

    /// `linerate flows` at a host's interface, and where it writes.
    fn meter(&self, host: &str) -> (Running, String) {
        let port = self.lab.port(host, "eth0", PATIENT);
        let file = self.scratch.file(host);
        (start(&["flows", "-i", &port, "--level", "tcp", "--write", &file, "--json"]), file)
    }

    /// A connection for each of the settings.
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

    /// The sockets of both hosts once all is acknowledged and nothing is on its way.
    fn settled(&self) -> [Vec<Socket>; 2] {
        let look = || {
            ["client", "server"].map(|host| {
                let namespace = self.lab.namespace(host);
                Socket::all(&tool("ip", &[&["netns", "exec", &namespace, "ss"], &SHOW[..]].concat()))
            })
        };
        wait_until("all is acknowledged", || look().iter().flatten().all(|socket| !socket.says("unacked")));
        thread::sleep(Duration::from_millis(200));
        look()
    }

    fn within<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> T {
        linerate_lab::within(&self.lab.namespace(host), work).expect("a host")
    }
}
