//! Streams in sequence, together with plain ones.

use super::server::Server;
use linerate_tests::support::wait_until;
use serde_json::{Value, json};

fn stream(name: &str, count: u64, next: &str) -> Value {
    json!({"name": name, "tx": "p1", "rx": ["p2"], "packet": format!("ip/udp(dport={})", 1000 + count), "size": "100", "rate": "2kpps",
        "count": count, "sequence": "s", "next": next})
}

fn rows(server: &Server) -> Vec<Value> {
    server.ask("GET", "/api/v1/figures", b"").1["streams"].as_array().cloned().unwrap_or_default()
}

#[test]
fn sequence_loops_and_ends_as_a_whole() {
    let Some(server) = Server::start() else { return };
    let plain = json!({"name": "plain", "tx": "p1", "rx": ["p2"], "packet": "ip/udp", "size": "100", "rate": "500pps"});
    let all = json!([stream("a", 3, "next"), plain, stream("b", 2, "goto a x5"), stream("c", 1, "stop")]);
    server.post("/api/v1/streams", &json!({"streams": all}));
    server.post("/api/v1/capture", &json!({"port": "p2", "do": "start", "filter": "udp portrange 1001-1003"}));
    // Naming one stream of a sequence starts the whole sequence.
    server.post("/api/v1/traffic", &json!({"do": "start", "streams": ["b"]}));
    let state = |name: &str| {
        let row = rows(&server).into_iter().find(|row| row["name"] == name).unwrap();
        (
            row["state"].as_str().unwrap().to_owned(),
            row["sent"].as_u64().unwrap(),
            row["received"].as_u64().unwrap(),
            row["lost"].clone(),
        )
    };
    wait_until("the sequence has ended", || {
        ["a", "b", "c"].iter().all(|name| state(name).0 == "stopped" && state(name).1 > 0)
    });
    server.post("/api/v1/traffic", &json!({"do": "stop"}));
    assert_eq!((state("a"), state("b")), (("stopped".into(), 15, 15, json!(0)), ("stopped".into(), 10, 10, json!(0))));
    assert_eq!((state("c"), state("plain").1), (("stopped".into(), 1, 1, json!(0)), 0));
    let captured = server.post("/api/v1/capture/frames", &json!({"port": "p2", "count": 100}));
    let ports: String = captured["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let summary = row["summary"].as_str().unwrap();
            ["1003:", "1002:", "1001:"]
                .iter()
                .position(|port| summary.contains(port))
                .map_or('?', |at| ['a', 'b', 'c'][at])
        })
        .collect();
    assert_eq!(ports, "aaabb".repeat(5) + "c", "frames in sequence order");
}

#[test]
fn endless_sequence_is_controlled_as_a_whole() {
    let Some(server) = Server::start() else { return };
    let all = json!([stream("a", 3, "next"), stream("b", 2, "goto a")]);
    server.post("/api/v1/streams", &json!({"streams": all}));
    server.post("/api/v1/traffic", &json!({"do": "start"}));
    let sent = || rows(&server).iter().map(|row| row["sent"].as_u64().unwrap()).sum::<u64>();
    wait_until("the sequence sends", || sent() > 100);
    server.post("/api/v1/traffic", &json!({"do": "pause", "streams": ["a"]}));
    assert!(rows(&server).iter().all(|row| row["state"] == "paused"), "{:?}", rows(&server));
    let held = sent();
    server.post("/api/v1/rate", &json!({"streams": ["a", "b"], "rate": "4kpps"}));
    assert_eq!(sent(), held);
    server.post("/api/v1/traffic", &json!({"do": "resume"}));
    wait_until("the sequence sends", || sent() > held + 100);
    server.post("/api/v1/traffic", &json!({"do": "stop", "streams": ["b"]}));
    for row in rows(&server) {
        assert_eq!(
            (&row["state"], &row["sent"], &row["lost"]),
            (&json!("stopped"), &row["received"], &json!(0)),
            "{row}"
        );
    }
    let last = sent();
    server.post("/api/v1/traffic", &json!({"do": "start", "streams": ["a"]}));
    wait_until("the sequence restarts", || (1..last).contains(&sent()) || sent() > last);
    for (stream, what) in [
        (json!([{"name": "x", "tx": "p1", "packet": "ip/udp", "next": "stop"}]), "sequence"),
        (json!([stream("a", 3, "goto nobody")]), "no stream is called"),
        (json!([{"name": "x", "tx": "p1", "packet": "ip/udp", "sequence": "s"}, stream("b", 1, "next")]), "count"),
        (json!([{"name": "x", "tx": "p1", "packet": "ip/udp", "sequence": "s", "count": 2, "start": "1s"}]), "count"),
    ] {
        let (status, answer) = server.ask("POST", "/api/v1/streams", json!({"streams": stream}).to_string().as_bytes());
        assert!(status == 400 && answer["errors"].to_string().contains(what), "{stream}: {answer}");
    }
}
