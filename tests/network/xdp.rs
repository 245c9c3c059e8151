//! AF_XDP ports: cleanup, and effects on other programs at the same interface.

use linerate_backends::netns::within;
use linerate_backends::open_rx;
use linerate_burst::{Count, Ledger};
use linerate_engine::clock::now;
use linerate_port::{RxOptions, Spec};
use linerate_tests::support::program::{Running, launch, linerate, run, start};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{may_make_labs, wait_until};
use rustix::process::Signal;
use std::net::UdpSocket;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

fn port(wire: &Wire, host: &str) -> String {
    wire.port(host, "eth0", "").replace("packet:", "xdp:")
}

fn capture(wire: &Wire, host: &str) -> Running {
    start(&["capture", "-i", &port(wire, host), "--json"])
}

/// Returns true if an XDP program is attached to a host's interface.
fn has_program(wire: &Wire, host: &str) -> bool {
    let shown = linerate_tests::support::tool("ip", &["-n", &wire.namespace(host), "-j", "link", "show", "eth0"]);
    shown.contains("\"xdp\"")
}

#[test]
fn xdp_program_is_detached_after_any_exit() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::new();
    for signal in [Signal::KILL, Signal::TERM, Signal::INT, Signal::ABORT] {
        let running = capture(&wire, "b");
        assert!(has_program(&wire, "b"));
        running.signal(signal);
        running.end();
        wait_until("the program is detached", || !has_program(&wire, "b"));
    }
}

#[test]
fn other_xdp_program_is_named_and_kept() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::new();
    let first = capture(&wire, "b");
    let second = run(&["capture", "-i", &port(&wire, "b"), "--duration", "1"]).with_status(1);
    assert!(second.errors.contains("another XDP program is attached to eth0"), "{}", second.errors);
    assert!(second.errors.contains("called linerate"), "{}", second.errors);
    wire.send(&["--udp", "-c", "100", "--rate", "1kpps"]);
    let json = first.interrupt().good().json();
    assert_eq!((json["frames"].as_u64(), json["lost"].as_u64()), (Some(100), Some(0)), "{json}");
}

/// Several ports start together, so that no ring overflows while others are opened.
#[test]
fn paused_port_receives_nothing_before_start() {
    if !may_make_labs() {
        return;
    }
    for wrapper in ["", "faulty:"] {
        let wire = Wire::new();
        let spec = Spec::parse(&format!("{wrapper}{}&ring=64", port(&wire, "b"))).unwrap();
        let mut port = open_rx(&spec, &RxOptions { paused: true, ..RxOptions::default() }).unwrap();
        wire.send(&["--udp", "-c", "1000", "--rate", "max"]);
        port.queues.iter_mut().for_each(|queue| queue.start());
        wire.send(&["--udp", "-c", "10"]);
        let mut shown = || port.queues.iter_mut().map(|queue| queue.fill(now()).unwrap().burst.len()).sum::<usize>();
        wait_until("the frames have arrived", || shown() >= 10);
        let mut ledger = Ledger::new();
        port.queues.iter().for_each(|queue| queue.counters(&mut ledger));
        assert_eq!((ledger.total(Count::Received), ledger.lost()), (10, 0), "{ledger:#?}");
    }
}

/// Sends a datagram from host `a` to the kernel of host `b`.
fn talk(wire: &Wire) {
    let socket = |host: &str, address: &str| {
        within(Some(&wire.namespace(host)), || UdpSocket::bind((address, 7007))).expect("a free port")
    };
    let (from, to) = (socket("a", "192.0.2.1"), socket("b", "192.0.2.2"));
    to.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    from.send_to(b"hello", "192.0.2.2:7007").unwrap();
    assert_eq!(to.recv(&mut [0; 16]).expect("the host receives its packets"), 5);
}

#[test]
fn interface_in_use_is_shared_unless_take_is_given() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::of(&["a:eth0=192.0.2.1/24,b:eth0=192.0.2.2/24"]);
    for verb in ["count", "capture", "flows"] {
        let shared = start(&[verb, "-i", &port(&wire, "b"), "--json"]);
        talk(&wire);
        let end = shared.interrupt().good();
        assert!(end.json()["frames"].as_u64().is_none_or(|frames| frames >= 1), "{verb}: {}", end.output);
    }
    let refused = run(&["count", &format!("{}&pass=no", port(&wire, "b")), "-T", "0.2"]).with_status(1);
    assert!(refused.errors.contains("has the address 192.0.2.2") && refused.errors.contains("--take"));
    let refused =
        run(&["generate", "--to", &port(&wire, "a"), "--udp", "--check", &port(&wire, "b"), "-c", "1"]).with_status(1);
    assert!(refused.errors.contains("--take to take them"), "{}", refused.errors);
    run(&["count", &port(&wire, "b"), "-T", "0.2", "--take"]).good();
    run(&["capture", "-i", &port(&wire, "b"), "--duration", "0.2", "--take"]).good();
}

/// Both directions at full rate over four queues, while a link goes down and up, another program tries to open the
/// interface, and a reader is stopped: nothing hangs, and every frame is accounted for.
#[test]
fn two_ports_survive_load_link_changes_and_stalls() {
    if !may_make_labs() {
        return;
    }
    let full = std::env::var_os("LINERATE_FULL").is_some();
    let seconds = if full { 60.0 } else { 5.0 };
    let wire = Wire::of(&["a:eth0,b:eth0,queues=4,mtu=22000"]);
    let readers = ["a", "b"].map(|host| capture(&wire, host));
    let senders: Vec<Running> = [("a", "packet:"), ("b", "packet:"), ("a", "xdp-live:"), ("b", "xdp-live:")]
        .into_iter()
        .map(|(host, scheme)| {
            let to = wire.port(host, "eth0", "").replace("packet:", scheme);
            launch(&["generate", "--json", "--to", &to, "--udp", "--rate", "max", "--duration", &seconds.to_string()])
        })
        .collect();
    let part = Duration::from_secs_f64(seconds / 8.0);
    thread::sleep(part);
    wire.ip("b", &["link", "set", "eth0", "down"]);
    thread::sleep(part / 2);
    wire.ip("b", &["link", "set", "eth0", "up"]);
    let intruder = linerate(&["capture", "-i", &port(&wire, "a"), "--duration", "1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("the program");
    assert_eq!(intruder.code(), Some(1));
    readers[1].signal(Signal::STOP);
    thread::sleep(part * 2);
    readers[1].signal(Signal::CONT);
    let mut sent = 0;
    for sender in senders {
        let json = sender.end().good().json();
        assert_eq!(json["balanced"], true, "{json}");
        sent += json["frames"].as_u64().unwrap();
    }
    let mut received = 0;
    for reader in readers {
        let json = reader.interrupt().good().json();
        assert_eq!((json["balanced"].as_bool(), json["quiesced"].as_bool()), (Some(true), Some(true)), "{json}");
        let named: u64 = json["drops"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(json["received"].as_u64().unwrap(), json["delivered"].as_u64().unwrap() + named, "{json}");
        received += json["received"].as_u64().unwrap();
    }
    println!("{sent} frames sent, {received} reached a queue");
    assert!(received > 100_000 && received <= sent, "{received} of {sent}");
}
