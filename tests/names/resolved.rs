//! Names that clients resolved to addresses, compared with the DNS answers that tshark reads.

use super::{corpus, has_tools, run};
use serde_json::Value;
use std::collections::HashMap;
use std::process::Command;

/// A DNS answer to a client; `seconds` is the TTL.
struct Answer {
    time: u64,
    name: String,
    addresses: Vec<String>,
    seconds: u64,
}

const FIELDS: [&str; 8] =
    ["frame.time_epoch", "ip.dst", "ipv6.dst", "dns.qry.name", "dns.qry.type", "dns.a", "dns.aaaa", "dns.resp.ttl"];

/// Captures with flows to resolved addresses.
const CAPTURES: [&str; 6] = [
    "real-mix.pcap",
    "ndpi/alexa-app.pcapng",
    "ndpi/iphone.pcap",
    "ndpi/netflix.pcap",
    "ndpi/anyconnect-vpn.pcap",
    "ndpi/dropbox.pcap",
];

#[test]
fn addresses_have_the_names_that_clients_resolved() {
    let Some(folder) = corpus(".") else { return };
    if !has_tools(&["tshark"]) {
        return;
    }
    let (mut named, mut differ) = (0, Vec::new());
    for capture in CAPTURES.map(|name| folder.join(name)).into_iter().filter(|path| path.exists()) {
        let path = capture.to_str().unwrap();
        let answers = answers(path);
        let lines = run(&["flows", "-q", "-r", path, "--names", "dns", "-w", "-"]).good().output;
        for flow in lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            let text = |name: &str| flow[name].as_str().unwrap_or_default().to_owned();
            let first = flow["first_time_ns"].as_u64().unwrap();
            let mut of_client = answers.get(&text("orig_address")).into_iter().flatten();
            let counts = |answer: &&Answer| answer.time < first && answer.addresses.contains(&text("resp_address"));
            let newest = of_client.rfind(counts);
            let is_good = |answer: &&Answer| first <= answer.time + answer.seconds.clamp(60, 86_400) * 1_000_000_000;
            let is_asked = matches!(flow["protocol"].as_u64(), Some(6 | 17));
            let theirs = newest.filter(is_good).filter(|_| is_asked).map(|answer| answer.name.as_str());
            let ours = flow["resp"]["resolved"].as_str();
            named += usize::from(ours.is_some());
            if ours != theirs {
                differ.push(format!(
                    "{path}: {} to {}: {ours:?}, {theirs:?}",
                    text("orig_address"),
                    text("resp_address")
                ));
            }
        }
    }
    println!("{named} flows to resolved addresses");
    assert!(differ.is_empty(), "{differ:#?}");
    assert!(named > 100, "{named}");
}

/// DNS answers per client, in order of arrival.
fn answers(capture: &str) -> HashMap<String, Vec<Answer>> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-r", capture, "-T", "fields", "-E", "occurrence=a"]);
    tshark.args(["-Y", "udp.srcport == 53 && dns.flags.response == 1 && dns.flags.rcode == 0"]);
    tshark.args(FIELDS.iter().flat_map(|field| ["-e", field]));
    let output = String::from_utf8(tshark.output().expect("tshark").stdout).unwrap();
    let mut all: HashMap<String, Vec<Answer>> = HashMap::new();
    for line in output.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let [time, v4, v6, name, kind, a, aaaa, seconds] = columns[..] else { panic!("{line}") };
        let (whole, part) = time.split_once('.').unwrap();
        let time = whole.parse::<u64>().unwrap() * 1_000_000_000 + part.parse::<u64>().unwrap();
        let addresses: Vec<String> =
            a.split(',').chain(aaaa.split(',')).filter(|a| !a.is_empty()).map(str::to_owned).collect();
        if addresses.is_empty() || !["1", "28"].contains(&kind) {
            continue;
        }
        let seconds = seconds.split(',').filter_map(|one| one.parse::<u64>().ok()).min().unwrap_or_default();
        let client = if v4.is_empty() { v6 } else { v4 };
        all.entry(client.into()).or_default().push(Answer { time, name: name.into(), addresses, seconds });
    }
    all
}
