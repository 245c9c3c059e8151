//! snappi, unmodified.

use super::relay::{Choose, relay};
use super::server::Server;
use linerate_tests::support::has_peer;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the Python that has snappi, or notes that it is missing.
fn python() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/snappi/bin/python");
    has_peer(python.exists(), "snappi in target/snappi").then_some(python)
}

#[test]
fn published_client_drives_traffic_and_receives_every_frame() {
    let Some(python) = python() else { return };
    let Some(server) = Server::start() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("serve/drive.py");
    let run = Command::new(python).arg(script).args([&server.location(), "p1", "p2"]).output().unwrap();
    let (output, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{output}{errors}");
    assert_eq!(output.lines().count(), 6, "{output}");
    let ended = server.end();
    assert_eq!(ended.status, 0, "{}", ended.errors);
}

/// Picks a letter or digit of a body by a fixed seed.
fn any_word(body: &[u8]) -> Option<usize> {
    let words: Vec<usize> = (0..body.len()).filter(|at| body[*at].is_ascii_alphanumeric()).collect();
    let seed = linerate_burst::random::mix(7 + body.len() as u64) as usize;
    words.get(seed % words.len().max(1)).copied()
}

/// Picks a byte of a frame in a capture file, after the file header and a record header.
fn any_frame(body: &[u8]) -> Option<usize> {
    let (file, record, frame) = (24, 16, 128);
    let seed = linerate_burst::random::mix(11) as usize;
    let at = file + seed % 100 * (record + frame) + record + seed / 100 % frame;
    (at < body.len()).then_some(at)
}

/// Picks the last digit of the number of bytes sent.
fn bytes_sent(body: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(body).ok()?;
    let found = text.find("\"bytes_tx\":\"12800\"")?;
    Some(found + "\"bytes_tx\":\"1280".len())
}

#[test]
fn corrupted_answer_is_detected() {
    let Some(python) = python() else { return };
    let Some(server) = Server::start() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("serve/drive.py");
    let none: Choose = |_| None;
    let drive = |path, choose| {
        let location = format!("http://:{}@{}", server.token, relay(&server.address, path, choose));
        let asked = [&location, "p1", "p2", "check_udp_values_and_counters"];
        let run = Command::new(&python).arg(&script).args(asked).output().unwrap();
        (run.status.success(), String::from_utf8_lossy(&run.stderr).into_owned())
    };
    let (is_good, errors) = drive("/config", none);
    assert!(is_good, "{errors}");
    for (path, choose) in
        [("/config", any_word as Choose), ("/monitor/capture", any_frame), ("/monitor/metrics", bytes_sent)]
    {
        let (is_good, errors) = drive(path, choose);
        assert!(!is_good && errors.contains("Traceback"), "{path}: {errors}");
    }
}

#[test]
fn exported_snappi_script_sends_the_same_stream() {
    let Some(python) = python() else { return };
    let Some(server) = Server::start() else { return };
    let web = json!({"name": "web", "tx": "p1", "rx": ["p2"], "packet": "vlan(id=7)/ip(dst=10.0.0.1..10.0.0.9)/tcp(sport=1000..1004/2, dport=80, flags=syn)",
        "size": "128", "rate": "1kpps", "count": 50});
    let written = server.post("/api/v1/write", &json!({"form": "snappi", "streams": [web]}));
    let script = std::env::temp_dir().join(format!("linerate-script-{}.py", std::process::id()));
    std::fs::write(&script, written["text"].as_str().unwrap()).unwrap();
    let run = Command::new(python).arg(&script).arg(server.location()).output().unwrap();
    std::fs::remove_file(script).unwrap();
    let (output, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success() && output.trim_end().ends_with("web 50 50"), "{output}{errors}");
}
