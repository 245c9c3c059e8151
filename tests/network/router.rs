//! A router between two ports of one tester, tested by one command.

use linerate_tests::support::may_make_labs;
use linerate_tests::support::program::run;
use linerate_tests::support::wire::{ROOMY, Wire};
use serde_json::Value;

/// A tester with two ports, and a router that forwards from one to the other.
fn scene() -> Wire {
    let wire = Wire::of(&[
        "a:p0,r:r0=10.60.0.1/24+fd60::1/64,queues=2,offloads=off",
        "a:p1,r:r1=10.60.1.1/24+fd60:1::1/64,queues=2,offloads=off",
    ]);
    linerate_lab::within(&wire.namespace("r"), || {
        for name in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            std::fs::write(format!("/proc/sys/net/{name}"), "1").unwrap();
        }
    })
    .unwrap();
    for port in ["r0", "r1"] {
        wire.ip("r", &["address", "add", "fe80::1/64", "dev", port, "nodad"]);
    }
    wire
}

fn noted(json: &Value, name: &str) -> u64 {
    let accounts = json["accounts"].as_array().unwrap().iter().filter(|one| one["stage"] == "answer");
    accounts.map(|account| account["notes"][name].as_u64().unwrap_or(0)).sum()
}

#[test]
fn one_command_tests_a_router_between_two_ports() {
    if !may_make_labs() {
        return;
    }
    let wire = scene();
    for (family, packet, gateways) in [
        ("-4", "ip(src=10.60.0.2,dst=10.60.1.2..10.60.1.5)/udp", ["10.60.0.1", "10.60.1.1"]),
        ("-6", "ip6(src=fd60::2,dst=fd60:1::2)/udp", ["fd60::1", "fd60:1::1"]),
    ] {
        for check in ["packet", "xdp"] {
            for gateway in [gateways[0].to_owned(), gateways.join(",")] {
                // The next run has to resolve addresses again.
                wire.ip("r", &[family, "neigh", "flush", "all"]);
                let (to, port) =
                    (wire.port("a", "p0", ""), wire.port("a", "p1", if check == "xdp" { "" } else { ROOMY }));
                let port = port.replace("packet:", &format!("{check}:"));
                let options = ["-k", packet, "-c", "1000", "--gateway", &gateway, "--answer", "--json", "--lossless"];
                let json = run(&[&["generate", "--to", &to, "--check", &port][..], &options].concat()).good().json();
                let (received, lost) = (&json["check"]["received"], &json["check"]["lost"]);
                assert_eq!((received, lost, &json["balanced"]), (&1000.into(), &0.into(), &true.into()), "{json}");
                let asked = if gateway.contains(',') { 2 } else { 1 };
                assert_eq!(noted(&json, "resolved"), asked, "{json}");
                // With two gateways the router may have learned the address from a request.
                let answered = noted(&json, "arp") + noted(&json, "neighbor");
                assert!(asked == 2 || answered >= 1, "the router sent no request: {json}");
            }
        }
    }
}

#[test]
fn missing_options_are_suggested() {
    if !may_make_labs() {
        return;
    }
    let wire = scene();
    let (to, check) = (wire.port("a", "p0", ""), wire.port("a", "p1", ""));
    let send = |more: &[&str]| {
        let options =
            ["generate", "--to", &to, "--check", &check, "-k", "ip(src=10.60.0.2,dst=10.60.1.2)/udp", "-c", "10"];
        run(&[&options[..], more].concat())
    };
    send(&[])
        .good()
        .shows("10 lost")
        .shows("--gateway IP")
        .shows("the router resolves 10.60.1.2")
        .shows("use --answer");
    send(&["--gateway", "10.60.0.1"]).good().shows("10 lost").shows("use --answer");
    send(&["--gateway", "10.60.0.1,10.60.1.9", "--answer"])
        .with_status(1)
        .says("no reply from 10.60.1.9 (3 ARP requests");
    let one = ["generate", "--to", &to, "-k", "udp", "--gateway", "10.60.0.1,10.60.1.1"];
    run(&one).with_status(2).says("needs --check");
}
