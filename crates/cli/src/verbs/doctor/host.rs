//! Packets that the host dropped above its interfaces: firewall, connection tracking, IP, TCP and UDP sockets.
//!
//! Counters of SNMP groups are documented in networking/snmp_counter of the kernel. They belong to one network namespace and
//! start at zero with it, at boot for the first one.

use super::finding::{Check, Finding, Machine, Severity};
use crate::view::rates::counted;
use std::collections::BTreeMap;

pub(super) const CHECKS: &[Check] = &[
    Check::machine("udp", udp),
    Check::machine("tcp", tcp),
    Check::machine("ip", ip),
    Check::machine("conntrack", conntrack),
    Check::machine("firewall-drops", firewall),
];

/// Maximum number of counters shown per layer.
const SHOWN: usize = 6;
/// Drops below this number are a note only, whatever their share.
const FEW: u64 = 10;

const UDP_RECEIVED: [&str; 4] = ["Udp.InDatagrams", "Udp6InDatagrams", "UdpLite.InDatagrams", "UdpLite6InDatagrams"];
const UDP_GROUPS: [&str; 4] = ["Udp.", "Udp6", "UdpLite.", "UdpLite6"];
/// Counters of dropped datagrams, cause and remedies: none on this host for damaged datagrams. `NoPorts` and `IgnoredMulti` count
/// datagrams without a receiver, which are not losses.
const UDP_CAUSES: [(&str, &str, &[&str]); 5] = [
    (
        "RcvbufErrors",
        "the program reads too slowly for its socket buffer (SO_RCVBUF)",
        &[
            "sysctl -w net.core.rmem_max=26214400 net.core.rmem_default=26214400",
            "ss -lunmp   # drops per socket: d... in skmem:()",
        ],
    ),
    (
        "SndbufErrors",
        "a qdisc was full (then also Ip.OutDiscards), or a program sends faster than its socket buffer empties (SO_SNDBUF)",
        &[
            "tc -s qdisc show   # dropped: shape the sender, or raise limit or txqueuelen",
            "sysctl -w net.core.wmem_max=26214400 net.core.wmem_default=26214400",
        ],
    ),
    (
        "MemErrors",
        "UDP sockets reached their total memory limit (udp_mem)",
        &["sysctl net.ipv4.udp_mem; grep UDP /proc/net/sockstat   # limits, use: pages"],
    ),
    ("InCsumErrors", "wrong checksum: damaged in transit or by the sender", &[]),
    (UDP_OTHERS, "wrong length, or rejected by an IPsec policy", &[]),
];
/// Includes the receive counters above; the rest has no counter of its own.
const UDP_OTHERS: &str = "InErrors";
const UDP_IN_ERRORS: [&str; 3] = ["RcvbufErrors", "MemErrors", "InCsumErrors"];
/// `ListenDrops` includes `ListenOverflows`.
const TCP_DROPS: [&str; 11] = [
    "TcpExt.ListenDrops",
    "TcpExt.TCPReqQFullDrop",
    "TcpExt.TCPBacklogDrop",
    "TcpExt.TCPRcvQDrop",
    "TcpExt.RcvPruned",
    "TcpExt.OfoPruned",
    "TcpExt.TCPZeroWindowDrop",
    "TcpExt.TCPMinTTLDrop",
    "TcpExt.TCPOFODrop",
    "TcpExt.TCPAbortOnMemory",
    "Tcp.InErrs",
];
const IP_RECEIVED: [&str; 2] = ["Ip.InReceives", "Ip6InReceives"];
const IP_DROPS: [&str; 18] = [
    "Ip.InDiscards",
    "Ip6InDiscards",
    "Ip.OutDiscards",
    "Ip6OutDiscards",
    "Ip.InHdrErrors",
    "Ip6InHdrErrors",
    "Ip.InAddrErrors",
    "Ip6InAddrErrors",
    "Ip.ReasmFails",
    "Ip6ReasmFails",
    "Ip.FragFails",
    "Ip6FragFails",
    "IpExt.InNoRoutes",
    "Ip6InNoRoutes",
    "IpExt.InTruncatedPkts",
    "Ip6InTruncatedPkts",
    "IpExt.InCsumErrors",
    "TcpExt.IPReversePathFilter",
];

/// Returns the counters of `/proc/net/snmp` and `netstat` as `Group.Name`, and of `snmp6` by their own names.
fn counters(machine: &Machine) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for file in ["proc/net/snmp", "proc/net/netstat"] {
        let text = machine.tree.text(file).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.chunks_exact(2) {
            let (Some((group, names)), Some((_, values))) = (pair[0].split_once(':'), pair[1].split_once(':')) else {
                continue;
            };
            for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
                // Tcp.MaxConn is -1 for unlimited.
                let Ok(value) = value.parse() else { continue };
                found.insert(format!("{group}.{name}"), value);
            }
        }
    }
    for line in machine.tree.text("proc/net/snmp6").unwrap_or_default().lines() {
        if let Some((name, value)) = line.split_once(char::is_whitespace) {
            let Ok(value) = value.trim().parse() else { continue };
            found.insert(name.to_owned(), value);
        }
    }
    found
}

/// Returns the severity of a share of drops.
fn severity(drops: u64, received: u64) -> Severity {
    let all = received.saturating_add(drops);
    match drops {
        0 => Severity::Ok,
        1..FEW => Severity::Note,
        _ if drops.saturating_mul(1_000) >= all => Severity::Bad,
        _ if drops.saturating_mul(1_000_000) >= all => Severity::Warn,
        _ => Severity::Note,
    }
}

/// Returns since when the counters count.
fn since(machine: &Machine) -> String {
    let uptime = machine.tree.text("proc/uptime").and_then(|text| text.split('.').next()?.parse::<u64>().ok());
    match uptime {
        None => "since boot".into(),
        Some(s @ ..7_200) => format!("since boot {} min ago", s / 60),
        Some(s @ ..172_800) => format!("since boot {} h ago", s / 3_600),
        Some(s) => format!("since boot {} days ago", s / 86_400),
    }
}

/// Returns the non-zero counters, largest first.
fn dropped_by<'a>(found: &BTreeMap<String, u64>, names: &[&'a str]) -> Vec<(&'a str, u64)> {
    let value = |name: &'a str| Some((name, *found.get(name)?)).filter(|(_, value)| *value > 0);
    let mut drops: Vec<(&str, u64)> = names.iter().filter_map(|name| value(name)).collect();
    drops.sort_by_key(|(_, value)| std::cmp::Reverse(*value));
    drops
}

/// Describes the drops of one layer, largest counter first.
fn layer(
    machine: &Machine,
    found: &BTreeMap<String, u64>,
    received: &[&str],
    names: &[&str],
    what: &str,
    why: [&str; 2],
) -> Option<Finding> {
    let sum: u64 = received.iter().filter_map(|name| found.get(*name)).sum();
    received.iter().any(|name| found.contains_key(*name)).then_some(())?;
    let drops = dropped_by(found, names);
    let lost = drops.iter().map(|(_, value)| value).sum();
    let since = since(machine);
    if drops.is_empty() {
        return Some(Finding::ok(format!("0 of {sum} {what} dropped {since}"), why[0]));
    }
    let shown: Vec<String> = drops.iter().take(SHOWN).map(|(name, value)| format!("{name} {value}")).collect();
    let now = format!("{lost} {what} dropped, {sum} received {since}: {}", shown.join(", "));
    Some(Finding::new(severity(lost, sum), now, why[1]))
}

fn udp(machine: &Machine) -> Option<Finding> {
    let mut found = counters(machine);
    for group in UDP_GROUPS {
        let named = UDP_IN_ERRORS.iter().filter_map(|name| found.get(&format!("{group}{name}"))).sum();
        found.entry(format!("{group}{UDP_OTHERS}")).and_modify(|all| *all = all.saturating_sub(named));
    }
    let names: Vec<String> =
        UDP_GROUPS.iter().flat_map(|group| UDP_CAUSES.map(|(name, ..)| format!("{group}{name}"))).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    // In the order of their counters.
    let mut causes: Vec<_> = dropped_by(&found, &names)
        .iter()
        .filter_map(|(counter, _)| UDP_CAUSES.iter().find(|(name, ..)| counter.ends_with(name)))
        .collect();
    let mut seen = Vec::new();
    causes.retain(|(name, ..)| {
        !seen.contains(name) && {
            seen.push(*name);
            true
        }
    });
    let why = ["no socket buffer was full", causes.first().map_or("", |(_, why, _)| why)];
    let mut finding = layer(machine, &found, &UDP_RECEIVED, &names, "datagrams", why)?;
    if seen.contains(&"RcvbufErrors") {
        finding.now.push_str(&worst_socket(machine).unwrap_or_default());
    }
    finding
        .remedies
        .extend(causes.iter().flat_map(|(.., commands)| commands.iter().map(|command| (*command).to_owned())));
    Some(finding)
}

/// Returns the open UDP socket with the most drops, by the last column of `/proc/net/udp` (Documentation: proc_net_tcp).
fn worst_socket(machine: &Machine) -> Option<String> {
    let rows = ["udp", "udp6"].map(|file| machine.tree.text(&format!("proc/net/{file}")).unwrap_or_default());
    let drops = rows.iter().flat_map(|text| text.lines().skip(1)).filter_map(|row| {
        let (_, port) = row.split_whitespace().nth(1)?.rsplit_once(':')?;
        Some((row.split_whitespace().last()?.parse::<u64>().ok()?, u16::from_str_radix(port, 16).ok()?))
    });
    let (drops, port) = drops.max().filter(|(drops, _)| *drops > 0)?;
    Some(format!("; most of them on an open socket: UDP port {port}, {drops}"))
}

fn tcp(machine: &Machine) -> Option<Finding> {
    let why = [
        "no listen queue or receive queue was full",
        "a program accepts or reads too slowly, or memory ran out; TCP retransmits these",
    ];
    let finding = layer(machine, &counters(machine), &["Tcp.InSegs"], &TCP_DROPS, "segments", why)?;
    let has_drops = finding.severity > Severity::Ok;
    Some(if has_drops {
        finding
            .remedy("ss -lnt   # Recv-Q equal to Send-Q: the listen queue is full")
            .remedy("sysctl -w net.core.somaxconn=8192")
    } else {
        finding
    })
}

fn ip(machine: &Machine) -> Option<Finding> {
    let found = counters(machine);
    let most = dropped_by(&found, &IP_DROPS).first().map_or("", |(name, _)| *name);
    let is_sending = most.ends_with("OutDiscards");
    let cause = match is_sending {
        true => "a qdisc was full (see qdisc of the interface), or a firewall rule dropped outgoing packets",
        false => "no route, invalid header, reverse path filter, or missing fragment",
    };
    let why = ["no drops by routing, header checks or reassembly", cause];
    let finding = layer(machine, &found, &IP_RECEIVED, &IP_DROPS, "packets", why)?;
    let command = match is_sending {
        true => "tc -s qdisc show   # dropped",
        false => "nstat -az | grep -E 'Discard|Err|Fail|NoRoute|Filter|Trunc'",
    };
    Some(if finding.severity > Severity::Ok { finding.remedy(command) } else { finding })
}

/// Columns of `/proc/net/stat/nf_conntrack` that count dropped packets or connections.
const CONNTRACK_DROPS: [&str; 3] = ["drop", "early_drop", "insert_failed"];

fn conntrack(machine: &Machine) -> Option<Finding> {
    let text = machine.tree.text("proc/net/stat/nf_conntrack")?;
    let (names, rows) = text.split_once('\n')?;
    let sum = |wanted: &str| -> u64 {
        let Some(column) = names.split_whitespace().position(|name| name == wanted) else { return 0 };
        let value = |row: &str| u64::from_str_radix(row.split_whitespace().nth(column)?, 16).ok();
        rows.lines().filter_map(value).fold(0, u64::saturating_add)
    };
    let drops: Vec<(&str, u64)> =
        CONNTRACK_DROPS.iter().map(|name| (*name, sum(name))).filter(|(_, value)| *value > 0).collect();
    let number = |name: &str| machine.tree.number(&format!("proc/sys/net/netfilter/{name}"));
    let (count, most) = (number("nf_conntrack_count").unwrap_or(0), number("nf_conntrack_max").unwrap_or(i64::MAX));
    let now = format!("{count} of {most} connections tracked");
    if drops.is_empty() && count < most / 10 * 9 {
        return Some(Finding::ok(now, "the connection table was never full"));
    }
    let shown: String = drops.iter().map(|(name, value)| format!(", {name} {value}")).collect();
    let lost = drops.iter().map(|(_, value)| value).sum::<u64>();
    let received = counters(machine).get("Ip.InReceives").copied().unwrap_or_default();
    let severity = severity(lost, received).max(if count >= most / 10 * 9 { Severity::Warn } else { Severity::Ok });
    let finding = Finding::new(
        severity,
        format!("{now}{shown} {}", since(machine)),
        "packets of new connections are dropped while the table is full",
    );
    Some(finding.remedy(format!("sysctl -w net.netfilter.nf_conntrack_max={}", most.saturating_mul(2))))
}

/// Sums the drops of firewall rules with a counter: lines of `nft list ruleset` and of `iptables-save -c`.
fn firewall(machine: &Machine) -> Option<Finding> {
    let Some(rules) = machine.rules.as_deref() else {
        let unknown = "rules not read: neither nft nor iptables-save can be run";
        return machine
            .tree
            .is_real()
            .then(|| Finding::note(unknown, "drops of the firewall are not in these findings"));
    };
    let mut worst: Vec<(u64, &str)> = rules
        .lines()
        .filter_map(|line| Some((dropped(line)?, line.trim())))
        .filter(|(packets, _)| *packets > 0)
        .collect();
    worst.sort_by_key(|(packets, _)| std::cmp::Reverse(*packets));
    let Some((_, rule)) = worst.first() else {
        return Some(Finding::ok("no drops by rules with a counter", "rules without a counter are not shown"));
    };
    let sum = worst.iter().map(|(packets, _)| packets).sum::<u64>();
    let rule: String = rule.chars().take(60).collect();
    let now = format!("{} dropped by {}; most by: {rule}", counted(sum, "packet"), counted(worst.len() as u64, "rule"));
    let why = "dropped packets reach no program; packet: and xdp: capture before the firewall";
    Some(Finding::note(now, why).remedy("nft list ruleset | grep -E 'drop|reject'"))
}

/// Returns the packets that a rule dropped, or `None` if it does not drop or has no counter.
fn dropped(line: &str) -> Option<u64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let drops = |word: &&str| ["drop", "reject", "DROP", "REJECT"].contains(word);
    words.iter().any(drops).then_some(())?;
    if let Some(at) = words.windows(2).position(|pair| pair == ["counter", "packets"]) {
        return words.get(at + 2)?.parse().ok();
    }
    // `[packets:bytes] -A INPUT ... -j DROP`, or the policy of a chain: `:INPUT DROP [packets:bytes]`.
    let counter = words.iter().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))?;
    counter.split(':').next()?.parse().ok()
}
