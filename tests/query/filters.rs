//! Filters compared with plain conditions, on flows and on files, and the errors of invalid filters.

use super::samples::{HOSTS, flows, store};
use linerate_burst::Nanos;
use linerate_meter::{Flow, Quality};
use linerate_query::columns::{Batch, all};
use linerate_query::{Filter, Memo};
use linerate_tests::support::Scratch;
use linerate_tests::support::flows::full_flow;
use proptest::prelude::*;
use std::net::IpAddr;

/// Condition as filter text and as a predicate.
#[derive(Clone)]
struct Condition {
    text: String,
    holds: std::rc::Rc<dyn Fn(&Flow) -> bool>,
}

impl std::fmt::Debug for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

fn condition(text: impl Into<String>, holds: impl Fn(&Flow) -> bool + 'static) -> Condition {
    Condition { text: text.into(), holds: std::rc::Rc::new(holds) }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Returns true if an address is in a network given as text.
fn is_in(address: IpAddr, network: &str) -> bool {
    let (base, length) = network.split_once('/').unwrap();
    let (base, length): (IpAddr, u32) = (base.parse().unwrap(), length.parse().unwrap());
    let width = if base.is_ipv6() { 128 } else { 32 };
    base.is_ipv6() == address.is_ipv6() && (length == 0 || (bits(base) ^ bits(address)) >> (width - length) == 0)
}

fn has_ports(flow: &Flow) -> bool {
    [6, 17, 132].contains(&flow.protocol)
}

fn rate(count: u64, flow: &Flow) -> f64 {
    let time = flow.last().0.saturating_sub(flow.first().0);
    if time == 0 { 0.0 } else { count as f64 * 1e9 / time as f64 }
}

fn flags(flow: &Flow) -> u8 {
    flow.sides[0].tcp_flags | flow.sides[1].tcp_flags
}

fn leaf() -> impl Strategy<Value = Condition> {
    const NETWORKS: [&str; 6] =
        ["10.0.0.0/8", "10.0.0.0/24", "192.0.2.0/28", "2001:db8::/32", "0.0.0.0/0", "2001:db8::/64"];
    let of_hosts = (0..5usize, 0..HOSTS.len(), 0..NETWORKS.len()).prop_map(|(form, host, network)| {
        let (host, network) = (HOSTS[host], NETWORKS[network]);
        let address: IpAddr = host.parse().unwrap();
        match form {
            0 => condition(format!("host {host}"), move |flow| flow.ends.iter().any(|end| end.address == address)),
            1 => condition(format!("src host {host}"), move |flow| flow.ends[0].address == address),
            2 => condition(format!("dst net {network}"), move |flow| is_in(flow.ends[1].address, network)),
            3 => condition(format!("src and dst net {network}"), move |flow| {
                flow.ends.iter().all(|end| is_in(end.address, network))
            }),
            _ => condition(format!("ip in [ {host}, {network} ]").replace("ip in", "address in"), move |flow| {
                flow.ends.iter().any(|end| end.address == address || is_in(end.address, network))
            }),
        }
    });
    let of_ports = (0..6usize, prop::sample::select(vec![80u16, 443, 53, 1024])).prop_map(|(form, port)| match form {
        0 => condition(format!("port {port}"), move |flow| {
            has_ports(flow) && flow.ends.iter().any(|end| end.port == port)
        }),
        1 => condition(format!("dst port {port}"), move |flow| has_ports(flow) && flow.ends[1].port == port),
        2 => condition(format!("tcp src port {port} or 80"), move |flow| {
            flow.protocol == 6 && [port, 80].contains(&flow.ends[0].port)
        }),
        3 => condition(format!("portrange {port}-2000"), move |flow| {
            has_ports(flow) && flow.ends.iter().any(|end| (port..=2000).contains(&end.port))
        }),
        4 => condition(format!("port in [ 53 {port} ]"), move |flow| {
            has_ports(flow) && flow.ends.iter().any(|end| end.port == port || end.port == 53)
        }),
        _ => condition(format!("resp_port >= {port}"), move |flow| flow.ends[1].port >= port),
    });
    let of_sizes = (0..10usize, prop::sample::select(vec![0u64, 1, 20, 999, 20_000, 1 << 40])).prop_map(
        |(form, size)| match form {
            0 => condition(format!("bytes > {size}"), move |flow| flow.frame_bytes() > size),
            1 => condition(format!("packets <= {size}"), move |flow| flow.packets() <= size),
            2 => condition(format!("orig.packets != {size}"), move |flow| flow.sides[0].packets != size),
            3 => condition(format!("dst bytes lt {size}"), move |flow| flow.sides[1].frame_bytes < size),
            4 => condition(format!("duration < {size}ms"), move |flow| {
                flow.last().0.saturating_sub(flow.first().0) < size * 1_000_000
            }),
            5 => condition(format!("pps > {size}"), move |flow| rate(flow.packets(), flow) > size as f64),
            6 => condition(format!("bps >= {size}"), move |flow| {
                let bits = |count: u64| count as f64 * 8e9;
                let time = flow.last().0.saturating_sub(flow.first().0);
                (if time == 0 { 0.0 } else { bits(flow.frame_bytes()) / time as f64 }) >= size as f64
            }),
            7 => condition(format!("tcp_mss > {size}"), move |flow| {
                flow.tcp
                    .iter()
                    .any(|tcp| tcp.sides.iter().any(|side| side.mss.is_some_and(|mss| u64::from(mss) > size)))
            }),
            8 => condition(format!("flows = {}", size % 4), move |flow| flow.flows == size % 4),
            _ => condition(format!("orig_tcp_rtt_mean_ns > {size}"), move |flow| {
                flow.tcp.iter().any(|tcp| tcp.sides[0].rtt.count > 0 && tcp.sides[0].rtt.mean > size as f64)
            }),
        },
    );
    let of_words = (0..13usize).prop_map(|form| match form {
        0 => condition("flags S and not flags A", |flow| flags(flow) & 0x12 == 2),
        1 => condition("src flags SA", |flow| flow.sides[0].tcp_flags & 0x12 == 0x12),
        2 => condition("tcp", |flow| flow.protocol == 6),
        3 => condition("proto in [ udp 132 icmp6 ]", |flow| [17, 132, 58].contains(&flow.protocol)),
        4 => condition("ip6", |flow| flow.ends[0].address.is_ipv6()),
        5 => condition("quality_midstream", |flow| flow.quality.contains(Quality::MIDSTREAM)),
        6 => condition("vlan", |flow| flow.vlans[0] != 0),
        7 => condition("tunnel_kind in [ gre \"vxlan\" ]", |flow| {
            flow.tunnel.is_some_and(|tunnel| ["gre", "vxlan"].contains(&tunnel.kind.name()))
        }),
        8 => condition("end_reason != idle", |flow| flow.end.name() != "idle"),
        9 => condition("tcp.state = SF", |flow| flow.tcp.as_ref().is_some_and(|tcp| tcp.state.name() == "SF")),
        11 => condition("flags S and not flags AFR", |flow| flags(flow) & 0x17 == 2),
        10 => condition("tcp_history ~ A", |flow| flow.tcp.as_ref().is_some_and(|tcp| tcp.history.0.contains('A'))),
        _ => condition("first_time > 2023-11-14T23:00", |flow| flow.first().0 > 1_700_002_800_000_000_000),
    });
    prop_oneof![of_hosts, of_ports, of_sizes, of_words]
}

fn any_condition() -> impl Strategy<Value = Condition> {
    leaf().prop_recursive(3, 12, 3, |inner| {
        (0..3usize, inner.clone(), inner).prop_map(|(form, one, other)| {
            let text = match form {
                0 => format!("not ({})", one.text),
                1 => format!("({}) and ({})", one.text, other.text),
                _ => format!("({}) || ({})", one.text, other.text),
            };
            condition(text, move |flow| match form {
                0 => !(one.holds)(flow),
                1 => (one.holds)(flow) && (other.holds)(flow),
                _ => (one.holds)(flow) || (other.holds)(flow),
            })
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn filter_matches_its_predicate(flows in flows(), asked in any_condition()) {
        let filter = Filter::parse(&asked.text, Nanos(0)).unwrap();
        let ids: Vec<_> = (0..all().len()).collect();
        let passed = filter.choose(&Batch::of_flows(&flows, &ids), &mut Memo::default());
        let wanted: Vec<bool> = flows.iter().map(|flow| (asked.holds)(flow)).collect();
        prop_assert_eq!(passed, wanted);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Holds for all skipped row groups and any order of reading columns.
    #[test]
    fn file_scan_returns_matching_records(flows in flows(), asked in any_condition(), group in 1..20usize) {
        let scratch = Scratch::new();
        let filter = Filter::parse(&asked.text, Nanos(0)).unwrap();
        let mut found = Vec::new();
        let scan = store(&scratch, &flows, group).each(&filter, &|| true, &mut |flow| found.push(flow));
        let wanted: Vec<Flow> = flows.iter().filter(|flow| (asked.holds)(flow)).cloned().collect();
        prop_assert_eq!(&found, &wanted);
        prop_assert_eq!((scan.files, scan.groups, scan.failed), (1, flows.len().div_ceil(group) as u64, 0));
    }
}

#[test]
fn every_column_can_be_filtered() {
    let flow = full_flow();
    for column in all() {
        let name = &column.name;
        let texts = [
            name.clone(),
            format!("{name} = 1"),
            format!("{name} = a"),
            format!("{name} = ::1"),
            format!("{name} > 2000-01-01"),
            format!("{name} = {}", column.field.words().first().unwrap_or(&"a")),
        ];
        let understood: Vec<Filter> = texts.iter().filter_map(|text| Filter::parse(text, Nanos(0)).ok()).collect();
        let is_list = matches!(column.field.get, linerate_export::fields::Getter::List(_));
        assert_eq!(understood.is_empty(), is_list, "{name}");
        let batch = Batch::of_flows(std::slice::from_ref(&flow), &(0..all().len()).collect::<Vec<_>>());
        understood.iter().for_each(|filter| drop(filter.choose(&batch, &mut Memo::default())));
    }
}

#[test]
fn invalid_filter_is_reported_with_position_and_remedy() {
    for (text, expected) in [
        ("byts > 1M", "at character 1, \"byts > 1M\": byts: no such keyword or field (did you mean bytes?)"),
        ("conn_state = S0", "no such keyword or field (did you mean tcp_state?)"),
        ("host 10.0.0.1 and port", "at the end: missing value"),
        ("host 10.0.0.0/8", "at character 6, \"10.0.0.0/8\": 10.0.0.0/8 is a network; write net 10.0.0.0/8"),
        ("net 10.1.2.3/8", "write net 10.0.0.0/8 or host 10.1.2.3"),
        ("net 10.0.0.0/33", "at most 32 bits"),
        ("net 10.0.0.0 mask 255.0.255.0", "not a contiguous IPv4 mask"),
        ("host example.com", "names are not resolved"),
        ("port 70000", "70000: invalid port"),
        ("proto tpc", "tpc: invalid protocol"),
        ("bytes > 1X", "1X: invalid number; examples: 10, 1.5k"),
        ("bytes 5", "bytes needs a number"),
        ("duration > 10", "missing unit; write 10s, 10ms or 10m"),
        ("flags Q", "Q: no such TCP flag"),
        ("a or b", "a: no such keyword"),
        ("tcp or udp and port 5", "at character 12, \"and port 5\": and mixed with or is ambiguous"),
        ("(tcp", "missing closing parenthesis"),
        ("tcp)", "unmatched closing parenthesis"),
        ("tcp udp", "expected \"and\" or \"or\" between two conditions"),
        ("port in [ 80", "unterminated list"),
        ("port in [ ]", "empty list"),
        ("host in 10.0.0.1", "expected a list in brackets"),
        ("80", "number without a field"),
        ("src protocol = 6", "has no direction"),
        ("orig_mpls_labels = 5", "is a list"),
        ("first_time > yesterday", "not a time"),
        ("tcp_state = \"SF", "unterminated string"),
        ("host 10.0.0.1 \u{20ac}", "unexpected character"),
        ("not", "missing condition"),
        ("quality_midstream = maybe", "expected true or false"),
        ("tcp_state = S9", "at character 13, \"S9\": S9: no such tcp_state; expected S0, S1, SF,"),
        ("end_reason in [ idle FIN ]", "FIN: no such end_reason; expected idle, active, end, forced, evicted"),
    ] {
        let mistake = Filter::parse(text, Nanos(0)).unwrap_err();
        assert!(mistake.within(text).contains(expected), "{text}: {}", mistake.within(text));
    }
    let deep = "(".repeat(100_000);
    assert!(Filter::parse(&deep, Nanos(0)).unwrap_err().what.contains("deeper than 64"));
}

/// The case of history letters is the direction.
#[test]
fn words_of_a_fixed_set_are_found_in_any_case() {
    let parsed = |text: &str| format!("{:?}", Filter::parse(text, Nanos(0)).unwrap());
    assert_eq!(
        parsed("tcp_state in [ sf s0 ] or end_reason = IDLE"),
        parsed("tcp_state in [ SF S0 ] or end_reason = idle")
    );
    assert_ne!(parsed("tcp_history = shadf"), parsed("tcp_history = ShADf"));
}

/// Short forms of pcap-filter and nfdump.
#[test]
fn equivalent_filters_parse_alike() {
    for (one, other) in [
        ("net 10", "net 10.0.0.0/8"),
        ("net 192.168", "net 192.168.0.0/16"),
        ("net 10.0.0.0 mask 255.255.0.0", "net 10.0.0.0/16"),
        ("10.0.0.1", "host 10.0.0.1"),
        ("src 10.0.0.1", "src host 10.0.0.1"),
        ("ip 10.0.0.1", "host 10.0.0.1"),
        ("port 80 or 443", "port 80 or port 443"),
        ("port domain", "port 53"),
        ("tcp", "proto 6"),
        ("tcp && !udp", "tcp and not udp"),
        ("ip6", "ipv6"),
        ("bytes > 1.5k", "bytes > 1500"),
        ("bytes > 64Ki", "bytes > 65536"),
        ("duration > 1.5s", "duration > 1500ms"),
        ("src_port = 5", "orig.port = 5"),
        ("bytes gt 5", "bytes > 5"),
        ("any", ""),
    ] {
        let parse = |text: &str| Filter::parse(text, Nanos(0)).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(parse(one), parse(other), "{one}: {other}");
    }
}
