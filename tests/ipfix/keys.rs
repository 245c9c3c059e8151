//! Packets and bytes of every flow key in the corpus: `nfdump` compared with JSON records.

use super::exporter::Nfcapd;
use super::{SEED, lines_of};
use linerate_tests::support::program::run;
use linerate_tests::support::{Scratch, corpus, files, has_tools};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::Command;

/// Source, destination, ports and protocol. ICMP has ports 0 here, as programs encode type and code differently.
type Key = (IpAddr, IpAddr, u16, u16, u8);

/// Records, packets and bytes.
type Sums = BTreeMap<Key, [u64; 3]>;

/// Captures read per run: the maximum that is merged.
const AT_A_TIME: usize = 120;
/// Minimum number of keys in the corpus.
const AT_LEAST: usize = 7000;

fn add(sums: &mut Sums, (from, to, ports, protocol): (IpAddr, IpAddr, [u16; 2], u8), packets: u64, bytes: u64) {
    let [one, other] = if matches!(protocol, 1 | 58) { [0; 2] } else { ports };
    let sum = sums.entry((from, to, one, other, protocol)).or_default();
    sum.iter_mut().zip([1, packets, bytes]).for_each(|(sum, more)| *sum += more);
}

#[test]
fn all_captures_have_the_same_sums_by_key() {
    let Some(folder) = corpus(".").filter(|_| has_tools(&["nfcapd", "nfdump"])) else { return };
    let is_capture = |path: &str| [".pcap", ".pcapng", ".cap"].iter().any(|ending| path.ends_with(ending));
    let all = files(&folder).into_iter().map(|path| path.to_str().unwrap().to_owned());
    let captures: Vec<String> = all.filter(|path| is_capture(path)).collect();
    let scratch = Scratch::new();
    let (nfcapd, lines) = (Nfcapd::start(&scratch), scratch.file("flows.jsonl"));
    let target = format!("ipfix+udp://127.0.0.1:{}", nfcapd.port);
    let (mut ours, mut theirs) = (Sums::new(), Sums::new());
    for (number, some) in captures.chunks(AT_A_TIME).enumerate() {
        let profile = format!("mtu=1400,rate=60000,domain={}", number + 1);
        let inputs = some.iter().flat_map(|path| ["-r", path]);
        let mut arguments = vec!["flows", "-q", "-w", &lines, "-w", &target, "--ipfix", &profile];
        arguments.extend(SEED.into_iter().chain(inputs));
        run(&arguments).good();
        for flow in lines_of(&lines) {
            let [one, other] = ["orig", "resp"].map(|side| {
                let address = flow[format!("{side}_address")].as_str().unwrap().parse().unwrap();
                (address, flow[format!("{side}_port")].as_u64().unwrap() as u16, &flow[side])
            });
            for ((from, port, side), (to, other, _)) in [(one, other), (other, one)] {
                let [packets, bytes] = ["packets", "packet_bytes"].map(|name| side[name].as_u64().unwrap());
                if packets > 0 {
                    let protocol = flow["protocol"].as_u64().unwrap() as u8;
                    add(&mut ours, (from, to, [port, other], protocol), packets, bytes);
                }
            }
        }
    }
    let words = ["-q", "-N", "-6", "-o", "fmt:%sa,%da,%sp,%dp,%pr,%ipkt,%ibyt", "-r", &nfcapd.end()];
    let output = Command::new("nfdump").args(words).output().unwrap();
    for line in String::from_utf8(output.stdout).unwrap().lines().filter(|line| line.contains(',')) {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let [from, to, port, other, protocol, packets, bytes] = cells[..] else { panic!("{line}") };
        let ports = [port, other].map(|port| port.split('.').next().unwrap().parse().unwrap());
        let key = (from.parse().unwrap(), to.parse().unwrap(), ports, protocol.parse().unwrap());
        add(&mut theirs, key, packets.parse().unwrap(), bytes.parse().unwrap());
    }
    let differ = |(key, sums): &(&Key, &[u64; 3])| theirs.get(key) != Some(sums);
    let differ: Vec<_> = ours.iter().filter(differ).map(|(key, sums)| (key, sums, theirs.get(key))).collect();
    assert!(differ.is_empty() && ours.len() == theirs.len(), "{differ:#?}, {} {}", ours.len(), theirs.len());
    assert!(captures.len() > 1200 && ours.len() >= AT_LEAST, "{} keys of {} captures", ours.len(), captures.len());
}
