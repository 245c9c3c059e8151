//! The switch, compared with plain models.

use linerate_burst::{Burst, Desc, Nanos, TAIL};
use linerate_headers::checksum::{Pseudo, Sum};
use linerate_switch::text::{PortNames, numbered, parse_rule, parse_selection, show_rule};
use linerate_switch::{
    Action, Inspect, InspectOutcome, Options, Outputs, PortNo, PortVlans, Reason, RingNo, Rule, Switch,
};
use proptest::prelude::*;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Output: port and bytes of each copy, and the result of each frame.
#[derive(Debug, Default, PartialEq, Eq)]
struct SwitchOutput {
    copies: Vec<(usize, PortNo, Vec<u8>)>,
    done: Vec<(usize, Result<u32, Reason>)>,
}

impl Outputs for SwitchOutput {
    fn copy(&mut self, index: usize, port: PortNo, bytes: &[u8], _: bool) {
        self.copies.push((index, port, bytes.to_vec()));
    }

    fn done(&mut self, index: usize, copies: Result<u32, Reason>) {
        self.done.push((index, copies));
    }
}

fn run(switch: &mut Switch, now: Nanos, in_port: PortNo, frames: &[Vec<u8>]) -> SwitchOutput {
    let mut seen = SwitchOutput::default();
    burst_into(switch, now, in_port, frames, &mut seen);
    seen
}

fn burst_into(switch: &mut Switch, now: Nanos, in_port: PortNo, frames: &[Vec<u8>], out: &mut impl Outputs) {
    let (mut memory, mut descs) = (Vec::new(), Vec::new());
    for frame in frames {
        descs.push(Desc::new(now, memory.len() as u32, frame.len() as u32));
        memory.extend_from_slice(frame);
    }
    memory.resize(memory.len() + TAIL, 0);
    switch.burst(now, in_port, Burst::over(&memory, &descs).unwrap(), out);
}

fn switch(rules: &[&str], ports: usize) -> Switch {
    let mut switch = Switch::new(Options::new(ports));
    for rule in rules {
        switch.add(parse_rule(rule, &numbered(ports)).unwrap(), Nanos(1));
    }
    switch
}

/// A mirror is in no VLAN: it gets only the frames that rules send there, and no floods.
#[test]
fn a_mirror_gets_only_explicit_output() {
    let frames = [packet(17, [1, 2], [1, 2], 64, &[])];
    let mut options = Options::new(3);
    options.ports[2] = PortVlans::none();
    for (actions, to) in [("normal", vec![2]), ("flood", vec![2]), ("all", vec![2]), ("normal,output:3", vec![2, 3])] {
        let mut switch = Switch::new(options.clone());
        switch.add(parse_rule(&format!("actions={actions}"), &numbered(3)).unwrap(), Nanos(1));
        let seen = run(&mut switch, Nanos(1), 1, &frames);
        let ports: Vec<_> = seen.copies.iter().map(|(_, port, _)| *port).collect();
        assert_eq!(ports, to, "{actions}");
    }
}

/// One in N frames is sampled at random, and all are counted.
#[test]
fn samples_are_one_in_n() {
    let mut switch = switch(&["actions=sample:1/10,output:2"], 2);
    let frames = vec![packet(17, [1, 2], [1, 2], 64, &[]); 10_000];
    let seen = run(&mut switch, Nanos(1), 1, &frames);
    assert!((800..1200).contains(&seen.copies.len()), "{} of 10,000", seen.copies.len());
    assert_eq!(seen.done.iter().filter(|(_, done)| *done == Err(Reason::Sample)).count(), 10_000 - seen.copies.len());
    assert_eq!(switch.rules()[0].frames, 10_000);
}

/// Returns a UDP or TCP frame over IPv4, with right checksums.
fn packet(protocol: u8, ends: [u8; 2], ports: [u16; 2], ttl: u8, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = (Ipv4Addr::new(10, 0, 0, ends[0]), Ipv4Addr::new(10, 0, 0, ends[1]));
    let head = if protocol == 6 { 20 } else { 8 };
    let mut segment = [ports[0].to_be_bytes(), ports[1].to_be_bytes()].concat();
    segment.resize(head, 0);
    match protocol {
        6 => segment[12] = 0x50,
        _ => segment[4..6].copy_from_slice(&((8 + payload.len()) as u16).to_be_bytes()),
    }
    segment.extend_from_slice(payload);
    let place = if protocol == 6 { 16 } else { 6 };
    let sum = Pseudo::V4 { source, destination }.sum(protocol, segment.len() as u32).with(&segment).checksum();
    segment[place..place + 2].copy_from_slice(&if sum == 0 { [0xff; 2] } else { sum.to_be_bytes() });
    let total = (20 + segment.len()) as u16;
    let mut ip = vec![0x45, 0, (total >> 8) as u8, total as u8, 0, 1, 0, 0, ttl, protocol, 0, 0];
    ip.extend_from_slice(&source.octets());
    ip.extend_from_slice(&destination.octets());
    let sum = Sum::of(&ip).checksum();
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = vec![2, 0, 0, 0, 0, ends[1], 2, 0, 0, 0, 0, ends[0], 8, 0];
    frame.extend(ip);
    frame.extend(segment);
    frame
}

/// Returns whether both checksums of a frame are valid.
fn is_right(frame: &[u8]) -> bool {
    let packet = &frame[14..];
    let address = |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
    let pseudo = Pseudo::V4 { source: address(12), destination: address(16) };
    let segment = &packet[20..];
    Sum::of(&packet[..20]).checksum() == 0 && pseudo.sum(packet[9], segment.len() as u32).with(segment).checksum() == 0
}

fn rule_text() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        (1..3u16).prop_map(|port| format!("in_port={port}")),
        (0..4u8).prop_map(|mac| format!("dl_dst=02:00:00:00:00:{mac:02x}")),
        Just("dl_src=00:00:00:00:00:01/00:00:00:00:00:01".to_owned()),
        (0..4u8).prop_map(|end| format!("ip,nw_dst=10.0.0.{end}")),
        (0..33u8).prop_map(|bits| format!("ip,nw_src=10.0.0.1/{bits}")),
        (0..4u16).prop_map(|port| format!("tcp,tp_dst={port}")),
        (0..4u16).prop_map(|port| format!("udp,tp_src={port}/0xfffe")),
        Just("dl_vlan=0xffff".to_owned()),
        Just("ip,nw_ttl=2".to_owned()),
        Just("tcp,tcp_flags=-syn".to_owned()),
        Just("arp".to_owned()),
    ];
    (1..6u16, prop::collection::vec(field, 0..3), 1..4u16)
        .prop_map(|(priority, fields, port)| format!("priority={priority},{},actions=output:{port}", fields.join(",")))
}

/// Port names with three ports and a ring.
struct WithRing;

impl PortNames for WithRing {
    fn number(&self, text: &str) -> Option<PortNo> {
        numbered(3)(text)
    }

    fn ring(&self, name: &str) -> Option<RingNo> {
        (name == "ids").then_some(0)
    }
}

/// Inspector that takes frames, or lets them pass at once.
#[derive(Default)]
struct Inspector {
    seen: SwitchOutput,
    passes: bool,
    taken: Vec<InspectedFrame>,
}

/// Frame at the inspector, with its remaining actions.
struct InspectedFrame {
    index: usize,
    port: PortNo,
    bytes: Vec<u8>,
    actions: Arc<[Action]>,
    from: usize,
}

impl Outputs for Inspector {
    fn copy(&mut self, index: usize, port: PortNo, bytes: &[u8], as_it_came: bool) {
        self.seen.copy(index, port, bytes, as_it_came);
    }

    fn inspect(&mut self, index: usize, inspect: Inspect<'_>) -> InspectOutcome {
        if self.passes {
            return InspectOutcome::Passes;
        }
        let Inspect { in_port, bytes, rest, .. } = inspect;
        let held = InspectedFrame {
            index,
            port: in_port,
            bytes: bytes.to_vec(),
            actions: rest.actions.clone(),
            from: rest.from,
        };
        self.taken.push(held);
        InspectOutcome::Taken
    }

    fn done(&mut self, index: usize, copies: Result<u32, Reason>) {
        self.seen.done(index, copies);
    }
}

/// Generates an action for IPv4 packets.
fn word() -> impl Strategy<Value = String> {
    let words =
        ["output:2", "output:3", "in_port", "normal", "flood", "dec_ttl", "mod_nw_ttl:9", "mod_nw_dst:10.0.0.9"];
    let tags = ["mod_vlan_vid:7", "mod_vlan_pcp:3", "strip_vlan", "push_vlan:0x8100", "mod_dl_src:02:00:00:00:00:09"];
    prop::sample::select([&words[..], &tags].concat()).prop_map(str::to_owned)
}

fn good_frame() -> impl Strategy<Value = Vec<u8>> {
    (any::<bool>(), [0..4u8, 0..4u8], [0..4u16, 0..4u16], 0..4u8)
        .prop_map(|(is_tcp, ends, ports, ttl)| packet(if is_tcp { 6 } else { 17 }, ends, ports, ttl, b"payload"))
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let made = (any::<bool>(), [0..4u8, 0..4u8], [0..4u16, 0..4u16], 0..4u8, prop::collection::vec(any::<u8>(), 0..40));
    let made = made.prop_map(|(is_tcp, ends, ports, ttl, payload)| {
        packet(if is_tcp { 6 } else { 17 }, ends, ports, ttl, &payload)
    });
    prop_oneof![4 => made, 1 => prop::collection::vec(any::<u8>(), 0..80)]
}

proptest! {
    /// The same rule is found with a cache of any size, without one, and by a linear search, while rules are added and
    /// removed.
    #[test]
    fn rule_matches_a_linear_search(
        steps in prop::collection::vec((rule_text(), any::<bool>(), prop::collection::vec(frame(), 1..40)), 1..12),
    ) {
        let ports = numbered(3);
        let make = |cache| Switch::new(Options { cache, ..Options::new(3) });
        let mut switches = [make(0), make(1), make(1024)];
        for (n, (text, is_out, frames)) in steps.into_iter().enumerate() {
            let now = Nanos(n as u64 + 1);
            let Ok(rule) = parse_rule(&text, &ports) else { continue };
            for switch in &mut switches {
                if is_out { switch.remove_if(|old| old.rule.matches.overlaps(&rule.matches)); }
                switch.add(rule.clone(), now);
            }
            let seen = switches.each_mut().map(|switch| run(switch, now, 1, &frames));
            prop_assert_eq!(&seen[0], &seen[1]);
            prop_assert_eq!(&seen[0], &seen[2]);
            let repeated = switches.each_mut().map(|switch| run(switch, now, 1, &frames));
            prop_assert!(repeated.iter().all(|repeated| *repeated == seen[0]));
            for (frame, (_, done)) in frames.iter().zip(&seen[0].done) {
                let plain = switches[2].rule_for_naively(1, frame);
                prop_assert_eq!(plain.map(|rule| rule.number), switches[2].rule_for(1, frame).map(|rule| rule.number));
                prop_assert_eq!(plain.is_none() && frame.len() >= 14, *done == Err(Reason::NoRule));
            }
            let counted = |switch: &Switch| switch.rules().iter().map(|rule| (rule.number, rule.frames, rule.bytes)).collect::<Vec<_>>();
            prop_assert_eq!(counted(&switches[0]), counted(&switches[2]));
        }
    }

    /// Replacing all rules gives those of a new switch, and unchanged ones keep their counters.
    #[test]
    fn rules_are_replaced_as_a_whole(
        lists in prop::collection::vec(prop::collection::vec(rule_text(), 0..12), 1..5), frames in prop::collection::vec(frame(), 1..40),
    ) {
        let ports = numbered(3);
        let mut switch = Switch::new(Options::new(3));
        for (n, list) in (2..).zip(lists) {
            let rules: Vec<_> = list.iter().filter_map(|text| parse_rule(text, &ports).ok()).collect();
            let old: Vec<_> = switch.rules().into_iter().cloned().collect();
            switch.replace_all(rules.clone(), Nanos(n));
            let last = |rule: &Rule| rules.iter().rev().find(|other| (other.priority, other.matches) == (rule.priority, rule.matches));
            let wanted = rules.iter().filter_map(last).collect::<Vec<_>>();
            let is = switch.rules();
            prop_assert!(is.iter().all(|is| wanted.contains(&&is.rule)) && wanted.iter().all(|rule| is.iter().any(|is| is.rule == **rule)));
            prop_assert_eq!(is.len(), switch.count());
            for is in is {
                let same = old.iter().find(|old| old.rule == is.rule);
                // Of two in the list with the same match the first may equal the old one.
                prop_assert!(same.map_or(is.frames, |old| old.frames.min(is.frames)) == is.frames);
                let is_single = rules.iter().filter(|rule| (rule.priority, rule.matches) == (is.rule.priority, is.rule.matches)).count() == 1;
                prop_assert!(!is_single || same.is_none_or(|old| (old.frames, old.number, old.since) == (is.frames, is.number, is.since)));
            }
            run(&mut switch, Nanos(n), 1, &frames);
            for frame in &frames {
                prop_assert_eq!(switch.rule_for(1, frame).map(|rule| rule.number), switch.rule_for_naively(1, frame).map(|rule| rule.number));
            }
        }
    }

    /// Right checksums stay right after any changes, and one that UDP omitted stays omitted.
    #[test]
    fn checksums_follow_the_covered_fields(
        is_tcp in any::<bool>(), ends in [0..4u8, 0..4u8], ports in any::<[u16; 2]>(), payload in prop::collection::vec(any::<u8>(), 0..60),
        address in any::<[u8; 4]>(), port in any::<u16>(), tos in 0..64u8, is_left_out in any::<bool>(),
    ) {
        let name = if is_tcp { "tcp" } else { "udp" };
        let [a, b, c, d] = address;
        let rule = format!(
            "{name},actions=mod_nw_src:{a}.{b}.{c}.{d},mod_tp_dst:{port},2,dec_ttl,mod_nw_tos:{},mod_nw_dst:{d}.{c}.{b}.{a},mod_vlan_vid:7,\
             mod_tp_src:{port},strip_vlan,3",
            tos * 4
        );
        let mut switch = switch(&[&rule], 3);
        let mut original = packet(if is_tcp { 6 } else { 17 }, ends, ports, 9, &payload);
        if is_left_out && !is_tcp {
            original[40..42].fill(0);
        }
        let seen = run(&mut switch, Nanos(2), 1, &[original.clone()]);
        prop_assert_eq!(seen.copies.len(), 2);
        for (_, port, bytes) in seen.copies {
            prop_assert_eq!(&bytes[26..30], &address[..]);
            prop_assert_eq!(bytes[22], if port == 2 { 9 } else { 8 });
            prop_assert_eq!(bytes.len(), original.len());
            if is_left_out && !is_tcp { prop_assert_eq!(&bytes[40..42], &[0, 0][..]) } else { prop_assert!(is_right(&bytes)) }
        }
    }

    /// No frame and no rule text causes a panic.
    #[test]
    fn any_text_and_any_frame_are_handled(text in "[ -~]{0,60}", bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        let _ = parse_rule(&text, &numbered(2));
        let _ = parse_rule(&format!("tcp,{text},actions={text}"), &numbered(2));
        let _ = parse_selection(&text, &numbered(2));
        let all = "actions=mod_vlan_pcp:3,normal,strip_vlan,strip_vlan,push_vlan:0x88a8,mod_dl_src:02:00:00:00:00:09,flood,in_port";
        let rules = [all, "priority=40000,ip,actions=dec_ttl,mod_nw_tos:8,mod_nw_ecn:1,mod_nw_src:1.2.3.4,all", "priority=40001,\
             tcp6,actions=mod_tp_src:1,set_field:::1->ipv6_dst,flood", "priority=40001,udp,actions=mod_tp_dst:0,mod_nw_dst:9.9.9.9,flood"];
        let mut switch = switch(&rules, 2);
        for kind in [None, Some(0x0800u16), Some(0x86dd), Some(0x8100), Some(0x0806)] {
            let mut frame = [vec![2; 12], bytes.clone()].concat();
            if let (Some(kind), Some(place)) = (kind, frame.get_mut(12..14)) {
                place.copy_from_slice(&kind.to_be_bytes());
            }
            let seen = run(&mut switch, Nanos(5), 1, &[frame]);
            prop_assert_eq!(seen.done.len(), 1);
        }
    }

    /// A frame that is inspected between two actions has the same result as one that is not.
    #[test]
    fn inspected_frames_are_unchanged(
        words in prop::collection::vec(word(), 1..8), at in 0..8usize, frames in prop::collection::vec(good_frame(), 1..8),
        passes in any::<bool>(),
    ) {
        // A returned frame is parsed again, after one tag.
        let (mut words, mut place) = (words, 0..);
        words.retain(|word| place.next() >= Some(at) || !word.starts_with("push_vlan"));
        let plain = format!("ip,actions={}", words.join(","));
        let mut inspected = words.clone();
        inspected.insert(at.min(words.len()), "inspect:ids".to_owned());
        let inspected = format!("ip,actions={}", inspected.join(","));
        let rule = parse_rule(&inspected, &WithRing).unwrap();
        let (mut switch, mut plain) = (Switch::new(Options::new(3)), switch(&[&plain], 3));
        // One at a time: a later frame may change the MAC table in between.
        for frame in frames {
            let frame = std::slice::from_ref(&frame);
            switch.add(rule.clone(), Nanos(1));
            let mut out = Inspector { passes, ..Inspector::default() };
            burst_into(&mut switch, Nanos(5), 1, frame, &mut out);
            // Rules are removed; frames in flight get their remaining actions nevertheless.
            prop_assert_eq!(switch.remove_if(|_| true), 1);
            for InspectedFrame { index, port, bytes, actions, from } in std::mem::take(&mut out.taken) {
                switch.resume((Nanos(5), port, index), &bytes, (&actions, from), &mut out);
            }
            prop_assert_eq!(out.seen.copies, run(&mut plain, Nanos(5), 1, frame).copies);
        }
    }

    /// A formatted rule is parsed to the same rule.
    #[test]
    fn rules_are_parsed_and_formatted(text in rule_text()) {
        let Ok(rule) = parse_rule(&text, &numbered(3)) else { return Ok(()) };
        let mut switch = switch(&[&text], 3);
        switch.expire(Nanos(9));
        let shown = show_rule(switch.rules()[0], Nanos(1), &[]);
        prop_assert_eq!(parse_rule(&shown, &numbered(3)).map_err(TestCaseError::fail)?, rule);
    }
}

#[test]
fn rules_without_prerequisites_are_rejected() {
    for (text, expected) in [
        ("tp_dst=80,actions=1", "; add it"),
        ("nw_src=1.2.3.4,actions=1", "; add it"),
        ("ip,tp_dst=80,actions=1", "; add it"),
        ("ip,icmp_type=1,actions=1", "; add it"),
        ("udp,tcp_flags=+syn,actions=1", "; add it"),
        ("tcp,udp,actions=1", "no frame would match"),
        ("actions=mod_nw_src:1.2.3.4,1", "needs ip, tcp, udp or icmp"),
        ("ip,actions=mod_tp_src:1,1", "needs tcp, udp, tcp6 or udp6"),
        ("actions=set_field:1->nw_ttl,1", "needs ip or ipv6"),
        ("in_port=9,actions=1", "no such port"),
        ("actions=output:9", "no such port"),
        ("actions=1,drop", "drop cannot be combined"),
        ("in_port=1", "actions="),
        ("actions=resubmit(,1)", "only table 0 exists"),
        ("actions=ct(commit)", "not tracked"),
        ("actions=controller", "controllers are not implemented"),
        ("ct_state=+trk,actions=1", "not tracked"),
        ("tun_id=1,actions=1", "no tunnel ports"),
        ("metadata=1,actions=1", "registers"),
        ("table=1,actions=1", "only table 0 exists"),
        ("foo=1,actions=1", "unknown field"),
        ("actions=frob", "unknown port or action"),
        ("priority=65536,actions=1", "0 to 65535"),
        ("dl_vlan=4096,actions=1", "0 to 4095"),
        ("ip,nw_tos=3,actions=1", "multiple of 4"),
        ("tcp,tcp_flags=+foo,actions=1", "unknown flag"),
        ("actions=sample:2,1", "sample:1/N"),
        ("actions=output(port=1)", "max_len"),
        ("actions=output(port=1", "unmatched ("),
    ] {
        let error = parse_rule(text, &numbered(3)).expect_err(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn timeouts_use_the_given_time() {
    let second = 1_000_000_000;
    let mut switch =
        switch(&["idle_timeout=2,in_port=1,actions=2", "hard_timeout=5,in_port=2,actions=1", "actions=drop"], 2);
    let frame = packet(17, [1, 2], [1, 2], 9, &[]);
    run(&mut switch, Nanos(1 + second), 1, std::slice::from_ref(&frame));
    assert!(switch.expire(Nanos(2 * second)).is_empty());
    assert_eq!(switch.expire(Nanos(1 + 3 * second)).len(), 1, "two seconds after its last frame");
    assert_eq!(switch.expire(Nanos(1 + 5 * second)).len(), 1);
    let seen = run(&mut switch, Nanos(6 * second), 1, &[frame]);
    assert_eq!((switch.count(), seen.done), (1, vec![(0, Err(Reason::Rule))]));
}

#[test]
fn a_bridge_learns_floods_and_withholds_reserved_frames() {
    let mut switch = switch(&["actions=normal"], 3);
    let (there, back) = (packet(17, [1, 2], [1, 2], 9, &[]), packet(17, [2, 1], [1, 2], 9, &[]));
    let ports = |seen: SwitchOutput| seen.copies.iter().map(|copy| copy.1).collect::<Vec<_>>();
    assert_eq!(ports(run(&mut switch, Nanos(1), 1, std::slice::from_ref(&there))), [2, 3]);
    assert_eq!(ports(run(&mut switch, Nanos(1), 2, std::slice::from_ref(&back))), [1]);
    assert_eq!(ports(run(&mut switch, Nanos(1), 1, std::slice::from_ref(&there))), [2]);
    assert_eq!(run(&mut switch, Nanos(1), 2, std::slice::from_ref(&there)).done, [(0, Err(Reason::Local))]);
    let mut reserved = there;
    reserved[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 0]);
    assert_eq!(run(&mut switch, Nanos(1), 1, &[reserved]).done, [(0, Err(Reason::Reserved))]);
    assert_eq!(switch.stations(Nanos(1)).len(), 2);
    assert_eq!(ports(run(&mut switch, Nanos(301 << 30), 3, &[back])), [1, 2], "forgotten");
}
