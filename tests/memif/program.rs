//! The program at both ends, as its users run it.

use super::peer::name;
use linerate_tests::support::program::{launch, run, start};
use linerate_tests::support::records::{assert_same_frames, read};
use linerate_tests::support::{Scratch, wait_until};
use serde_json::Value;
use std::time::Duration;

/// What is sent.
const PACKET: [&str; 2] = ["-k", "ip(dst=10.0.0.1..10.0.0.9)/udp(dport=53)"];

/// A path that any user may make a socket at.
fn socket(scratch: &Scratch) -> String {
    format!("memif:{}", scratch.file("m.sock"))
}

#[test]
fn a_capture_has_what_was_sent_whoever_listens() {
    let scratch = Scratch::new();
    let (port, sent) = (socket(&scratch), scratch.file("sent.pcap"));
    let what = ["-c", "20000", "--size", "imix", "--rate", "max", "-q"];
    run(&[&["generate", "--to", &format!("pcap:{sent}")], &PACKET[..], &what].concat()).good();
    for (own, other) in [("server", "client"), ("client", "server")] {
        let got = scratch.file("got.pcap");
        let (from, to) = (format!("{port}?role={own}"), format!("{port}?role={other}"));
        let capture = start(&["capture", &from, "-c", "20000", "-q", "-w", &got, "-Z", "root"]);
        run(&[&["generate", "--to", &to, "-Z", "root"], &PACKET[..], &what].concat()).good();
        capture.end().good();
        assert_same_frames(own, &read(&got), &read(&sent));
        assert_eq!(scratch.names(), ["got.pcap", "sent.pcap"], "the socket stays");
    }
}

#[test]
fn one_process_checks_what_it_sends_over_four_rings() {
    let name = name();
    let (to, from) = (format!("memif:{name}?rings-out=4"), format!("memif:{name}?role=server&rings-in=4"));
    let what = ["--threads", "4", "--json", "-q", "-c", "20000", "--rate", "max", "--size", "64..9000"];
    let json = run(&[&["generate", "--to", &to, "--check", &from], &PACKET[..], &what].concat()).good();
    let json = json.json();
    // Of four rings, in no order: one that is overtaken by thousands is taken for lost before it comes.
    assert_eq!(json["streams"][0]["check"]["received"], 20_000, "{json}");
    assert_eq!(json["streams"][0]["check"]["duplicated"], 0, "{json}");
}

#[test]
fn a_wire_joins_two_of_them() {
    let names = [name(), name()];
    let ports = names.each_ref().map(|name| format!("memif:{name}?role=server"));
    let wire = start(&["bridge", &ports[0], &ports[1], "--json"]);
    let others = names.map(|name| format!("memif:{name}"));
    let what = ["--json", "-q", "-c", "5000", "--rate", "50kpps"];
    let checked = run(&[&["generate", "--to", &others[0], "--check", &others[1]], &PACKET[..], &what].concat()).good();
    let json = checked.json();
    assert_eq!(
        (&json["streams"][0]["check"]["lost"], &json["streams"][0]["check"]["received"]),
        (&Value::from(0), &Value::from(5_000)),
        "{json}"
    );
    let wired = wire.interrupt().good();
    assert!(wired.output.contains("5000"), "{}", wired.output);
}

/// Confined, without the rights that it began with: it connects again to whoever comes next.
#[test]
fn a_client_waits_for_its_server_and_for_the_next_one() {
    let name = name();
    let count = launch(&["count", &format!("memif:{name}"), "-c", "30", "--json", "--interval", "0", "-Z", "root"]);
    count.wait_until_open();
    for _ in 0..3 {
        let to = format!("memif:{name}?role=server");
        run(&[&["generate", "--to", &to, "-c", "10", "--rate", "1kpps", "-q"], &PACKET[..]].concat()).good();
    }
    let summary = count.end().good();
    let line = summary.output.lines().last().unwrap();
    assert!(line.contains("\"frames\":30"), "{line}");
}

#[test]
fn a_wrong_secret_ends_the_run_with_the_reason() {
    let name = name();
    let server = start(&["count", &format!("memif:{name}?role=server&secret=hush"), "--json", "--interval", "0"]);
    let ended =
        run(&[&["generate", "--to", &format!("memif:{name}?secret=hum"), "-c", "1", "-q"], &PACKET[..]].concat());
    assert_ne!(ended.status, 0);
    ended.says("refused by the server: incorrect secret").says("secret=...");
    let counted = server.interrupt();
    assert!(counted.output.contains("peers_refused"), "{}", counted.output);
}

/// Whoever waits for nobody is told so once, and when somebody comes and goes; the secret is in no line.
#[test]
fn a_client_says_that_it_waits_and_that_its_server_came() {
    let name = name();
    let port = format!("memif:{name}?secret=hush");
    let mut count = launch(&["count", &port, "-c", "20", "--interval", "0", "-Z", "root"]);
    let heard = count.hear();
    let says = |what: &str| heard.lock().unwrap().matches(what).count();
    wait_until("it reports that no server is there", || says("no server is listening") == 1);
    // It tries again meanwhile.
    std::thread::sleep(Duration::from_millis(800));
    assert_eq!(says("no server is listening"), 1);
    for round in 1..=2 {
        let to = format!("memif:{name}?role=server&secret=hush");
        run(&[&["generate", "--to", &to, "-c", "10", "--rate", "1kpps", "-q"], &PACKET[..]].concat()).good();
        wait_until("it reports the connection", || says("connected with linerate") == round);
        assert!(round == 2 || says("peer disconnected") <= 1);
    }
    count.end().good();
    let heard = heard.lock().unwrap().clone();
    assert!(heard.contains("secret=...") && !heard.contains("hush"), "{heard}");
}
