//! The kernel as receiver: its sockets, bridges, routers and counters.

use crate::generate::testbed::{SCHEMES, Stage, counted, datagrams, generate, number};

const FRAMES: &str = "5000";

/// Sends datagrams for 10.9.1.2 to a MAC address, at a rate that a socket keeps up with.
fn send(stage: &Stage, scheme: &str, mac: &str, more: &[&str]) -> serde_json::Value {
    let packet = format!("eth(dst={mac})/ip(src=10.9.0.7, dst=10.9.1.2)/udp(sport=1024..2023, dport=7000)");
    let to = stage.port(scheme, "a");
    let what = ["--to", &to, "-k", &packet, "--size", "[64:3, 200:1]", "-c", FRAMES, "--rate", "50kpps"];
    let json = generate(&[&what[..], more].concat()).good().json();
    assert_eq!((number(&json, "frames"), number(&json, "lost")), (5000, 0), "{scheme}: {json}");
    json
}

/// Turns off reverse-path filtering, so that the host accepts sources it has no route to.
fn trust_sources(stage: &Stage, host: &str) {
    let set = |name: &str| std::fs::write(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "0").unwrap();
    linerate_lab::within(&stage.0.namespace(host), || ["all", "eth0"].into_iter().for_each(set)).unwrap();
}

#[test]
fn socket_and_interface_counters_match_the_sender() {
    let Some(stage) = Stage::of(&["a:eth0,b:eth0=10.9.1.2/16"]) else { return };
    stage.take_packets("b", "eth0");
    trust_sources(&stage, "b");
    let (socket, mac) = (stage.socket("b", "10.9.1.2:7000"), stage.mac("b", "eth0"));
    for scheme in SCHEMES {
        let before = stage.received("b");
        let json = send(&stage, scheme, &mac, &["--stamp"]);
        assert_eq!(datagrams(&socket), 5000, "{scheme}");
        assert_eq!(stage.received("b") - before, 5000, "{scheme}");
        assert!(counted(&json, "sent") == 5000 || scheme == "xdp", "the counters of the sending interface: {json}");
    }
}

#[test]
fn bridge_forwards_every_frame_to_a_socket() {
    let Some(stage) = Stage::of(&["a:eth0,s:p0", "s:p1,b:eth0=10.9.1.2/16"]) else { return };
    trust_sources(&stage, "b");
    stage.0.ip("s", &["link", "add", "bridge", "type", "bridge", "stp_state", "0", "mcast_snooping", "0"]);
    for port in ["p0", "p1"] {
        stage.0.ip("s", &["link", "set", port, "master", "bridge"]);
    }
    stage.0.ip("s", &["link", "set", "bridge", "up"]);
    stage.take_packets("s", "p0");
    let (socket, mac) = (stage.socket("b", "10.9.1.2:7000"), stage.mac("b", "eth0"));
    for scheme in SCHEMES {
        let check = stage.checking("b");
        let json = send(&stage, scheme, &mac, &["--check", &check, "--lossless"]);
        assert_eq!((number(&json["check"], "received"), number(&json["check"], "corrupted")), (5000, 0), "{json}");
        assert_eq!(datagrams(&socket), 5000, "{scheme}");
    }
}

/// The sender resolves the gateway by ARP and answers the ARP requests for its own addresses.
#[test]
fn router_forwards_packets_sent_to_it_as_gateway() {
    let Some(stage) = Stage::routed() else { return };
    let socket = stage.socket("h", "10.9.1.2:7000");
    let packets = ["ip(src=10.9.0.7, dst=10.9.1.2)/udp(dport=7000)", "ip(src=10.9.0.8, dst=10.9.1.2)/udp(dport=7000)"];
    let closed = "ip(src=10.9.0.9, dst=10.9.1.2)/udp(dport=9)";
    for scheme in SCHEMES {
        let (to, check) = (stage.port(scheme, "a"), stage.checking("h"));
        let what = ["--to", &to, "--check", &check, "-k", packets[0], "-k", packets[1], "-k", closed];
        let how = ["--gateway", "10.9.0.1", "--answer", "-c", "1500", "--rate", "15kpps", "--lossless"];
        let json = generate(&[&what[..], &how].concat()).good().json();
        assert_eq!((number(&json, "frames"), number(&json["check"], "received")), (4500, 4500), "{scheme}: {json}");
        assert_eq!(datagrams(&socket), 3000, "{scheme}");
        // The host sends "port unreachable", so the router resolves the sender by ARP.
        assert!(counted(&json, "resolved") == 1 && counted(&json, "arp") >= 1, "{scheme}: {json}");
        let known = linerate_tests::support::tool("ip", &["-n", &stage.0.namespace("r"), "neigh", "show", "10.9.0.9"]);
        assert!(known.contains("02:00:00:00:00:01"), "{scheme}: {known}");
        stage.0.ip("r", &["neigh", "flush", "dev", "p0"]);
    }
}
