//! Both switches get the same rules and frames.
//!
//! Frames for which they differ by design are skipped:
//!
//! - later fragments with changed addresses: Open vSwitch 3.1 updates payload bytes as if they were a checksum;
//! - IPv6 packets with changed addresses that have a fragment header, or a routing header with segments left:
//!   Open vSwitch keeps the old checksum, which is then wrong;
//! - frames with several tags and rules that push or pop tags: Open vSwitch knows one tag (`vlan-limit`), and which of
//!   two it pops depends on other actions;
//! - drop-eligible frames (DEI) whose tag changes: Open vSwitch keeps DEI if the tag ends up unchanged, and loses it
//!   after it has sent a copy without the tag;
//! - priority-tagged frames sent by `normal`: Open vSwitch keeps some of these tags;
//! - frames truncated by rules that push or pop tags: Open vSwitch counts their bytes before the change.

use super::ovs::{Ovs, PORTS};
use super::random::{frame, rules};
use linerate::switch::text::{numbered, parse_rule};
use linerate::switch::{Options, Outputs, PortNo, PortVlans, Reason, Switch};
use linerate_burst::{Burst, Desc, Nanos, TAIL};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use std::cell::RefCell;

/// Number of fixed cases; `LINERATE_OVS_CASES=N` runs N random ones instead.
const CASES: u32 = 60;

/// Frames sent by each port.
struct OutputByPort(Vec<Vec<Vec<u8>>>);

impl Outputs for OutputByPort {
    fn copy(&mut self, _: usize, port: PortNo, bytes: &[u8], _: bool) {
        self.0[usize::from(port) - 1].push(bytes.to_vec());
    }

    fn done(&mut self, _: usize, _: Result<u32, Reason>) {}
}

fn ours(switch: &mut Switch, port: PortNo, frames: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
    let (mut memory, mut descs) = (Vec::new(), Vec::new());
    for frame in frames {
        descs.push(Desc::new(Nanos(1), memory.len() as u32, frame.len() as u32));
        memory.extend_from_slice(frame);
    }
    memory.resize(memory.len() + TAIL, 0);
    let mut left = OutputByPort(vec![Vec::new(); usize::from(PORTS)]);
    switch.burst(Nanos(1 << 40), port, Burst::over(&memory, &descs).unwrap(), &mut left);
    left.0
}

fn runner() -> TestRunner {
    match std::env::var("LINERATE_OVS_CASES").ok().and_then(|cases| cases.parse().ok()) {
        Some(cases) => TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() }),
        None => {
            let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
            TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
        }
    }
}

/// Returns true if the two switches differ by design for this frame.
fn is_known_difference(rule: &str, frame: &[u8]) -> bool {
    let kind = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let is_tag = |kind: u16| kind == 0x8100 || kind == 0x88a8;
    let tagged = is_tag(kind(12));
    let network = if tagged { 18 } else { 14 };
    let changes_tags = rule.contains("vlan_vid:")
        || rule.contains("vlan_pcp:")
        || rule.contains("strip_vlan")
        || rule.contains("NORMAL");
    let is_later = kind(network - 2) == 0x0800 && frame.len() > network + 8 && kind(network + 6) & 0x1fff > 0;
    let changes_addresses = rule.contains("mod_nw_src") || rule.contains("mod_nw_dst");
    let (is_eligible, is_of_priority) =
        (tagged && frame[14] & 0x10 > 0, tagged && frame[14] & 15 == 0 && frame[15] == 0);
    let next = (kind(network - 2) == 0x86dd).then(|| frame[network + 6]);
    let is_routed = next == Some(44) || next == Some(43) && frame[network + 43] > 0;
    tagged && is_tag(kind(16)) && changes_tags
        || is_later && changes_addresses
        || is_eligible && changes_tags
        || is_of_priority && rule.contains("NORMAL")
        || rule.contains("max_len") && changes_tags
        || is_routed && rule.contains("->ipv6_")
}

fn compare(ovs: &mut Ovs, switch: &mut Switch, port: u16, frames: &[Vec<u8>]) -> Result<(), TestCaseError> {
    let frames: Vec<_> = frames
        .iter()
        .filter(|frame| {
            let rule =
                switch.rule_for(port, frame).map(|rule| linerate::switch::text::show_actions(&rule.rule.actions, &[]));
            !rule.is_some_and(|rule| is_known_difference(&rule, frame))
        })
        .cloned()
        .collect();
    let (there, here) = (ovs.frames(port, &frames), ours(switch, port, &frames));
    if there != here {
        let show = |left: &Vec<Vec<Vec<u8>>>| {
            let hex = |frame: &Vec<u8>| frame.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let port = |(port, frames): (usize, &Vec<Vec<u8>>)| {
                frames.iter().map(|frame| format!("\n  {} {}", port + 1, hex(frame))).collect::<String>()
            };
            left.iter().enumerate().map(port).collect::<String>()
        };
        return Err(TestCaseError::fail(format!(
            "input port {port}\nOpen vSwitch:{}\nlinerate:{}",
            show(&there),
            show(&here)
        )));
    }
    Ok(())
}

fn switch_with(rules: &[String]) -> Switch {
    let mut switch = Switch::new(Options { cache: 64, ..Options::new(usize::from(PORTS)) });
    for rule in rules {
        switch
            .add(parse_rule(rule, &numbered(PORTS.into())).unwrap_or_else(|error| panic!("{rule}: {error}")), Nanos(1));
    }
    switch
}

#[test]
fn rules_match_open_vswitch() {
    let Some(ovs) = Ovs::start() else { return };
    let ovs = RefCell::new(ovs);
    let frames = prop::collection::vec(prop::collection::vec(frame(), 1..24), usize::from(PORTS));
    let done = runner().run(&(rules(), frames), |(rules, frames)| {
        let ovs = &mut *ovs.borrow_mut();
        ovs.set_rules(&rules).map_err(|error| TestCaseError::fail(format!("rejected by Open vSwitch: {error}")))?;
        let mut switch = switch_with(&rules);
        (1..).zip(&frames).try_for_each(|(port, frames)| compare(ovs, &mut switch, port, frames))
    });
    done.unwrap_or_else(|error| panic!("{error}"));
}

/// A bridge with VLANs, one frame at a time: addresses learned from a frame apply to the next.
#[test]
fn bridge_matches_open_vswitch() {
    let Some(ovs) = Ovs::start() else { return };
    let ovs = RefCell::new(ovs);
    let vlans = prop::sample::select(vec![
        ("", ""),
        ("access=2", "tag=2"),
        ("access=1", "tag=1"),
        ("trunk=1,2", "trunks=1,2"),
        ("trunk=2-3,native=1", "trunks=2,3 tag=1 vlan_mode=native-untagged"),
        ("native=2", "tag=2 vlan_mode=native-untagged"),
    ]);
    let frames = prop::collection::vec((1..=PORTS, frame()), 1..24);
    let done = runner().run(&(prop::collection::vec(vlans, usize::from(PORTS)), frames), |(vlans, frames)| {
        let ovs = &mut *ovs.borrow_mut();
        let there: Vec<_> = vlans.iter().map(|(_, there)| (*there).to_owned()).collect();
        ovs.set_vlans(&there);
        ovs.set_rules(&["actions=normal".to_owned()]).map_err(TestCaseError::fail)?;
        let mut options = Options::new(usize::from(PORTS));
        for (port, (here, _)) in options.ports.iter_mut().zip(&vlans).filter(|(_, (here, _))| !here.is_empty()) {
            *port = PortVlans::parse(here).map_err(TestCaseError::fail)?;
        }
        let mut switch = Switch::new(options);
        switch.add(parse_rule("actions=normal", &numbered(PORTS.into())).map_err(TestCaseError::fail)?, Nanos(1));
        for (port, frame) in frames {
            compare(ovs, &mut switch, port, &[frame])?;
            // Open vSwitch would update its cached MAC locations only half a second later.
            ovs.ask("revalidator/purge", &[]);
        }
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{error}"));
}
