//! Built packets as tshark reads them: the same headers, valid checksums, nothing malformed.
//!
//! Every sequence of three headers that can carry each other occurs in some frame, after the shortest path to the
//! first and before the shortest path from the last to a header that carries nothing.

mod graph;
#[path = "../crates/headers/tests/samples/mod.rs"]
mod samples;

use crate::layers::compare::{compare, describe};
use crate::layers::tshark::{Found, LAYERS, Tshark, parse, pcap};
use graph::Graph;
use linerate::headers::build::{Frame, Header};
use linerate::headers::{Layers, Link, Protocol, dissect};
use linerate_tests::support::has_tools;
use samples::{Sample, payload, samples};
use std::collections::BTreeSet;

/// Checksum status fields of tshark.
const CHECKSUMS: [&str; 10] = [
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
];

/// Status of a valid checksum.
const GOOD: &str = "1";

const CHECKS: [&str; 5] = [
    "ip.check_checksum:TRUE",
    "tcp.check_checksum:TRUE",
    "udp.check_checksum:TRUE",
    "udplite.check_checksum:TRUE",
    "sctp.checksum:CRC-32c",
];

#[test]
fn tshark_reads_every_stack_of_headers() {
    if !has_tools(&["tshark"]) {
        return;
    }
    let samples = samples();
    let stacks = Graph::of(&samples).stacks();
    assert!(stacks.len() > AT_LEAST, "only {} stacks", stacks.len());
    let tshark = Tshark::new();
    let (mut good, mut faults) = (BTreeSet::new(), String::new());
    for (link, linktype) in LINKS {
        for inside in LABELLED {
            let is_of = |stack: &[usize]| labelled(&samples, stack) == Some(inside);
            let stacks = stacks.iter().filter(|(of, stack)| *of == link && is_of(stack)).map(|(_, stack)| &stack[..]);
            let stacks: Vec<&[usize]> = stacks.collect();
            if stacks.is_empty() {
                continue;
            }
            let frames: Vec<_> = stacks.iter().map(|stack| build(&samples, stack)).collect();
            let file = pcap(linktype, frames.iter().map(|frame| (frame.len() as u32, &frame[..])));
            let theirs = Dissection::of(&tshark, &file, inside);
            assert_eq!((theirs.layers.len(), theirs.checksums.len()), (frames.len(), frames.len()));
            for (index, frame) in frames.iter().enumerate() {
                good.extend(theirs.checksums[index].iter().filter(|(_, value)| value == GOOD).map(|(field, _)| *field));
                let names = names_of(&samples, stacks[index]);
                if let Some(fault) = theirs.fault(index, link, frame, &names) {
                    faults += &format!("{names:?}: {fault}\n");
                }
            }
        }
    }
    assert!(faults.is_empty(), "{faults}");
    assert_eq!(good, BTreeSet::from(CHECKSUMS), "checksums verified by tshark");
}

/// Minimum number of stacks.
const AT_LEAST: usize = 5000;

const LINKS: [(Link, u16); 8] = [
    (Link::Ethernet, 1),
    (Link::RawIp, 101),
    (Link::Null, 0),
    (Link::Ppp, 50),
    (Link::Pppoe, 51),
    (Link::Chdlc, 104),
    (Link::Sll, 113),
    (Link::Sll2, 276),
];

/// Decode-as rules for an MPLS label, which does not identify its payload.
const LABELLED: [Option<&str>; 3] = [None, Some("mpls.label==1001,pwethcw"), Some("mpls.label==1001,pwethnocw")];

/// Decode-as rule of a stack. Stacks with two label stacks would need two rules and are skipped.
fn labelled(samples: &[Sample], stack: &[usize]) -> Option<Option<&'static str>> {
    let protocols: Vec<_> = stack.iter().map(|index| samples[*index].0.protocol()).collect();
    let mut labels = protocols.iter().enumerate().filter(|(_, protocol)| **protocol == Protocol::Mpls);
    match (labels.next(), labels.next()) {
        (Some(_), Some(_)) => None,
        (None, _) => Some(LABELLED[0]),
        (Some((at, _)), None) => Some(match protocols[at + 1..] {
            [Protocol::Pseudowire, Protocol::Ethernet, ..] => LABELLED[1],
            [Protocol::Ethernet, ..] => LABELLED[2],
            _ => LABELLED[0],
        }),
    }
}

/// tshark's dissection of each frame.
struct Dissection {
    layers: Vec<Vec<Found>>,
    /// Status of each checksum, by field.
    checksums: Vec<Vec<(&'static str, String)>>,
}

impl Dissection {
    fn of(tshark: &Tshark, file: &[u8], inside: Option<&str>) -> Self {
        let inside: Vec<&str> = inside.into_iter().flat_map(|inside| ["-d", inside]).collect();
        let checks = CHECKS.iter().flat_map(|check| ["-o", check]);
        let fields = CHECKSUMS.iter().flat_map(|field| ["-e", field]);
        let fields: Vec<&str> = ["-T", "fields"].into_iter().chain(checks).chain(fields).collect();
        let run = |arguments: &[&str]| tshark.run("built.pcap", file, &[arguments, &inside].concat());
        Dissection { layers: parse(&run(&LAYERS)), checksums: run(&fields).lines().map(checksums).collect() }
    }

    /// Returns the error in a frame built from these headers.
    fn fault(&self, index: usize, link: Link, frame: &[u8], names: &[&str]) -> Option<String> {
        let (theirs, checksums) = (&self.layers[index], &self.checksums[index]);
        let mut layers = Layers::new();
        dissect(link, frame, &mut layers);
        let malformed = theirs.iter().any(|found| found.name.starts_with("_ws."));
        let whole = layers.as_slice().iter().map(|layer| layer.protocol.name()).eq(names.iter().copied());
        let right = checksums.iter().all(|(_, value)| value == GOOD);
        let good = compare(&layers, theirs).is_none() && !malformed && whole && right;
        (!good).then(|| format!("{} {checksums:?}", describe(&layers, theirs)))
    }
}

/// Parses the fields of a line; each has one value per header of its kind in the frame.
fn checksums(line: &str) -> Vec<(&'static str, String)> {
    let fields = CHECKSUMS.into_iter().zip(line.split('\t')).filter(|(_, values)| !values.is_empty());
    fields.flat_map(|(field, values)| values.split(',').map(move |value| (field, value.to_owned()))).collect()
}

fn build(samples: &[Sample], stack: &[usize]) -> Vec<u8> {
    let headers: Vec<&dyn Header> = stack.iter().map(|index| samples[*index].0.as_ref()).collect();
    let payload = payload(headers.last().expect("a header").protocol());
    Frame::new(&headers, payload).to_vec().unwrap_or_else(|error| panic!("{error}: {:?}", names_of(samples, stack)))
}

fn names_of(samples: &[Sample], stack: &[usize]) -> Vec<&'static str> {
    stack.iter().map(|index| samples[*index].0.protocol().name()).collect()
}
