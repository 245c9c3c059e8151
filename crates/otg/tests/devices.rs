//! Devices, and flows between them.

use linerate_otg::config::Config;
use linerate_otg::flow::Setup;
use serde_json::{Value, json};

const A: &str = "02:00:00:00:00:0a";

/// Returns a document with two devices at p1, one at p2, and a flow.
fn document(flow: Value) -> Value {
    let device = |name: &str, port: &str, mac: &str, ip: &str, gateway: &str| {
        json!({"name": name, "ethernets": [{"name": format!("{name}.e"), "mac": mac, "connection": {"choice": "port_name", "port_name": port},
            "ipv4_addresses": [{"name": format!("{name}.4"), "address": ip, "gateway": gateway}],
            "ipv6_addresses": [{"name": format!("{name}.6"), "address": format!("2001:2::{}", &ip[7..]), "gateway": "2001:2::99"}]}]})
    };
    let mut config = json!({"ports": [{"name": "p1"}, {"name": "p2"}], "flows": [flow], "devices": [
        device("a", "p1", A, "10.0.0.1", "10.0.0.9"),
        device("b", "p1", "02:00:00:00:00:0b", "10.0.0.2", "10.0.0.9"),
        device("c", "p2", "02:00:00:00:00:0c", "10.0.1.3", "10.0.1.9"),
    ]});
    config["devices"][2]["ethernets"][0]["vlans"] = json!([{"name": "v1", "id": 7, "priority": 1}]);
    config
}

fn flow(tx: &[&str], rx: &[&str], packet: Value) -> Value {
    json!({"name": "f", "tx_rx": {"choice": "device", "device": {"mode": "mesh", "tx_names": tx, "rx_names": rx}},
        "packet": packet, "metrics": {"enable": true}})
}

fn ipv4() -> Value {
    json!([{"choice": "ethernet", "ethernet": {}}, {"choice": "ipv4", "ipv4": {}}, {"choice": "udp", "udp": {}}])
}

fn read(document: &Value) -> Config {
    Config::read(document, &Setup::default()).unwrap_or_else(|faults| panic!("{:#?}", faults.lines()))
}

fn errors(document: &Value) -> String {
    Config::read(document, &Setup::default()).expect_err("it is wrong").lines().join("\n")
}

#[test]
fn flows_of_devices_use_the_gateway_of_the_sender() {
    let config = read(&document(flow(&["a"], &["c"], ipv4())));
    let places: Vec<(&str, &str, usize)> =
        config.devices.iter().map(|one| (&*one.name, &*one.port, one.addresses.len())).collect();
    assert_eq!(places, [("a.e", "p1", 2), ("b.e", "p1", 2), ("c.e", "p2", 2)]);
    assert_eq!(config.devices[2].vlans.as_slice(), [7]);
    let flow_of = |tx: &[&str], rx: &[&str], packet| read(&document(flow(tx, rx, packet))).flows.remove(0);
    let gateway = |flow: &linerate_otg::Flow| flow.gateway.map(|gateway| gateway.to_string());
    // By the names of a device, an interface, an address; several with one gateway.
    for tx in [&["a"][..], &["b.e"], &["b.4"], &["a", "b.4"]] {
        let flow = flow_of(tx, &["c"], ipv4());
        assert_eq!((&*flow.tx, &flow.rx[..]), ("p1", &["p2".to_owned()][..]), "{tx:?}");
        assert_eq!(gateway(&flow).as_deref(), Some("10.0.0.9"), "{tx:?}");
    }
    // Ports without duplicates, in order.
    assert_eq!(flow_of(&["c"], &["b", "a", "c.4"], ipv4()).rx, ["p1", "p2"]);
    let six = json!([{"choice": "ethernet", "ethernet": {"dst": {"choice": "auto", "auto": "00:00:00:00:00:00"}}}, {"choice": "ipv6", "ipv6": {}}]);
    assert_eq!(gateway(&flow_of(&["a"], &["c"], six)).as_deref(), Some("2001:2::99"));
    // A given address is used, and stays in the frame.
    let given = json!([{"choice": "ethernet", "ethernet": {"dst": {"choice": "value", "value": A}}}, {"choice": "ipv4", "ipv4": {}}]);
    let flow = flow_of(&["a"], &["c"], given);
    assert_eq!((gateway(&flow), &flow.stream.variants[0].frame[..6]), (None, &[2, 0, 0, 0, 0, 10][..]));
}

#[test]
fn the_mac_address_of_a_gateway_may_be_given() {
    let mut document = document(flow(&["a.4"], &["c"], ipv4()));
    let address = &mut document["devices"][0]["ethernets"][0]["ipv4_addresses"][0];
    address["gateway_mac"] = json!({"choice": "value", "value": "02:00:00:00:00:99"});
    assert_eq!(read(&document).flows[0].gateway.unwrap().mac.unwrap().to_string(), "02:00:00:00:00:99");
    document["devices"][0]["ethernets"][0]["ipv4_addresses"][0]["gateway_mac"] = json!({"choice": "auto"});
    assert_eq!(read(&document).flows[0].gateway.unwrap().mac, None);
}

#[test]
fn errors_in_devices_have_paths() {
    type Change = fn(&mut Value);
    let ethernet: fn(&mut Value) -> &mut Value = |document| &mut document["devices"][0]["ethernets"][0];
    let cases: [(Change, &str); 14] = [
        (|one| one["mac"] = json!("01:00:00:00:00:01"), "ethernets[0].mac: invalid MAC address 01:00:00:00:00:01"),
        (|one| drop(one.as_object_mut().unwrap().remove("mac")), "ethernets[0].mac: missing"),
        (|one| one["mtu"] = json!(9000), "ethernets[0].mtu: not supported, except 1500"),
        (|one| one["connection"]["port_name"] = json!("p9"), "ethernets[0].connection.port_name: no such port \"p9\""),
        (|one| one["connection"] = json!({"choice": "lag_name", "lag_name": "l"}), "ethernets[0].connection.choice: "),
        (|one| one["vlans"] = json!([{"id": 1}, {"id": 2}, {"id": 3}]), "ethernets[0].vlans: invalid tags"),
        (
            |one| one["vlans"] = json!([{"id": 4095}]),
            "ethernets[0].vlans: invalid tags; expected at most two, each 1 to 4094",
        ),
        (
            |one| one["ipv4_addresses"][0]["address"] = json!("224.0.0.1"),
            "ipv4_addresses[0]: invalid address 224.0.0.1",
        ),
        (
            |one| one["ipv4_addresses"][0]["gateway"] = json!("::1"),
            "ipv4_addresses[0].gateway: expected an IPv4 address such as 10.0.0.1",
        ),
        (
            |one| one["ipv6_addresses"][0]["prefix"] = json!(129),
            "ipv6_addresses[0].prefix: too large; expected at most 128",
        ),
        (
            |one| drop(one["ipv4_addresses"][0].as_object_mut().unwrap().remove("gateway")),
            "ipv4_addresses[0].gateway: missing",
        ),
        (|one| one["ipv4_addresses"][0]["address"] = json!("10.0.0.2"), "devices: p1: 10.0.0.2 is assigned to both"),
        (|one| one["name"] = json!("b.4"), "duplicate name \"b.4\""),
        (|one| one["dhcpv4_interfaces"] = json!([{"name": "x"}]), "ethernets[0].dhcpv4_interfaces: not supported"),
    ];
    for (change, what) in cases {
        let mut document = document(flow(&["b"], &["c"], ipv4()));
        change(ethernet(&mut document));
        let errors = errors(&document);
        assert!(errors.contains(what), "{what} is not in\n{errors}");
    }
}

#[test]
fn errors_in_flows_of_devices_have_paths() {
    let auto = || json!({"choice": "auto"});
    let inner = json!([{"ethernet": {}}, {"ipv4": {}}, {"udp": {}}, {"vxlan": {}}, {"ethernet": {"dst": auto()}}]);
    let of_ports =
        json!({"name": "f", "tx_rx": {"port": {"tx_name": "p1"}}, "packet": [{"ethernet": {"dst": auto()}}]});
    for (flow, what) in [
        (flow(&["x"], &["c"], ipv4()), "flows[0].tx_rx.device.tx_names[0]: no such device, interface or address \"x\""),
        (flow(&["a"], &["y"], ipv4()), "flows[0].tx_rx.device.rx_names[0]: no such device, interface or address \"y\""),
        (flow(&[], &["c"], ipv4()), "flows[0].tx_rx.device.tx_names: expected at least one name"),
        (
            flow(&["a", "c"], &["b"], ipv4()),
            "flows[0].tx_rx.device.tx_names: several ports: p1, p2; a flow is sent at one port",
        ),
        (flow(&["a.4"], &["c"], inner), "flows[0].packet[4].ethernet.dst: \"auto\" is not supported for inner headers"),
        (of_ports, "flows[0].packet[0].ethernet.dst: \"auto\" needs a flow between devices"),
    ] {
        let errors = errors(&document(flow));
        assert!(errors.contains(what), "{what} is not in\n{errors}");
    }
    let mut document = document(flow(&["a", "b"], &["c"], ipv4()));
    document["flows"][0]["tx_rx"]["device"]["bidirectional"] = json!(true);
    assert!(errors(&document).contains("device.bidirectional: flows are unidirectional"), "{}", errors(&document));
    document["flows"][0]["tx_rx"]["device"]["bidirectional"] = json!(false);
    document["devices"][1]["ethernets"][0]["ipv4_addresses"][0]["gateway"] = json!("10.0.0.8");
    assert!(
        errors(&document).contains("have different gateways 10.0.0.9, 10.0.0.8; use a flow for each"),
        "{}",
        errors(&document)
    );
    document["devices"][1]["ethernets"][0]["ipv4_addresses"] = json!([]);
    document["flows"][0]["tx_rx"]["device"]["tx_names"] = json!(["b"]);
    assert!(errors(&document).contains("the sending devices have no IPv4 address"), "{}", errors(&document));
}
