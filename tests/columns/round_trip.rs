//! Any flow survives a round trip through Parquet, and its JSON has the same values.

pub(super) use super::rows::flat;
use super::rows::{Row, read};
use linerate_burst::Nanos;
use linerate_export::encode;
use linerate_meter::names::http::Request;
use linerate_meter::names::tls::{ClientHello, ServerHello};
use linerate_meter::names::value::{Dns, Http, Tls};
use linerate_meter::{
    ConnState, Direction, End, EndReason, ExportedBy, Flow, History, Names, PacketStats, Quality, Retransmitted, Rtt,
    Side, Stats, StatsSide, SummaryStatistics, Tcp, TcpSide, Tunnel, TunnelKind,
};
use linerate_tests::support::Scratch;
use linerate_tests::support::flows::{any_flow, full_flow};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_flow_survives_parquet_and_matches_its_json(flows in vec(any_flow(), 0..40)) {
        let scratch = Scratch::new();
        let [parquet, json] = ["flows.parquet", "flows.jsonl"].map(|name| scratch.file(name));
        encode("parquet", &flows, Box::new(File::create(&parquet).unwrap())).unwrap();
        encode("jsonl", &flows, Box::new(File::create(&json).unwrap())).unwrap();
        let rows = read(Path::new(&parquet));
        let back: Vec<Flow> = rows.iter().map(flow).collect();
        prop_assert_eq!(&back, &flows);
        let text = std::fs::read_to_string(&json).unwrap();
        let lines: Vec<Row> = text.lines().map(|line| flat(&serde_json::from_str(line).unwrap())).collect();
        prop_assert_eq!(lines, rows);
    }
}

/// A tag with a priority only has VLAN ID 0, and may stand before one with an ID.
#[test]
fn inner_vlan_is_kept_behind_a_priority_tag() {
    let (scratch, flow) = (Scratch::new(), Flow { vlans: [0, 1462], ..full_flow() });
    for (format, path) in [("parquet", "flow.parquet"), ("jsonl", "flow.jsonl")] {
        let path = scratch.file(path);
        encode(format, std::slice::from_ref(&flow), Box::new(File::create(&path).unwrap())).unwrap();
        let row = match format {
            "parquet" => read(Path::new(&path)).remove(0),
            _ => flat(&serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap()),
        };
        assert_eq!((row.get("vlan"), row.get("inner_vlan")), (None, Some(&Value::from(1462))), "{format}");
    }
}

/// Columns of one part of a flow, which share a name prefix.
#[derive(Clone, Copy)]
struct Part<'a>(&'a Row, &'a str);

impl Part<'_> {
    fn maybe(self, name: &str) -> Option<u64> {
        self.0.get(&format!("{}{name}", self.1)).map(|value| value.as_u64().unwrap())
    }

    fn number<T: TryFrom<u64>>(self, name: &str) -> T {
        let value = self.maybe(name).unwrap_or_default();
        T::try_from(value).unwrap_or_else(|_| panic!("{name}: {value}"))
    }

    fn real(self, name: &str) -> f64 {
        self.0.get(&format!("{}{name}", self.1)).map_or(0.0, |value| value.as_f64().unwrap())
    }

    fn flag(self, name: &str) -> bool {
        self.0[&format!("{}{name}", self.1)].as_bool().unwrap()
    }

    fn text(self, name: &str) -> Option<&'static str> {
        let text = self.0.get(&format!("{}{name}", self.1))?.as_str().unwrap();
        Some(text.to_owned().leak())
    }

    fn list(self, name: &str) -> Vec<u64> {
        let list = self.0.get(&format!("{}{name}", self.1)).and_then(Value::as_array);
        list.into_iter().flatten().map(|value| value.as_u64().unwrap()).collect()
    }

    fn summary(self, name: &str, unit: &str) -> SummaryStatistics {
        SummaryStatistics {
            min: self.number(&format!("{name}_min{unit}")),
            max: self.number(&format!("{name}_max{unit}")),
            mean: self.real(&format!("{name}_mean{unit}")),
            deviation: self.real(&format!("{name}_deviation{unit}")),
        }
    }
}

fn flow(row: &Row) -> Flow {
    let (all, both) = (Part(row, ""), ["orig_", "resp_"].map(|side| Part(row, side)));
    let quality = Quality::NAMES.iter().filter(|(_, name)| all.flag(&format!("quality_{name}")));
    let flow = Flow {
        id: all.number("id"),
        ends: both
            .map(|side| End { address: side.text("address").unwrap().parse().unwrap(), port: side.number("port") }),
        protocol: all.number("protocol"),
        vlans: [all.number("vlan"), all.number("inner_vlan")],
        tunnel: all.text("tunnel_kind").map(|name| Tunnel {
            kind: TunnelKind::ALL.into_iter().find(|kind| kind.name() == name).unwrap(),
            id: all.number("tunnel_id"),
            parent: all.number("tunnel_parent"),
        }),
        sides: both.map(side),
        end: EndReason::ALL.into_iter().find(|end| Some(end.name()) == all.text("end_reason")).unwrap(),
        direction: Direction::ALL.into_iter().find(|one| Some(one.name()) == all.text("direction")).unwrap(),
        quality: Quality(quality.map(|(bit, _)| bit.0).sum()),
        extensions: all.number("extension_headers"),
        flows: all.number("flows"),
        macs: both[0].text("mac").map(|_| both.map(|side| side.text("mac").unwrap().parse().unwrap())),
        mpls: both.map(|side| {
            let mut labels = [0; 4];
            side.list("mpls_labels").iter().zip(&mut labels).for_each(|(from, to)| *to = *from as u32);
            labels
        }),
        teids: both.map(|side| side.maybe("teid").map(|teid| teid as u32)),
        tcp: all.text("tcp_state").map(|_| tcp(row)),
        stats: row.get("orig_stats_ip_flags").map(|_| stats(row)),
        names: all.text("service").map(|_| names(row).into()),
        exporter: all.maybe("exporter_domain").map(|domain| {
            let interfaces = ["exporter_ingress", "exporter_egress"].map(|name| all.maybe(name).unwrap_or(0) as u32);
            let address = all.text("exporter_address").map(|address| address.parse().unwrap());
            ExportedBy { address, domain: domain as u32, interfaces }.into()
        }),
    };
    assert_eq!(all.number::<u64>("first_time"), flow.first().0);
    assert_eq!(all.number::<u64>("last_time"), flow.last().0);
    assert_eq!(all.text("community_id"), Some(flow.community_id(0).as_str()));
    assert_eq!(all.number::<u64>("duration_ns"), flow.last().0.saturating_sub(flow.first().0));
    flow
}

fn names(row: &Row) -> Names {
    let (all, text) = (Part(row, ""), |name: &str| Part(row, "").text(name).map(Box::from));
    let version = |name: &str| {
        let known = ["SSLv3", "TLSv1.0", "TLSv1.1", "TLSv1.2", "TLSv1.3"];
        let text = all.text(name).unwrap();
        let number = known.iter().position(|known| *known == text).map(|place| 0x0300 + place as u16);
        number.unwrap_or_else(|| u16::from_str_radix(text.trim_start_matches("0x"), 16).unwrap())
    };
    let client = text("tls_ja4").map(|ja4| ClientHello {
        server_name: text("tls_server_name"),
        alpn: text("tls_alpn"),
        version: version("tls_client_version"),
        ja4,
        ech: all.flag("tls_ech"),
    });
    let server = all.maybe("tls_cipher").map(|cipher| ServerHello {
        version: version("tls_version"),
        cipher: cipher as u16,
        alpn: text("tls_server_alpn"),
    });
    let request = text("http_method").map(|method| Request {
        method,
        target: text("http_target").unwrap(),
        host: text("http_host"),
        user_agent: text("http_user_agent"),
    });
    let is = |service: &str| all.text("service") == Some(service);
    Names {
        tls: (is("tls") || is("quic")).then_some(Tls { client, server }),
        quic: all.text("quic_version").map(|version| match version.strip_prefix("draft-") {
            Some(draft) => 0xff00_0000 + draft.parse::<u32>().unwrap(),
            None if version == "2" => 0x6b33_43cf,
            None => 1,
        }),
        dns: all.maybe("dns_qtype").map(|kind| Dns {
            name: text("dns_query"),
            kind: kind as u16,
            rcode: all.maybe("dns_rcode").map(|rcode| rcode as u8),
            answers: all.maybe("dns_answers").map(|answers| answers as u16),
            addresses: text("dns_addresses"),
        }),
        http: is("http").then(|| Http { request, status: all.maybe("http_status").map(|status| status as u16) }),
        ssh: is("ssh").then(|| [text("ssh_client"), text("ssh_server")]),
        resolved: [all.text("resp_resolved").map(Arc::from), None],
    }
}

fn side(part: Part<'_>) -> Side {
    Side {
        packets: part.number("packets"),
        frame_bytes: part.number("frame_bytes"),
        packet_bytes: part.number("packet_bytes"),
        payload_bytes: part.number("payload_bytes"),
        first: Nanos(part.number("first_time")),
        last: Nanos(part.number("last_time")),
        tcp_flags: part.number("tcp_flags"),
        ttl: [part.number("ttl_min"), part.number("ttl_max")],
        tos: part.number::<u8>("dscp") << 2,
        dscp_changed: part.flag("dscp_changed"),
        ect: part.flag("ect"),
        ce: part.flag("ce"),
    }
}

fn tcp(row: &Row) -> Tcp {
    let all = Part(row, "tcp_");
    let sides = ["orig_tcp_", "resp_tcp_"].map(|side| tcp_side(Part(row, side)));
    Tcp {
        state: ConnState::ALL.into_iter().find(|state| Some(state.name()) == all.text("state")).unwrap(),
        history: History(all.text("history").unwrap().to_owned()),
        syn_to_syn_ack: all.maybe("syn_to_syn_ack_ns"),
        syn_ack_to_ack: all.maybe("syn_ack_to_ack_ns"),
        sides,
    }
}

fn tcp_side(part: Part<'_>) -> TcpSide {
    let SummaryStatistics { min, max, mean, deviation } = part.summary("rtt", "_ns");
    TcpSide {
        isn: part.maybe("isn").map(|isn| isn as u32),
        mss: part.maybe("mss").map(|mss| mss as u16),
        window_scale: part.maybe("window_scale").map(|scale| scale as u8),
        sack_permitted: part.flag("sack_permitted"),
        timestamps: part.flag("timestamps"),
        window: [part.number("window_min"), part.number("window_max")],
        zero_windows: part.number("zero_windows"),
        rtt: Rtt { count: part.number("rtt_count"), min, max, mean, deviation },
        retransmitted: Retransmitted {
            timeout: part.number("retransmitted_timeout"),
            fast: part.number("retransmitted_fast"),
            spurious: part.number("retransmitted_spurious"),
            unseen: part.number("retransmitted_unseen"),
        },
        retransmitted_bytes: part.number("retransmitted_bytes"),
        out_of_order: part.number("out_of_order"),
        copies: part.number("copies"),
        duplicate_acks: part.number("duplicate_acks"),
        keep_alives: part.number("keep_alives"),
        window_probes: part.number("window_probes"),
        gaps: part.number("gaps"),
        gap_bytes: part.number("gap_bytes"),
    }
}

fn stats(row: &Row) -> Stats {
    let all = Part(row, "stats_");
    let times = all.list("packet_times_ns").into_iter();
    let from = all.list("packet_from_orig");
    let (payload, flags) = (all.list("packet_payload_bytes"), all.list("packet_tcp_flags"));
    let packets = times.enumerate().map(|(index, time)| PacketStats {
        time,
        from_originator: from[index] == 1,
        payload: payload[index] as u16,
        tcp_flags: flags[index] as u8,
    });
    Stats { packets: packets.collect(), sides: ["orig_stats_", "resp_stats_"].map(|side| stats_side(Part(row, side))) }
}

fn stats_side(part: Part<'_>) -> StatsSide {
    StatsSide {
        lengths: part.summary("lengths", ""),
        gaps: part.summary("gaps", "_ns"),
        length_histogram: part.list("length_histogram").try_into().unwrap(),
        gap_histogram: part.list("gap_histogram").try_into().unwrap(),
        ip_flags: part.number("ip_flags"),
        first_window: part.number("first_window"),
        tcp_options: part.number("tcp_options"),
        syn_bytes: part.number("syn_bytes"),
    }
}
