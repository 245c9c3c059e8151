//! Any frame is rewritten by any rules without a panic. Rules keep other fields: the payload, the length; correct
//! checksums stay correct, and wrong ones stay wrong unless they are to be fixed. A second fix changes nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_generate::rewrite::{Rewriter, Rewriting, Rule};
use linerate_headers::coverage::{Coverage, checksums, placed};
use linerate_headers::{Layers, Link, Protocol, dissect};

/// Rules that keep the layers of a frame are first.
const RULES: [&str; 20] = [
    "ip=10.0.0.0/8:192.168.0.0/16",
    "ip=0.0.0.0/0:172.16.0.0/12",
    "src-ip=::/0=fd00::/8",
    "dst-ip=::/0=2001:db8::/32",
    "ip=0.0.0.0/0:10.9.8.7",
    "src-mac=02:00:00:00:09:01",
    "dst-mac=02:00:00:00:09:02",
    "mac=ff:ff:ff:ff:ff:ff:02:00:00:00:00:07",
    "ttl=-3",
    "ttl=+200",
    "ttl=floor:64",
    "src-port=0-65535:0-65535",
    "dst-port=53:54",
    "port=1-1000:40001-41000",
    "dst-port=0-65535:4789",
    "vlan=push:7:3",
    "vlan=pop",
    "vlan=set:4095",
    "vlan=1:2",
    "vlan=priority:5",
];
const TAGS: usize = 15;

fuzz_target!(|bytes: &[u8]| {
    let Some((frame, &[first, second, third, choice])) = bytes.split_last_chunk::<4>() else { return };
    let indices = [first, second, third].map(|byte| usize::from(byte) % (RULES.len() + 1));
    let rules: Vec<Rule> =
        indices.iter().filter_map(|index| RULES.get(*index)).map(|rule| rule.parse().unwrap()).collect();
    let has_tags = indices.iter().any(|index| (TAGS..RULES.len()).contains(index));
    let plain = Rewriting { rules, shift: None, inner: choice & 1 != 0, fix_checksums: false };
    let shift = (choice & 2 != 0).then(|| "77/20".parse().unwrap());
    let rewriting = Rewriting { shift, ..plain.clone() };
    let (turn, is_cut) = (u64::from(choice >> 4), choice & 4 != 0);

    let rewritten_frame = rewritten(&rewriting, frame, turn, is_cut);
    assert!(rewritten_frame == rewritten(&rewriting, frame, turn, is_cut), "rewriting is not deterministic");
    let no_rules = Rewriting { rules: Vec::new(), ..rewriting.clone() };
    assert!(turn > 0 || rewritten(&no_rules, frame, turn, is_cut) == frame, "changed without a rule");
    if !has_tags {
        check(frame, &rewritten_frame, is_cut);
    }

    let fixing = Rewriting { fix_checksums: true, rules: Vec::new(), ..plain };
    let fixed = rewritten(&fixing, frame, 0, is_cut);
    assert_eq!(fixed.len(), frame.len());
    if layers(&fixed) == layers(frame) {
        assert!(rewritten(&fixing, &fixed, 0, is_cut) == fixed, "a second fix changed the frame");
    }
});

fn rewritten(rewriting: &Rewriting, frame: &[u8], turn: u64, is_cut: bool) -> Vec<u8> {
    let mut frame = frame.to_vec();
    Rewriter::new(rewriting.clone()).rewrite(&mut frame, turn, is_cut);
    frame
}

/// Compares fields and checksums. Other ports may imply other payloads; if the layers are the same, so is the payload.
fn check(frame: &[u8], rewritten_frame: &[u8], is_cut: bool) {
    assert_eq!(frame.len(), rewritten_frame.len());
    let (before, after) = (layers(frame), layers(rewritten_frame));
    if before != after {
        return;
    }
    let mut found = Layers::new();
    dissect(Link::Ethernet, frame, &mut found);
    // ICMP errors quote a packet, which is rewritten too.
    let may_quote = after.contains(&Protocol::Icmp) || after.contains(&Protocol::Icmpv6);
    assert!(may_quote || found.payload(frame) == found.payload(rewritten_frame));
    let sums = checksums(frame, &placed(frame, &found));
    let others = checksums(rewritten_frame, &placed(rewritten_frame, &found));
    if is_cut || sums.len() != others.len() || before.contains(&Protocol::Routing) {
        return;
    }
    let all = sums.iter().all(|sum| is_right(sum, frame));
    for (sum, other) in sums.iter().zip(&others).filter(|_| all) {
        assert!(is_right(other, rewritten_frame), "the checksum at {} was correct", sum.offset);
    }
}

fn layers(frame: &[u8]) -> Vec<Protocol> {
    let mut layers = Layers::new();
    dissect(Link::Ethernet, frame, &mut layers);
    layers.as_slice().iter().map(|layer| layer.protocol).collect()
}

fn is_right(sum: &Coverage, frame: &[u8]) -> bool {
    let mut filled = frame.to_vec();
    sum.fill(&mut filled);
    filled == frame
}
