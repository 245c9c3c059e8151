//! Paths outside the Open Traffic Generator model: figures, events, and the description of all paths.

use super::server::Server;
use linerate_tests::support::{Scratch, wait_until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

#[test]
fn paths_match_the_published_description() {
    let Some(server) = Server::start() else { return };
    let (status, described) = server.ask("GET", "/api/v1/openapi.json", b"");
    let published = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/serve.openapi.json");
    let published: Value = serde_json::from_str(&std::fs::read_to_string(published).unwrap()).unwrap();
    assert!(status == 200 && described == published, "{described}");
    for (path, methods) in described["paths"].as_object().unwrap() {
        let has = |method: &str| methods.get(method.to_ascii_lowercase()).is_some();
        for method in ["GET", "POST", "PATCH", "PUT", "DELETE"] {
            if path == "/api/v1/events" && method == "GET" {
                continue;
            }
            let (status, answer) = server.ask(method, path, b"{}");
            assert_eq!(status != 405, has(method), "{method} {path}: {status} {answer}");
            let is_of_nothing = status == 404 && path.contains("/report.");
            assert!(status != 404 || is_of_nothing, "{method} {path}");
            assert!(status < 500, "{method} {path}: {status} {answer}");
        }
    }
    assert_eq!(server.ask("GET", "/api/v1", b"").0, 404);
}

#[test]
fn event_stream_reports_sent_frames() {
    let Some(server) = Server::start() else { return };
    server.send();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!(
        "GET /api/v1/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        server.address, server.token
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut received = Vec::new();
    for line in BufReader::new(stream).lines() {
        let Some(data) = line.unwrap().strip_prefix("data: ").map(str::to_owned) else { continue };
        let figures: Value = serde_json::from_str(&data).unwrap();
        let frames = figures["streams"][0]["received"].as_u64().unwrap();
        received.push(frames);
        // The first event can precede the first frame.
        if received.len() >= 3 && frames > received[0] {
            break;
        }
    }
    assert!(received.is_sorted() && received.len() < 40, "{received:?}");
    server.stop();
    let (_, figures) = server.ask("GET", "/api/v1/figures", b"");
    let stream = &figures["streams"][0];
    assert_eq!((&stream["sent"], stream["lost"].as_u64()), (&stream["received"], Some(0)), "{stream}");
    assert_eq!(figures["set_by"], "otg");
    assert_eq!(
        stream["packet"],
        "eth(dst=0, src=0)/ip(tos=0, id=0, rf=0, df=0, mf=0, frag_offset=0, ttl=64, src=0, dst=0)/udp(sport=0, dport=0)"
    );
}

/// Port counters are served for collectors; the socket is removed when the server exits.
#[test]
fn counters_can_be_collected() {
    let scratch = Scratch::new();
    let place = scratch.file("counters");
    let Some(server) = Server::with("", "", &["--metrics", &place, "-Z", "root"]) else { return };
    let received = || -> u64 {
        let mut stream = UnixStream::connect(&place).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        assert!(page.contains("linerate_info{verb=\"serve\""), "{page}");
        let of =
            |line: &str| line.strip_prefix("linerate_receive_received_total{")?.rsplit(' ').next()?.parse::<u64>().ok();
        page.lines().filter_map(of).sum()
    };
    wait_until("the counters are served", || UnixStream::connect(&place).is_ok());
    server.send();
    wait_until("received frames are counted", || received() > 100);
    server.stop();
    let rx_frames = server.flow()["frames_rx"].to_string().trim_matches('"').parse::<u64>().unwrap();
    assert!(rx_frames > 100 && received() >= rx_frames, "{rx_frames}");
    server.end().good();
    assert!(!std::path::Path::new(&place).exists());
}

/// Builds a stream of `/api/v1` from p1 to p2.
fn stream(name: &str, packet: &str, more: Value) -> Value {
    let mut stream = json!({"name": name, "tx": "p1", "rx": ["p2"], "packet": packet, "size": "128", "rate": "1kpps"});
    more.as_object().into_iter().flatten().for_each(|(key, value)| stream[key] = value.clone());
    stream
}

fn row(server: &Server, name: &str) -> Value {
    let (_, figures) = server.ask("GET", "/api/v1/figures", b"");
    let rows = figures["streams"].as_array().cloned().unwrap_or_default();
    rows.into_iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{figures}"))
}

#[test]
fn native_streams_are_sent_changed_and_counted_exactly() {
    let Some(server) = Server::start() else { return };
    let all = json!({"streams": [
        stream("web", "ip(dst=10.0.0.1..10.0.0.9)/udp(dport=80)", json!({"rate": "200pps"})),
        stream("calls", "ip/udp(dport=5004)", json!({"poisson": true, "count": 200})),
        stream("burst", "ip/udp(dport=7)", json!({"burst": {"frames": 10, "gap": "5ms"}, "count": 100}))
    ]});
    server.post("/api/v1/streams", &all);
    server.post("/api/v1/capture", &json!({"port": "p2", "do": "start", "filter": "udp dst port 5004"}));
    server.post("/api/v1/traffic", &json!({"do": "start"}));
    wait_until("two streams stop", || ["calls", "burst"].iter().all(|name| row(&server, name)["state"] == "stopped"));
    server.post("/api/v1/rate", &json!({"streams": ["web"], "rate": "2kpps"}));
    let before = row(&server, "web")["sent"].as_u64().unwrap();
    wait_until("the stream is faster", || row(&server, "web")["sent_per_s"].as_u64() > Some(1000));
    // One stream is added and one removed while others send.
    let new = stream("new", "ip6/udp", json!({"count": 3, "size": "200"}));
    let (status, answer) =
        server.ask("PATCH", "/api/v1/streams", json!({"streams": [new], "remove": ["burst"]}).to_string().as_bytes());
    assert_eq!(status, 200, "{answer}");
    server.post("/api/v1/traffic", &json!({"do": "start", "streams": ["new"]}));
    server.post("/api/v1/traffic", &json!({"do": "pause", "streams": ["web"]}));
    assert_eq!(row(&server, "web")["state"], "paused");
    server.post("/api/v1/traffic", &json!({"do": "stop"}));
    for (name, sent) in [("web", None), ("calls", Some(200)), ("new", Some(3))] {
        let row = row(&server, name);
        assert_eq!((&row["sent"], &row["lost"], &row["duplicated"]), (&row["received"], &json!(0), &json!(0)), "{row}");
        assert!(sent.is_none() || row["sent"].as_u64() == sent, "{row}");
    }
    assert!(row(&server, "web")["sent"].as_u64().unwrap() > before);
    // The capture holds the frames that match its filter.
    let frames = server.post("/api/v1/capture/frames", &json!({"port": "p2", "filter": "udp", "skip": 190}));
    assert_eq!(
        (&frames["frames"], &frames["fitting"], frames["rows"].as_array().map(Vec::len)),
        (&json!(200), &json!(200), Some(10)),
        "{frames}"
    );
    let frame = server.post("/api/v1/capture/frame", &json!({"port": "p2", "number": frames["rows"][0]["number"]}));
    assert!(frame["layers"].as_array().unwrap().iter().any(|layer| layer["layer"] == "udp"), "{frame}");
    server.post("/api/v1/traffic", &json!({"do": "clear"}));
    let cleared = row(&server, "web");
    assert_eq!(
        (&cleared["sent"], &cleared["received"], &cleared["lost"]),
        (&json!(0), &json!(0), &json!(0)),
        "{cleared}"
    );
    // The Open Traffic Generator API does not treat them as its own flows.
    let (status, answer) = server.ask("PATCH", "/config/append", br#"{"config_append_list": [{"flows": []}]}"#);
    assert_eq!(status, 400, "{answer}");
    assert_eq!(server.ask("GET", "/config", b"").1, json!({}));
}

#[test]
fn streams_are_written_and_read_back_in_every_format() {
    let Some(server) = Server::start() else { return };
    let plain =
        stream("it's <b>", "eth(src=02:00:00:00:00:01)/ip(dst=10.0.0.1..10.0.0.9)/udp(dport=53)", json!({"count": 10}));
    let odd = stream(
        "odd",
        "ip(dst=10.0.0.0/24 random)/tcp(flags=syn)",
        json!({"poisson": true, "start": "1ms", "for": "2s"}),
    );
    let write = |form: &str, streams: Value| {
        let document = json!({"form": form, "streams": streams}).to_string();
        server.ask("POST", "/api/v1/write", document.as_bytes())
    };
    let frames = |stream: &Value| server.post("/api/v1/check", &json!({"stream": stream, "frames": 12}));
    for (form, streams) in [("file", json!([plain, odd])), ("command", json!([plain])), ("snappi", json!([plain]))] {
        let (status, written) = write(form, streams.clone());
        assert_eq!(status, 200, "{form}: {written}");
        let read = server.post("/api/v1/read", &json!({"text": written["text"]}));
        let read = read["streams"].as_array().unwrap();
        assert_eq!(read.len(), streams.as_array().unwrap().len(), "{form}");
        for (before, after) in streams.as_array().unwrap().iter().zip(read) {
            let (before, after) = (frames(before), frames(after));
            assert_eq!(before["faults"], json!([]), "{before}");
            let hex = |frames: &Value| {
                let frames = frames["frames"].as_array().unwrap();
                frames.iter().map(|frame| (frame["hex"].clone(), frame["due_ns"].clone())).collect::<Vec<_>>()
            };
            // Trailers hold the due times and numbers of the frames.
            assert_eq!(hex(&before), hex(&after), "{form}: {written}");
        }
    }
    // Streams that a format cannot express are rejected.
    for form in ["command", "snappi"] {
        let (status, answer) = write(form, json!([odd]));
        assert_eq!(status, 400, "{answer}");
    }
    let wrong = server.post("/api/v1/check", &json!({"stream": stream("a", "ip/udp(dprt=53)", json!({}))}));
    assert_eq!((&wrong["faults"][0]["key"], &wrong["faults"][0]["at"]), (&json!("packet"), &json!(7)), "{wrong}");
}

#[test]
fn measurement_runs_at_open_ports() {
    let Some(server) = Server::start() else { return };
    let asked = json!({"to": "p1", "check": "p2", "size": "128", "max": "2kpps", "goal": "ndr", "trial": 0.1, "sum": 0.2, "width": "20%", "settle": 0.05});
    let estimate = server.post("/api/v1/measure/estimate", &asked);
    assert!(estimate["seconds"].as_f64() > Some(0.1), "{estimate}");
    server.post("/api/v1/measure", &asked);
    let (status, answer) = server.ask("POST", "/api/v1/measure", asked.to_string().as_bytes());
    assert_eq!(status, 409, "{answer}");
    assert_eq!(server.ask("POST", "/api/v1/traffic", br#"{"do": "start"}"#).0, 409);
    wait_until("the measurement is done", || {
        server.ask("GET", "/api/v1/measure", b"").1["state"]["is_running"] == false
    });
    let (_, measured) = server.ask("GET", "/api/v1/measure", b"");
    assert_eq!(
        (&measured["state"]["failure"], &measured["report"]["state"]),
        (&Value::Null, &json!("done")),
        "{measured}"
    );
    let size = &measured["report"]["sizes"][0];
    let trials = size["trials"].as_array().unwrap();
    assert!(trials.iter().all(|trial| trial["lost"] == 0 && trial["intended"].as_u64() >= Some(1)), "{size}");
    let result = &size["results"][0];
    assert!(result["lower"].as_f64() >= Some(1.0), "{result}");
    let head = format!(
        "GET /api/v1/measure/report.html HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
        server.address, server.token
    );
    let html = server.raw(head.as_bytes());
    assert!(html.starts_with("HTTP/1.1 200") && html.contains("text/html") && html.contains("</html>"), "{html}");
    for (wrong, what) in [
        (json!({"to": "p1", "check": "eth0", "max": "1kpps"}), "check"),
        (json!({"to": "p1", "check": "p2", "write": "/etc/passwd"}), "write"),
        (json!({"to": "p1", "check": "p2", "method": "rfc2544", "tests": "reset", "max": "1kpps"}), "tests"),
        (json!({"to": "p1", "check": "p2", "size": "cows"}), "size"),
        (json!({"to": "p1", "check": "p2", "packet": "file(/etc/passwd#1)"}), "file"),
        (json!({"to": "p1"}), "check"),
    ] {
        let (status, answer) = server.ask("POST", "/api/v1/measure", wrong.to_string().as_bytes());
        assert!(status == 400 && answer.to_string().contains(what), "{wrong}: {answer}");
    }
}

#[test]
fn active_flows_of_a_port_are_metered() {
    let Some(server) = Server::start() else { return };
    let asked = json!({"port": "p2", "do": "start"});
    assert_eq!(server.post("/api/v1/flows", &json!({"port": "p2"}))["is_on"], false);
    server.post("/api/v1/flows", &asked);
    server.post(
        "/api/v1/streams",
        &json!({"streams": [stream("web", "ip(src=10.0.0.1..10.0.0.4)/udp(dport=80)", json!({}))]}),
    );
    server.post("/api/v1/traffic", &json!({"do": "start"}));
    let rows = || server.post("/api/v1/flows", &json!({"port": "p2"}))["rows"].as_array().cloned().unwrap_or_default();
    wait_until("four flows", || rows().iter().filter(|row| row["packets"].as_u64() > Some(100)).count() == 4);
    assert!(rows().iter().all(|row| row["to"]["port"] == 80 && row["protocol"] == 17), "{:?}", rows());
    // 1,000 frames per second over four flows in turn; a busy machine sends them in bursts.
    let rated = || {
        server.post("/api/v1/flows", &json!({"port": "p2", "by": "rate"}))["rows"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    wait_until("the flows have rates", || {
        rated().iter().all(|row| (100..=500).contains(&row["packets_per_s"].as_u64().unwrap_or(0)))
    });
    let row = &rated()[0];
    assert!(row["bps"].as_u64() >= Some(8 * 60 * 100) && row["bps_back"] == 0, "{row}");
    server.post("/api/v1/traffic", &json!({"do": "stop"}));
    wait_until("the rates are zero", || rated().iter().all(|row| row["bps"] == 0));
}

#[test]
fn streams_and_host_name_are_set_at_start() {
    let file = std::env::temp_dir().join(format!("linerate-start-{}.toml", std::process::id()));
    let text =
        "# ports {\"tx\": \"p2\", \"rx\": [\"p1\"]}\n[[stream]]\nname = 'calls'\npacket = 'ip/udp'\nrate = '1kpps'\n";
    std::fs::write(&file, text).unwrap();
    let server = Server::with("", "", &["--streams", file.to_str().unwrap(), "--name", "lab.example"]);
    std::fs::remove_file(file).unwrap();
    let Some(server) = server else { return };
    let (_, streams) = server.ask("GET", "/api/v1/streams", b"");
    let one = &streams["streams"][0];
    assert_eq!((&one["name"], &one["tx"], &one["rx"]), (&json!("calls"), &json!("p2"), &json!(["p1"])), "{streams}");
    let status = |host: &str| {
        let answer = server.raw(format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes());
        answer.split(' ').nth(1).map(str::to_owned)
    };
    assert_eq!((status("lab.example:8443").as_deref(), status("lab2.example").as_deref()), (Some("200"), Some("403")));
    wait_until("the history has points", || !server.ask("GET", "/api/v1/history", b"").1["points"][0].is_null());
}

/// Eight clients read, and one does not.
#[test]
fn slow_event_readers_do_not_block_others() {
    let Some(server) = Server::start() else { return };
    let watch = || {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let head = format!(
            "GET /api/v1/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
            server.address, server.token
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let _slow = watch();
    let readers: Vec<TcpStream> = (0..8).map(|_| watch()).collect();
    server.send();
    for reader in readers {
        let events = BufReader::new(reader).lines().map_while(Result::ok).filter(|line| line.starts_with("data: "));
        let seen = events.take(20).position(|line| line.contains("\"state\":\"sending\""));
        assert!(seen.is_some(), "the sending stream is reported");
    }
    server.stop();
    // The limit is 16 clients; slots of clients that disconnected are free again.
    let many: Vec<TcpStream> = (0..20).map(|_| watch()).collect();
    let refused = many.into_iter().filter_map(|stream| BufReader::new(stream).lines().next()?.ok());
    let refused = refused.filter(|line| line.contains(" 503 ")).count();
    assert!((4..=13).contains(&refused), "{refused} of 20");
    assert_eq!(server.ask("GET", "/api/v1/figures", b"").0, 200);
}
