//! What is not of the model: figures, events, the description of all paths.

use super::stage::Server;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn the_server_has_the_paths_that_its_description_has() {
    let Some(server) = Server::start() else { return };
    let (status, described) = server.ask("GET", "/linerate/openapi.json", b"");
    let published = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/serve.openapi.json");
    let published: Value = serde_json::from_str(&std::fs::read_to_string(published).unwrap()).unwrap();
    assert!(status == 200 && described == published, "{described}");
    for (path, methods) in described["paths"].as_object().unwrap() {
        let has = |method: &str| methods.get(method.to_ascii_lowercase()).is_some();
        for method in ["GET", "POST", "PATCH", "PUT", "DELETE"] {
            if path == "/linerate/events" && method == "GET" {
                continue;
            }
            let (status, answer) = server.ask(method, path, b"{}");
            assert_eq!(status != 405, has(method), "{method} {path}: {status} {answer}");
            assert_ne!(status, 404, "{method} {path}");
        }
    }
    assert_eq!(server.ask("GET", "/linerate", b"").0, 404);
}

#[test]
fn whoever_watches_sees_what_is_sent() {
    let Some(server) = Server::start() else { return };
    server.send();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!(
        "GET /linerate/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        server.address, server.token
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut received = Vec::new();
    for line in BufReader::new(stream).lines() {
        let Some(data) = line.unwrap().strip_prefix("data: ").map(str::to_owned) else { continue };
        let figures: Value = serde_json::from_str(&data).unwrap();
        let frames = figures["flows"][0]["frames_rx"].as_str().unwrap().parse::<u64>().unwrap();
        received.push(frames);
        // It may begin before the first frame comes.
        if received.len() >= 3 && frames > received[0] {
            break;
        }
    }
    assert!(received.is_sorted() && received.len() < 40, "{received:?}");
    server.stop();
    let (_, figures) = server.ask("GET", "/linerate/figures", b"");
    let flow = &figures["flows"][0];
    assert_eq!((&flow["frames_tx"], flow["missing"].as_u64()), (&flow["frames_rx"], Some(0)), "{flow}");
    assert_eq!(
        flow["packet"],
        "eth(dst=0, src=0)/ip(tos=0, id=0, rf=0, df=0, mf=0, frag_offset=0, ttl=64, src=0, dst=0)/udp(sport=0, dport=0)"
    );
}
