//! Attacks during a legitimate flow on the same link: the flow is complete, memory is bounded, every frame is counted.
//!
//! The effect on the flow's throughput is printed but not judged, as only an idle machine measures it well.

use crate::receive::testbed::{OWN, Stage, Way, note, streams};
use linerate_tests::support::program::{Running, linerate, spawn};
use linerate_tests::support::wait_until;
use std::process::Stdio;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Size of the flow in MiB, and rate and length of an attack.
const SIZE: u64 = 300;
const RATE: &str = "100kpps";
const FRAMES: u64 = 200_000;
/// Frame memory in MiB, and the limit on the memory of the program.
const POOL: u64 = 16;
const MOST_RSS: u64 = POOL * MIB + 80 * MIB;

/// Packet of an attack, and the counters that together count each of its frames.
struct Attack {
    name: &'static str,
    packet: String,
    counted: &'static [&'static str],
}

#[test]
fn flow_is_complete_under_attack() {
    let Some(stage) = Stage::up(true) else { return };
    let baseline = run_flow(&stage, 44_999, None);
    println!("flow without attack: {baseline:.2} Gb/s");
    for port in 45_000..45_005 {
        let attack = &attacks(port)[usize::from(port - 45_000)];
        let under_attack = run_flow(&stage, port, Some(attack));
        println!(
            "flow with {} at {RATE}: {under_attack:.2} Gb/s, {:.0} %",
            attack.name,
            100.0 * under_attack / baseline
        );
    }
}

/// Sends the flow, during an attack if given, and returns its payload rate in Gb/s.
fn run_flow(stage: &Stage, port: u16, attack: Option<&Attack>) -> f64 {
    let ports = format!("net.ipv4.ip_local_port_range={port} {port}");
    stage.exec("client", "sysctl", &["-qw", &ports]);
    let arguments = ["--check", "--frame-size", "2MiB", "--frames", "8", "--window", "8MiB"];
    let running = stage.receive(&stage.port(Way::Packet, ""), &arguments);
    let attacker = attack.map(|attack| attacker(stage, attack));
    if attack.is_some() {
        let before = stage.sent();
        wait_until("the attack has started", || stage.sent() > before + MIB);
    }
    let began = Instant::now();
    stage.send(&format!("{OWN}:5001"), &["--size", &format!("{SIZE}MiB")]).good();
    let seconds = began.elapsed().as_secs_f64();
    let sent = attacker.map(|attacker| attacker.end().good().json());
    let rss = peak(&running);
    assert!(rss <= MOST_RSS, "{} MiB of memory", rss / MIB);
    // Leave time for frames that are still in the sockets.
    std::thread::sleep(Duration::from_millis(300));
    let report = running.interrupt().good().json();
    assert_eq!(report["balanced"], true, "{report:#}");
    assert_eq!(streams(&report), [("complete".to_owned(), SIZE * MIB)], "{report:#}");
    if let (Some(attack), Some(sent)) = (attack, sent) {
        let sent = sent["streams"][0]["sent"].as_u64().expect("a count");
        let counted: u64 = attack.counted.iter().map(|name| note(&report, "tcp", name)).sum();
        // The kernel counts frames that it had no room for, of both flows together.
        let missed = note(&report, "receive", "ring_full");
        // The legitimate flow adds its SYN and its own retransmissions.
        let own = 1 + note(&report, "tcp", "duplicate");
        assert!(counted <= sent + own && counted + missed >= sent, "{}: {sent} sent, {report:#}", attack.name);
    }
    (SIZE * MIB * 8) as f64 / seconds / 1e9
}

fn attacker(stage: &Stage, attack: &Attack) -> Running {
    let port = stage.wire.port("client", "eth0", "");
    let frames = FRAMES.to_string();
    let mut command = linerate(&["generate", "--to", &port, "-k", &attack.packet, "--json", "-Z", "root"]);
    command.args(["--rate", RATE, "-c", &frames, "--interval", "0"]).stdout(Stdio::piped());
    spawn(&mut command)
}

/// Returns the peak memory of a program.
fn peak(running: &Running) -> u64 {
    let text = running.proc_status("VmHWM").expect("a running program");
    text.trim_end_matches(" kB").parse::<u64>().expect("KiB") << 10
}

/// Attacks, some of them on the flow from a port.
fn attacks(port: u16) -> [Attack; 5] {
    let eth = "eth(src=02:00:00:00:00:66,dst=02:6c:0a:07:00:09)";
    let to_flow = format!("tcp(sport={port},dport=5001,seq=random");
    let attack = |name, packet, counted| Attack { name, packet, counted };
    [
        attack(
            "a SYN flood",
            format!(
                "{eth}/ip(src=11.0.0.0..99.255.255.255 random,dst={OWN})\
                 /tcp(sport=1024..65535 random,dport=5001,seq=random,flags=syn,mss=1460)"
            ),
            &["syns"],
        ),
        attack(
            "resets in and out of the window",
            format!("{eth}/ip(src=10.7.0.1,dst={OWN})/{to_flow},flags=rst)"),
            &["wrong_reset", "no_connection"],
        ),
        attack(
            "forged data",
            format!(
                "{eth}/ip(src=10.7.0.1,dst={OWN})/{to_flow},ack=random,flags=ack,timestamps)/payload(noise,len=64)"
            ),
            &["old_timestamp", "no_timestamp", "duplicate", "beyond_window", "wrong_ack", "no_connection"],
        ),
        attack("fragments", format!("{eth}/ip(src=10.7.0.1,dst={OWN},mf=1,id=random)/{to_flow})"), &["fragments"]),
        attack(
            "multicast sources",
            format!("{eth}/ip(src=224.0.0.1..239.255.255.255 random,dst={OWN})/tcp(dport=5001,flags=syn)"),
            &["martian"],
        ),
    ]
}
