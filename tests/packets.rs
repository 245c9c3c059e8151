//! Packets as text: frames of real captures are expressed as text and rebuilt byte for byte; tshark finds valid
//! checksums in packets built from text.
//!
//! `LINERATE_CORPUS` is the corpus; without it, or without tshark, the tests are skipped with a note.

use crate::layers::frames::batches;
use crate::layers::tshark::{MOST_BYTES, Tshark, pcap};
use linerate::generate::packet::{Setup, Sizes, express, frames as made};
use linerate::headers::named::Kind;
use linerate_tests::support::{corpus, has_tools};

/// Minimum percentage of frames expressed as headers; the others are `raw(...)`.
const AT_LEAST: usize = 95;

/// Only every third frame of the corpus is tested.
const STEP: usize = 3;

#[test]
fn real_frames_are_expressed_and_rebuilt() {
    let Some(folder) = corpus(".") else { return };
    let (mut all, mut in_headers) = (0, 0);
    for batch in batches(&folder) {
        let setup = Setup { link: batch.link, sizes: Sizes::Natural(0), ..Setup::default() };
        for frame in batch.frames.iter().step_by(STEP).filter(|frame| (1..MOST_BYTES / 4).contains(&frame.bytes.len()))
        {
            let text = express(batch.link, &frame.bytes);
            all += 1;
            in_headers += usize::from(!text.starts_with("raw("));
            let again = made(&text, &setup);
            let again = again.unwrap_or_else(|wrong| panic!("{} {}: {text}: {wrong}", frame.capture, frame.number));
            assert_eq!(again.variants[0].frame, frame.bytes, "{} {}: {text}", frame.capture, frame.number);
        }
    }
    println!("{in_headers} of {all} frames expressed as headers, all rebuilt");
    assert!(in_headers * 100 >= all * AT_LEAST, "only {in_headers} of {all} frames were expressed as headers");
}

/// Checksum status fields of tshark (1: valid), and its field for malformed data.
const FIELDS: [&str; 11] = [
    "ip.checksum.status",
    "tcp.checksum.status",
    "udp.checksum.status",
    "sctp.checksum.status",
    "icmp.checksum.status",
    "icmpv6.checksum.status",
    "igmp.checksum.status",
    "gre.checksum.status",
    "hip.checksum.status",
    "shim6.checksum.status",
    "_ws.malformed",
];

const CHECKS: [&str; 5] = [
    "ip.check_checksum:TRUE",
    "tcp.check_checksum:TRUE",
    "udp.check_checksum:TRUE",
    "udplite.check_checksum:TRUE",
    "sctp.checksum:CRC-32c",
];

/// Payload that makes a header of each kind complete.
fn inside(kind: &Kind) -> &'static str {
    match kind.name() {
        "sctp" => "/payload(hex=000300160000000100020003000000000102030405060000)",
        "vxlan" | "erspan" | "erspan3" => "/eth/ip/udp/payload(\"hello\")",
        "gtpu" | "geneve" | "gre" | "mpls" | "vlan" | "qinq" | "snap" | "ppp" => "/ip/udp/payload(\"hello\")",
        "pptp" | "pppoe" => "/ppp/ip/udp/payload(\"hello\")",
        "teredo" => "/ip6(src=2001:0:c000:201:0:efff:3fff:fdfe)/udp/payload(\"hello\")",
        "icmp6" => "/payload(hex=00010002aabbccdd)",
        "hbh" | "dstopts" | "routing" | "frag" | "ah" => "/udp/payload(\"hello\")",
        "tcp" | "udp" | "udplite" | "icmp" | "esp" => "/payload(\"hello, how are you\")",
        _ => "",
    }
}

#[test]
fn tshark_accepts_packets_built_from_text() {
    if !has_tools(&["tshark"]) {
        return;
    }
    let ethernet =
        Kind::all().filter(|kind| !["null", "sll", "sll2", "chdlc", "pw", "ach", "vxlangpe"].contains(&kind.name()));
    let mut texts: Vec<String> = ethernet.map(|kind| format!("{}{}", kind.name(), inside(kind))).collect();
    for more in [
        "gre(checksum, key=1, seq=2)/ip6/udp/payload(\"hello\")",
        "ip6/routing(segments=2, segleft=1, addr1=2001:2::9)/tcp(flags=syn, mss=1400, sack_ok, timestamps, wscale=7)",
        "qinq/vlan(id=5)/mpls/mpls(label=77)/ip(options=94040000)/tcp",
        "icmp6(id=1, seq=9)/payload(\"hello\")",
        "ip/ip6/ip/udp(dport=5000)/payload(\"hello\")",
    ] {
        texts.push(more.to_owned());
    }
    let setup = Setup { sizes: Sizes::Natural(0), ..Setup::default() };
    let built =
        |text: &String| made(text, &setup).unwrap_or_else(|wrong| panic!("{text}: {wrong}")).variants.remove(0).frame;
    let built: Vec<Vec<u8>> = texts.iter().map(built).collect();
    let file = pcap(1, built.iter().map(|frame| (frame.len() as u32, &frame[..])));
    let arguments: Vec<&str> = ["-T", "fields"]
        .into_iter()
        .chain(CHECKS.iter().flat_map(|check| ["-o", check]))
        .chain(FIELDS.iter().flat_map(|field| ["-e", field]))
        .collect();
    let output = Tshark::new().run("texts.pcap", &file, &arguments);
    assert_eq!(output.lines().count(), texts.len());
    let (mut faults, mut right) = (String::new(), 0);
    for (text, line) in texts.iter().zip(output.lines()) {
        let values: Vec<&str> = line.split(['\t', ',']).filter(|value| !value.is_empty()).collect();
        right += values.len();
        if values.iter().any(|value| *value != "1") {
            faults += &format!("{text}: {line:?}\n");
        }
    }
    assert!(faults.is_empty(), "{faults}");
    assert!(right > texts.len(), "{right} checksums in {} frames", texts.len());
}
