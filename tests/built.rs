//! What is built is read by tshark: the same headers, every checksum right, nothing malformed.
//!
//! Every pair of headers of which one can carry the other stands in some frame, behind the shortest way to the first
//! and in front of the shortest way from the second to a header that carries nothing more.

#[path = "layers/compare.rs"]
mod compare;
#[path = "layers/names.rs"]
mod names;
#[path = "../crates/wire/tests/samples/mod.rs"]
mod samples;
#[path = "layers/tshark.rs"]
mod tshark;

use compare::{compare, describe};
use linerate::wire::build::{Frame, Header};
use linerate::wire::{Layers, Link, Protocol, Role, Stop, dissect};
use linerate_tests::support::has_tools;
use samples::{Sample, can_carry, payload, samples};
use std::collections::{BTreeSet, VecDeque};
use tshark::{Found, LAYERS, Tshark, parse, pcap};

/// The field of tshark that says whether a checksum is right.
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

/// What it says of a right one.
const GOOD: &str = "1";

const CHECKS: [&str; 5] = [
    "ip.check_checksum:TRUE",
    "tcp.check_checksum:TRUE",
    "udp.check_checksum:TRUE",
    "udplite.check_checksum:TRUE",
    "sctp.checksum:CRC-32c",
];

#[test]
fn every_header_in_front_of_every_other_is_read_by_tshark() {
    if !has_tools(&["tshark"]) {
        return;
    }
    let samples = samples();
    let stacks = Graph::of(&samples).stacks();
    let tshark = Tshark::new();
    let mut faults = String::new();
    for (link, linktype) in LINKS {
        for inside in LABELLED {
            let is_of = |stack: &[usize]| labelled(&samples, stack) == inside;
            let stacks: Vec<_> =
                stacks.iter().filter(|(of, stack)| *of == link && is_of(stack)).map(|(_, stack)| stack).collect();
            if stacks.is_empty() {
                continue;
            }
            let frames: Vec<_> = stacks.iter().map(|stack| build(&samples, stack)).collect();
            let file = pcap(linktype, frames.iter().map(|frame| (frame.len() as u32, &frame[..])));
            let theirs = Opinion::of(&tshark, &file, inside);
            assert_eq!((theirs.layers.len(), theirs.wrong.len()), (frames.len(), frames.len()));
            for (index, frame) in frames.iter().enumerate() {
                faults += &theirs
                    .faults(index, link, frame)
                    .map_or(String::new(), |fault| format!("{:?}: {fault}\n", names_of(&samples, stacks[index])));
            }
        }
    }
    assert!(faults.is_empty(), "{faults}");
}

const LINKS: [(Link, u16); 7] = [
    (Link::Ethernet, 1),
    (Link::Null, 0),
    (Link::Ppp, 50),
    (Link::Pppoe, 51),
    (Link::Chdlc, 104),
    (Link::Sll, 113),
    (Link::Sll2, 276),
];

/// What tshark has to be told of a label: nothing in it says what it stands for.
const LABELLED: [Option<&str>; 3] = [None, Some("mpls.label==1001,pwethcw"), Some("mpls.label==1001,pwethnocw")];

/// Which of them a stack needs.
fn labelled(samples: &[Sample], stack: &[usize]) -> Option<&'static str> {
    let protocol = |index: &usize| samples[*index].0.protocol();
    let inside = stack.windows(3).find(|part| protocol(&part[0]) == Protocol::Mpls)?;
    match (protocol(&inside[1]), protocol(&inside[2])) {
        (Protocol::Pseudowire, Protocol::Ethernet) => LABELLED[1],
        (Protocol::Ethernet, _) => LABELLED[2],
        _ => LABELLED[0],
    }
}

/// What tshark says of each frame.
struct Opinion {
    layers: Vec<Vec<Found>>,
    /// The checksums that are not right.
    wrong: Vec<Vec<String>>,
}

impl Opinion {
    fn of(tshark: &Tshark, file: &[u8], inside: Option<&str>) -> Self {
        let inside: Vec<&str> = inside.into_iter().flat_map(|inside| ["-d", inside]).collect();
        let checks = CHECKS.iter().flat_map(|check| ["-o", check]);
        let fields = CHECKSUMS.iter().flat_map(|field| ["-e", field]);
        let fields: Vec<&str> = ["-T", "fields"].into_iter().chain(checks).chain(fields).collect();
        let run = |arguments: &[&str]| tshark.run("built.pcap", file, &[arguments, &inside].concat());
        Opinion { layers: parse(&run(&LAYERS)), wrong: run(&fields).lines().map(wrong).collect() }
    }

    /// What is wrong with a frame.
    fn faults(&self, index: usize, link: Link, frame: &[u8]) -> Option<String> {
        let (theirs, wrong) = (&self.layers[index], &self.wrong[index]);
        let mut layers = Layers::new();
        dissect(link, frame, &mut layers);
        let malformed = theirs.iter().any(|found| found.name.starts_with("_ws."));
        let ended = !matches!(layers.stop(), Stop::Truncated(_) | Stop::Malformed(..) | Stop::TooDeep);
        let good = compare(&layers, theirs).is_none() && !malformed && ended && wrong.is_empty();
        (!good).then(|| format!("{} {wrong:?}", describe(&layers, theirs)))
    }
}

/// The fields of a line whose values are not all good.
fn wrong(line: &str) -> Vec<String> {
    let values = CHECKSUMS.iter().zip(line.split('\t'));
    let wrong = values.filter(|(_, values)| values.split(',').any(|value| !["", GOOD].contains(&value)));
    wrong.map(|(field, values)| format!("{field}: {values}")).collect()
}

fn build(samples: &[Sample], stack: &[usize]) -> Vec<u8> {
    let headers: Vec<&dyn Header> = stack.iter().map(|index| samples[*index].0.as_ref()).collect();
    let payload = payload(headers.last().expect("a header").protocol());
    Frame::new(&headers, payload).to_vec().unwrap_or_else(|error| panic!("{error}: {:?}", names_of(samples, stack)))
}

fn names_of(samples: &[Sample], stack: &[usize]) -> Vec<&'static str> {
    stack.iter().map(|index| samples[*index].0.protocol().name()).collect()
}

/// Which header can carry which, by their indices.
struct Graph<'a> {
    samples: &'a [Sample],
    inner: Vec<Vec<usize>>,
    /// Whether it carries nothing, odd or not.
    is_leaf: Vec<bool>,
}

impl<'a> Graph<'a> {
    fn of(samples: &'a [Sample]) -> Self {
        let carried = |outer: usize| {
            let able = |inner: &usize| can_carry(samples[outer].0.as_ref(), samples[*inner].0.as_ref());
            (0..samples.len()).filter(able).collect()
        };
        let mut inner: Vec<Vec<usize>> = (0..samples.len()).map(carried).collect();
        let is_leaf = inner.iter().map(Vec::is_empty).collect();
        for (outer, inner) in inner.iter_mut().enumerate() {
            inner.retain(|inner| !is_odd(samples, outer, *inner));
        }
        Graph { samples, inner, is_leaf }
    }

    /// A stack for each pair.
    fn stacks(&self) -> Vec<(Link, Vec<usize>)> {
        let mut stacks = Vec::new();
        let mut reached = BTreeSet::new();
        for outer in 0..self.samples.len() {
            let Some((link, front)) = self.way_to(outer) else { continue };
            reached.insert(outer);
            for inner in &self.inner[outer] {
                if let Some(rest) = self.way_from(*inner) {
                    stacks.push((link, front.iter().copied().chain(rest).collect()));
                }
            }
        }
        assert_eq!(reached.len(), self.samples.len(), "a header that no stack leads to");
        stacks
    }

    /// The shortest stack that ends with a header.
    fn way_to(&self, last: usize) -> Option<(Link, Vec<usize>)> {
        let starts = (0..self.samples.len()).filter(|index| self.samples[*index].1.is_some());
        let stack = self.search(starts.collect(), |index| index == last)?;
        Some((self.samples[stack[0]].1?, stack))
    }

    /// The shortest stack from a header to a transport that carries nothing more, or it alone if it carries nothing.
    fn way_from(&self, first: usize) -> Option<Vec<usize>> {
        let is_transport = |index: usize| self.samples[index].0.protocol().role() == Role::Transport;
        self.search(vec![first], |index: usize| self.is_leaf[index] && (index == first || is_transport(index)))
    }

    /// Breadth first.
    fn search(&self, starts: Vec<usize>, is_end: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
        let mut seen: BTreeSet<usize> = starts.iter().copied().collect();
        let mut queue: VecDeque<Vec<usize>> = starts.into_iter().map(|start| vec![start]).collect();
        while let Some(stack) = queue.pop_front() {
            let last = stack[stack.len() - 1];
            if is_end(last) {
                return Some(stack);
            }
            for next in &self.inner[last] {
                if seen.insert(*next) {
                    queue.push_back(stack.iter().copied().chain([*next]).collect());
                }
            }
        }
        None
    }
}

/// Pairs that can be written and that tshark does not read as such.
fn is_odd(samples: &[Sample], outer: usize, inner: usize) -> bool {
    use Protocol::*;
    let framed = samples[inner].1.is_some();
    match (samples[outer].0.protocol(), samples[inner].0.protocol()) {
        // They have a next header that says that there is none (RFC 6275 section 6.1.1, RFC 7401 section 5.1).
        (Mobility | Hip, _) => true,
        // Their numbers are EtherTypes, which tshark knows in GRE alone.
        (outer, Ppp | Erspan) if !matches!(outer, Gre | Pppoe) => true,
        // Framing is for links (RFC 2516 section 4).
        (Pppoe, Ppp) => framed,
        // tshark knows fewer EtherTypes there than elsewhere.
        (Gre, Vlan | Pppoe) | (Chdlc, Vlan | Pppoe | Arp) => true,
        // To tshark every mirrored frame is Ethernet's.
        (Erspan, Ipv4 | Ipv6) => true,
        _ => false,
    }
}
