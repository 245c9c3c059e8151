//! Input that is rejected before anything is sent, and reports of runs that end early.

use crate::generate::testbed::{SCHEMES, Stage, counted, generate, number};
use linerate_tests::support::program::{Running, run, start};
use linerate_tests::support::{Scratch, wait_until};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn stream_file_errors_name_line_column_key_and_legal_values() {
    let scratch = Scratch::new();
    let (file, output) = (scratch.file("streams.toml"), scratch.file("out.pcap"));
    let right =
        "order = \"sequential\"\n[[stream]]\nname = \"one\"\npacket = \"udp(dport=53)\"\nrate = \"1kpps\"\ncount = 1\n";
    for (is, not, place, expected) in [
        (
            "count = 1",
            "cuont = 1",
            "6:1",
            "stream 1, cuont: no such key; did you mean count? expected one of name, packet,",
        ),
        ("\"1kpps\"", "\"fast\"", "5:9", "stream 1, rate: invalid rate \"fast\"; expected a rate such as 250kpps"),
        ("dport", "dprot", "4:15", "stream 1, packet: \"dprot\": udp has no \"dprot\"; did you mean dport?"),
        ("=53", "=99999", "4:21", "stream 1, packet: \"99999\": too large for 16 bits; expected at most 65535"),
        (
            "sequential",
            "parallel",
            "1:10",
            "order: invalid value \"parallel\"; expected \"sequential\" or \"interleaved\"",
        ),
        ("count = 1", "next = \"goto two\"", "6:9", "stream 1, next: no stream is called \"two\"; expected one of one"),
        ("count = 1", "check = \"no", "6:12", "invalid basic string"),
    ] {
        std::fs::write(&file, right.replace(is, not)).unwrap();
        let expected_error = format!("{file}:{place}: {expected}");
        run(&["generate", "--to", &format!("pcap:{output}"), "--streams", &file]).with_status(2).says(&expected_error);
        assert_eq!(scratch.names(), ["streams.toml"], "no output file");
    }
    std::fs::write(&file, right).unwrap();
    run(&["generate", "-q", "--to", &format!("pcap:{output}"), "--streams", &file]).good();
}

#[test]
fn endless_streams_need_a_duration() {
    let scratch = Scratch::new();
    let (file, output) = (scratch.file("streams.toml"), format!("pcap:{}", scratch.file("out.pcap")));
    std::fs::write(&file, "[[stream]]\npacket = \"udp\"\nrate = \"1kpps\"\n").unwrap();
    let what = ["generate", "--json", "--to", &output, "--streams", &file];
    // A run without a limit ends on interrupt and reports the error.
    start(&what).interrupt().with_status(2).says("a stream has no count").says("--duration");
    let json = run(&[&what[..], &["--duration", "0.1"]].concat()).good().json();
    assert!((50..=150).contains(&number(&json, "frames")), "{json}");
}

#[test]
fn unsupported_port_options_are_rejected() {
    run(&["generate", "--to", "shm:feed", "--threads", "2", "-k", "udp"])
        .with_status(2)
        .says("one queue")
        .says("--threads");
    for option in ["memory=1", "memory=much", "timeout=soon", "lossless=perhaps"] {
        run(&["generate", "--to", &format!("shm:feed?{option}"), "-k", "udp"]).with_status(2).says("shm:feed?");
    }
    run(&["generate", "--to", "smh:feed", "-k", "udp"]).with_status(2).says("unknown backend \"smh\"").says("xdp-live");
}

#[test]
fn oversized_frames_are_rejected_before_sending() {
    let Some(stage) = Stage::of(&["a:eth0,b:eth0,mtu=9100", "a:eth1,b:eth1"]) else { return };
    stage.take_packets("b", "eth0");
    let short = stage.0.port("a", "eth1", "");
    for (port, name) in [(&short, "eth1"), (&short.replace("packet", "xdp-live"), "eth1")] {
        let what = ["--to", port, "-k", "udp", "--size", "[64:9, 1600:1]", "-c", "10"];
        let expected_error =
            format!("1,600 bytes (with FCS) do not fit {name} (MTU 1,500); send shorter ones, or run ip link");
        generate(&what).with_status(2).says(&expected_error);
    }
    // If the MTU allows it but a path does not, the error names a path that does, and that path works.
    let what = ["-k", "udp", "--size", "9000", "-c", "10", "--rate", "1kpps"];
    let live = generate(&[&["--to", &stage.port("xdp-live", "a")], &what[..]].concat()).with_status(1);
    live.says("frames of 8996 bytes").says("use packet: or xdp:");
    assert_eq!(stage.received("b"), 0);
    let check = stage.checking("b");
    let to = stage.port("packet", "a");
    let json = generate(&[&["--to", &to, "--check", &check, "--lossless"], &what[..]].concat()).good().json();
    assert_eq!((number(&json["check"], "received"), number(&json["check"], "bytes")), (10, 89_960));
}

/// Starts an endless run to a checking receiver.
fn start_endless(stage: &Stage, scheme: &str) -> Running {
    let (to, check) = (stage.port(scheme, "a"), stage.checking("b"));
    let running = start(&[
        "generate", "--json", "--to", &to, "--check", &check, "-k", "udp", "-k", "tcp", "-c", "0", "--rate", "20kpps",
    ]);
    wait_until("frames arrive", || stage.received("b") > 1000);
    running
}

#[test]
fn deleted_interface_ends_the_run_with_a_report() {
    for scheme in ["packet", "xdp", "xdp-live"] {
        let Some(stage) = Stage::up() else { return };
        let running = start_endless(&stage, scheme);
        let started = Instant::now();
        stage.0.ip("a", &["link", "del", "eth0"]);
        let ended = running.end().with_status(1).says(&format!("{scheme}:eth0"));
        assert!(started.elapsed().as_secs() < 8, "{:?}", started.elapsed());
        let json = ended.json();
        assert!(number(&json, "frames") > 1000 && json["balanced"] == true, "{scheme}: {json}");
        assert!(json["failure"].is_string(), "{scheme}: {json}");
        assert!(number(&json["check"], "received") > 1000 && number(&json["check"], "corrupted") == 0, "{json}");
    }
}

#[test]
fn ctrl_c_ends_the_run_with_a_report() {
    for scheme in ["packet", "xdp", "xdp-live"] {
        let Some(stage) = Stage::up() else { return };
        let running = start_endless(&stage, scheme);
        let started = Instant::now();
        let json = running.interrupt().good().json();
        assert!(started.elapsed().as_secs() < 4, "{:?}", started.elapsed());
        let (sent, received) = (number(&json, "frames"), number(&json["check"], "received"));
        assert!(sent > 1000 && received == sent && json["balanced"] == true, "{scheme}: {json}");
        assert_eq!((number(&json["check"], "lost"), &json["failure"]), (0, &serde_json::Value::Null), "{scheme}");
        assert_eq!(json["run"]["interrupted"], true, "{scheme}");
    }
}

/// Starts an endless run of 1,000-byte packets at 1,000 per second.
fn start_slow(stage: &Stage, scheme: &str) -> Running {
    let to = stage.port(scheme, "a");
    let what = ["generate", "--json", "--to", &to, "-k", "udp", "--size", "1000", "-c", "0", "--rate", "1kpps"];
    let running = start(&what);
    wait_until("frames arrive", || stage.received("b") > 100);
    running
}

#[test]
fn sender_resumes_after_link_down() {
    for scheme in SCHEMES {
        for host in ["a", "b"] {
            let Some(stage) = Stage::up() else { return };
            let running = start_slow(&stage, scheme);
            stage.0.ip(host, &["link", "set", "eth0", "down"]);
            thread::sleep(Duration::from_secs(1));
            stage.0.ip(host, &["link", "set", "eth0", "up"]);
            let before = stage.received("b");
            wait_until("packets arrive again", || stage.received("b") > before + 100);
            let json = running.interrupt().good().json();
            let what = format!("{scheme}, {host} down: {json}");
            assert_eq!((counted(&json, "link_down"), json["balanced"].as_bool()), (1, Some(true)), "{what}");
            // Packets in flight, and those built before the link state was noticed.
            assert!(number(&json, "lost") < 200, "{what}");
        }
    }
}

#[test]
fn frames_above_a_lowered_mtu_are_counted_as_too_long() {
    for scheme in ["packet", "xdp-live"] {
        let Some(stage) = Stage::up() else { return };
        let running = start_slow(&stage, scheme);
        stage.0.ip("a", &["link", "set", "eth0", "mtu", "500"]);
        thread::sleep(Duration::from_millis(500));
        stage.0.ip("a", &["link", "set", "eth0", "mtu", "1500"]);
        let before = stage.received("b");
        wait_until("packets arrive again", || stage.received("b") > before + 100);
        let json = running.interrupt().good().json();
        assert!(counted(&json, "too_long") > 50 && json["balanced"] == true, "{scheme}: {json}");
        assert_eq!((counted(&json, "send_refused"), &json["lost"]), (0, &counted(&json, "too_long").into()), "{json}");
    }
}
