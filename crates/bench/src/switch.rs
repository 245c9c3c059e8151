//! What a switch needs for a frame, from memory and to nowhere: looking at it, finding its rule, and handing it on where it lies; then between
//! two memif ports beside Open vSwitch, and between two veth pairs beside the Linux bridge.

use super::Effort;
use super::measure::{Rounds, Row};
use super::{bridged, switched};
use linerate_burst::{Block, Burst, Desc, Nanos};
use linerate_switch::text::{numbered, parse_rule};
use linerate_switch::{Options, Outputs, PortNo, Reason, Rule, Switch};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Captured bytes of a frame.
pub(super) const LENGTH: usize = 60;
/// Frames that come at a time.
const BURST: usize = 256;

/// What rules there are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rules {
    /// One, of a port.
    Port,
    /// Two, of halves of all addresses.
    Halves,
    /// One for every flow.
    Exact,
    /// None: a bridge that learns.
    Normal,
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let many = 65_536;
    let cases = [
        ("a port rule", Rules::Port, 1024, false),
        ("two prefixes", Rules::Halves, many, false),
        ("normal", Rules::Normal, 1024, false),
        ("a rule a flow", Rules::Exact, 1024, false),
        ("a rule a flow", Rules::Exact, many, false),
        ("each flow new", Rules::Exact, many, true),
    ];
    let alone = cases.into_iter().map(|(case, rules, flows, is_new)| measure(case, rules, flows, is_new, effort));
    let mut rows: Vec<Row> = alone.collect::<Result<_, _>>()?;
    rows.push(replaced(if effort.quick { 4096 } else { many }, effort)?);
    rows.extend(switched::run(effort)?);
    rows.extend(bridged::run(effort)?);
    Ok(rows)
}

/// One for each flow.
pub(super) fn rules(flows: usize) -> Vec<String> {
    let rule = |flow| {
        let (source, destination, port) = (source(flow), destination(flow), port(flow));
        format!("udp,nw_src={source},nw_dst={destination},tp_src={port},tp_dst=9,actions=output:2")
    };
    (0..flows as u32).map(rule).collect()
}

/// These rules, between so many ports.
pub(super) fn parsed(rules: &[String], ports: usize) -> anyhow::Result<Vec<Rule>> {
    rules.iter().map(|rule| parse_rule(rule, &numbered(ports)).map_err(anyhow::Error::msg)).collect()
}

/// What it takes that many rules change at once, all of them: frames wait for so long.
fn replaced(count: usize, effort: Effort) -> anyhow::Result<Row> {
    let texts = rules(count);
    let others: Vec<_> = texts.iter().map(|text| text.replace("output:2", "output:1")).collect();
    let sets = [parsed(&texts, 2)?, parsed(&others, 2)?];
    let mut switch = Switch::new(Options::new(2));
    let mut rounds = Rounds::default();
    for round in 0..=2 * effort.rounds {
        let rules = sets[round % 2].clone();
        let began = cpu_time();
        switch.replace_all(rules, Nanos(1));
        if round > 0 {
            rounds.add(count as u64, (cpu_time() - began).as_secs_f64());
        }
    }
    anyhow::ensure!(switch.count() == count, "{} of {count} rules are there", switch.count());
    let ms = count as f64 / rounds.median() / 1e3;
    let row = rounds.row("switch", format!("{count} rules replaced"), 0.0);
    Ok(Row { ns: Some(1e3 / rounds.median()), remark: format!("{ms:.1} ms, rules for frames"), ..row })
}

/// Counts what leaves.
#[derive(Default)]
struct Gone(u64);

impl Outputs for Gone {
    #[inline]
    fn copy(&mut self, _: usize, port: PortNo, _: &[u8], _: bool) {
        self.0 += u64::from(port > 0);
    }

    fn done(&mut self, _: usize, _: Result<u32, Reason>) {}
}

fn measure(case: &str, rules: Rules, flows: usize, is_new: bool, effort: Effort) -> anyhow::Result<Row> {
    let mut switch = Switch::new(Options::new(3));
    let texts: Vec<String> = match rules {
        Rules::Port => vec!["in_port=1,actions=output:2".to_owned()],
        Rules::Halves => vec!["ip,nw_dst=0.0.0.0/1,actions=2".to_owned(), "ip,nw_dst=128.0.0.0/1,actions=3".to_owned()],
        Rules::Normal => vec!["actions=normal".to_owned()],
        Rules::Exact => self::rules(flows),
    };
    switch.add_all(parsed(&texts, 3)?, Nanos(1));
    let mut block = Block::new(flows * (LENGTH + 16) + 64, flows);
    for flow in 0..flows as u32 {
        // Not in the order of the rules.
        let flow = flow.wrapping_mul(40_503) % flows as u32;
        let added = block.push(&Desc::new(Nanos(1), 0, LENGTH as u32), &frame(flow));
        anyhow::ensure!(added, "no room for {flows} frames");
    }
    let turns = (effort.of(4_000_000) / flows).max(1);
    let (mut ours, mut limit) = (Rounds::default(), Rounds::default());
    let mut copy = Block::new(BURST * (LENGTH + 64), BURST);
    pass(&mut switch, block.burst());
    for _ in 0..effort.rounds {
        let began = cpu_time();
        let turn = |_| {
            if is_new {
                // What was known of flows is void, as if these had never come.
                switch.remove_if(|_| false);
            }
            pass(&mut switch, block.burst())
        };
        let gone: u64 = (0..turns).map(turn).sum();
        anyhow::ensure!(gone >= (turns * flows) as u64, "{gone} of {} frames left", turns * flows);
        ours.add((turns * flows) as u64, (cpu_time() - began).as_secs_f64());
        let began = cpu_time();
        for (desc, frame) in (0..turns).flat_map(|_| block.burst().iter()) {
            if !copy.push(desc, frame) {
                black_box(&copy).burst();
                copy.clear();
            }
        }
        limit.add((turns * flows) as u64, (cpu_time() - began).as_secs_f64());
    }
    let ns = 1e3 / ours.median();
    let row = ours.row("switch", case.to_owned(), LENGTH as f64).limited("copy", &limit).sized(LENGTH + 4);
    Ok(Row { ns: Some(ns), flows: Some(flows), remark: format!("{ns:.1} ns a frame"), ..row })
}

fn pass(switch: &mut Switch, frames: Burst<'_>) -> u64 {
    let mut gone = Gone::default();
    let mut from = 0;
    while from < frames.len() {
        let end = frames.len().min(from + BURST);
        switch.burst(Nanos(2), 1, frames.slice(from..end), &mut gone);
        from = end;
    }
    black_box(gone.0)
}

fn source(flow: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 + (flow >> 8))
}

fn destination(flow: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0b00_0000 | flow << 31 | flow & 0xff)
}

fn port(flow: u32) -> u32 {
    1024 + (flow & 1023)
}

/// UDP over IPv4; nobody looks at checksums.
pub(super) fn frame(flow: u32) -> [u8; LENGTH] {
    let mut frame = [0; LENGTH];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 1, (flow >> 8) as u8, flow as u8, 8, 0]);
    frame[14..26].copy_from_slice(&[0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0]);
    frame[26..30].copy_from_slice(&source(flow).octets());
    frame[30..34].copy_from_slice(&destination(flow).octets());
    frame[34..36].copy_from_slice(&(port(flow) as u16).to_be_bytes());
    (frame[37], frame[39]) = (9, 26);
    frame
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
