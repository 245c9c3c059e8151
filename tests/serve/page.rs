//! The page: in a headless Chromium, and as bytes.

use super::server::Server;
use linerate_tests::support::{has_peer, judge};
use std::path::{Path, PathBuf};
use std::process::Command;

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("chromium")).find(|program| program.exists());
    found.clone().filter(|_| has_peer(found.is_some(), "chromium"))
}

/// Streams are defined and sent, a rate is changed, counts are exact, frames are shown, a measurement is run and its
/// report downloaded; by pointer, by keyboard, in 400 pixels, and without a console error. `LINERATE_SCREENSHOTS` names
/// a folder for screenshots.
#[test]
fn page_works_in_a_browser() {
    let Some(chromium) = chromium() else { return };
    let Some(server) = Server::start() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("serve/browse.py");
    let own = std::env::temp_dir().join(format!("linerate-page-{}", std::process::id()));
    let folder = std::env::var_os("LINERATE_SCREENSHOTS").map_or_else(|| own.clone(), PathBuf::from);
    let address = format!("http://{}/#token={}", server.address, server.token);
    let run = Command::new("python3").arg(script).arg(chromium).arg(address).arg(folder).output().unwrap();
    let (output, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    let _ = std::fs::remove_dir_all(own);
    assert!(run.status.success(), "{output}{errors}");
    assert!(output.trim_end().ends_with("no error in the console"), "{output}{errors}");
    for (what, most) in [("a change on the screen", 0.7), ("the whole", 60.0)] {
        let seconds =
            output.lines().find_map(|line| line.strip_prefix("measured: ")?.strip_prefix(what)?.strip_prefix(": "));
        let seconds: f64 = seconds.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{what}: {output}"));
        judge(seconds < most, &format!("{what} takes {seconds} s, limit {most} s"));
    }
    let ended = server.end();
    assert_eq!(ended.status, 0, "{}", ended.errors);
}

#[test]
fn page_files_need_no_token_and_grant_no_access() {
    let Some(server) = Server::start() else { return };
    let get = |path: &str, more: &str| {
        server.raw(format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{more}\r\n").as_bytes())
    };
    let ours = format!("Host: {}\r\n", server.address);
    for (path, kind) in [("/", "text/html"), ("/page/main.js", "text/javascript"), ("/page/style.css", "text/css")] {
        let answer = get(path, &ours);
        let head = answer.split("\r\n\r\n").next().unwrap_or_default().to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200") && head.contains(&format!("content-type: {kind}")), "{head}");
        for header in [
            "content-security-policy: default-src 'self'; frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(head.contains(header), "{path}: {header} in {head}");
        }
        assert!(!answer.contains(&server.token), "{path}");
    }
    assert!(get("/", "Host: evil.example\r\n").starts_with("HTTP/1.1 403"));
    assert!(get("/", &format!("{ours}Origin: http://evil.example\r\n")).starts_with("HTTP/1.1 403"));
    for path in
        ["/page/", "/page/../main.js", "/page/%2e%2e/main.js", "/page/main.js/", "/api/v1/figures", "/favicon.ico"]
    {
        assert!(get(path, &ours).starts_with("HTTP/1.1 401"), "{path}");
    }
}
