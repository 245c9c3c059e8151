//! The kernel's bridge as the device under test.

use linerate_tests::support::program::run;
use linerate_tests::support::schema::assert_reported;
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{judge, may_make_labs, tool};
use serde_json::Value;

/// A bridge between two ports of the tester, and a third host that no packet is meant for.
fn scene() -> Wire {
    let links = ["a:p0,br:b0", "a:p1,br:b1", "c:eth0,br:b2"].map(|link| format!("{link},offloads=off"));
    let lab = Wire::of(&links.each_ref().map(String::as_str));
    lab.ip("br", &["link", "add", "bridge0", "type", "bridge"]);
    for port in ["b0", "b1", "b2"] {
        lab.ip("br", &["link", "set", port, "master", "bridge0"]);
    }
    lab.ip("br", &["link", "set", "bridge0", "up"]);
    lab
}

fn number(json: &Value, name: &str) -> u64 {
    json[name].as_u64().unwrap()
}

/// Number of packets received by the third host.
fn flooded_packets(lab: &Wire) -> u64 {
    let shown = tool("ip", &["-n", &lab.namespace("c"), "-s", "-j", "link", "show", "eth0"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    number(&shown[0]["stats64"]["rx"], "packets")
}

#[test]
fn bridge_learns_addresses_before_trials() {
    if !may_make_labs() {
        return;
    }
    let lab = scene();
    let (to, check) = (lab.port("a", "p0", ""), lab.port("a", "p1", "&ring=32MiB"));
    let ends = ["measure", "--to", &to, "--check", &check, "--json", "--settle", "0", "--size", "128"];
    let rate = ["--method", "mrr", "--max", "4kpps", "--trial", "0.25", "--repeat", "2"];
    let packets: Vec<String> = (1..=4).map(|host| format!("ip(dst=198.19.0.{host})/udp")).collect();
    let packets: Vec<&str> = packets.iter().flat_map(|packet| ["-k", packet]).collect();
    for (more, directions) in [(&[][..], 1), (&["--learn"], 1), (&["--learn", "--both"], 2)] {
        // Clears the learned addresses.
        lab.ip("br", &["link", "set", "bridge0", "down"]);
        lab.ip("br", &["link", "set", "bridge0", "up"]);
        for port in ["b0", "b1", "b2"] {
            lab.ip("br", &["link", "set", port, "type", "bridge_slave", "fdb_flush"]);
        }
        let before = flooded_packets(&lab);
        let json = run(&[&ends[..], &rate, &packets, more].concat()).good().json();
        assert_reported(&json);
        let flooded = flooded_packets(&lab) - before;
        let trials = json["sizes"][0]["trials"].as_array().unwrap();
        // A trial in which the tester was late is repeated.
        assert!((2..=8).contains(&trials.len()), "{json}");
        let sent: u64 = trials.iter().map(|trial| number(trial, "sent")).sum();
        assert!(sent > 1000, "{json}");
        match more.contains(&"--learn") {
            false => assert!(flooded >= sent, "unknown addresses are flooded: {flooded} of {sent}"),
            true => assert!(flooded < sent / 4, "known addresses are not flooded: {flooded} of {sent}"),
        }
        for trial in trials {
            let ways = trial["directions"].as_array().unwrap();
            assert_eq!(ways.len(), directions, "{trial}");
            for way in ways {
                let streams = way["streams"].as_array().unwrap();
                let sum = |name: &str| streams.iter().map(|stream| number(stream, name)).sum::<u64>();
                assert_eq!((streams.len(), sum("sent"), sum("lost")), (4, number(way, "sent"), number(way, "lost")));
                assert_eq!(number(way, "received") + number(way, "lost"), number(way, "sent"), "{way}");
                assert_eq!(number(way, "duplicated"), 0, "{way}");
                judge(number(way, "lost") == 0, &way.to_string());
            }
        }
    }
}
