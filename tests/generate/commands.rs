//! Control commands to running streams over a real link: no number is lost or duplicated, and every reply is final.

use crate::generate::testbed::{Stage, number};
use linerate_tests::support::program::{run, start};
use linerate_tests::support::{Scratch, wait_until};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;

const STREAMS: &str = r#"
order = "interleaved"
[[stream]]
name = "voip"
packet = "udp(dport=1)"
rate = "2kpps"
[[stream]]
name = "video1"
packet = "udp(dport=2)"
rate = "3kpps"
[[stream]]
name = "video2"
packet = "udp(dport=3)"
rate = "1kpps"
"#;

/// Runs `ctl` and returns its rows: name, state, sent and sent since start.
fn ctl(path: &str, what: &[&str]) -> Vec<(String, String, u64, u64)> {
    let json = run(&[&["ctl", path][..], what, &["--json"]].concat()).good().json();
    assert_eq!(json["schema"], "linerate/ctl/1");
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    let rows = json["streams"].as_array().unwrap().iter();
    rows.map(|row| (text(row, "name"), text(row, "state"), number(row, "sent"), number(row, "sent_since_start")))
        .collect()
}

/// Runs three streams, sends commands with `what`, and checks that every frame arrives exactly once.
fn every_frame_arrives(scheme: &str, more: &[&str], what: impl FnOnce(&str)) -> Option<Value> {
    every_frame_of(STREAMS, scheme, more, what)
}

/// Does the same with other streams.
fn every_frame_of(streams: &str, scheme: &str, more: &[&str], what: impl FnOnce(&str)) -> Option<Value> {
    let stage = Stage::up()?;
    let folder = Scratch::new();
    let (file, path) = (folder.file("streams.toml"), folder.file("control"));
    std::fs::write(&file, streams).unwrap();
    let (to, check) = (stage.port(scheme, "a"), stage.checking("b"));
    let arguments = ["generate", "--json", "--to", &to, "--check", &check, "--streams", &file, "-T", "60"];
    let running = start(&[&arguments[..], &["--control", &path, "-Z", "root", "--lossless"], more].concat());
    wait_until("the control socket exists and every stream has sent", || {
        UnixStream::connect(&path).is_ok() && ctl(&path, &["status"]).iter().all(|row| row.2 > 0)
    });
    let about = std::fs::symlink_metadata(&path).unwrap();
    assert!(about.file_type().is_socket() && about.permissions().mode() & 0o777 == 0o600, "{about:?}");
    what(&path);
    let ended = running.interrupt();
    let json = ended.json();
    assert!(!std::path::Path::new(&path).exists(), "the socket is removed");
    let check = &json["check"];
    let counted = |name| number(check, name);
    // With several threads, frames of one that was descheduled for long arrive so late that they count as stale.
    let stale = if more.contains(&"--threads") { counted("stale") } else { 0 };
    assert!(ended.status == 0 || stale > 0, "{json} {}", ended.errors);
    assert_eq!((counted("lost") - stale, counted("duplicated"), counted("corrupted")), (0, 0, 0), "{json}");
    assert!(more.contains(&"--threads") || counted("reordered") == 0, "{json}");
    assert_eq!(number(&json, "frames"), counted("received"), "{json}");
    Some(json)
}

#[test]
fn commands_lose_and_duplicate_no_frame() {
    for (scheme, threads) in [("packet", "1"), ("packet", "2"), ("xdp", "1"), ("xdp-live", "1")] {
        let threads: &[&str] = if threads == "1" { &[] } else { &["--threads", threads] };
        every_frame_arrives(scheme, threads, |path| {
            let rows = ctl(path, &["pause", "video*"]);
            assert_eq!(
                rows.iter().map(|row| (&*row.0, &*row.1)).collect::<Vec<_>>(),
                [("video1", "paused"), ("video2", "paused")]
            );
            ctl(path, &["rate", "20kpps", "voip"]);
            let before = ctl(path, &["status", "voip"])[0].2;
            wait_until("more of voip was sent", || ctl(path, &["status", "voip"])[0].2 > before + 500);
            assert_eq!(ctl(path, &["status", "video*"]), rows, "a paused stream sends nothing");
            ctl(path, &["rate", "x2"]);
            ctl(path, &["resume"]);
            let stopped = ctl(path, &["stop", "video1"]);
            assert_eq!(stopped[0].1, "stopped");
            wait_until("video2 sends again", || ctl(path, &["status", "video2"])[0].2 > rows[1].2);
            assert_eq!(ctl(path, &["status", "video1"]), stopped, "the reply is final");
            let again = ctl(path, &["start", "video1"]);
            assert!(again[0].1 == "running" && again[0].3 == again[0].2 - stopped[0].2, "{again:?}");
            wait_until("video1 sends", || ctl(path, &["status", "video1"])[0].3 > 100);
        });
    }
}

/// A kernel program sends a single stream and follows commands; several streams can be commanded separately.
#[test]
fn streams_sent_by_the_kernel_follow_commands() {
    let one = "[[stream]]\nname = \"s1\"\npacket = \"udp(dport=1,sport=1..1000)\"\nsize = \"64..200/136\"\nrate = \"3kpps\"\n";
    let two = one.replace("s1", "s2");
    for streams in [one.to_owned(), format!("order = \"interleaved\"\n{one}{two}")] {
        let json = every_frame_of(&streams, "xdp-live", &[], |path| {
            let all = |rows: &[(String, String, u64, u64)], state: &str| rows.iter().all(|row| row.1 == state);
            if streams.contains("s2") {
                let paused = ctl(path, &["pause", "s1"]);
                let before = ctl(path, &["status", "s2"])[0].2;
                wait_until("the other stream keeps sending", || ctl(path, &["status", "s2"])[0].2 > before + 200);
                assert_eq!(ctl(path, &["status", "s1"]), paused, "a paused stream sends nothing");
            }
            let paused = ctl(path, &["pause"]);
            assert!(all(&paused, "paused"), "{paused:?}");
            ctl(path, &["rate", "20kpps"]);
            assert_eq!(ctl(path, &["status"]), paused, "a paused stream sends nothing");
            ctl(path, &["resume"]);
            let wait_for_more = |rows: &[(String, String, u64, u64)]| {
                wait_until("all streams send again", || {
                    let now = ctl(path, &["status"]);
                    now.iter().zip(rows).all(|(now, before)| now.1 == "running" && now.2 > before.2 + 200)
                });
            };
            wait_for_more(&paused);
            ctl(path, &["rate", "x2"]);
            let stopped = ctl(path, &["stop"]);
            assert!(all(&stopped, "stopped"), "{stopped:?}");
            assert_eq!(ctl(path, &["status"]), stopped, "the reply is final");
            let again = ctl(path, &["start"]);
            assert!(again.iter().zip(&stopped).all(|(now, then)| now.3 == now.2 - then.2), "{again:?} {stopped:?}");
            wait_for_more(&stopped);
        });
        if let Some(json) = json {
            assert_eq!(json["generated_by"], if streams.contains("s2") { "process" } else { "port" }, "{json}");
            assert!(json["late"].is_u64() && json["shifted_us"].is_number(), "{json}");
        }
    }
}

#[test]
fn invalid_commands_are_rejected_without_side_effects() {
    every_frame_arrives("packet", &[], |path| {
        for (what, why) in [
            (&["pause", "nobody"][..], "no stream matches"),
            (&["rate", "fast"][..], "invalid rate"),
            (&["rate", "0pps"][..], "invalid rate"),
            (&["rate", "x0"][..], "expected a number above 0"),
            (&["rate", "xNaN"][..], "expected a number above 0"),
            (&["rate", "max", "voip"][..], "set all of them"),
        ] {
            run(&[&["ctl", path][..], what].concat()).with_status(1).says(why);
        }
        for bytes in [
            &b"\n"[..],
            b"{}\n",
            b"[[[[[[",
            &[0xff; 100_000],
            b"{\"action\":\"status\"}\n",
            b"{\"action\":\"rm\",\"streams\":\"*\"}\n",
        ] {
            let mut socket = UnixStream::connect(path).unwrap();
            // The socket may be closed before all bytes are read.
            let _ = socket.write_all(bytes);
            let _ = socket.shutdown(std::net::Shutdown::Write);
            let mut answer = String::new();
            let _ = socket.read_to_string(&mut answer);
            assert!(answer.is_empty() || answer.contains("error"), "{answer}");
        }
        run(&["ctl", path, "status"]).good().shows("voip").shows("running");
    });
    let folder = Scratch::new();
    run(&["ctl", &folder.file("nothing"), "status"]).with_status(1).says("--control PATH");
    let long = folder.file(&"x".repeat(200));
    run(&["ctl", &long, "status"]).with_status(2).says("maximum 107");
    run(&["generate", "--to", "null:x", "-k", "udp", "--control", &long]).with_status(2).says("maximum 107");
    let file = folder.file("file");
    std::fs::write(&file, "mine").unwrap();
    let taken = ["generate", "--to", "null:x", "-k", "udp", "--control", &file];
    run(&taken).with_status(2).says("exists and is not a socket");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    run(&["generate", "--to", "pcap:-", "-k", "udp", "--control", &folder.file("x")]).with_status(2).says("--control");
}

#[test]
fn slow_clients_do_not_delay_others() {
    every_frame_arrives("packet", &[], |path| {
        let slow: Vec<UnixStream> = (0..12).map(|_| UnixStream::connect(path).unwrap()).collect();
        slow.iter().for_each(|mut socket| socket.write_all(b"{").unwrap());
        // `ctl` waits five seconds for an answer.
        let row = ctl(path, &["stop", "voip"]);
        assert_eq!(row[0].1, "stopped");
        let more: Vec<_> = (0..6)
            .map(|_| {
                std::thread::spawn({
                    let path = path.to_owned();
                    move || ctl(&path, &["start", "voip"])
                })
            })
            .collect();
        assert!(more.into_iter().all(|asked| asked.join().unwrap()[0].1 == "running"));
    });
}

/// A new run replaces the socket of a killed one.
#[test]
fn streams_follow_commands_while_the_link_is_down() {
    let Some(stage) = Stage::up() else { return };
    let folder = Scratch::new();
    let (file, path) = (folder.file("streams.toml"), folder.file("control"));
    std::fs::write(&file, STREAMS).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let arguments =
        ["generate", "--to", &stage.port("packet", "a"), "--streams", &file, "-T", "60", "--control", &path];
    let running = start(&[&arguments[..], &["-Z", "root", "--json"]].concat());
    wait_until("every stream has sent", || {
        UnixStream::connect(&path).is_ok() && ctl(&path, &["status"]).iter().all(|row| row.2 > 0)
    });
    stage.0.ip("a", &["link", "set", "eth0", "down"]);
    assert_eq!(ctl(&path, &["pause", "voip"])[0].1, "paused");
    let stopped = ctl(&path, &["stop", "video*"]);
    assert!(stopped.iter().all(|row| row.1 == "stopped"), "{stopped:?}");
    stage.0.ip("a", &["link", "set", "eth0", "up"]);
    let resumed = ctl(&path, &["resume", "voip"])[0].2;
    wait_until("voip sends again", || ctl(&path, &["status", "voip"])[0].2 > resumed + 100);
    assert_eq!(ctl(&path, &["status", "video*"]), stopped, "the reply is final");
    let json = running.interrupt().good().json();
    assert_eq!(
        number(&json, "frames"),
        json["streams"].as_array().unwrap().iter().map(|row| number(row, "sent")).sum::<u64>(),
        "{json}"
    );
}
