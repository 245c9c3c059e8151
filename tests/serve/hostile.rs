//! Requests that are rejected under traffic.

use super::server::Server;
use linerate_tests::support::wait_until;
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;

/// Returns a frame counter of a row.
fn frames(row: &Value, name: &str) -> u64 {
    row[name].as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{row}"))
}

#[test]
fn unauthorised_requests_are_rejected_under_traffic() {
    let Some(server) = Server::start() else { return };
    server.send();
    let (host, token) = (&server.address, &server.token);
    let status = |head: &str, body: &str| {
        let length = body.len();
        let request = format!("{head}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
        let answer = server.raw(request.as_bytes());
        answer.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok()).unwrap_or_else(|| panic!("{answer:?}"))
    };
    let post = "POST /control/state HTTP/1.1";
    let (ours, may, json) =
        (format!("Host: {host}"), format!("Authorization: Bearer {token}"), "Content-Type: application/json");
    let stop = r#"{"choice": "traffic", "traffic": {"flow_transmit": {"state": "stop"}}}"#;
    for (what, head, wanted) in [
        ("a foreign host", format!("{post}\r\nHost: evil.example\r\n{may}\r\n{json}"), 403),
        ("a foreign origin", format!("{post}\r\n{ours}\r\n{may}\r\n{json}\r\nOrigin: http://evil.example"), 403),
        ("no token", format!("{post}\r\n{ours}\r\n{json}"), 401),
        ("a wrong token", format!("{post}\r\n{ours}\r\n{json}\r\nAuthorization: Bearer {token}x"), 401),
        ("a form", format!("{post}\r\n{ours}\r\n{may}\r\nContent-Type: text/plain"), 415),
        ("a preflight", format!("OPTIONS /config HTTP/1.1\r\n{ours}\r\n{may}\r\n{json}"), 405),
        ("a file", format!("POST /../../etc/passwd HTTP/1.1\r\n{ours}\r\n{may}\r\n{json}"), 404),
    ] {
        assert_eq!(status(&head, stop), wanted, "{what}");
    }
    for (what, body) in [
        ("no JSON", "{".to_owned()),
        ("deep JSON", "[".repeat(100_000)),
        ("another type", "[1, 2]".to_owned()),
        (
            "an unknown name",
            r#"{"choice": "traffic", "traffic": {"flow_transmit": {"state": "stop", "flow_names": ["x"]}}}"#.to_owned(),
        ),
    ] {
        assert_eq!(status(&format!("{post}\r\n{ours}\r\n{may}\r\n{json}"), &body), 400, "{what}");
    }
    let many = format!("[{}1]", "1,".repeat(3_000_000));
    assert_eq!(server.ask("POST", "/config", many.as_bytes()).0, 400);
    let huge =
        format!("{post}\r\n{ours}\r\n{may}\r\n{json}\r\nConnection: close\r\nContent-Length: 1000000000\r\n\r\n");
    assert!(server.raw(huge.as_bytes()).contains(" 413 "), "a document of a gigabyte");
    // A client that sends its headers slowly delays no other.
    let mut slow = TcpStream::connect(host).unwrap();
    slow.write_all(b"POST /config HTTP/1.1\r\nHost").unwrap();
    let row = server.flow();
    assert_eq!(row["transmit"], "started", "{row}");
    wait_until("frames arrive", || frames(&server.flow(), "frames_rx") > frames(&row, "frames_rx"));
    server.stop();
    let row = server.flow();
    assert_eq!((frames(&row, "frames_tx"), &row["loss"]), (frames(&row, "frames_rx"), &json!(0.0)), "{row}");
    let most = server.running.as_ref().and_then(|running| running.proc_status("RssAnon")).unwrap();
    let most: u64 = most.split(' ').next().unwrap().parse().unwrap();
    // RssAnon does not include the rings of the ports.
    assert!(most < 100_000, "{most} KiB");
    let ended = server.end();
    assert!(ended.status == 0 && ended.errors.contains("names another host; start the server"), "{}", ended.errors);
    // The log must not contain the token.
    assert!(!ended.errors.contains(&*may), "{}", ended.errors);
}

#[test]
fn names_are_reported_verbatim_and_never_interpreted() {
    let Some(server) = Server::start() else { return };
    let name = "<img src=x onerror=alert(1)>\u{1b}[2J\n";
    let flow = json!({"name": name, "tx_rx": {"port": {"tx_name": "p1"}}, "packet": [{"choice": "lacp", "lacp": {}}]});
    let document = json!({"ports": [{"name": "p1"}], "flows": [flow]});
    let (status, answer) = server.ask("POST", "/config", document.to_string().as_bytes());
    assert_eq!((status, &answer["kind"]), (400, &json!("validation")), "{answer}");
    let (status, answer) =
        server.ask("POST", "/monitor/metrics", json!({"flow": {"flow_names": [name]}}).to_string().as_bytes());
    assert_eq!(status, 400, "{answer}");
    // Each of these flows would take 40 MB of frames.
    let size = json!({"increment": {"start": 64, "end": 9000, "step": 1}});
    let sized = |name: usize| json!({"name": name.to_string(), "tx_rx": {"port": {"tx_name": "p1"}}, "size": size});
    let flows: Vec<Value> = (0..1000).map(sized).collect();
    let (refused, answer) =
        server.ask("POST", "/config", json!({"ports": [{"name": "p1"}], "flows": flows}).to_string().as_bytes());
    assert!(refused == 400 && answer["errors"][0].as_str().unwrap().starts_with("flows[1].size: "), "{answer}");
    let ended = server.end();
    assert!(!ended.errors.contains('\u{1b}') && ended.errors.lines().count() < 10, "{:?}", ended.errors);
}

#[test]
fn native_api_rejects_invalid_requests_under_traffic() {
    let Some(server) = Server::start() else { return };
    let stream = json!({"name": "a", "tx": "p1", "rx": ["p2"], "packet": "ip/udp", "rate": "1kpps"});
    server.post("/api/v1/streams", &json!({"streams": [stream]}));
    server.post("/api/v1/traffic", &json!({"do": "start"}));
    let with = |key: &str, value: Value| {
        let mut wrong = stream.clone();
        wrong[key] = value;
        json!({"streams": [wrong]})
    };
    for (path, document) in [
        ("streams", json!({})),
        ("streams", json!({"streams": [1]})),
        ("streams", json!({"streams": [stream, stream]})),
        ("streams", with("name", json!(""))),
        ("streams", with("name", json!("x".repeat(10_000)))),
        ("streams", with("tx", json!("eth0"))),
        ("streams", with("rx", json!(["../p2"]))),
        ("streams", with("packet", json!("file(/etc/passwd#1)"))),
        ("streams", with("packet", json!("ip/".repeat(100_000)))),
        ("streams", with("packet", json!(7))),
        ("streams", with("rate", json!("max"))),
        ("streams", with("size", json!("65000"))),
        ("streams", with("size", json!("64..65535/1"))),
        ("streams", with("burst", json!({"frames": 0, "gap": "1ms"}))),
        ("streams", with("next", json!("goto a"))),
        ("traffic", json!({"do": "explode"})),
        ("traffic", json!({"do": "stop", "streams": ["nobody"]})),
        ("traffic", json!({"do": "stop", "streams": "a"})),
        ("rate", json!({"streams": ["a"], "rate": "fast"})),
        ("rate", json!({"streams": ["b"], "rate": "1kpps"})),
        ("capture", json!({"port": "eth0", "do": "start"})),
        ("capture", json!({"port": "p2", "do": "start", "filter": "cows"})),
        ("capture", json!({"port": "p2", "do": "start", "filter": "x".repeat(100_000)})),
        ("capture", json!({"port": "p2", "do": "start", "filter": "host does-not-exist.example"})),
        ("capture/frame", json!({"port": "p2", "number": u64::MAX})),
        ("capture/frame", json!({"port": "p2", "number": -1})),
        ("flows", json!({"port": "<img>"})),
        ("write", json!({"form": "exe"})),
        ("read", json!({"text": "rm -rf /"})),
        ("read", json!({"text": "linerate generate --write=/etc/passwd"})),
        ("read", json!({"text": "[".repeat(100_000)})),
        ("read", json!({"text": "x = ".to_owned() + &"[".repeat(100_000)})),
        ("measure", json!({"to": "p1", "check": "p2", "user": "root"})),
        ("measure", json!({"to": "p1", "check": "p2", "size": "64,".repeat(5_000_000)})),
        ("measure", json!({"to": "p1", "check": "p2", "size": vec!["64"; 101]})),
        ("measure", json!({"to": "p1", "check": "p2", "packet": vec!["ip/udp"; 1001]})),
        ("measure", json!({"to": "p1", "check": "p2", "packet": "ip/".repeat(100_000)})),
        ("measure", json!({"to": "p1", "check": "p2", "goal": "ndr,".repeat(10) + "ndr"})),
        ("measure/estimate", json!({"goal": vec!["ndr,pdr"; 6]})),
    ] {
        let path = format!("/api/v1/{path}");
        let (status, answer) = server.ask("POST", &path, document.to_string().as_bytes());
        assert!(
            status == 400 && answer["errors"][0].is_string(),
            "{path} {:.200}: {status} {answer}",
            document.to_string()
        );
    }
    let (_, figures) = server.ask("GET", "/api/v1/figures", b"");
    assert_eq!(figures["streams"][0]["state"], "sending", "{figures}");
    server.post("/api/v1/traffic", &json!({"do": "stop"}));
    let (_, figures) = server.ask("GET", "/api/v1/figures", b"");
    let row = &figures["streams"][0];
    assert_eq!((&row["sent"], &row["lost"]), (&row["received"], &json!(0)), "{row}");
    let (_, log) = server.ask("GET", "/api/v1/log", b"");
    assert!(log["entries"].as_array().is_some_and(|entries| entries.len() > 30), "{log}");
    assert!(!log.to_string().contains(&server.token));
}

#[test]
fn requests_without_a_token_are_counted_and_not_logged() {
    let Some(server) = Server::start() else { return };
    let (_, log) = server.ask("GET", "/api/v1/log", b"");
    let anonymous = format!("GET /api/v1/log HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address);
    for _ in 0..9 {
        assert!(server.raw(anonymous.as_bytes()).starts_with("HTTP/1.1 401"));
    }
    let (_, after) = server.ask("GET", "/api/v1/log", b"");
    let row = &after["refused"][0];
    assert_eq!((&row["address"], &row["times"]), (&json!("127.0.0.1"), &json!(9)), "{after}");
    assert_eq!(after["entries"], log["entries"]);
}
