//! Random flows, and a flow with every field set.

mod names;

use linerate_burst::Nanos;
use linerate_headers::MacAddr;
use linerate_meter::{
    ConnState, Direction, End, EndReason, ExportedBy, Flow, History, MPLS_LABELS, PacketStats, Quality, Retransmitted,
    Rtt, Side, Stats, StatsSide, SummaryStatistics, Tcp, TcpSide, Tunnel, TunnelKind,
};
use proptest::array::uniform8;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::net::IpAddr;

/// Random flows without impossible values: a mean of no values, times without packets, times outside Parquet's range.
pub fn any_flow() -> impl Strategy<Value = Flow> {
    let ends = [end(), end()];
    let tags = (any::<u8>(), [0..4096u16, 0..4096u16], option::of(tunnel()), any::<u8>(), any::<u64>());
    let words = (0..EndReason::ALL.len(), 0..4usize, 0..1u16 << Quality::NAMES.len());
    let wide = (option::of([mac(), mac()]), [labels(), labels()], [option::of(any::<u32>()), option::of(any::<u32>())]);
    let levels = (option::of(tcp()), option::of(stats()), option::of(names::names()), option::of(exporter()));
    (any::<u64>(), ends, tags, [side(), side()], words, wide, levels).prop_map(
        |(
            id,
            ends,
            (protocol, vlans, tunnel, extensions, flows),
            sides,
            words,
            (macs, mpls, teids),
            (tcp, stats, names, exporter),
        )| {
            let quality = Quality(words.2);
            let payload = if quality.contains(Quality::PAYLOAD_UNKNOWN) { 0 } else { u64::MAX };
            let sides = sides.map(|side: Side| Side { payload_bytes: side.payload_bytes & payload, ..side });
            Flow {
                id,
                ends,
                protocol,
                vlans,
                tunnel,
                sides,
                end: EndReason::ALL[words.0],
                direction: Direction::ALL[words.1],
                quality,
                extensions,
                flows,
                macs,
                mpls,
                teids,
                tcp,
                stats,
                names,
                exporter: exporter.map(Into::into),
            }
        },
    )
}

/// Returns a flow with every field set.
pub fn full_flow() -> Flow {
    let side = Side {
        packets: 2,
        first: Nanos(1_700_000_000_000_000_001),
        last: Nanos(1_700_000_000_000_000_003),
        ..Side::default()
    };
    let spread = SummaryStatistics { min: 1, max: 3, mean: 2.0, deviation: 0.5 };
    let tcp = TcpSide {
        isn: Some(1),
        mss: Some(1460),
        window_scale: Some(7),
        rtt: Rtt { count: 1, min: 1, max: 2, mean: 1.5, deviation: 0.5 },
        ..TcpSide::default()
    };
    let packet = PacketStats { time: 0, from_originator: true, payload: 1, tcp_flags: 2 };
    let stats = StatsSide { lengths: spread, gaps: spread, ..StatsSide::default() };
    Flow {
        id: 1,
        ends: [1, 2].map(|port| End { address: IpAddr::from([192, 0, 2, port as u8]), port }),
        protocol: 6,
        vlans: [1, 2],
        tunnel: Some(Tunnel { kind: TunnelKind::Vxlan, id: 3, parent: 4 }),
        sides: [side; 2],
        end: EndReason::End,
        direction: Direction::Syn,
        quality: Quality(((1 << Quality::NAMES.len()) - 1) & !Quality::PAYLOAD_UNKNOWN.0),
        extensions: 1,
        flows: 1,
        macs: Some([MacAddr::BROADCAST; 2]),
        mpls: [[1; MPLS_LABELS]; 2],
        teids: [Some(5), Some(6)],
        tcp: Some(Tcp {
            state: ConnState::Sf,
            history: History("ShAD".to_owned()),
            syn_to_syn_ack: Some(7),
            syn_ack_to_ack: Some(8),
            sides: [tcp; 2],
        }),
        stats: Some(Stats { sides: [stats; 2], packets: vec![packet] }),
        names: Some(names::full()),
        exporter: Some(ExportedBy { address: Some([192, 0, 2, 9].into()), domain: 8, interfaces: [9, 10] }.into()),
    }
}

fn exporter() -> impl Strategy<Value = ExportedBy> {
    let interfaces = [any::<u32>(), any::<u32>()];
    (option::of(any::<IpAddr>()), any::<u32>(), interfaces).prop_map(|(address, domain, interfaces)| ExportedBy {
        address,
        domain,
        interfaces,
    })
}

fn end() -> impl Strategy<Value = End> {
    (any::<IpAddr>(), any::<u16>()).prop_map(|(address, port)| End { address, port })
}

fn mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(MacAddr)
}

fn tunnel() -> impl Strategy<Value = Tunnel> {
    (0..TunnelKind::ALL.len(), any::<u32>(), any::<u64>()).prop_map(|(kind, id, parent)| Tunnel {
        kind: TunnelKind::ALL[kind],
        id,
        parent,
    })
}

fn labels() -> impl Strategy<Value = [u32; MPLS_LABELS]> {
    vec(1..1u32 << 20, 0..=MPLS_LABELS).prop_map(|some| {
        let mut labels = [0; MPLS_LABELS];
        labels[..some.len()].copy_from_slice(&some);
        labels
    })
}

fn side() -> impl Strategy<Value = Side> {
    let bytes = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    let times = (0..i64::MAX as u64, 0..i64::MAX as u64);
    (bytes, times, any::<u8>(), any::<[u8; 2]>(), 0..64u8, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(
            (packets, frame_bytes, packet_bytes, payload_bytes),
            (first, last),
            tcp_flags,
            ttl,
            dscp,
            changed,
            ect,
            ce,
        )| {
            let time = |time| if packets == 0 { Nanos(0) } else { Nanos(time) };
            Side {
                packets,
                frame_bytes,
                packet_bytes,
                payload_bytes,
                first: time(first),
                last: time(last),
                tcp_flags,
                ttl,
                tos: dscp << 2,
                dscp_changed: changed,
                ect,
                ce,
            }
        },
    )
}

fn number() -> impl Strategy<Value = f64> {
    // Numbers that survive a round trip through text.
    any::<i32>().prop_map(|number| f64::from(number) / 4.0)
}

fn tcp() -> impl Strategy<Value = Tcp> {
    let times = (option::of(any::<u64>()), option::of(any::<u64>()));
    (0..ConnState::ALL.len(), "[A-Za-z^]{0,2}|[A-Za-z^]{1,12}", times, [tcp_side(), tcp_side()]).prop_map(
        |(state, history, (syn_to_syn_ack, syn_ack_to_ack), sides)| Tcp {
            state: ConnState::ALL[state],
            history: History(history),
            syn_to_syn_ack,
            syn_ack_to_ack,
            sides,
        },
    )
}

fn tcp_side() -> impl Strategy<Value = TcpSide> {
    let options =
        (option::of(any::<u32>()), option::of(any::<u16>()), option::of(any::<u8>()), any::<bool>(), any::<bool>());
    let rtt = (0..3u64, any::<u64>(), any::<u64>(), number(), number());
    (options, any::<[u32; 2]>(), rtt, uniform8(any::<u64>()), any::<[u64; 4]>()).prop_map(
        |((isn, mss, window_scale, sack_permitted, timestamps), window, rtt, some, others)| {
            let (count, min, max, mean, deviation) = rtt;
            let [timeout, fast, spurious, unseen] = others;
            let [zero_windows, retransmitted_bytes, out_of_order, copies, ..] = some;
            let [.., duplicate_acks, keep_alives, window_probes, gaps] = some;
            TcpSide {
                isn,
                mss,
                window_scale,
                sack_permitted,
                timestamps,
                window,
                zero_windows,
                rtt: if count == 0 { Rtt::default() } else { Rtt { count, min, max, mean, deviation } },
                retransmitted: Retransmitted { timeout, fast, spurious, unseen },
                retransmitted_bytes,
                out_of_order,
                copies,
                duplicate_acks,
                keep_alives,
                window_probes,
                gaps,
                gap_bytes: timeout ^ gaps,
            }
        },
    )
}

fn stats() -> impl Strategy<Value = Stats> {
    let packet = (any::<u64>(), any::<bool>(), any::<u16>(), any::<u8>());
    let packet = packet.prop_map(|(time, from_originator, payload, tcp_flags)| PacketStats {
        time,
        from_originator,
        payload,
        tcp_flags,
    });
    ([stats_side(), stats_side()], vec(packet, 0..5)).prop_map(|(sides, packets)| Stats { sides, packets })
}

fn stats_side() -> impl Strategy<Value = StatsSide> {
    let spreads = [option::of(spread()), option::of(spread())];
    let counts = [uniform8(any::<u64>()), uniform8(any::<u64>())];
    (spreads, counts, any::<u8>(), any::<u16>(), any::<u64>(), any::<u16>()).prop_map(
        |([lengths, gaps], [length_histogram, gap_histogram], ip_flags, first_window, tcp_options, syn_bytes)| {
            StatsSide {
                lengths: lengths.unwrap_or_default(),
                gaps: gaps.unwrap_or_default(),
                length_histogram,
                gap_histogram,
                ip_flags,
                first_window,
                tcp_options,
                syn_bytes,
            }
        },
    )
}

fn spread() -> impl Strategy<Value = SummaryStatistics> {
    (any::<u64>(), any::<u64>(), number(), number()).prop_map(|(min, max, mean, deviation)| SummaryStatistics {
        min,
        max,
        mean,
        deviation,
    })
}
