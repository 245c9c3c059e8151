//! Many streams: whoever watches has those that are looked at, in few bytes.

use super::stage::Server;
use linerate_tests::support::wait_until;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

/// So many streams are there.
const MANY: usize = 10_000;
/// No event is longer.
const LONGEST: usize = 256 << 10;

/// Events from a stream on.
fn events(server: &Server, from: usize) -> impl Iterator<Item = Value> + use<> {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!(
        "GET /api/v1/events?from={from} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        server.address, server.token
    );
    stream.write_all(head.as_bytes()).unwrap();
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    lines.filter_map(|line| {
        let data = line.strip_prefix("data: ")?;
        assert!(data.len() < LONGEST, "{} bytes", data.len());
        serde_json::from_str(data).ok()
    })
}

#[test]
fn of_ten_thousand_streams_those_that_are_looked_at_are_told() {
    let Some(server) = Server::start() else { return };
    let stream = |number: usize| json!({"name": format!("stream {number}"), "tx": "p1", "rx": ["p2"], "packet": "ip/udp", "size": "128", "rate": "1pps"});
    let all: Vec<Value> = (0..MANY).map(stream).collect();
    server.post("/api/v1/streams", &json!({"streams": all}));
    server.post("/api/v1/traffic", &json!({"do": "start"}));
    let (_, figures) = server.ask("GET", "/api/v1/figures?from=9990", b"");
    let names: Vec<&str> =
        figures["streams"].as_array().unwrap().iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!((names.len(), names[0], names[9]), (10, "stream 9990", "stream 9999"));
    assert_eq!((&figures["streams_in_all"], &figures["streams_active"]), (&json!(MANY), &json!(MANY)));
    let (_, one) = server.ask("GET", "/api/v1/figures?from=7&count=1", b"");
    assert_eq!((one["streams"].as_array().map(Vec::len), &one["streams"][0]["name"]), (Some(1), &json!("stream 7")));
    for (query, status) in
        [("from=x", 400), ("from=-1", 400), ("count=99999999", 200), ("from=99999999", 200), ("%zz&&=", 200)]
    {
        let (said, answer) = server.ask("GET", &format!("/api/v1/figures?{query}"), b"");
        assert!(said == status && answer["streams"].as_array().map_or(0, Vec::len) <= 200, "{query}: {said}");
    }
    // Rates of those that somebody looks at, a second after.
    let mut watched = events(&server, 5000);
    let is_paced = |figures: &Value| {
        let rows = figures["streams"].as_array().unwrap();
        rows.len() == 200 && rows[0]["name"] == "stream 5000" && rows.iter().all(|row| row["sent_per_s"].is_u64())
    };
    assert!(watched.by_ref().take(100).any(|figures| is_paced(&figures)), "rates are known of what is watched");
    let (_, others) = server.ask("GET", "/api/v1/figures?from=3000", b"");
    assert_eq!(others["streams"][0]["sent_per_s"], Value::Null, "and nobody has looked at the others");
    // Beside the rings of its ports.
    let most = server.running.as_ref().and_then(|running| running.proc_status("RssAnon")).unwrap();
    let most: u64 = most.split(' ').next().unwrap().parse().unwrap();
    assert!(most < 200_000, "{most} KiB");
    let (_, page) = server.ask("GET", "/api/v1/streams?from=3&count=2", b"");
    assert_eq!((&page["streams"][1]["name"], &page["streams_in_all"]), (&json!("stream 4"), &json!(MANY)));
    let (_, page) = server.ask("GET", "/api/v1/streams?name=stream%20777", b"");
    assert_eq!(
        (page["streams"].as_array().map(Vec::len), &page["streams"][0]["name"]),
        (Some(1), &json!("stream 777"))
    );
    server.post("/api/v1/traffic", &json!({"do": "stop"}));
    wait_until("none is sent", || server.ask("GET", "/api/v1/figures?count=0", b"").1["streams_active"] == 0);
    let (_, last) = server.ask("GET", "/api/v1/figures?from=9999", b"");
    let row = &last["streams"][0];
    assert_eq!((&row["sent"], &row["lost"]), (&row["received"], &json!(0)), "{row}");
}
