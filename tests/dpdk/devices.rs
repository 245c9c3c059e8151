//! Virtual devices of DPDK with a linerate port at the other end, in both directions. The conformance suite tests
//! `null`, `ring` and `pcap`.

use linerate_tests::support::dpdk::plugin;
use linerate_tests::support::program::{Ended, program};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{has_peer, may_make_labs, skip, tool};
use std::path::Path;
use std::process::Command;

/// Fewer than any of their queues holds, so that no packet is lost on a slow machine.
const FRAMES: u64 = 400;

/// Driver, device, and port at the other end.
const DEVICES: [(&str, &str, &str); 4] = [
    ("af_packet", "dpdk:net_af_packet0,iface=eth0,framesz=2048,framecnt=4096,blocksz=65536", "packet:eth1"),
    ("af_xdp", "dpdk:net_af_xdp0,iface=eth0", "packet:eth1"),
    ("tap", "dpdk:net_tap0,iface=tap0", "packet:tap0"),
    ("memif", "dpdk:net_memif0,role=server,id=0,socket=linerate-device", "memif:linerate-device"),
];

/// Returns true if DPDK has this driver; reports a skip if not.
fn has_driver(name: &str) -> bool {
    let folder = tool("pkg-config", &["--variable=libdir", "libdpdk"]);
    let drivers = std::fs::read_dir(Path::new(folder.trim()).join("dpdk")).into_iter().flatten().flatten();
    let is_there = drivers.into_iter().any(|one| one.path().join(format!("librte_net_{name}.so")).exists());
    has_peer(is_there, &format!("DPDK's driver net_{name}"))
}

#[test]
fn packets_cross_each_device_in_both_directions() {
    let Some(plugin) = plugin() else { return };
    if !may_make_labs() {
        return;
    }
    for (driver, device, other) in DEVICES {
        if !has_driver(driver) {
            continue;
        }
        if driver == "tap" && !Path::new("/dev/net/tun").exists() {
            skip("net_tap needs /dev/net/tun");
            continue;
        }
        let wire = Wire::of(&["a:eth0,a:eth1"]);
        if driver == "tap" {
            // Created before the device, for the end that opens first.
            wire.ip("a", &["tuntap", "add", "dev", "tap0", "mode", "tap", "multi_queue"]);
            wire.ip("a", &["link", "set", "tap0", "up"]);
        }
        for (to, from) in [(device, other), (other, device)] {
            let options = ["-k", "ip/udp", "--size", "64..1518", "-c", &FRAMES.to_string(), "--rate", "4kpps"];
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &wire.namespace("a")]).arg(program()).env("LINERATE_DPDK", plugin);
            command
                .args(["generate", "--to", to, "--check", from, "-q", "--json", "--yes", "-Z", "root"])
                .args(options);
            let json = Ended::of(command.output().unwrap()).good().json();
            let check = &json["streams"][0]["check"];
            let counts = ["received", "lost", "duplicated", "reordered"].map(|name| check[name].as_u64());
            assert_eq!(counts, [Some(FRAMES), Some(0), Some(0), Some(0)], "{driver}, {to} to {from}: {json:#}");
        }
    }
}
