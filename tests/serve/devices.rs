//! Devices that share a link with a host, which has the kernel's ARP and NDP.

use super::server::Server;
use linerate_tests::support::may_make_labs;
use linerate_tests::support::wire::Wire;
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, Instant};

const MAC: &str = "02:00:00:00:0d:01";

fn neighbor(server: &Server, choice: &str) -> Value {
    server.post("/monitor/states", &json!({"choice": choice}))[choice][0].clone()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the output of a command in host b.
fn inside(server: &Server, arguments: &[&str]) -> String {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &server.wire.namespace("b")]).args(arguments);
    String::from_utf8_lossy(&command.output().expect("ip").stdout).into_owned()
}

/// Returns true if host b resolves a device's address when it sends to it.
fn is_reachable(server: &Server, address: &str) -> bool {
    inside(server, &["bash", "-c", &format!("echo > /dev/udp/{address}/9")]);
    // The kernel asks three times, a second apart.
    let began = Instant::now();
    loop {
        let known = inside(server, &["ip", "neighbor", "show", "to", address, "dev", "eth0"]);
        if known.contains(MAC) || known.contains("FAILED") || began.elapsed() > Duration::from_secs(10) {
            return known.contains(MAC);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the frames received at p1.
fn received(server: &Server) -> u64 {
    let ports = server.post("/monitor/metrics", &json!({"choice": "port", "port": {"port_names": ["p1"]}}));
    ports["port_metrics"][0]["frames_rx"].as_str().unwrap().parse().unwrap()
}

#[test]
fn host_and_device_resolve_each_other() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::of(&["a:eth0,b:eth0=10.7.0.2/24+fd07::2/64"]);
    let server = Server::on(wire, ["packet", "packet"]);
    let host = inside(&server, &["cat", "/sys/class/net/eth0/address"]).trim().to_owned();
    let ends = json!([{"name": "p1", "location": "p1"}, {"name": "p2", "location": "p2"}]);
    let device = json!({"name": "d", "ethernets": [{"name": "e", "mac": MAC, "connection": {"port_name": "p1"},
        "ipv4_addresses": [{"name": "d4", "address": "10.7.0.1", "gateway": "10.7.0.2"}],
        "ipv6_addresses": [{"name": "d6", "address": "fd07::1", "gateway": "fd07::2"}]}]});
    let flow = json!({"name": "f", "tx_rx": {"device": {"tx_names": ["d4"], "rx_names": []}},
        "packet": [{"ethernet": {"src": {"value": MAC}}}, {"ipv4": {"src": {"value": "10.7.0.1"}, "dst": {"value": "10.7.0.2"}}}, {"icmp": {}}],
        "rate": {"pps": 1000}, "duration": {"fixed_packets": {"packets": 10}}});
    server.post("/config", &json!({"ports": ends, "devices": [device], "flows": [flow]}));
    for (choice, field, address) in
        [("ipv4_neighbors", "ipv4_address", "10.7.0.2"), ("ipv6_neighbors", "ipv6_address", "fd07::2")]
    {
        let wanted = json!({"ethernet_name": "e", field: address, "link_layer_address": host});
        wait_until(address, || neighbor(&server, choice) == wanted);
    }
    assert!(is_reachable(&server, "10.7.0.1") && is_reachable(&server, "fd07::1"));
    // Each packet to the host is answered by an echo reply.
    let before = received(&server);
    server.post("/control/state", &json!({"traffic": {"flow_transmit": {"state": "start"}}}));
    wait_until("ten replies of the host", || received(&server) >= before + 10);
    // Stop the devices, and start them again.
    let protocols = |state: &str| {
        server.post("/control/state", &json!({"protocol": {"all": {"state": state}}}));
    };
    protocols("stop");
    assert_eq!(neighbor(&server, "ipv4_neighbors"), json!({"ethernet_name": "e", "ipv4_address": "10.7.0.2"}));
    server.wire.ip("b", &["neighbor", "flush", "all"]);
    assert!(!is_reachable(&server, "10.7.0.1"));
    protocols("start");
    wait_until("the device answers again", || is_reachable(&server, "10.7.0.1"));
    server.post("/config", &json!({}));
    server.wire.ip("b", &["neighbor", "flush", "all"]);
    assert!(!is_reachable(&server, "10.7.0.1"), "devices are removed with their configuration");
    assert_eq!(server.end().status, 0);
}
