//! The verb: on files, between hosts, and while its rules change.

use linerate_tests::support::program::{linerate, run, start};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, may_make_labs, records, wait_until};
use serde_json::Value;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

/// Writes two traffic files: 400 UDP frames to ports 1 to 4 each, from one host at each port.
fn files(scratch: &Scratch) -> [String; 2] {
    [("a.pcap", "02:00:00:00:00:01", "02:00:00:00:00:02"), ("b.pcap", "02:00:00:00:00:02", "02:00:00:00:00:01")].map(
        |(name, source, destination)| {
            let (file, link) = (scratch.file(name), format!("eth(src={source},dst={destination})/ip/udp(dport=1..4)"));
            run(&["generate", "--to", &format!("pcap:{file}"), "-k", &link, "-c", "400"]).good();
            format!("pcap:{file}")
        },
    )
}

fn count(json: &Value, name: &str) -> u64 {
    let accounts = json["accounts"].as_array().expect("accounts");
    let account = accounts.iter().find(|account| account["stage"] == "switch").expect("an account of the switch");
    account[name].as_u64().or(account["drops"][name].as_u64()).unwrap_or(0)
}

#[test]
fn rules_split_the_packets_of_files() {
    let scratch = Scratch::new();
    let [a, b] = files(&scratch);
    let (rules, out) = (scratch.file("rules.txt"), scratch.file("out"));
    std::fs::write(
        &rules,
        "# web by the third port\npriority=9,udp,in_port=left,tp_dst=1/0xfffe,actions=mod_tp_dst:80,3\n\n",
    )
    .unwrap();
    let third = format!("third=pcap:{}", scratch.file("b.pcap"));
    let left = format!("left={a}");
    run(&["switch", &left, &third, "--rules", &rules, "--out", &out]).with_status(2).says("unknown port or action");
    std::fs::write(
        &rules,
        "# web by the third port\npriority=9,udp,in_port=left,tp_dst=1,actions=mod_tp_dst:80,third\n\n",
    )
    .unwrap();
    let said =
        run(&["switch", &left, &third, "--rules", &rules, "--rule", "in_port=2,actions=drop", "--out", &out, "--json"])
            .good();
    let json = said.json();
    assert_eq!(json["ports"][0]["received"], 400, "{json}");
    assert_eq!((&json["ports"][0]["sent"], &json["ports"][1]["sent"]), (&0.into(), &100.into()), "{json}");
    assert_eq!(json["rules"][0]["n_packets"], 400, "{json}");
    assert_eq!(
        (count(&json, "rule_drop"), count(&json, "no_rule"), count(&json, "delivered")),
        (400, 300, 100),
        "{json}"
    );
    assert_eq!(json["imbalances"].as_array().map_or(0, Vec::len), 0, "{json}");
    let frames = records::read(&scratch.file("out/third.pcap"));
    assert_eq!(frames.len(), 100);
    assert!(frames.iter().all(|frame| frame.bytes[36..38] == [0, 80]), "the port was changed");
    run(&["switch", &left, &left, "--out", &out]).with_status(2).says("given twice");
    run(&["switch", &left, &b]).with_status(2).says("--out DIR");
    run(&["switch", &left]).with_status(2).says("needs 2 to 1000 ports");
}

/// Existing files are kept; the stale socket of a killed run is replaced, and removed at the end.
#[test]
fn existing_files_are_not_overwritten() {
    let scratch = Scratch::new();
    let [a, b] = files(&scratch);
    let (mine, out, socket) = (scratch.file("mine"), scratch.file("out"), scratch.file("socket"));
    std::fs::write(&mine, "of somebody").unwrap();
    let with = |out: &str, control: &str| run(&["switch", &a, &b, "--out", out, "--control", control]);
    with(&out, &mine).with_status(2).says("exists and is not a socket");
    with(&mine, &socket).with_status(2).says("not a directory");
    assert_eq!(std::fs::read_to_string(&mine).unwrap(), "of somebody");
    let listening = UnixListener::bind(&socket);
    with(&out, &socket).with_status(2).says("in use by another process");
    drop(listening);
    let ended = with(&out, &socket).good();
    assert!(ended.output.contains("\n  1 rule, 2 MACs learned\n"), "{}", ended.output);
    assert!(!Path::new(&socket).exists(), "the socket is removed at the end");
}

#[test]
fn switch_without_rules_is_a_bridge() {
    let scratch = Scratch::new();
    let [a, b] = files(&scratch);
    let out = scratch.file("out");
    let json =
        run(&["switch", &a, &b, "--out", &out, "--json", "--vlan", "1:access=7", "--vlan", "2:trunk=7"]).good().json();
    // Frames of the second file are untagged, and its port has no native VLAN.
    assert_eq!(
        (count(&json, "received"), count(&json, "unknown_vlan"), count(&json, "delivered")),
        (800, 400, 400),
        "{json}"
    );
    let frames = records::read(&scratch.file("out/2.pcap"));
    assert!(frames.len() == 400 && frames.iter().all(|frame| frame.bytes[12..16] == [0x81, 0, 0, 7]), "tagged");
}

/// Two hosts, joined by the switch, reach each other, and rules change under traffic without loss.
#[test]
fn hosts_reach_each_other_while_rules_change() {
    if !may_make_labs() {
        return;
    }
    let links = ["a:eth0,mid:p0,offloads=off", "b:eth0,mid:p1,offloads=off"];
    let (wire, scratch) = (Wire::of(&links), Scratch::new());
    let (socket, ports) = (scratch.file("control"), [wire.port("mid", "p0", ""), wire.port("mid", "p1", "")]);
    let switch = start(&["switch", &ports[0], &ports[1], "--control", &socket, "--json"]);
    wait_until("the switch listens", || ctl(&socket, &["dump-ports"]).is_ok());
    let flows = ctl(&socket, &["dump-flows"]).unwrap();
    assert!(flows.contains("priority=0 actions=NORMAL"), "{flows}");
    let (to, check) = (wire.port("a", "eth0", ""), wire.port("b", "eth0", ""));
    let mut sender =
        linerate(&["generate", "--to", &to, "--check", &check, "--udp", "-c", "4000", "--rate", "2kpps", "--json"]);
    let sender = sender.stdout(std::process::Stdio::piped()).spawn().expect("a sender");
    for round in 0..20 {
        let rule = format!("priority={},in_port=1,actions=output:2", 10 + round);
        ctl(&socket, &["add-flow", &rule, "priority=5,arp,actions=flood"]).unwrap();
        if round % 3 == 2 {
            assert!(ctl(&socket, &["del-flows", "in_port=1"]).unwrap().contains("rules removed"));
        }
    }
    let sent = sender.wait_with_output().expect("the output of the sender");
    let sent: Value = serde_json::from_slice(&sent.stdout).expect("JSON");
    assert_eq!(sent["streams"][0]["check"]["received"], 4000, "{sent}");
    assert!(ctl(&socket, &["fdb"]).unwrap().starts_with(" port  VLAN  MAC"));
    let error = ctl(&socket, &["add-flow", "tp_dst=80,actions=drop"]).unwrap_err();
    assert!(error.contains("; add it"), "{error}");
    assert_eq!(ctl(&socket, &["add-flow", "priority=7,udp,actions=drop"]), Ok(String::new()));
    let overlap = ctl(&socket, &["add-flow", "priority=7,udp,tp_dst=9,actions=flood"]).unwrap();
    assert!(overlap.starts_with("note: overlaps udp with the same priority"), "{overlap}");
    let rules = scratch.file("rules");
    std::fs::write(&rules, "actions=drop\n").unwrap();
    ctl(&socket, &["replace-flows", &rules]).unwrap();
    let flows = ctl(&socket, &["dump-flows"]).unwrap();
    assert!(flows.lines().count() == 1 && flows.contains("n_packets="), "{flows}");
    let json = switch.interrupt().good().json();
    assert!(count(&json, "delivered") >= 4000 && json["ports"][1]["port_full"] == 0, "{json}");
    assert!(ctl(&socket, &["dump-flows"]).is_err(), "the switch has exited");
}

/// A connecting peer is logged when it connects, not only at the end.
#[test]
fn port_events_are_logged_at_once() {
    let scratch = Scratch::new();
    let [one, other] = ["one", "other"].map(|name| format!("memif:{}?role=server", scratch.file(name)));
    let mut switch = start(&["switch", &one, &other, "--interval", "0"]);
    let log = switch.collect_errors();
    let peer = start(&["count", &one.replace("server", "client"), "-q"]);
    wait_until("the connection is logged", || log.lock().unwrap().contains(&format!("s  {one}: ")));
    peer.interrupt().good();
    switch.interrupt().good();
}

/// Runs `ctl` on the socket of a switch and returns its output, or its error text.
pub(super) fn ctl(socket: &str, words: &[&str]) -> Result<String, String> {
    let mut command: Command = linerate(&[&["ctl", socket][..], words].concat());
    let output = command.output().expect("the program");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Returns the account of the switch, or of frames returned to it from a ring.
pub(super) fn account(json: &Value, subject: &str) -> Value {
    let accounts = json["accounts"].as_array().expect("accounts");
    let found = accounts.iter().find(|account| account["stage"] == "switch" && account["subject"] == subject);
    found.unwrap_or_else(|| panic!("no account of {subject:?}: {json:#}")).clone()
}
