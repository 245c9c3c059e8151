//! Receiving over every backend.

use crate::receive::testbed::{OWN, OWN6, Stage, Way, sound, streams};
use linerate_tests::support::program::{Ended, program, run, start};
use linerate_tests::support::{has_tools, may_make_labs};
use std::process::Command;

const MIB: u64 = 1 << 20;
/// Waits up to five seconds for the reply to an echo request (RFC 792).
const PING: &str = "
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
s.settimeout(5)
body = struct.pack('!HH', 7, 9) + b'hello'
words = struct.pack('!BBH', 8, 0, 0) + body + b'\\0' * (len(body) % 2)
total = sum(struct.unpack('!%dH' % (len(words) // 2), words))
total = (total >> 16) + (total & 0xffff)
s.sendto(struct.pack('!BBH', 8, 0, ~(total + (total >> 16)) & 0xffff) + body, (sys.argv[1], 0))
answer, by = s.recvfrom(2048)
assert answer[20] == 0 and answer[24:] == body and by[0] == sys.argv[1], (answer, by)
";

#[test]
fn host_without_an_address_can_receive() {
    if !may_make_labs() {
        return;
    }
    let own = format!("{OWN}:5001");
    let script = "ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-c", script, "sh"]).arg(program());
    command.args(["receive", "packet:v0", "--tcp", &own, "-T", "0.2", "-Z", "root"]);
    Ended::of(command.output().expect("unshare")).good();
}

#[test]
fn every_byte_arrives_over_every_backend_by_ipv4_and_ipv6() {
    for offloads in [true, false] {
        let Some(stage) = Stage::up(offloads) else { return };
        for way in Way::ALL {
            // An XDP program gets frames before anything completes checksums and segments that the sender offloads.
            if way == Way::Xdp && offloads {
                continue;
            }
            let running = stage.receive(&stage.port(way, ""), &["--check", "--streams", "2"]);
            for to in [format!("{OWN}:5001"), format!("[{OWN6}]:5001")] {
                stage.send(&to, &["--size", "67MiB"]).good();
            }
            let report = sound(running.end());
            assert_eq!(streams(&report), vec![("complete".to_owned(), 67 * MIB); 2], "{way:?} {offloads}");
        }
    }
}

/// The kernel of this host is the peer; pings are answered too.
#[test]
fn every_byte_arrives_over_a_tunnel() {
    let Some(stage) = Stage::up(true).filter(|_| has_tools(&["python3"])) else { return };
    let (client, script) = (stage.wire.namespace("client"), stage.scratch.file("ping.py"));
    std::fs::write(&script, PING).expect("a file");
    let port = format!("tun:lr0?netns={client}&address=10.8.0.1/24");
    let arguments = ["receive", &port, "--tcp", "10.8.0.9:5001", "--json", "-Z", "root", "--check", "--streams", "1"];
    let running = start(&arguments);
    stage.exec("client", "python3", &[&script, "10.8.0.9"]);
    stage.send("10.8.0.9:5001", &["--size", "67MiB"]).good();
    let report = sound(running.end());
    assert_eq!(streams(&report), [("complete".to_owned(), 67 * MIB)]);
}

#[test]
fn sequence_numbers_wrap() {
    let Some(stage) = Stage::up(true) else { return };
    let running = stage.receive(&stage.port(Way::Packet, ""), &["--check", "--streams", "1"]);
    let size = (4 << 10) + 300;
    stage.send(&format!("{OWN}:5001"), &["--size", &format!("{size}MiB")]).good();
    assert_eq!(streams(&sound(running.end())), [("complete".to_owned(), size * MIB)]);
}

#[test]
fn concurrent_streams_share_the_frames() {
    let Some(stage) = Stage::up(true) else { return };
    for (connections, frames, size) in [("64", "80", 1), ("5", "6", 20)] {
        let arguments = ["--check", "--frames", frames, "--frame-size", "1MiB", "--streams", connections];
        let running = stage.receive(&stage.port(Way::Packet, ""), &arguments);
        let size_text = format!("{size}MiB");
        stage.send(&format!("{OWN}:5001"), &["--size", &size_text, "--connections", connections]).good();
        let report = sound(running.end());
        assert_eq!(streams(&report), vec![("complete".to_owned(), size * MIB); connections.parse().unwrap()]);
    }
}

/// Two hosts with the same address would take streams from each other.
#[test]
fn address_of_another_host_is_rejected() {
    let Some(stage) = Stage::up(true) else { return };
    for way in [Way::Packet, Way::Xdp] {
        for taken in ["10.7.0.1", "[fd07::1]"] {
            let port = stage.port(way, "");
            let listen = format!("{taken}:5001");
            let refused = run(&["receive", &port, "--tcp", &listen, "-T", "5", "-Z", "root"]).with_status(2);
            refused.says("in use by another host").says("use an unused address of your network");
        }
    }
}
