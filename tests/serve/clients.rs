//! snappi, unchanged.

use super::stage::Server;
use linerate_tests::support::skip;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Python in which it is; says so if there is none.
fn python() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/snappi/bin/python");
    if !python.exists() {
        skip("no snappi to drive the server: scripts/setup test installs it in target/snappi");
        return None;
    }
    Some(python)
}

#[test]
fn the_published_client_drives_traffic_and_finds_every_frame() {
    let Some(python) = python() else { return };
    let Some(server) = Server::start() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("serve/drive.py");
    let run = Command::new(python).arg(script).args([&server.location(), "p1", "p2"]).output().unwrap();
    let (output, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{output}{errors}");
    assert_eq!(output.lines().count(), 5, "{output}");
    let ended = server.end();
    assert_eq!(ended.status, 0, "{}", ended.errors);
}

#[test]
fn a_script_that_is_written_has_the_client_send_what_the_stream_does() {
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
