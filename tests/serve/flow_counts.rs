//! Exact counts for ten thousand flows, across a link down, and when a signal ends the server.

use super::server::Server;
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{may_make_labs, tool, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::Read;

/// Returns a frame counter of a row.
fn frames(row: &Value, name: &str) -> u64 {
    row[name].as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{row}"))
}

fn traffic(server: &Server, state: &str) {
    server.post("/control/state", &json!({"traffic": {"flow_transmit": {"state": state}}}));
}

/// Returns the server's peak memory in KiB, without its file and the rings that it shares with the kernel.
fn most_memory(server: &Server) -> u64 {
    let status = |name: &str| {
        let line = server.running.as_ref().and_then(|running| running.proc_status(name)).unwrap_or_default();
        line.split(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or_else(|| panic!("{name} {line}"))
    };
    status("VmHWM") - status("RssFile") - status("RssShmem")
}

#[test]
fn ten_thousand_flows_are_counted_exactly_in_little_memory() {
    let Some(server) = Server::start() else { return };
    let flow = |number: u32| {
        let packet = json!([
            {"choice": "ethernet", "ethernet": {}},
            {"choice": "ipv4", "ipv4": {"dst": {"choice": "increment", "increment": {"start": "10.1.0.1", "count": 10}}}},
            {"choice": "udp", "udp": {"src_port": {"values": [5000, 5050, 5060]}, "dst_port": {"value": number}}}
        ]);
        json!({
            "name": format!("flow {number}"), "tx_rx": {"choice": "port", "port": {"tx_name": "p1", "rx_names": ["p2"]}},
            "packet": packet, "size": {"choice": "fixed", "fixed": 128}, "rate": {"choice": "pps", "pps": "2"},
            "duration": {"choice": "fixed_packets", "fixed_packets": {"packets": 2}}, "metrics": {"enable": true, "loss": true}
        })
    };
    let flows: Vec<Value> = (0..10_000).map(flow).collect();
    server.post("/config", &json!({"ports": [{"name": "p1"}, {"name": "p2"}], "flows": flows}));
    for _ in 0..2 {
        traffic(&server, "start");
        let rows = || server.post("/monitor/metrics", &json!({"choice": "flow", "flow": {}}))["flow_metrics"].take();
        wait_until("all flows stop", || {
            rows().as_array().is_some_and(|rows| rows.iter().all(|row| row["transmit"] == "stopped"))
        });
        traffic(&server, "stop");
        let rows = rows();
        let rows = rows.as_array().unwrap();
        let wrong = rows.iter().find(|row| (frames(row, "frames_tx"), frames(row, "frames_rx")) != (2, 2));
        assert_eq!((rows.len(), wrong), (10_000, None));
    }
    let most = most_memory(&server);
    assert!(most < 200_000, "{most} KiB");
}

/// A flow that ends at once is counted when the call returns: port and flow metrics agree.
#[test]
fn one_frame_flow_is_counted_when_start_returns() {
    let Some(server) = Server::start() else { return };
    let flow = json!({
        "name": "f1", "tx_rx": {"choice": "port", "port": {"tx_name": "p1", "rx_names": ["p2"]}},
        "packet": [{"choice": "ethernet", "ethernet": {}}, {"choice": "ipv4", "ipv4": {}}, {"choice": "udp", "udp": {}}],
        "size": {"fixed": 100}, "rate": {"choice": "pps", "pps": 1000},
        "duration": {"choice": "fixed_packets", "fixed_packets": {"packets": 1}}, "metrics": {"enable": true}
    });
    server.post("/config", &json!({"ports": [{"name": "p1"}, {"name": "p2"}], "flows": [flow]}));
    for _ in 0..10 {
        let before = server.post("/monitor/metrics", &json!({"choice": "port", "port": {}}));
        traffic(&server, "start");
        let now = server.post("/monitor/metrics", &json!({"choice": "port", "port": {}}));
        let new = |port: usize, name: &str| {
            frames(&now["port_metrics"][port], name) - frames(&before["port_metrics"][port], name)
        };
        assert_eq!((new(0, "frames_tx"), new(1, "frames_rx")), (1, 1), "{now}");
        assert_eq!(server.flow()["transmit"], "stopped");
    }
}

/// An xdp-live port sends the server's frames and also receives; frames too long for it are rejected by path.
#[test]
fn xdp_live_port_sends_every_frame_and_rejects_long_ones() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::of(&["a:eth0,b:eth0,mtu=9000"]);
    for host in ["a", "b"] {
        tool("ip", &["netns", "exec", &wire.namespace(host), "ethtool", "-K", "eth0", "gro", "on"]);
    }
    let server = Server::on(wire, ["xdp-live", "packet"]);
    let config = |size: u64| {
        let flow = |name: &str, tx: &str, rx: &str| {
            json!({
                "name": name, "tx_rx": {"choice": "port", "port": {"tx_name": tx, "rx_names": [rx]}},
                "packet": [{"choice": "ethernet", "ethernet": {}}, {"choice": "ipv4", "ipv4": {}}, {"choice": "udp", "udp": {}}],
                "size": {"fixed": size}, "metrics": {"enable": true, "loss": true}
            })
        };
        let flows = [flow("f1", "p1", "p2"), flow("f2", "p2", "p1")];
        json!({"ports": [{"name": "p1"}, {"name": "p2"}], "flows": flows})
    };
    let (status, refused) = server.ask("POST", "/config", config(8000).to_string().as_bytes());
    let errors = refused["errors"].to_string();
    assert!(status == 400 && errors.contains("flows[0].size") && !errors.contains("flows[1]"), "{refused}");
    server.post("/config", &config(200));
    traffic(&server, "start");
    wait_until("both flows are received", || {
        let rows = server.post("/monitor/metrics", &json!({"choice": "flow", "flow": {}}));
        (0..2).all(|flow| frames(&rows["flow_metrics"][flow], "frames_rx") > 200)
    });
    traffic(&server, "pause");
    traffic(&server, "resume");
    traffic(&server, "stop");
    let rows = server.post("/monitor/metrics", &json!({"choice": "flow", "flow": {}}));
    for row in rows["flow_metrics"].as_array().unwrap() {
        assert_eq!((&row["frames_tx"], row["loss"].as_f64()), (&row["frames_rx"], Some(0.0)), "{row}");
    }
}

#[test]
fn flows_can_be_stopped_while_the_link_is_down() {
    let Some(server) = Server::start() else { return };
    server.send();
    wait_until("frames arrive", || frames(&server.flow(), "frames_rx") > 20);
    server.wire.ip("a", &["link", "set", "eth0", "down"]);
    traffic(&server, "pause");
    assert_eq!(server.flow()["transmit"], "paused");
    server.stop();
    let row = server.flow();
    assert_eq!(row["transmit"], "stopped", "{row}");
    server.wire.ip("a", &["link", "set", "eth0", "up"]);
    assert_eq!(server.flow()["frames_tx"], row["frames_tx"], "the count was final");
    traffic(&server, "start");
    wait_until("frames arrive", || frames(&server.flow(), "frames_rx") > 20);
    server.stop();
    let row = server.flow();
    assert_eq!((frames(&row, "frames_tx"), &row["loss"]), (frames(&row, "frames_rx"), &json!(0.0)), "{row}");
    assert_eq!(server.end().status, 0);
}

#[test]
fn terminated_server_reports_every_frame() {
    let Some(mut server) = Server::start() else { return };
    server.send();
    wait_until("frames arrive", || frames(&server.flow(), "frames_rx") > 20);
    let mut output = server.output.take().unwrap();
    server.running.as_ref().unwrap().signal(Signal::TERM);
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    let count = |name: &str, what: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{text}"));
        let rest = line.split(what).nth(1).unwrap_or_else(|| panic!("{text}"));
        rest.trim().split(", ").next().unwrap().replace(',', "").parse().unwrap_or_else(|_| panic!("{text}"))
    };
    assert!(count("p1: ", "sent ") > 20, "{text}");
    assert_eq!(count("p1: ", "sent "), count("p2: ", "received "), "{text}");
}
