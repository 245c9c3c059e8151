//! tshark's opinion: which protocols lie where in each frame.
//!
//! It runs with a configuration folder of our own in which every protocol but those we know is
//! disabled. So it is fast, what is carried by an unknown protocol is plain data to it, and no user's
//! preferences matter. PDML says of each protocol where it starts and how long it is.

use crate::layers::names::{HELPERS, NAMES, PARTS};
use linerate_tests::support::{Scratch, tool};
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

/// A protocol that tshark found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its name in tshark's words.
    pub name: String,
    /// Where it starts, in bytes from the start of the frame.
    pub offset: usize,
    /// Bytes that its item in the tree covers.
    pub size: usize,
}

/// What it must not do: join fragments or segments, resolve names, guess.
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

/// The arguments for what [`parse`] reads.
pub(crate) const LAYERS: [&str; 4] = ["-T", "pdml", "-j", "none"];

/// Longer frames tshark does not read.
pub(crate) const MOST_BYTES: usize = 262_144;

/// tshark with its configuration.
pub(crate) struct Tshark {
    folder: Scratch,
}

impl Tshark {
    /// Disables what we do not know.
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

    /// What it prints of a capture file, which is written under this name.
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

/// Frames (wire length and bytes) as a capture file.
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

/// Reads PDML as tshark writes it: a line a protocol.
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

/// What stands for a header: not the frame as a whole, plain data, or an item of no bytes; several items for one
/// header are joined.
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

/// The value of an attribute. A value holds no quotation mark, so no other attribute's value can look like this one.
fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let start = line.find(&format!(" {name}=\""))? + name.len() + 3;
    line[start..].split('"').next()
}

#[test]
fn pdml_is_read() {
    let pdml = "<pdml>\n<packet>\n  <proto name=\"geninfo\" pos=\"0\" showname=\"x\" size=\"9\">\n  </proto>\n  \
                <proto name=\"ip\" showname=\"IP, size=&quot;1&quot;\" size=\"20\" pos=\"14\">\n</packet>\n<packet>\n</packet>";
    let ip = Found { name: "ip".into(), offset: 14, size: 20 };
    assert_eq!(parse(pdml), [vec![ip], vec![]]);
}
