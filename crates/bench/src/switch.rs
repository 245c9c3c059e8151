//! A switch: CPU time per packet in memory (parsing, finding the rule, output without a copy); between two memif ports, compared with
//! Open vSwitch; and between two veth pairs, compared with the Linux bridge.

use super::Effort;
use super::harness::{Case, Ours, Prepare, Row, Sample, case};
use super::{switch_memif, switch_veth};
use linerate_burst::{Block, Burst, Desc, Nanos};
use linerate_cli::view::rates::counted;
use linerate_switch::text::{numbered, parse_rule};
use linerate_switch::{Options, Outputs, PortNo, Reason, Rule, Switch};
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::rc::Rc;

/// Captured bytes of a frame.
pub(super) const LENGTH: usize = 60;
/// Packets that arrive at a time.
const BURST: usize = 256;

/// Rules of a case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rules {
    /// One for a port.
    Port,
    /// Two for halves of all addresses.
    Halves,
    /// One per flow.
    Exact,
    /// None: a bridge that learns.
    Normal,
}

pub(super) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    let many = 65_536;
    let cases = [
        ("a port rule", Rules::Port, 1024, false),
        ("two prefixes", Rules::Halves, many, false),
        ("normal", Rules::Normal, 1024, false),
        ("a rule a flow", Rules::Exact, 1024, false),
        ("a rule a flow", Rules::Exact, many, false),
        ("each flow new", Rules::Exact, many, true),
    ];
    let own = cases.map(|(name, rules, flows, is_new)| case(move || of(name, rules, flows, is_new, effort)));
    let replaced = case(move || replaced(if effort.quick { 4096 } else { many }));
    let own = own.into_iter().chain([replaced]);
    Ok(own.chain(switch_memif::cases(effort)?).chain(switch_veth::cases(effort)?).collect())
}

/// Returns a rule per flow.
pub(super) fn rules(flows: usize) -> Vec<String> {
    let rule = |flow| {
        let (source, destination, port) = (source(flow), destination(flow), port(flow));
        format!("udp,nw_src={source},nw_dst={destination},tp_src={port},tp_dst=9,actions=output:2")
    };
    (0..flows as u32).map(rule).collect()
}

/// Parses rules between this number of ports.
pub(super) fn parsed(rules: &[String], ports: usize) -> anyhow::Result<Vec<Rule>> {
    rules.iter().map(|rule| parse_rule(rule, &numbered(ports)).map_err(anyhow::Error::msg)).collect()
}

/// Replaces all rules at once; packets wait for that.
fn replaced(count: usize) -> anyhow::Result<Case> {
    let texts = rules(count);
    let others: Vec<_> = texts.iter().map(|text| text.replace("output:2", "output:1")).collect();
    let mut sets = [parsed(&texts, 2)?, parsed(&others, 2)?];
    let mut switch = Switch::new(Options::new(2));
    switch.replace_all(sets[1].clone(), Nanos(1));
    let ours = Ours::new(format!("{count} rules replaced"), move || {
        let rules = sets[0].clone();
        sets.swap(0, 1);
        let sample = Sample::by_cpu(|| {
            switch.replace_all(rules, Nanos(1));
            Ok(count as u64)
        });
        anyhow::ensure!(switch.count() == count, "{} of {count} rules exist", switch.count());
        sample
    });
    let ours = ours.finish(move |row| {
        row.ns = row.cpu_ns;
        row.remark = format!("{:.1} ms; M/s counts rules", count as f64 / row.mpps / 1e3);
    });
    Ok(Case::default().ours(ours))
}

/// Counts packets that leave.
#[derive(Default)]
struct DepartureCount(u64);

impl Outputs for DepartureCount {
    #[inline]
    fn copy(&mut self, _: usize, port: PortNo, _: &[u8], _: bool) {
        self.0 += u64::from(port > 0);
    }

    fn done(&mut self, _: usize, _: Result<u32, Reason>) {}
}

fn of(name: &str, rules: Rules, flows: usize, is_new: bool, effort: Effort) -> anyhow::Result<Case> {
    let mut switch = Switch::new(Options::new(3));
    let texts: Vec<String> = match rules {
        Rules::Port => vec!["in_port=1,actions=output:2".to_owned()],
        Rules::Halves => vec!["ip,nw_dst=0.0.0.0/1,actions=2".to_owned(), "ip,nw_dst=128.0.0.0/1,actions=3".to_owned()],
        Rules::Normal => vec!["actions=normal".to_owned()],
        Rules::Exact => self::rules(flows),
    };
    switch.add_all(parsed(&texts, 3)?, Nanos(1));
    let (block, turns) = (Rc::new(frames(flows)?), (effort.of(4_000_000) / flows).max(1));
    pass(&mut switch, block.burst());
    let (source, total) = (Rc::clone(&block), (turns * flows) as u64);
    let ours = move || {
        Sample::by_cpu(|| {
            let turn = |_| {
                if is_new {
                    // Forgets the cached flows.
                    switch.remove_if(|_| false);
                }
                pass(&mut switch, source.burst())
            };
            let gone: u64 = (0..turns).map(turn).sum();
            anyhow::ensure!(gone >= total, "{gone} of {total} packets left");
            Ok(total)
        })
    };
    let mut copy = Block::new(BURST * (LENGTH + 64), BURST);
    let plain = move || {
        Sample::by_cpu(|| {
            for (desc, frame) in (0..turns).flat_map(|_| block.burst().iter()) {
                if !copy.push(desc, frame) {
                    black_box(&copy).burst();
                    copy.clear();
                }
            }
            Ok(total)
        })
    };
    let ours = Ours::new(name, ours).with(|row| row.flows = Some(flows)).finish(by_packet);
    Ok(Case::sized(LENGTH + 4).ours(ours).limit("copy", plain))
}

/// Reports the flows, and the CPU time per packet.
pub(super) fn by_packet(row: &mut Row) {
    row.ns = row.cpu_ns;
    row.remark = row.flows.map_or_else(String::new, |flows| counted(flows as u64, "flow"));
}

/// A packet of each flow, in another order than their rules.
pub(super) fn frames(flows: usize) -> anyhow::Result<Block> {
    let mut block = Block::new(flows * (LENGTH + 16) + 64, flows);
    for flow in 0..flows as u32 {
        let flow = flow.wrapping_mul(40_503) % flows as u32;
        let added = block.push(&Desc::new(Nanos(1), 0, LENGTH as u32), &frame(flow));
        anyhow::ensure!(added, "no room for {flows} packets");
    }
    Ok(block)
}

fn pass(switch: &mut Switch, frames: Burst<'_>) -> u64 {
    let mut gone = DepartureCount::default();
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

/// UDP over IPv4 without checksums.
fn frame(flow: u32) -> [u8; LENGTH] {
    let mut frame = [0; LENGTH];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 1, (flow >> 8) as u8, flow as u8, 8, 0]);
    frame[14..26].copy_from_slice(&[0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0]);
    frame[26..30].copy_from_slice(&source(flow).octets());
    frame[30..34].copy_from_slice(&destination(flow).octets());
    frame[34..36].copy_from_slice(&(port(flow) as u16).to_be_bytes());
    (frame[37], frame[39]) = (9, 26);
    frame
}
