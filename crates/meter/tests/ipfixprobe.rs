//! Rows expected by ipfixprobe's own tests, computed from records under its definitions (`LINERATE_CORPUS`): all match.
//!
//! Its definitions, where they differ: a flow ends 30 s after its last packet and is cut after 300 s; its source is the
//! sender of the first packet; ICMP has no ports, so that all types between two hosts are one flow, and its header is
//! payload; lists hold 30 packets with payload, or 15 bursts of at least three of them less than a second apart. Bits
//! of TCP options are in reverse order in each byte. Flows of few packets have no row in some files.

use crate::support::{self, captures::load};
use linerate_burst::Nanos;
use linerate_headers::Link;
use linerate_meter::{Config, Flow, Level, PacketStats, StatsSide};
use std::fs;
use std::path::{Path, PathBuf};

const SECOND: u64 = 1_000_000_000;
/// Rows, and their capture.
const FILES: [(&str, &str); 6] = [
    ("basic", "mixed.pcap"),
    ("basicplus", "http.pcap"),
    ("bstats", "bstats.pcap"),
    ("phists", "mixed.pcap"),
    ("pstats", "mixed.pcap"),
    ("vlan", "vlan.pcap"),
];
/// Total number of rows.
const ROWS: usize = 161;
/// Length of its lists.
const LISTED: usize = 30;
const BURSTS: usize = 15;
const BURST_GAP: Nanos = Nanos(SECOND);
const BURST_PACKETS: u64 = 3;
/// Bytes of an ICMP header, which are payload here.
const ICMP: u16 = 8;

#[test]
fn rows_match_ipfixprobe() {
    let Some(root) = std::env::var_os("LINERATE_CORPUS") else {
        eprintln!("SKIPPED: LINERATE_CORPUS is not set, no row was compared");
        return;
    };
    let root = PathBuf::from(root).join("ipfixprobe");
    let mut compared = 0;
    for (name, capture) in FILES {
        let text = fs::read_to_string(root.join("expect").join(name)).unwrap();
        let (header, mut expected): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("ipaddr "));
        let columns: Vec<&str> = header[0].split(',').filter_map(|column| column.split(' ').nth(1)).collect();
        let flows = metered(&root.join("pcap").join(capture));
        let mut found: Vec<String> = conversations(&flows)
            .iter()
            .filter(|one| one.has_row(name))
            .map(|one| columns.iter().map(|column| one.column(column)).collect::<Vec<String>>().join(","))
            .collect();
        expected.sort_unstable();
        found.sort_unstable();
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "{name}");
        }
        assert_eq!(found.len(), expected.len(), "{name}");
        compared += found.len();
    }
    assert_eq!(compared, ROWS);
}

fn metered(capture: &Path) -> Vec<Flow> {
    let config = Config {
        max_flows: 1024,
        level: Level::Stats,
        packets: Config::MOST_PACKETS,
        macs: true,
        vlans: true,
        linger: Nanos(30 * SECOND),
        ..Config::default()
    };
    let (frames, _) = load(capture).unwrap();
    let config = config.with_timeouts(Nanos(30 * SECOND), Nanos(300 * SECOND));
    support::metered_frames(&frames, Link::Ethernet, &config, &[32]).0
}

/// One flow of ipfixprobe: one of ours, or all ICMP between two hosts.
struct Conversation<'a> {
    flows: Vec<&'a Flow>,
    /// True for flows whose originator sent in the direction of the first packet.
    forward: Vec<bool>,
}

fn conversations(flows: &[Flow]) -> Vec<Conversation<'_>> {
    let mut sorted: Vec<&Flow> = flows.iter().collect();
    sorted.sort_by_key(|flow| flow.first());
    let mut found: Vec<Conversation<'_>> = Vec::new();
    for flow in sorted {
        let goes_on = |one: &&mut Conversation<'_>| {
            is_icmp(flow) && one.is_between(flow) && flow.first().0.saturating_sub(one.last().0) < 30 * SECOND
        };
        match found.iter_mut().find(goes_on) {
            Some(one) => {
                let source = one.flows[0].ends[usize::from(!one.forward[0])].address;
                one.forward.push(flow.ends[0].address == source);
                one.flows.push(flow);
            }
            None => {
                let [one, other] = &flow.sides;
                let forward = other.packets == 0 || (one.packets > 0 && one.first <= other.first);
                found.push(Conversation { flows: vec![flow], forward: vec![forward] });
            }
        }
    }
    found
}

fn is_icmp(flow: &Flow) -> bool {
    matches!(flow.protocol, 1 | 58)
}

impl Conversation<'_> {
    fn is_between(&self, flow: &Flow) -> bool {
        let hosts = |flow: &Flow| {
            let [one, other] = flow.ends.map(|end| end.address);
            (one.min(other), one.max(other), flow.protocol, flow.vlans)
        };
        hosts(self.flows[0]) == hosts(flow)
    }

    fn first(&self) -> Nanos {
        self.flows.iter().map(|flow| flow.first()).min().unwrap()
    }

    fn last(&self) -> Nanos {
        self.flows.iter().map(|flow| flow.last()).max().unwrap()
    }

    /// Sums over the sides that sent to the destination, or in reverse.
    fn sum(&self, back: bool, of: impl Fn(&linerate_meter::Side) -> u64) -> u64 {
        self.flows.iter().zip(&self.forward).map(|(flow, forward)| of(&flow.sides[usize::from(*forward == back)])).sum()
    }

    /// Returns the statistics of a TCP or UDP conversation, which has one flow.
    fn stats(&self, back: bool) -> &StatsSide {
        &self.flows[0].stats.as_ref().unwrap().sides[usize::from(self.forward[0] == back)]
    }

    /// Returns listed packets with whole microseconds since 1970, and true for those to the destination.
    fn packets(&self) -> Vec<(u64, bool, PacketStats)> {
        let mut packets = Vec::new();
        for (flow, forward) in self.flows.iter().zip(&self.forward) {
            let listed = &flow.stats.as_ref().unwrap().packets;
            assert!(!is_icmp(flow) || listed.len() as u64 == flow.packets(), "all of ICMP is listed");
            for packet in listed {
                let time = flow.first().0 / 1000 + packet.time / 1000;
                let header = if is_icmp(flow) { ICMP } else { 0 };
                let packet = PacketStats { payload: packet.payload + header, ..*packet };
                packets.push((time, packet.from_originator == *forward, packet));
            }
        }
        packets.sort_by_key(|(time, ..)| *time);
        packets
    }

    /// Histogram of payload, or of gaps: our own, and for ICMP that of the listed packets.
    fn histogram(&self, back: bool, of_gaps: bool) -> [u64; 8] {
        if !is_icmp(self.flows[0]) {
            let stats = self.stats(back);
            return if of_gaps { stats.gap_histogram } else { stats.length_histogram };
        }
        let all = self.packets();
        let packets: Vec<_> = all.iter().filter(|(_, forward, _)| *forward != back).collect();
        let values: Vec<u64> = if of_gaps {
            packets.windows(2).map(|pair| pair[1].0 / 1000 - pair[0].0 / 1000).collect()
        } else {
            packets.iter().map(|(_, _, packet)| packet.payload.into()).collect()
        };
        let mut bins = [0; 8];
        for value in values {
            bins[[15, 31, 63, 127, 255, 511, 1023].iter().filter(|most| value > **most).count()] += 1;
        }
        bins
    }

    /// Returns whether a row of this kind exists: some are missing for flows of few packets.
    fn has_row(&self, name: &str) -> bool {
        let packets = self.sum(false, |side| side.packets) + self.sum(true, |side| side.packets);
        let has_syn = self.flows[0].sides.iter().any(|side| side.tcp_flags & 2 != 0);
        match name {
            "bstats" => packets > BURST_PACKETS,
            "pstats" | "phists" => packets > 1 || !has_syn,
            _ => true,
        }
    }

    /// Returns bursts, as four lists.
    fn bursts(&self, back: bool) -> [String; 4] {
        let stats = self.flows[0].stats.as_ref().unwrap();
        let mut bursts = stats.bursts(self.forward[0] != back, BURST_GAP, BURST_PACKETS);
        bursts.truncate(BURSTS);
        let at = |time: u64| moment(self.first().0 / 1000 + time / 1000);
        [
            list(bursts.iter().map(|burst| burst.payload_bytes)),
            list(bursts.iter().map(|burst| burst.packets)),
            list(bursts.iter().map(|burst| at(burst.first))),
            list(bursts.iter().map(|burst| at(burst.last))),
        ]
    }

    fn column(&self, name: &str) -> String {
        let flow = self.flows[0];
        let [source, destination] = if self.forward[0] { [0, 1] } else { [1, 0] };
        let port = |end: usize| if is_icmp(flow) { 0 } else { flow.ends[end].port };
        let back = name.ends_with("_REV") || name.starts_with('D');
        let packets = || self.packets().into_iter().take(LISTED);
        match name.strip_suffix("_REV").unwrap_or(name) {
            "SRC_IP" => flow.ends[source].address.to_string(),
            "DST_IP" => flow.ends[destination].address.to_string(),
            "SRC_PORT" => port(source).to_string(),
            "DST_PORT" => port(destination).to_string(),
            "SRC_MAC" => flow.macs.unwrap_or_default()[source].to_string(),
            "DST_MAC" => flow.macs.unwrap_or_default()[destination].to_string(),
            "PROTOCOL" => flow.protocol.to_string(),
            "VLAN_ID" => flow.vlans[0].to_string(),
            // Depend on the interface, which is not recorded.
            "LINK_BIT_FIELD" | "DIR_BIT_FIELD" => "0".into(),
            "BYTES" => self.sum(back, |side| side.packet_bytes).to_string(),
            "PACKETS" => self.sum(back, |side| side.packets).to_string(),
            "TCP_FLAGS" => self.sum(back, |side| side.tcp_flags.into()).to_string(),
            "IP_TTL" => self.sum(back, |side| side.ttl[1].into()).to_string(),
            "IP_FLG" => self.stats(back).ip_flags.to_string(),
            "TCP_WIN" => self.stats(back).first_window.to_string(),
            "TCP_OPT" => self.stats(back).tcp_options.swap_bytes().reverse_bits().to_string(),
            "TCP_SYN_SIZE" => self.stats(false).syn_bytes.to_string(),
            "TCP_MSS" => {
                let tcp = flow.tcp.as_ref().map(|tcp| tcp.sides[if back { destination } else { source }]);
                tcp.and_then(|side| side.mss).unwrap_or(0).to_string()
            }
            "TIME_FIRST" => moment(self.first().0 / 1000),
            "TIME_LAST" => moment(self.last().0 / 1000),
            "S_PHISTS_SIZES" | "D_PHISTS_SIZES" => list(self.histogram(back, false)),
            "S_PHISTS_IPT" | "D_PHISTS_IPT" => list(self.histogram(back, true)),
            "PPI_PKT_DIRECTIONS" => list(packets().map(|(_, forward, _)| if forward { 1 } else { -1 })),
            "PPI_PKT_FLAGS" => list(packets().map(|(_, _, packet)| packet.tcp_flags)),
            "PPI_PKT_LENGTHS" => list(packets().map(|(_, _, packet)| packet.payload)),
            "PPI_PKT_TIMES" => list(packets().map(|(time, ..)| moment(time))),
            "SBI_BRST_BYTES" | "DBI_BRST_BYTES" => self.bursts(back)[0].clone(),
            "SBI_BRST_PACKETS" | "DBI_BRST_PACKETS" => self.bursts(back)[1].clone(),
            "SBI_BRST_TIME_START" | "DBI_BRST_TIME_START" => self.bursts(back)[2].clone(),
            "SBI_BRST_TIME_STOP" | "DBI_BRST_TIME_STOP" => self.bursts(back)[3].clone(),
            _ => panic!("an unknown column {name}"),
        }
    }
}

fn list<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
    format!("[{}]", values.join("|"))
}

/// Formats microseconds since 1970 as a date and time of day.
fn moment(time: u64) -> String {
    let (seconds, micros) = (time / 1_000_000, time % 1_000_000);
    let (mut days, second) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year}-{:02}-{:02}T{hour:02}:{minute:02}:{:02}.{micros:06}", month + 1, days + 1, second % 60)
}
