//! JSON lines under our own names (`linerate/flow/1`). A field's name in columns is its path here.

use super::form::Encode;
use linerate_meter::{Flow, PacketStats, Rtt, Side, Stats, StatsSide, Summary, Tcp, TcpSide};
use serde::Serialize;
use std::io::{self, Write};
use std::net::IpAddr;

pub(super) fn start(out: Box<dyn Write + Send>) -> io::Result<Box<dyn Encode>> {
    Ok(Box::new(Lines { out, text: Vec::new(), put: |flow, text| serde_json::to_writer(text, &FlowJson::new(flow)) }))
}

/// A JSON document a line, whole lines at a time.
pub(super) struct Lines {
    pub out: Box<dyn Write + Send>,
    /// Empty between calls; its memory is kept.
    pub text: Vec<u8>,
    pub put: fn(&Flow, &mut Vec<u8>) -> serde_json::Result<()>,
}

impl Encode for Lines {
    fn write(&mut self, flows: &[&Flow]) -> io::Result<()> {
        self.text.clear();
        for flow in flows {
            (self.put)(flow, &mut self.text)?;
            self.text.push(b'\n');
        }
        self.out.write_all(&self.text)?;
        self.out.flush()
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.out.flush()
    }
}

/// One record; `docs/flows.md` says what each field means.
#[derive(Serialize)]
pub(in super::super) struct FlowJson<'a> {
    schema: &'static str,
    id: String,
    community_id: String,
    first_time_ns: u64,
    last_time_ns: u64,
    duration_ns: u64,
    orig_address: IpAddr,
    orig_port: u16,
    resp_address: IpAddr,
    resp_port: u16,
    protocol: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    vlan: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inner_vlan: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tunnel: Option<TunnelJson>,
    orig: SideJson,
    resp: SideJson,
    end_reason: &'static str,
    direction: &'static str,
    quality: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extension_headers: Option<u8>,
    flows: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp: Option<TcpJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<StatsJson>,
}

#[derive(Serialize)]
struct TunnelJson {
    kind: &'static str,
    id: u32,
    parent: String,
}

/// One direction.
#[derive(Serialize)]
struct SideJson {
    packets: u64,
    frame_bytes: u64,
    packet_bytes: u64,
    payload_bytes: u64,
    first_time_ns: Option<u64>,
    last_time_ns: Option<u64>,
    tcp_flags: u8,
    ttl_min: u8,
    ttl_max: u8,
    dscp: u8,
    dscp_changed: bool,
    ect: bool,
    ce: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mpls_labels: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    teid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp: Option<TcpSideJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<StatsSideJson>,
}

#[derive(Serialize)]
struct TcpJson<'a> {
    state: &'static str,
    history: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    syn_to_syn_ack_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    syn_ack_to_ack_ns: Option<u64>,
}

#[derive(Serialize)]
struct TcpSideJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    isn: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mss: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_scale: Option<u8>,
    sack_permitted: bool,
    timestamps: bool,
    window_min: u32,
    window_max: u32,
    zero_windows: u64,
    rtt: RttJson,
    retransmitted: RetransmittedJson,
    retransmitted_bytes: u64,
    out_of_order: u64,
    copies: u64,
    duplicate_acks: u64,
    keep_alives: u64,
    window_probes: u64,
    gaps: u64,
    gap_bytes: u64,
}

#[derive(Serialize)]
struct RttJson {
    count: u64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    times: Option<TimesJson>,
}

/// In nanoseconds.
#[derive(Serialize)]
struct TimesJson {
    min_ns: u64,
    max_ns: u64,
    mean_ns: f64,
    deviation_ns: f64,
}

#[derive(Serialize)]
struct RetransmittedJson {
    timeout: u64,
    fast: u64,
    spurious: u64,
    unseen: u64,
}

/// The first packets, one list for each of their fields.
#[derive(Serialize)]
struct StatsJson {
    packet_times_ns: Vec<u64>,
    packet_from_orig: Vec<u8>,
    packet_payload_bytes: Vec<u16>,
    packet_tcp_flags: Vec<u8>,
}

#[derive(Serialize)]
struct StatsSideJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    lengths: Option<LengthsJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gaps: Option<TimesJson>,
    length_histogram: [u64; 8],
    gap_histogram: [u64; 8],
    ip_flags: u8,
    first_window: u16,
    tcp_options: u64,
    syn_bytes: u16,
}

#[derive(Serialize)]
struct LengthsJson {
    min: u64,
    max: u64,
    mean: f64,
    deviation: f64,
}

impl<'a> FlowJson<'a> {
    pub fn new(flow: &'a Flow) -> Self {
        let [orig, resp] = flow.ends;
        let some = |number: u16| Some(number).filter(|number| *number != 0);
        FlowJson {
            schema: "linerate/flow/1",
            id: id(flow.id),
            community_id: flow.community_id(0),
            first_time_ns: flow.first().0,
            last_time_ns: flow.last().0,
            duration_ns: flow.last().0.saturating_sub(flow.first().0),
            orig_address: orig.address,
            orig_port: orig.port,
            resp_address: resp.address,
            resp_port: resp.port,
            protocol: flow.protocol,
            vlan: some(flow.vlans[0]),
            inner_vlan: some(flow.vlans[1]),
            tunnel: flow.tunnel.map(|tunnel| TunnelJson {
                kind: tunnel.kind.name(),
                id: tunnel.id,
                parent: id(tunnel.parent),
            }),
            orig: SideJson::new(flow, 0),
            resp: SideJson::new(flow, 1),
            end_reason: flow.end.name(),
            direction: flow.direction.name(),
            quality: flow.quality.names().collect(),
            extension_headers: Some(flow.extensions).filter(|bits| *bits != 0),
            flows: flow.flows,
            tcp: flow.tcp.as_ref().map(TcpJson::new),
            stats: flow.stats.as_ref().map(StatsJson::new),
        }
    }
}

/// JSON numbers are exact to 53 bits alone.
pub(super) fn id(id: u64) -> String {
    format!("{id:016x}")
}

impl SideJson {
    fn new(flow: &Flow, index: usize) -> Self {
        let side: &Side = &flow.sides[index];
        let time = |nanos: u64| Some(nanos).filter(|_| side.packets > 0);
        SideJson {
            packets: side.packets,
            frame_bytes: side.frame_bytes,
            packet_bytes: side.packet_bytes,
            payload_bytes: side.payload_bytes,
            first_time_ns: time(side.first.0),
            last_time_ns: time(side.last.0),
            tcp_flags: side.tcp_flags,
            ttl_min: side.ttl[0],
            ttl_max: side.ttl[1],
            dscp: side.tos >> 2,
            dscp_changed: side.dscp_changed,
            ect: side.ect,
            ce: side.ce,
            mac: flow.macs.map(|macs| macs[index].to_string()),
            mpls_labels: flow.mpls[index].iter().copied().take_while(|label| *label != 0).collect(),
            teid: flow.teids[index],
            tcp: flow.tcp.as_ref().map(|tcp| TcpSideJson::new(&tcp.sides[index])),
            stats: flow.stats.as_ref().map(|stats| StatsSideJson::new(&stats.sides[index])),
        }
    }
}

impl<'a> TcpJson<'a> {
    fn new(tcp: &'a Tcp) -> Self {
        TcpJson {
            state: tcp.state.name(),
            history: &tcp.history.0,
            syn_to_syn_ack_ns: tcp.syn_to_syn_ack,
            syn_ack_to_ack_ns: tcp.syn_ack_to_ack,
        }
    }
}

impl TcpSideJson {
    fn new(side: &TcpSide) -> Self {
        let sent_again = side.retransmitted;
        TcpSideJson {
            isn: side.isn,
            mss: side.mss,
            window_scale: side.window_scale,
            sack_permitted: side.sack_permitted,
            timestamps: side.timestamps,
            window_min: side.window[0],
            window_max: side.window[1],
            zero_windows: side.zero_windows,
            rtt: RttJson::new(&side.rtt),
            retransmitted: RetransmittedJson {
                timeout: sent_again.timeout,
                fast: sent_again.fast,
                spurious: sent_again.spurious,
                unseen: sent_again.unseen,
            },
            retransmitted_bytes: side.retransmitted_bytes,
            out_of_order: side.out_of_order,
            copies: side.copies,
            duplicate_acks: side.duplicate_acks,
            keep_alives: side.keep_alives,
            window_probes: side.window_probes,
            gaps: side.gaps,
            gap_bytes: side.gap_bytes,
        }
    }
}

impl RttJson {
    fn new(rtt: &Rtt) -> Self {
        let Rtt { count, min, max, mean, deviation } = *rtt;
        let times = TimesJson { min_ns: min, max_ns: max, mean_ns: mean, deviation_ns: deviation };
        RttJson { count, times: Some(times).filter(|_| count > 0) }
    }
}

impl StatsJson {
    fn new(stats: &Stats) -> Self {
        fn each<T>(stats: &Stats, get: impl Fn(&PacketStats) -> T) -> Vec<T> {
            stats.packets.iter().map(get).collect()
        }
        StatsJson {
            packet_times_ns: each(stats, |packet| packet.time),
            packet_from_orig: each(stats, |packet| u8::from(packet.from_originator)),
            packet_payload_bytes: each(stats, |packet| packet.payload),
            packet_tcp_flags: each(stats, |packet| packet.tcp_flags),
        }
    }
}

impl StatsSideJson {
    fn new(side: &StatsSide) -> Self {
        let Summary { min, max, mean, deviation } = side.lengths;
        let lengths = LengthsJson { min, max, mean, deviation };
        let Summary { min, max, mean, deviation } = side.gaps;
        let gaps = TimesJson { min_ns: min, max_ns: max, mean_ns: mean, deviation_ns: deviation };
        StatsSideJson {
            // Of no packet there is no length, of one no gap.
            lengths: Some(lengths).filter(|_| side.lengths != Summary::default()),
            gaps: Some(gaps).filter(|_| side.gaps != Summary::default()),
            length_histogram: side.length_histogram,
            gap_histogram: side.gap_histogram,
            ip_flags: side.ip_flags,
            first_window: side.first_window,
            tcp_options: side.tcp_options,
            syn_bytes: side.syn_bytes,
        }
    }
}
