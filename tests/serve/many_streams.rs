//! Many streams: clients receive only the rows that they watch, in few bytes.

use super::server::Server;
use linerate_tests::support::{judge, wait_until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Number of streams.
const MANY: usize = 10_000;
/// Maximum length in bytes of an event.
const LONGEST: usize = 256 << 10;

/// Subscribes to events for rows from `from` on.
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

/// Checks the time that an action takes.
fn timed(what: &str, most: Duration, act: impl FnOnce()) {
    let began = Instant::now();
    act();
    let took = began.elapsed();
    judge(took < most, &format!("{what} takes {took:?}, limit {most:?}"));
}

/// Stream 0 loses every frame: its receiving port is not where its frames arrive.
#[test]
fn one_of_a_thousand_streams_stops_at_once() {
    let Some(server) = Server::start() else { return };
    let stream = |number: usize| json!({"name": format!("stream {number}"), "tx": "p1", "rx": [if number == 0 { "p1" } else { "p2" }], "packet": "ip/udp", "size": "128", "rate": "10pps"});
    server.post("/api/v1/streams", &json!({"streams": (0..1000).map(stream).collect::<Vec<_>>()}));
    server.post("/api/v1/traffic", &json!({"do": "start"}));
    let row = |number: usize| {
        let figures = server.ask("GET", &format!("/api/v1/figures?from={number}&count=1"), b"").1;
        figures["streams"][0].clone()
    };
    wait_until("the streams send", || row(999)["sent"].as_u64() > Some(5));
    let stop = |name: &str| drop(server.post("/api/v1/traffic", &json!({"do": "stop", "streams": [name]})));
    timed("stopping one of 1,000 streams", Duration::from_millis(20), || stop("stream 5"));
    timed("stopping one that loses frames", Duration::from_millis(250), || stop("stream 0"));
    let (whole, lost) = (row(5), row(0));
    assert_eq!((&whole["state"], &whole["lost"], &whole["sent"]), (&json!("stopped"), &json!(0), &whole["received"]));
    assert_eq!((&lost["state"], &lost["lost"]), (&json!("stopped"), &lost["sent"]));
    timed("changing the rate of one stream", Duration::from_millis(20), || {
        drop(server.post("/api/v1/rate", &json!({"streams": ["stream 7"], "rate": "500pps"})));
    });
    let before = row(7)["sent"].as_u64();
    wait_until("the stream is faster", || row(7)["sent"].as_u64() > before.map(|sent| sent + 100));
    assert_eq!(
        (&row(7)["rate"], &row(8)["rate"], &row(8)["state"]),
        (&json!("500pps"), &json!("10pps"), &json!("sending"))
    );
    server.post("/api/v1/traffic", &json!({"do": "stop"}));
    assert_eq!((&row(8)["lost"], &row(7)["lost"]), (&json!(0), &json!(0)));
}

#[test]
fn large_configurations_are_applied_in_time() {
    let Some(server) = Server::start() else { return };
    let flow = |number: usize| {
        json!({"name": format!("f{number}"), "tx_rx": {"port": {"tx_name": "p1", "rx_names": ["p2"]}}, "size": {"fixed": 128},
            "packet": [{"choice": "ethernet", "ethernet": {}}, {"choice": "ipv4", "ipv4": {"dst": {"value": "10.0.0.1"}}}, {"choice": "udp", "udp": {}}],
            "rate": {"pps": 1}, "metrics": {"enable": true}})
    };
    for (many, most) in [(1000, 200), (MANY, 2000)] {
        let config =
            json!({"ports": [{"name": "p1"}, {"name": "p2"}], "flows": (0..many).map(flow).collect::<Vec<_>>()});
        timed(&format!("setting {many} flows"), Duration::from_millis(most), || drop(server.post("/config", &config)));
    }
    let update = json!({"choice": "flows", "flows": {"property_names": ["rate"], "flows": (0..MANY).map(flow).collect::<Vec<_>>()}});
    timed("changing the rates of 10,000 flows", Duration::from_secs(5), || {
        let (status, answer) = server.ask("PATCH", "/config", update.to_string().as_bytes());
        assert_eq!(status, 200, "{answer}");
    });
    let gone = json!({"config_delete_list": [{"choice": "flows", "flows": (1..MANY).map(|number| format!("f{number}")).collect::<Vec<_>>()}]});
    timed("deleting 9,999 flows", Duration::from_secs(2), || {
        let (status, answer) = server.ask("PATCH", "/config/delete", gone.to_string().as_bytes());
        assert_eq!(status, 200, "{answer}");
    });
    let (_, left) = server.ask("GET", "/config", b"");
    assert_eq!((left["flows"].as_array().map(Vec::len), &left["flows"][0]["name"]), (Some(1), &json!("f0")));
}

#[test]
fn only_watched_rows_of_ten_thousand_streams_are_sent() {
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
    // Rates of watched streams are known after a second.
    let mut watched = events(&server, 5000);
    let is_paced = |figures: &Value| {
        let rows = figures["streams"].as_array().unwrap();
        rows.len() == 200 && rows[0]["name"] == "stream 5000" && rows.iter().all(|row| row["sent_per_s"].is_u64())
    };
    assert!(watched.by_ref().take(100).any(|figures| is_paced(&figures)), "watched streams have rates");
    let (_, others) = server.ask("GET", "/api/v1/figures?from=3000", b"");
    assert_eq!(others["streams"][0]["sent_per_s"], Value::Null, "other streams have no rate yet");
    // RssAnon does not include the rings of the ports.
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
    wait_until("no stream sends", || server.ask("GET", "/api/v1/figures?count=0", b"").1["streams_active"] == 0);
    let (_, last) = server.ask("GET", "/api/v1/figures?from=9999", b"");
    let row = &last["streams"][0];
    assert_eq!((&row["sent"], &row["lost"]), (&row["received"], &json!(0)), "{row}");
}
