//! Queries about flows of an interval: filter, grouping, order. Each flow is treated as a record with the counters of the interval, so
//! that fields and filters are those of stored records.

use super::{FlowQuery, OneFlow, Row, Sort};
use crate::verbs::flows::{group_name, protocol};
use linerate_burst::Nanos;
use linerate_meter::{ActiveFlow, Direction, EndReason, Flow, MPLS_LABELS, Names, Quality, Side};
use linerate_query::columns::Batch;
use linerate_query::{Filter, Key, Memo, PartialAnswer, Question};
use std::sync::Arc;
use std::time::SystemTime;

/// Maximum number of groups.
const MOST_GROUPS: usize = 1 << 17;
/// Batch size in flows.
const TOGETHER: usize = 512;

/// Checks a query.
///
/// # Errors
/// The query is invalid, with the reason as text.
#[cfg(feature = "tui")]
pub fn check(ask: &FlowQuery) -> Result<(), String> {
    ParsedQuery::new(ask).map(drop)
}

/// Traffic of a flow in an interval.
pub(super) struct FlowIncrease {
    /// The flow, with packets and bytes of the interval.
    pub glance: ActiveFlow,
    /// TCP retransmissions in the interval.
    pub again: u64,
    /// Bytes since the start of the flow.
    pub total_bytes: u64,
}

/// A parsed query.
pub(super) struct ParsedQuery {
    ask: FlowQuery,
    question: Arc<Question>,
}

impl ParsedQuery {
    pub(super) fn new(ask: &FlowQuery) -> Result<Self, String> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let filter = Filter::parse(&ask.filter, Nanos::ZERO.after(now));
        let filter = filter.map_err(|mistake| format!("filter, {}", mistake.within(&ask.filter)))?;
        let mut question = Question { top: ask.top, most_groups: MOST_GROUPS, ..Question::new(filter) };
        if let Some(by) = &ask.by {
            question.keys = Key::parse(by).map_err(|error| format!("by: {error}"))?;
        }
        // Index among the measures flows, packets and bytes.
        question.sort = match ask.sort {
            Sort::Flows => 0,
            Sort::Packets => 1,
            Sort::Bits | Sort::Retransmissions | Sort::Total => 2,
        };
        Ok(ParsedQuery { ask: ask.clone(), question: Arc::new(question) })
    }

    pub(super) fn heads(&self) -> Vec<String> {
        if self.ask.by.is_none() {
            return ["originator", "responder", "protocol"].map(str::to_owned).into();
        }
        self.question.keys.iter().map(|key| key.name.clone()).collect()
    }

    pub(super) fn rows(&self, gains: &[FlowIncrease]) -> Vec<Row> {
        if self.ask.by.is_some() { self.groups(gains) } else { self.flows(gains) }
    }

    fn groups(&self, gains: &[FlowIncrease]) -> Vec<Row> {
        let mut asked = PartialAnswer::new(&self.question, 1);
        for gains in gains.chunks(TOGETHER) {
            let flows: Vec<Flow> = gains.iter().map(FlowIncrease::flow).collect();
            asked.take(&Batch::of_flows(&flows, asked.columns()));
        }
        let answer = asked.answer();
        let row = |row: &linerate_query::Row| {
            let [flows, packets, bytes] =
                [0, 1, 2].map(|place| answer.value(row, &self.question.measures[place]) as u64);
            let keys = row.keys.iter().zip(&self.question.keys).map(|(value, key)| group_name(value, key)).collect();
            Row { keys, name: String::new(), packets, bytes, flows, flow: None }
        };
        answer.rows.iter().map(row).collect()
    }

    fn flows(&self, gains: &[FlowIncrease]) -> Vec<Row> {
        let columns: Vec<_> = self.question.columns();
        let mut memo = Memo::default();
        let mut chosen: Vec<&FlowIncrease> = Vec::new();
        for gains in gains.chunks(TOGETHER) {
            let flows: Vec<Flow> = gains.iter().map(FlowIncrease::flow).collect();
            let passed = self.question.filter.choose(&Batch::of_flows(&flows, &columns), &mut memo);
            chosen.extend(gains.iter().zip(passed).filter(|(_, passed)| *passed).map(|(gain, _)| gain));
        }
        let size = |gain: &&FlowIncrease| {
            let glance = &gain.glance;
            std::cmp::Reverse(match self.ask.sort {
                Sort::Bits => glance.frame_bytes.iter().sum(),
                Sort::Packets => glance.packets.iter().sum(),
                Sort::Flows => glance.first.0,
                Sort::Retransmissions => gain.again,
                Sort::Total => gain.total_bytes,
            })
        };
        if chosen.len() > self.ask.top {
            chosen.select_nth_unstable_by_key(self.ask.top, size);
            chosen.truncate(self.ask.top);
        }
        chosen.sort_by_key(|gain| (size(gain), gain.glance.id));
        chosen.into_iter().map(FlowIncrease::row).collect()
    }
}

impl FlowIncrease {
    /// Returns a record of the interval.
    fn flow(&self) -> Flow {
        let ActiveFlow {
            id,
            ends,
            protocol,
            vlan,
            tunnel,
            flows,
            packets,
            frame_bytes,
            tcp_flags,
            first,
            last,
            names,
            ..
        } = &self.glance;
        let side = |side: usize| Side {
            packets: packets[side],
            frame_bytes: frame_bytes[side],
            first: *first,
            last: *last,
            tcp_flags: tcp_flags[side],
            ..Side::default()
        };
        Flow {
            id: *id,
            ends: *ends,
            protocol: *protocol,
            vlans: [*vlan, 0],
            tunnel: *tunnel,
            sides: [0, 1].map(side),
            end: EndReason::Active,
            direction: Direction::FirstPacket,
            quality: Quality::default(),
            extensions: 0,
            flows: *flows,
            macs: None,
            mpls: [[0; MPLS_LABELS]; 2],
            teids: [None; 2],
            tcp: None,
            stats: None,
            names: names.clone(),
            exporter: None,
        }
    }

    fn row(&self) -> Row {
        let glance = &self.glance;
        let has_ports =
            linerate_headers::registry::TCP == glance.protocol || glance.ends.iter().any(|end| end.port != 0);
        let end = |side: usize| {
            let end = glance.ends[side];
            match (has_ports && !is_icmp(glance.protocol), end.address.is_ipv6()) {
                (false, _) => end.address.to_string(),
                (true, false) => format!("{}:{}", end.address, end.port),
                (true, true) => format!("[{}]:{}", end.address, end.port),
            }
        };
        Row {
            keys: vec![end(0), end(1), protocol(glance.protocol)],
            name: glance.names.as_deref().and_then(site).unwrap_or_default(),
            packets: glance.packets.iter().sum(),
            bytes: glance.frame_bytes.iter().sum(),
            flows: glance.flows,
            flow: Some(OneFlow {
                retransmissions: self.again,
                total_bytes: self.total_bytes,
                seconds: glance.last.since(glance.first).as_secs_f64(),
            }),
        }
    }
}

fn is_icmp(protocol: u8) -> bool {
    use linerate_headers::registry::{ICMP, ICMPV6};
    [ICMP, ICMPV6].contains(&protocol)
}

/// Returns the host name found in the packets of a flow.
fn site(names: &Names) -> Option<String> {
    let server = || names.tls.as_ref()?.client.as_ref()?.server_name.as_deref();
    let host = || names.http.as_ref()?.request.as_ref()?.host.as_deref();
    let asked = || names.dns.as_ref()?.name.as_deref();
    server().or_else(host).or_else(asked).map(str::to_owned)
}
