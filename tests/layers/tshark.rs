//! Protocols and their offsets in each frame, found by tshark.
//!
//! tshark runs with its own configuration folder, in which all protocols unknown to linerate are disabled. So it is
//! fast, treats the payload of unknown protocols as data, and ignores the user's preferences. PDML contains the start
//! and the length of each protocol.

use crate::layers::names::{HELPERS, NAMES, PARTS};
use linerate_tests::support::{Scratch, tool};
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

/// A protocol that tshark found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// tshark's name.
    pub name: String,
    /// Offset from the start of the frame in bytes.
    pub offset: usize,
    /// Length of its item in bytes.
    pub size: usize,
}

/// Preferences that disable reassembly, name resolution and heuristics.
const PREFERENCES: [&str; 11] = [
    "ip.defragment:FALSE",
    "ip.use_geoip:FALSE",
    "ipv6.defragment:FALSE",
    "ipv6.use_geoip:FALSE",
    "ipv6.tso_support:TRUE",
    "ipv6.exthdr_under_root_protocol_tree:TRUE",
    "tcp.desegment_tcp_streams:FALSE",
    "tcp.analyze_sequence_numbers:FALSE",
    "sctp.reassembly:FALSE",
    "eth.fcs:Never",
    "gtp.dissect_tpdu_as:TPDU Heuristic",
];

/// Arguments for output that [`parse`] reads.
pub(crate) const LAYERS: [&str; 4] = ["-T", "pdml", "-j", "none"];

/// Maximum frame length that tshark reads.
pub(crate) const MOST_BYTES: usize = 262_144;

/// tshark with a private configuration.
pub(crate) struct Tshark {
    folder: Scratch,
}

impl Tshark {
    /// Creates a configuration that disables unknown protocols.
    pub(crate) fn new() -> Self {
        let folder = Scratch::new();
        let known: BTreeSet<&str> = NAMES.iter().map(|(name, ..)| *name).chain(HELPERS.iter().copied()).collect();
        let all = tool("tshark", &["-G", "protocols"]);
        let names = all.lines().filter_map(|line| line.split('\t').nth(2));
        let disabled: Vec<&str> = names.filter(|name| !known.contains(name)).collect();
        assert!(disabled.len() > 1000, "tshark lists its protocols in another way: {} found", disabled.len());
        std::fs::write(folder.file("disabled_protos"), disabled.join("\n") + "\n").expect("a file can be written");
        Tshark { folder }
    }

    /// Writes a capture file under this name and returns tshark's output for it.
    pub(crate) fn run(&self, name: &str, capture: &[u8], arguments: &[&str]) -> String {
        let path = self.folder.file(name);
        std::fs::write(&path, capture).expect("a file can be written");
        let output = Command::new("tshark")
            .env("WIRESHARK_CONFIG_DIR", self.folder.file(""))
            .args(["-n", "-d", "udp.port==8472,vxlan", "-r", &path])
            .args(PREFERENCES.iter().flat_map(|preference| ["-o", preference]))
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("tshark runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tshark: {}: {errors}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Encodes frames (wire length and bytes) as a pcap file.
pub(crate) fn pcap<'a>(linktype: u16, frames: impl Iterator<Item = (u32, &'a [u8])>) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, MOST_BYTES as u32, linktype.into()] {
        file.extend(u32::to_le_bytes(word));
    }
    for (second, (wire, bytes)) in frames.enumerate() {
        for word in [second as u32, 0, bytes.len() as u32, wire] {
            file.extend(word.to_le_bytes());
        }
        file.extend(bytes);
    }
    file
}

/// Parses PDML as tshark writes it: one line per protocol.
pub(crate) fn parse(pdml: &str) -> Vec<Vec<Found>> {
    let mut frames = Vec::new();
    for line in pdml.lines().map(str::trim_start) {
        if line == "<packet>" {
            frames.push(Vec::new());
        } else if line.starts_with("<proto ")
            && let Some(frame) = frames.last_mut()
        {
            let number = |name| attribute(line, name).and_then(|text| text.parse().ok()).unwrap_or(0);
            let name = attribute(line, "name").unwrap_or_default().to_owned();
            frame.push(Found { name, offset: number("pos"), size: number("size") });
        }
    }
    frames.into_iter().map(headers).collect()
}

/// Keeps the items of headers: drops the whole frame, data and empty items, and merges several items of one header.
fn headers(items: Vec<Found>) -> Vec<Found> {
    let mut headers: Vec<Found> = Vec::new();
    for item in items {
        let name = item.name.as_str();
        let is_verdict = name.starts_with("_ws.");
        if ["geninfo", "frame", "fake-field-wrapper", "raw", "udpencap"].contains(&name)
            || item.size == 0 && !is_verdict
        {
            continue;
        }
        match headers.last_mut() {
            Some(last) if last.name == name && PARTS.contains(&name) => {
                last.size = item.offset + item.size - last.offset
            }
            _ => headers.push(item),
        }
    }
    headers
}

/// Returns the value of an attribute. Values contain no quotation marks, so the search cannot match inside a value.
fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let start = line.find(&format!(" {name}=\""))? + name.len() + 3;
    line[start..].split('"').next()
}

#[test]
fn pdml_is_parsed() {
    let pdml = "<pdml>\n<packet>\n  <proto name=\"geninfo\" pos=\"0\" showname=\"x\" size=\"9\">\n  </proto>\n  \
                <proto name=\"ip\" showname=\"IP, size=&quot;1&quot;\" size=\"20\" pos=\"14\">\n</packet>\n<packet>\n</packet>";
    let ip = Found { name: "ip".into(), offset: 14, size: 20 };
    assert_eq!(parse(pdml), [vec![ip], vec![]]);
}
