//! snappi, unchanged.

use super::stage::Server;
use linerate_tests::support::skip;
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
