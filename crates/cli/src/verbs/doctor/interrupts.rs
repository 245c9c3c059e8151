//! Packet processing of the card: interrupts, NUMA nodes, polling, and software steering.

use super::finding::{Check, Finding, Machine};
use super::port::{Port, quoted};
use super::tree::{list, members};
use crate::view::rates::counted;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const CHECKS: &[Check] = &[
    Check::port("irq", affinity),
    Check::port("numa", node),
    Check::port("napi-threaded", threaded),
    Check::port("napi-defer", deferred),
    Check::port("steering", steering),
];

/// Maximum number of commands printed.
const SHOWN: usize = 16;

/// Interrupts of a port: number, name, count per processor.
fn interrupts(machine: &Machine, port: &Port) -> Vec<(u32, String, Vec<u64>)> {
    let table = machine.tree.text("proc/interrupts").unwrap_or_default();
    let processors = table.lines().next().map_or(0, |heads| heads.split_whitespace().count());
    // A PCI card lists its own; virtio adds a device in between.
    let folders = ["device/msi_irqs", "device/../msi_irqs"];
    let own: BTreeSet<u32> =
        folders.iter().flat_map(|folder| port.files(folder)).filter_map(|name| name.parse().ok()).collect();
    let parse = |line: &str| {
        let (number, rest) = line.trim().split_once(':')?;
        let number: u32 = number.parse().ok()?;
        let mut words = rest.split_whitespace();
        let counts: Vec<u64> = words.by_ref().take(processors).filter_map(|word| word.parse().ok()).collect();
        let name = words.next_back()?.to_owned();
        let is_queue = !["config", "event", "control", "async", "misc"].iter().any(|other| name.contains(other));
        let named = name.contains(&port.facts.found.name);
        ((own.contains(&number) || own.is_empty() && named) && is_queue).then_some((number, name, counts))
    };
    table.lines().skip(1).filter_map(parse).collect()
}

fn affinity(machine: &Machine, port: &Port) -> Option<Finding> {
    let interrupts = interrupts(machine, port);
    if interrupts.is_empty() {
        return None;
    }
    // Those on the node of the card, if known.
    let near = node_of(machine, port).map(|(_, near)| near).filter(|near| !near.is_empty());
    let online = near.unwrap_or_else(|| machine.processors());
    // The effective affinity, if the kernel reports it.
    let mut places: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (number, ..) in &interrupts {
        let file = |what: &str| machine.tree.text(&format!("proc/irq/{number}/{what}")).filter(|text| !text.is_empty());
        let Some(allowed) = file("effective_affinity_list").or_else(|| file("smp_affinity_list")) else { continue };
        if let [processor] = members(&allowed)[..] {
            places.entry(processor).or_default().push(*number);
        }
    }
    let busiest = places.iter().max_by_key(|(_, numbers)| numbers.len());
    let receive = port.facts.channels.map_or(1, |channels| channels.rx as usize);
    let on = list(&places.keys().copied().collect::<Vec<_>>());
    let on = if places.len() == 1 { format!("processor {on}") } else { format!("processors {on}") };
    let now = format!("{} on {}", counted(interrupts.len() as u64, "interrupt"), on);
    let fair = interrupts.len().div_ceil(online.len().max(1));
    Some(match busiest {
        Some((processor, numbers)) if receive > 1 && numbers.len() > fair && numbers.len() > 1 => {
            let why = format!(
                "processor {processor} serves {} of them while others are idle; stop irqbalance, which reverts a change",
                numbers.len()
            );
            let spread = interrupts.iter().zip(online.iter().cycle()).take(SHOWN);
            let commands = spread
                .map(|((number, ..), processor)| format!("echo {processor} > /proc/irq/{number}/smp_affinity_list"));
            commands.fold(Finding::warn(now, why), Finding::remedy)
        }
        _ => Finding::ok(now, "the interrupts are spread over the processors"),
    })
}

/// Returns the NUMA node of the card, and its processors.
fn node_of(machine: &Machine, port: &Port) -> Option<(u32, Vec<u32>)> {
    // -1 on a machine without NUMA.
    let node = port.file("device/numa_node").and_then(|node| node.parse::<u32>().ok())?;
    Some((node, members(&machine.tree.text(&format!("sys/devices/system/node/node{node}/cpulist"))?)))
}

fn node(machine: &Machine, port: &Port) -> Option<Finding> {
    let (node, near) = node_of(machine, port)?;
    let status = machine.tree.text("proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(members)?;
    let far: Vec<u32> = allowed.iter().copied().filter(|one| !near.contains(one)).collect();
    if far.is_empty() {
        return Some(Finding::ok(format!("node {node}, same as this process"), "packets stay on one NUMA node"));
    }
    let now = format!("node {node} (processors {}); this process may run on {}", list(&near), list(&allowed));
    let why = "a thread on another node reads each packet through the link between the nodes";
    Some(Finding::warn(now, why).remedy(format!("numactl -N {node} -m {node} linerate capture {}", quoted(&port.name))))
}

fn threaded(_: &Machine, port: &Port) -> Option<Finding> {
    Some(match port.file("threaded")?.as_str() {
        "0" => Finding::ok("polled in softirqs", "packets are processed on the processor of the interrupt"),
        _ => Finding::note(
            "polled by threads (napi/...)",
            "the scheduler decides when they run: on a busy host give them a processor and a priority",
        ),
    })
}

fn deferred(_: &Machine, port: &Port) -> Option<Finding> {
    let number = |name: &str| port.file(name).and_then(|text| text.parse::<u64>().ok());
    let (timeout, times) = (number("gro_flush_timeout")?, number("napi_defer_hard_irqs")?);
    if timeout == 0 && times == 0 {
        return Some(Finding::ok(
            "interrupts are not deferred",
            "packets are processed as soon as the card signals them",
        ));
    }
    let now = format!("gro_flush_timeout {timeout} ns, napi_defer_hard_irqs {times}");
    let why = "packets wait in the card while interrupts are off: good with busy polling, otherwise a delay";
    let commands = [("gro_flush_timeout", timeout), ("napi_defer_hard_irqs", times)];
    let commands = commands.into_iter().filter(|(_, value)| *value > 0).map(|(file, _)| port.write(file, "0"));
    Some(commands.fold(Finding::note(now, why), Finding::remedy))
}

fn steering(machine: &Machine, port: &Port) -> Option<Finding> {
    let is_set =
        |file: String| port.file(&file).is_some_and(|mask| mask.chars().any(|c| c.is_ascii_hexdigit() && c != '0'));
    let queues = port.files("queues");
    let count = |kind: &str, file: &str| {
        queues.iter().filter(|queue| queue.starts_with(kind) && is_set(format!("queues/{queue}/{file}"))).count()
    };
    let (receive, send) = (count("rx-", "rps_cpus"), count("tx-", "xps_cpus"));
    if queues.is_empty() {
        return None;
    }
    let now = format!("RPS on {}, XPS on {send}", counted(receive as u64, "queue"));
    if receive > 0 {
        let why = "packets move to another processor before packet: gets them: spreads the load, at one wake-up each";
        return Some(Finding::note(now, why));
    }
    let is_one = port.facts.channels.is_none_or(|channels| channels.most_rx < 2);
    let processors = machine.processors();
    Some(if is_one && processors.len() > 1 && !port.is_xdp && !port.is_veth() {
        let why = "one queue uses one processor; RPS moves part of the work to the others";
        Finding::note(now, why).remedy(port.write("queues/rx-0/rps_cpus", &mask(&processors)))
    } else {
        Finding::ok(now, "packets stay on the processor that received them")
    })
}

/// Returns a set of processors as a kernel mask: words of 32 bits, highest first.
fn mask(processors: &[u32]) -> String {
    let mut words = vec![0u32; processors.iter().max().map_or(1, |most| *most as usize / 32 + 1)];
    for processor in processors {
        words[*processor as usize / 32] |= 1 << (processor % 32);
    }
    let (first, rest) = words.split_last().map_or((0, &[][..]), |(first, rest)| (*first, rest));
    rest.iter().rev().fold(format!("{first:x}"), |mask, word| format!("{mask},{word:08x}"))
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn masks_contain_the_processors() {
        let many: Vec<u32> = (0..36).collect();
        assert_eq!(
            (mask(&[0, 1, 2, 3]), mask(&[0, 2, 33]), mask(&many)),
            ("f".into(), "2,00000005".into(), "f,ffffffff".into())
        );
        assert_eq!((mask(&[64]), mask(&[31])), ("1,00000000,00000000".into(), "80000000".into()));
    }
}
