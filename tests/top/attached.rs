//! `top` attached to another run.

use crate::top::pty::Pty;
use crate::top::traffic::Fed;
use linerate_tests::support::program::{launch, linerate, run};
use linerate_tests::support::{Scratch, frames, has_tools, records, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

/// Sends a request to a socket; returns the status line and the body of the response.
fn ask(path: &str, target: &str) -> (String, String) {
    let mut stream = UnixStream::connect(path).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[test]
fn view_of_a_meter_shows_flows_hosts_and_ports() {
    if !has_tools(&["setsid"]) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.file("run.sock");
    let fed = Fed::start(&["flows"], &path);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "only the owner may connect");
    let pty = Pty::start(&["top", "--from", &path, "--interval", "0.3"], 80, 24);
    pty.wait_raw_mode();
    let screen =
        pty.wait("rates are shown", |screen| screen.contains("10.9.0.1:40001") && screen.contains("10.9.0.2:40002"));
    assert!(screen.contains("flows by bits/s") && screen.contains("flows (pid "), "{screen}");
    assert!(screen.lines().count() == 24 && screen.lines().last().unwrap().contains("q quit"), "{screen}");
    let place = |screen: &str, text: &str| screen.lines().position(|line| line.contains(text));
    assert!(
        place(&screen, "10.9.0.1:40001") < place(&screen, "10.9.0.2:40002"),
        "the busiest flow is not first: {screen}"
    );
    pty.press("h");
    let screen =
        pty.wait("hosts are shown", |screen| screen.contains("hosts by bits/s") && screen.contains("\u{2588}"));
    let host = screen.lines().find(|line| line.contains("10.9.1.1")).unwrap();
    assert!(host.contains(" %"), "{screen}");
    pty.press("o");
    pty.wait("protocols", |screen| {
        screen.contains("protocols by bits/s") && screen.contains("UDP") && screen.contains("100.0 %")
    });
    pty.press("s");
    pty.wait_for("protocols by packets/s");
    pty.press("b\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7fresp_port\r");
    pty.wait("ports", |screen| screen.contains("resp_port by packets/s") && screen.contains("5002"));
    pty.press("/port 53\r");
    pty.wait("only one port is left", |screen| screen.contains("filter: port 53") && !screen.contains("5002"));
    pty.press("/ nonsense\r");
    pty.wait_for("filter, at");
    pty.press("\x1b");
    pty.wait_for("q quit");
    pty.press("f");
    pty.wait("one flow", |screen| {
        screen.contains("flows by packets/s")
            && screen.contains("  filter: port 53")
            && screen.contains("10.9.0.1:40001")
    });
    pty.press("?");
    pty.wait_for("Press any key to return");
    pty.press("x");
    pty.wait_for("flows by packets/s");
    pty.resize(40, 10);
    pty.wait("it fits", |screen| screen.lines().count() == 10 && screen.contains("10.9.0.1"));
    pty.resize(120, 40);
    pty.wait("it is larger", |screen| screen.lines().nth(39).is_some_and(|line| line.contains("n names")));
    pty.press("q");
    let (status, _) = pty.end();
    assert!(status.success());
    drop(fed);
}

#[test]
fn outage_and_restart_of_a_run_are_shown() {
    if !has_tools(&["setsid"]) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.file("run.sock");
    let pty = Pty::start(&["top", "--from", &path, "--interval", "0.3"], 100, 24);
    pty.wait_for("no answer for");
    let mut fed = Fed::start(&["flows"], &path);
    pty.wait("rates are shown", |screen| screen.contains("10.9.0.1:40001") && !screen.contains("no answer"));
    fed.run.signal(Signal::KILL);
    pty.wait("the last state, and the outage", |screen| {
        screen.contains("no answer for") && screen.contains("10.9.0.1:40001")
    });
    drop(fed);
    // The stale socket is replaced.
    fed = Fed::start(&["flows"], &path);
    let pid = format!("(pid {})", fed.run.pid());
    pty.wait("the next one", |screen| screen.contains(&pid) && screen.contains("10.9.0.1:40001"));
    pty.signal(Signal::TERM);
    assert!(pty.end().0.success());
    fed.run.signal(Signal::TERM);
    let path = std::path::Path::new(&path);
    wait_until("the socket is removed with the run", || !path.exists());
}

#[test]
fn terminal_is_restored_however_the_view_ends() {
    if !has_tools(&["setsid"]) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.file("run.sock");
    for end in ["q", "\x03", "TERM", "HUP"] {
        let pty = Pty::start(&["top", "--from", &path], 80, 24);
        pty.wait_raw_mode();
        pty.wait_for("no answer");
        match end {
            "TERM" => pty.signal(Signal::TERM),
            "HUP" => pty.signal(Signal::HUP),
            keys => pty.press(keys),
        }
        let (status, screen) = pty.end();
        assert!(status.success(), "{end:?}: {status}");
        assert!(!screen.contains("linerate top"), "{end:?}: the previous screen is not restored: {screen}");
    }
}

#[test]
fn without_a_terminal_top_prints_a_table_or_json() {
    let scratch = Scratch::new();
    let path = scratch.file("run.sock");
    let fed = Fed::start(&["flows"], &path);
    let table = run(&["top", "--from", &path]).with_status(0).output;
    assert!(
        table.contains("flows by bits/s") && table.contains("10.9.0.1:40001") && !table.contains('\x1b'),
        "{table}"
    );
    assert!(table.lines().skip(1).all(|line| line.chars().count() <= 80), "{table}");
    let groups =
        run(&["top", "--from", &path, "--once", "--by", "resp_port", "--top", "2", "udp"]).with_status(0).output;
    assert!(
        groups.contains("resp_port by bits/s")
            && groups.contains("  filter: udp")
            && groups.lines().any(|line| line.starts_with("53 ")),
        "{groups}"
    );
    let json = run(&["top", "--from", &path, "--once", "--json", "--sort", "packets"]).with_status(0).output;
    let json: Value = serde_json::from_str(&json).unwrap();
    let flows = &json["flows"];
    assert_eq!((&json["schema"], &json["verb"]), (&"linerate/top/1".into(), &"flows".into()));
    assert_eq!(flows["rows"].as_array().unwrap().len(), 6, "{flows}");
    let (packets, bytes) = (flows["packets"].as_u64().unwrap(), flows["bytes"].as_u64().unwrap());
    let sum = |key: &str| flows["rows"].as_array().unwrap().iter().map(|row| row[key].as_u64().unwrap()).sum::<u64>();
    assert!(packets > 0 && sum("packets") == packets && sum("bytes") == bytes, "{flows}");
    let first = &flows["rows"][0];
    assert_eq!(first["keys"], serde_json::json!(["10.9.0.1:40001", "10.9.1.1:53", "UDP"]));
    assert_eq!(first["bytes"].as_u64().unwrap(), first["packets"].as_u64().unwrap() * 1042, "{first}");
    let lines = linerate(&["top", "--from", &path, "--json", "--interval", "0.2", "-T", "2"]).output().unwrap();
    assert!(String::from_utf8(lines.stdout).unwrap().lines().count() > 2);
    drop(fed);
}

#[test]
fn requests_are_answered_or_rejected() {
    let scratch = Scratch::new();
    let path = scratch.file("run.sock");
    let fed = Fed::start(&["flows", "--workers", "2"], &path);
    // The socket answers before the run has started.
    wait_until("the run counts", || ask(&path, "/metrics").1.contains("linerate_receive_received_total"));
    let (status, body) = ask(&path, "/top");
    assert!(status.contains("200") && body.starts_with("{\"schema\":\"linerate/top/1\""), "{status} {body}");
    for wrong in ["by=nothing", "filter=hots", "sort=x", "top=0", "x=y", "by=%zz", "by=resp_port/24"] {
        let (status, body) = ask(&path, &format!("/top?{wrong}"));
        assert!(
            status.contains("400") && body.trim_end().len() > 10 && body.ends_with('\n'),
            "{wrong}: {status} {body:?}"
        );
    }
    assert!(ask(&path, "/top2").0.contains("404"));
    // Concurrent clients see the same intervals.
    let seen = || serde_json::from_str::<Value>(&ask(&path, "/top").1).unwrap()["flows"]["started"].as_u64().unwrap();
    wait_until("both workers have six flows together", || seen() == 6);
    let counts: Vec<u64> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..4).map(|_| scope.spawn(seen)).collect();
        asking.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    assert_eq!(counts, [6; 4]);
    drop(fed);
}

#[test]
fn tcp_address_has_no_flows_and_other_peers_are_errors() {
    let scratch = Scratch::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let fed = Fed::start(&["flows"], &address);
    let json = run(&["top", "--from", &address, "--once", "--json"]).with_status(0).output;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(json["flows"].is_null() && json["ports"][0]["frames"].as_u64() > Some(0), "{json}");
    assert!(json["without_flows"].as_str().unwrap().contains("--metrics PATH"), "{json}");
    drop(fed);
    let fed = Fed::start(&["count"], &scratch.file("count.sock"));
    let text = run(&["top", "--from", &scratch.file("count.sock"), "--once"]).with_status(0).output;
    assert!(text.contains("does not meter flows") && text.contains("counted"), "{text}");
    drop(fed);
    let listener = UnixListener::bind(scratch.file("other.sock")).unwrap();
    std::thread::spawn(move || {
        listener.incoming().flatten().for_each(|mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"SSH-2.0\r\n");
        });
    });
    let ended = run(&["top", "--from", &scratch.file("other.sock"), "--once"]).with_status(1);
    assert!(ended.errors.contains("peer is not a linerate run"), "{}", ended.errors);
    run(&["top", "--from", &scratch.file("none.sock"), "--once"]).with_status(1).says("no answer");
    for place in ["./a", "a.sock", "127.0.0.1:9464", "http://localhost:1"] {
        let error = format!("{place}: the socket or address of a run, not a port; use --from {place}");
        run(&["top", place, "--once"]).with_status(2).says(&error);
    }
    for wrong in [
        &["top", "--from", "./a", "--names", "all"][..],
        &["top", "--from", "./a", "--spin"],
        &["top", "--from", "./a", "--from", "./b"],
        &["top", "--from", "./a", "-c", "1"],
        &["top", "--from", "./a", "--interval", "0.1"],
        &["top", "--from", "./a", "hots 1"],
        &["top", "--from", "./a", "--by", "nothing"],
        &["top", "--from", "./a", "--by", "address", "--sort", "retransmissions"],
        &["top", "-r", "x.pcap"],
        &["top"],
        &["count", "-r", "-", "--metrics", "here"],
    ] {
        drop(run(wrong).with_status(2));
    }
    let (exists, input) = (scratch.file("file"), scratch.file("in.pcap"));
    std::fs::write(&exists, "kept").unwrap();
    records::write(&input, &frames::sample());
    run(&["count", "-r", &input, "--metrics", &exists]).with_status(2).says("is not a socket");
    assert_eq!(std::fs::read_to_string(&exists).unwrap(), "kept");
}

#[test]
fn drops_and_readers_of_a_ring_are_shown_live() {
    if !has_tools(&["setsid"]) {
        return;
    }
    let scratch = Scratch::new();
    let (path, ring, copy) = (scratch.file("run.sock"), scratch.file("ring"), scratch.file("copy.pcap"));
    let fed = Fed::start(&["capture", "--share", &ring, "-f", "port 53"], &path);
    let mut reader = launch(&["capture", &format!("shm:{ring}"), "-q", "-w", &copy]);
    let pty = Pty::start(&["top", "--from", &path, "--interval", "0.3"], 100, 24);
    let screen = pty.wait("the reader and filtered packets are shown", |screen| {
        let reads = |line: &str| line.contains("(pid ") && line.split_whitespace().nth(3) > Some("0");
        screen.lines().skip(1).any(reads) && screen.contains("select filtered")
    });
    assert!(screen.contains("read ") && screen.contains("this run does not meter flows"), "{screen}");
    let dropped = screen.lines().find(|line| line.starts_with("select filtered")).unwrap();
    assert!(dropped.contains("refused"), "{screen}");
    pty.press("zzzz");
    pty.wait("only readers are shown", |screen| screen.contains("lag") && !screen.contains("select filtered"));
    pty.press("q");
    assert!(pty.end().0.success());
    let json = run(&["top", "--from", &path, "--once", "--json"]).with_status(0).output;
    let json: Value = serde_json::from_str(&json).unwrap();
    let (seen, captured) = (&json["readers"][0], json["done"][0]["frames"].as_u64().unwrap());
    assert!(seen["name"].as_str().unwrap().contains(&format!("(pid {})", reader.pid())), "{json}");
    assert!((1..=captured).contains(&seen["frames"].as_u64().unwrap()), "{json}");
    let filtered = json["drops"].as_array().unwrap().iter().find(|drop| drop["cause"] == "filtered").unwrap();
    assert!(filtered["frames"].as_u64() > Some(0) && filtered["is_lost"] == false, "{json}");
    drop(fed);
    reader.signal(Signal::TERM);
    drop(reader.take_output());
}
