//! Counts and times of level `tcp`, compared with tshark's analysis of the same captures.

use crate::flows::analysis::{Analysis, NAMES, RoundTrips, Way, analyse};
use linerate_tests::support::program::run;
use linerate_tests::support::{corpus, files, has_tools};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// All captures of these folders, and more captures with keep-alives, every class of retransmission, and heavy loss.
const FOLDERS: [&str; 2] = ["zeek", "flowtest/pcap"];
const MORE: [&str; 9] = [
    "anyconnect-vpn.pcap",
    "bt-http.pcapng",
    "iphone.pcap",
    "log4j-webapp-exploit.pcap",
    "netflix.pcap",
    "nintendo.pcap",
    "resp.pcap",
    "thrift.pcap",
    "waze.pcap",
];

/// Capture, difference, and the definition of `docs/flows.md` that explains it. The list is exact.
const EXPLAINED: [(&str, &str, &str); 25] = [
    // Frames 21, 34, 294 repeat a final acknowledgement. Frame 31 starts with 24 bytes that frame 30 had 2 µs before.
    ("flowtest/pcap/ovpn.pcap", "duplicate acks: 3, tshark 6", NOTHING_OPEN),
    ("flowtest/pcap/ovpn.pcap", "out of order: 0, tshark 1", NO_HOLE),
    ("flowtest/pcap/ovpn.pcap", "retransmitted: 9, tshark 8", NO_HOLE),
    // Frame 16: both FIN of frames 13 and 14 are acknowledged by frame 15.
    ("flowtest/pcap/tls13_0rtt.pcap", "duplicate acks: 0, tshark 1", NOTHING_OPEN),
    ("flowtest/pcap/ipv6-routing-header.pcap", THERE, TWO_STREAMS),
    ("flowtest/pcap/ipv6-routing-header.pcap", BACK, TWO_STREAMS),
    // Frames 169 to 172: neither side has sent anything yet.
    ("ndpi/anyconnect-vpn.pcap", "duplicate acks: 18, tshark 22", NOTHING_OPEN),
    // Frames 6 to 14 repeat a FIN, with 7.2 s between frames 11 and 12: frame 12 starts another record.
    ("ndpi/bt-http.pcapng", "retransmitted: 7, tshark 8", SILENCE),
    // Frames 93 and 154 repeat frames 92 and 153, which acknowledge everything sent.
    ("ndpi/iphone.pcap", "duplicate acks: 0, tshark 2", NOTHING_OPEN),
    // Frame 420 is a RST with ACK, 141 µs after its SYN.
    ("ndpi/log4j-webapp-exploit.pcap", LOG4J, NO_SYN_ACK),
    // Frames 110 and 176 are a pure ACK, with the number after the FIN of frames 111 and 177.
    ("ndpi/nintendo.pcap", "gaps: 0, tshark 2", NO_SEGMENT),
    ("ndpi/nintendo.pcap", "retransmitted: 0, tshark 2", NO_SEGMENT),
    // Frames 63, 232, 523, 531, 574 repeat the acknowledgement of the FIN, which was received twice.
    ("ndpi/waze.pcap", "duplicate acks: 0, tshark 5", NOTHING_OPEN),
    // Every frame is duplicated. Frame 4: only the SYN-ACK was sent; frame 12: no data after the FIN. Frame 8: as 7.
    ("zeek/ctu-64702-888.pcap", "duplicate acks: 2, tshark 4", NOTHING_OPEN),
    ("zeek/ctu-64702-888.pcap", "out of order: 1, tshark 2", COPY),
    ("zeek/ctu-64702-888.pcap", "retransmitted: 4, tshark 3", COPY),
    // Frame 2, a FIN, has the number of the SYN and precedes the answer.
    ("zeek/fin_retransmission.pcap", "handshakes: [], tshark [307131]", RETRANSMITTED),
    // Frame 1 is the SYN-ACK, frame 2 the SYN.
    ("zeek/handshake-reorder.pcap", "handshakes: [], tshark [34]", ANSWER_FIRST),
    // Frame 13: frame 11 acknowledges the FIN of frame 8, and only RST follow it.
    ("zeek/qi_internet_SYNACK_curl_jsonip.pcap", "duplicate acks: 0, tshark 1", NOTHING_OPEN),
    // Frames 8, 10, 12 are a FIN; the other side has sent only payload since frame 3, the first acknowledgement.
    ("zeek/reassembly.pcap", "fast: 0, tshark 3", WITH_PAYLOAD),
    // Frame 2 is a RST with ACK, frame 3 the SYN with ACK.
    ("zeek/rst-inject-rae.pcap", "handshakes: [1267864], tshark [233736]", NO_SYN_ACK),
    // Every frame is there four times. Example: before frames 9 to 11, frame 8 acknowledges everything.
    ("zeek/ssh-dups.pcap", "duplicate acks: 6, tshark 114", NOTHING_OPEN),
    ("zeek/ssh-dups.pcap", "fast: 0, tshark 92", NOTHING_OPEN),
    // Frame 2 is a pure ACK.
    ("zeek/syn-then-ack-then-rst.pcap", "handshakes: [], tshark [309]", NO_SYN_ACK),
    ("zeek/syn-then-stuff-then-rst.pcap", "handshakes: [], tshark [306]", NO_SYN_ACK),
];

const NOTHING_OPEN: &str = "duplicate_acks: the other side has sent beyond that number; tshark does not look at it";
const WITH_PAYLOAD: &str =
    "duplicate_acks: no payload; tshark counts segments with payload before a fast retransmission";
const NO_HOLE: &str = "out of order: fills part of a hole; tshark looks only at the time";
const COPY: &str = "copy: the identification of the segment before; tshark does not look at it";
const RETRANSMITTED: &str = "syn_to_syn_ack: a segment retransmitted before its answer is not timed";
const ANSWER_FIRST: &str = "rtt: an answer before its segment does not count; tshark times the SYN to the last ACK";
const NO_SYN_ACK: &str = "syn_to_syn_ack: of a SYN and a SYN with ACK; tshark takes any answer";
const TWO_STREAMS: &str = "a flow is both directions; tshark makes two streams of them because of the routing header";

const NO_SEGMENT: &str = "gap: a segment begins beyond next, and a pure ACK is none; tshark advances with any number";
const SILENCE: &str = "end: FIN in both directions, then 5 s of silence; first: none before it in its direction";

const LOG4J: &str = "handshakes: [183, 217, 273, 312, 330, 1378], tshark [141, 183, 217, 274, 312, 331, 1379]";
const THERE: &str = "round trips of [(\"fc00:2:0:2::1\", 43424), (\"fc00:2:0:1::1\", 8080)]: \
                     Some(RoundTrips { count: 2, min: 22, max: 80, sum: 102 }), by tshark's numbers None";
const BACK: &str = "round trips of [(\"fc00:2:0:1::1\", 8080), (\"fc00:2:0:2::1\", 43424)]: \
                    Some(RoundTrips { count: 2, min: 17, max: 20, sum: 37 }), by tshark's numbers None";

/// Tolerance of handshakes in µs: each of ours consists of two times in units of 1,024 ns, rounded down.
const CUT: u64 = 2;

#[test]
fn differences_from_tshark_follow_from_definitions() {
    let Some(root) = corpus("") else { return };
    if !has_tools(&["tshark"]) {
        return;
    }
    let mut captures: Vec<PathBuf> = FOLDERS.iter().flat_map(|folder| files(&root.join(folder))).collect();
    captures.extend(MORE.map(|name| root.join("ndpi").join(name)));
    captures.retain(|path| path.to_string_lossy().contains(".pcap"));
    let (found, with_tcp, next) = (Mutex::new(BTreeSet::new()), AtomicUsize::new(0), AtomicUsize::new(0));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(path) = captures.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Some(ours) = metered(path) else { continue };
                    let theirs = analyse(path);
                    with_tcp.fetch_add(1, Ordering::Relaxed);
                    let differences = differences(&ours, &theirs).into_iter().map(|what| (name_of(&root, path), what));
                    found.lock().expect("no panic").extend(differences);
                }
            });
        }
    });
    let explained: BTreeSet<(String, String)> =
        EXPLAINED.iter().map(|(name, what, _)| ((*name).to_owned(), (*what).to_owned())).collect();
    let found = found.into_inner().expect("no panic");
    println!("{with_tcp:?} captures with TCP, {} differences", found.len());
    let unexplained: Vec<_> = found.difference(&explained).collect();
    let gone: Vec<_> = explained.difference(&found).collect();
    assert!(unexplained.is_empty() && gone.is_empty(), "unexplained: {unexplained:#?}\nno longer found: {gone:#?}");
    assert!(with_tcp.into_inner() > 60, "captures with TCP");
}

fn name_of(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).expect("a file of the corpus").to_string_lossy().into_owned()
}

/// Returns the analysis of our records, if any is of TCP.
pub(super) fn metered(path: &Path) -> Option<Analysis> {
    let path = path.to_str().expect("a path in UTF-8");
    let ended = run(&["flows", "-r", path, "--level", "tcp", "--max-flows", "16384", "--write", "-"]).good();
    let (mut analysis, mut has_tcp) = (Analysis::default(), false);
    for line in ended.output.lines() {
        let record: Value = serde_json::from_str(line).expect("a line of JSON");
        has_tcp |= record["protocol"] == 6;
        if record["tcp"].is_object() {
            add(&record, &mut analysis);
        }
    }
    analysis.handshakes.sort();
    has_tcp.then_some(analysis)
}

fn add(record: &Value, analysis: &mut Analysis) {
    let number = |json: &Value, name: &str| json[name].as_u64().unwrap_or_else(|| panic!("no {name}: {json}"));
    let ends = ["orig", "resp"].map(|side| {
        let address = record[format!("{side}_address")].as_str().expect("an address");
        (address.to_owned(), number(record, &format!("{side}_port")))
    });
    for (side, to) in [("orig", 1), ("resp", 0)] {
        let (all, way): (&Value, Way) = (&record[side], [ends[1 - to].clone(), ends[to].clone()]);
        let (tcp, again) = (&all["tcp"], &all["tcp"]["retransmitted"]);
        let again = |name: &str| number(again, name);
        let counts = [
            number(all, "packets"),
            again("timeout") + again("fast") + again("spurious") + again("unseen") + number(tcp, "copies"),
            again("fast"),
            again("spurious"),
            number(tcp, "out_of_order"),
            number(tcp, "keep_alives"),
            number(tcp, "zero_windows"),
            number(tcp, "window_probes"),
            number(tcp, "gaps"),
            number(tcp, "duplicate_acks"),
        ];
        analysis.counts.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        let (rtt, count) = (&tcp["rtt"], number(&tcp["rtt"], "count"));
        if count > 0 {
            let [min, max] = ["min_ns", "max_ns"].map(|name| number(rtt, name) >> 10);
            let mean = rtt["mean_ns"].as_f64().expect("a mean");
            let one = RoundTrips { count, min, max, sum: (mean * count as f64 / 1024.0).round() as u64 };
            analysis.round_trips.entry(way).and_modify(|all| all.add(one)).or_insert(one);
        }
    }
    let [there, back] = ["syn_to_syn_ack_ns", "syn_ack_to_ack_ns"].map(|name| record["tcp"][name].as_u64());
    analysis.handshakes.extend(there.zip(back).map(|(there, back)| (there + back) / 1000));
}

/// Describes each difference.
pub(super) fn differences(ours: &Analysis, theirs: &Analysis) -> Vec<String> {
    let mut found = Vec::new();
    for ((name, ours), theirs) in NAMES.iter().zip(ours.counts).zip(theirs.counts) {
        if ours != theirs {
            found.push(format!("{name}: {ours}, tshark {theirs}"));
        }
    }
    let (these, those) = (&ours.handshakes, &theirs.handshakes);
    let is_near = these.len() == those.len() && these.iter().zip(those).all(|(one, other)| one.abs_diff(*other) <= CUT);
    if !is_near {
        found.push(format!("handshakes: {these:?}, tshark {those:?}"));
    }
    let ways: BTreeSet<&Way> = ours.round_trips.keys().chain(theirs.round_trips.keys()).collect();
    for way in ways {
        let [one, other] = [ours, theirs].map(|all| all.round_trips.get(way));
        if one != other {
            found.push(format!("round trips of {way:?}: {one:?}, by tshark's numbers {other:?}"));
        }
    }
    found
}
