//! `bridge` between two hosts: TCP over a path with loss, delay and a rate limit.

use linerate_tests::support::program::{Running, run, start};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, has_tools, judge, may_make_labs, records, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const A: &str = "10.80.0.1";
const B: &str = "10.80.0.2";
const PATIENCE: Duration = Duration::from_secs(30);

/// Host `a`, a bridge in host `mid`, host `b`.
struct Scene {
    lab: Wire,
}

impl Scene {
    fn new(more: &str) -> Self {
        let links = [format!("a:eth0={A}/24,mid:p0{more}"), format!("b:eth0={B}/24,mid:p1{more}")];
        Scene { lab: Wire::of(&[&links[0], &links[1]]) }
    }

    fn wire(&self, options: &[&str]) -> Running {
        let (one, other) = (self.lab.port("mid", "p0", ""), self.lab.port("mid", "p1", ""));
        start(&[&["bridge", &one, &other, "--json"], options].concat())
    }

    fn within<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> T {
        linerate_lab::within(&self.lab.namespace(host), work).expect("a host")
    }

    /// Connected sockets in a and b.
    fn datagram_sockets(&self) -> (UdpSocket, UdpSocket) {
        let open = |host, address: &str| {
            let socket = self.within(host, || UdpSocket::bind((address, 7007))).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            socket
        };
        let (a, b) = (open("a", A), open("b", B));
        a.connect((B, 7007)).unwrap();
        b.connect((A, 7007)).unwrap();
        // The first one waits for ARP.
        wait_until("datagrams pass", || {
            a.send(b"hello").unwrap();
            b.recv(&mut [0; 8]).is_ok()
        });
        (a, b)
    }

    /// Sends `data` from a to b over TCP and returns what arrived.
    fn transfer(&self, data: &[u8]) -> Vec<u8> {
        let listener = self.within("b", || TcpListener::bind((B, 7008))).unwrap();
        thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut got = Vec::new();
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.read_to_end(&mut got).unwrap();
                got
            });
            let mut stream = self.within("a", || TcpStream::connect((B, 7008))).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(data).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            reader.join().unwrap()
        })
    }
}

/// A tcpdump of one direction on a host's `eth0`.
struct Dump {
    file: String,
    child: Child,
}

impl Dump {
    fn start(scene: &Scene, scratch: &Scratch, host: &str, direction: &str) -> Self {
        let file = scratch.file(&format!("{host}-{direction}.pcap"));
        let child = Command::new("ip")
            .args(["netns", "exec", &scene.lab.namespace(host), "tcpdump", "-i", "eth0", "-Q", direction])
            .args(["-Z", "root", "-B", "16384", "-U", "-w", &file])
            .stderr(Stdio::null())
            .spawn()
            .expect("tcpdump");
        wait_until("tcpdump listens", || std::fs::metadata(&file).is_ok_and(|data| data.len() >= 24));
        Dump { file, child }
    }

    fn frames(mut self) -> u64 {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("tcpdump runs");
        self.child.wait().expect("tcpdump ends");
        records::read(&self.file).len() as u64
    }
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count as u32).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes()).take(count).collect()
}

fn noted(json: &Value, way: usize, name: &str) -> u64 {
    let subject = format!("packet:p{way}@0");
    let is_its = |one: &&Value| one["subject"].as_str().unwrap().trim_start_matches("faulty:").starts_with(&subject);
    let accounts = json["accounts"].as_array().unwrap().iter().filter(is_its);
    let mut found = accounts.filter_map(|one| one["drops"][name].as_u64().or(one["notes"][name].as_u64()));
    found.next().unwrap_or_else(|| panic!("no {name} of {subject}: {json}"))
}

#[test]
fn tcp_survives_faults_and_counts_match_tcpdump() {
    if !may_make_labs() || !has_tools(&["tcpdump"]) {
        return;
    }
    let (scene, scratch) = (Scene::new(",offloads=off"), Scratch::new());
    let dump = |host, direction| Dump::start(&scene, &scratch, host, direction);
    let dumps = [dump("a", "out"), dump("b", "in"), dump("b", "out"), dump("a", "in")];
    let wire = scene.wire(&["--faults", "drop=1%&repeat=1%&reorder=1%x3&corrupt=1%", "--seed", "5"]);
    let data = bytes(2_000_000);
    assert!(scene.transfer(&data) == data, "received bytes differ");
    // Until the last retransmission at the end of the connection.
    thread::sleep(Duration::from_millis(1500));
    let json = wire.interrupt().good().json();
    let seen = dumps.map(Dump::frames);
    assert_eq!((&json["schema"], &json["lost"]), (&"linerate/bridge/1".into(), &0.into()), "{json}");
    assert_eq!((&json["balanced"], &json["quiesced"]), (&true.into(), &true.into()), "{json}");
    for (way, seen) in [(0, &seen[..2]), (1, &seen[2..])] {
        let count = |name: &str| json["directions"][way][name].as_u64().unwrap();
        let (dropped, repeated) = (noted(&json, way, "fault_dropped"), noted(&json, way, "fault_repeated"));
        assert_eq!(count("received"), seen[0] + repeated, "way {way}: packets sent by one host: {json}");
        assert_eq!(count("delivered"), seen[1], "way {way}: packets received by the other host: {json}");
        assert_eq!(count("delivered"), seen[0] + repeated - dropped, "way {way}");
        assert!(dropped > 0 && repeated > 0, "way {way}: {json}");
    }
}

/// Waits for a datagram. Retries after EINTR: a wait with a timeout ends early if the process was stopped (signal(7)).
fn receive(socket: &UdpSocket) {
    while let Err(error) = socket.recv(&mut [0; 8]) {
        assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
    }
}

#[test]
fn delay_applies_in_both_directions() {
    if !may_make_labs() {
        return;
    }
    let scene = Scene::new(",offloads=off");
    let wire = scene.wire(&["--faults", "delay=30ms", "--faults-reverse", "delay=20ms+-1ms"]);
    let (a, b) = scene.datagram_sockets();
    b.set_nonblocking(true).unwrap();
    while b.recv(&mut [0; 8]).is_ok() {}
    b.set_nonblocking(false).unwrap();
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let sent = Instant::now();
            a.send(b"there").unwrap();
            receive(&b);
            assert!(sent.elapsed() >= Duration::from_millis(30), "{:?} there", sent.elapsed());
            b.send(b"back").unwrap();
            receive(&a);
            sent.elapsed()
        })
        .collect();
    times.sort();
    assert!(times[0] >= Duration::from_millis(49), "{times:?}");
    judge(times[10] < Duration::from_millis(100), &format!("{times:?}"));
    assert_eq!(wire.interrupt().good().json()["balanced"], true);
}

#[test]
fn rate_limit_holds_and_queue_drops_are_counted() {
    if !may_make_labs() {
        return;
    }
    let scene = Scene::new(",offloads=off");
    let wire = scene.wire(&["--faults", "rate=8mbps&queue=150", "--faults-reverse", ""]);
    let (a, b) = scene.datagram_sockets();
    // 1000 bytes with FCS and headers take 1 ms each.
    let started = Instant::now();
    (0..400).for_each(|_| assert_eq!(a.send(&[7; 954]).unwrap(), 954));
    let burst = started.elapsed();
    let (mut got, mut last) = (0, started);
    while let Ok(length) = b.recv(&mut [0; 1500]) {
        if length == 954 {
            got += 1;
            last = Instant::now();
        }
    }
    let json = wire.interrupt().good().json();
    let dropped = noted(&json, 0, "fault_queue");
    let delivered = json["directions"][0]["delivered"].as_u64().unwrap();
    assert_eq!(json["directions"][0]["received"].as_u64(), Some(delivered + dropped), "{json}");
    // The socket buffer may overflow if the reader is delayed.
    assert!(got <= delivered && delivered + dropped >= 400, "{got}: {json}");
    // 150 queued and one in transmission; more if some leave while a busy machine sends the others.
    assert!(delivered >= 151, "{delivered} of 400 sent in {burst:?}");
    assert!(dropped > 0 || burst > Duration::from_millis(100), "none dropped of 400 sent in {burst:?}");
    let span = (last - started).as_secs_f64();
    let (least, most) = (got as f64 * 1e-3, delivered as f64 * 1e-3);
    assert!(span > 0.95 * least, "{got} of {delivered} frames in {span} s");
    judge(span < 2.0 * most + 0.5, &format!("{got} of {delivered} frames in {span} s"));
    assert_eq!((&json["lost"], &json["balanced"]), (&0.into(), &true.into()));
}

#[test]
fn oversized_frames_are_lost_with_a_remedy() {
    if !may_make_labs() {
        return;
    }
    let scene = Scene::new("");
    let wire = scene.wire(&[]);
    let listener = scene.within("b", || TcpListener::bind((B, 7008))).unwrap();
    let mut stream = scene.within("a", || TcpStream::connect((B, 7008))).unwrap();
    stream.write_all(&bytes(40_000)).unwrap();
    thread::sleep(Duration::from_millis(100));
    let ended = wire.interrupt().good().says("ethtool -K").says("offloads=off");
    let json = ended.json();
    // Offloaded checksums are filled in, so the connection is established. Super-frames exceed the slots of the ring.
    assert!(noted(&json, 0, "checksum_filled") > 0 && json["drops"]["truncated"].as_u64() > Some(0), "{json}");
    drop(listener);
}

/// One socket per end receives and sends.
#[test]
fn bridge_of_xdp_ports_carries_tcp() {
    if !may_make_labs() {
        return;
    }
    let scene = Scene::new(",offloads=off");
    let ends = ["p0", "p1"].map(|end| scene.lab.port("mid", end, "").replacen("packet:", "xdp:", 1));
    let wire = start(&["bridge", &ends[0], &ends[1], "--json"]);
    let data: Vec<u8> = (0..300_000u32).map(|at| ((at * 7) >> 3) as u8).collect();
    assert!(scene.transfer(&data) == data, "received bytes differ");
    let json = wire.interrupt().good().json();
    assert_eq!((&json["balanced"], &json["failure"]), (&Value::from(true), &Value::Null), "{json:#}");
    assert!(json["frames"].as_u64().unwrap() > 200, "{json:#}");
}

#[test]
fn bridge_ends_with_its_interface() {
    if !may_make_labs() {
        return;
    }
    let scene = Scene::new("");
    let wire = scene.wire(&[]);
    scene.lab.ip("mid", &["link", "set", "p1", "down"]);
    thread::sleep(Duration::from_millis(50));
    scene.lab.ip("mid", &["link", "set", "p1", "up"]);
    let (a, _b) = scene.datagram_sockets();
    scene.lab.ip("mid", &["link", "del", "p1"]);
    let _ = a.send(b"nowhere");
    let json = wire.end().json();
    assert!(json["events"].to_string().contains("down"), "{json}");
    assert!(json["events"].to_string().contains("removed"), "{json}");
    assert_eq!(json["balanced"], true, "{json}");
}

#[test]
fn invalid_bridge_arguments_are_rejected() {
    for (arguments, text) in [
        (&["eth7"][..], "PORT"),
        (&["eth7", "eth7"], "is given twice"),
        (&["eth7", "pcap:x"], "not an interface"),
        (&["eth7", "eth8", "--faults", "drop=often"], "--faults: drop=often"),
        (&["eth7", "eth8", "--faults-reverse", "speed=1"], "--faults-reverse: unknown fault \"speed\""),
        (&["eth7", "eth8", "--duration=-1"], "invalid duration"),
    ] {
        run(&[&["bridge"], arguments].concat()).with_status(2).says(text);
    }
}
