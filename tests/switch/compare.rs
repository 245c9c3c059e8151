//! Both switches are given the same rules and frames.
//!
//! Where they differ by intent, frames or rules are left out by a name:
//!
//! - later fragments whose addresses are changed: Open vSwitch 3.1 takes bytes of the payload for a checksum, and changes them;
//! - packets of IPv6 whose addresses change behind a fragment header, or a routing header that sends them on: it leaves the checksum as
//!   it was, which is wrong then;
//! - frames with more than one tag and rules that take tags off or put them on: it knows one of them (`vlan-limit`), and which of
//!   two it takes off depends on what else is done;
//! - frames that may be dropped first (DEI) whose tag is changed: it keeps that bit where nothing is changed in the end, and loses it
//!   where it has sent a copy without the tag before;
//! - frames with a tag of priority alone, as `normal` sends them: it keeps some of these tags;
//! - frames cut by rules that put tags on or take them off: it counts their bytes before that.

use super::ovs::{Ovs, PORTS};
use super::random::{frame, rules};
use linerate::switch::text::{numbered, parse_rule};
use linerate::switch::{Options, Outputs, PortNo, PortVlans, Reason, Switch};
use linerate_burst::{Burst, Desc, Nanos, TAIL};
use linerate_tests::support::lack;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use std::cell::RefCell;

/// Cases in a run of all tests; `LINERATE_OVS_CASES` asks for more, each time others.
const CASES: u32 = 60;

/// What left by each port.
struct Left(Vec<Vec<Vec<u8>>>);

impl Outputs for Left {
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
    let mut left = Left(vec![Vec::new(); usize::from(PORTS)]);
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

/// Whether the two differ about this frame by intent.
fn is_left_out(rule: &str, frame: &[u8]) -> bool {
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
            !rule.is_some_and(|rule| is_left_out(&rule, frame))
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
            "by port {port}\nOpen vSwitch:{}\nhere:{}",
            show(&there),
            show(&here)
        )));
    }
    Ok(())
}

fn said_of(rules: &[String]) -> Switch {
    let mut switch = Switch::new(Options { cache: 64, ..Options::new(usize::from(PORTS)) });
    for rule in rules {
        switch
            .add(parse_rule(rule, &numbered(PORTS.into())).unwrap_or_else(|error| panic!("{rule}: {error}")), Nanos(1));
    }
    switch
}

#[test]
fn rules_do_what_they_do_in_open_vswitch() {
    let Some(ovs) = Ovs::start() else { return lack("Open vSwitch is not installed") };
    let ovs = RefCell::new(ovs);
    let frames = prop::collection::vec(prop::collection::vec(frame(), 1..24), usize::from(PORTS));
    let done = runner().run(&(rules(), frames), |(rules, frames)| {
        let ovs = &mut *ovs.borrow_mut();
        ovs.set_rules(&rules).map_err(|error| TestCaseError::fail(format!("refused there: {error}")))?;
        let mut switch = said_of(&rules);
        (1..).zip(&frames).try_for_each(|(port, frames)| compare(ovs, &mut switch, port, frames))
    });
    done.unwrap_or_else(|error| panic!("{error}"));
}

/// A bridge with VLANs, frame by frame: what was learned from one is asked for the next.
#[test]
fn a_bridge_does_what_that_of_open_vswitch_does() {
    let Some(ovs) = Ovs::start() else { return lack("Open vSwitch is not installed") };
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
            // What it has cached of where MACs are, it would throw away half a second later.
            ovs.ask("revalidator/purge", &[]);
        }
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{error}"));
}
