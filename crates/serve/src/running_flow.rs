//! State of a configured flow.

use crate::port::{FCS, Port};
use crate::rates::Rates;
use linerate_engine::transmit::{StreamTotals, TransmitState};
use linerate_generate::check::Matcher;
use linerate_generate::stream::Stream;
use linerate_otg::config::Config;
use linerate_otg::flow::Flow;
use linerate_otg::metrics::{FlowMetrics, TrafficMetrics};
use std::sync::Arc;

/// Configured flow.
pub(crate) struct RunningFlow {
    /// Indices of its ports.
    pub tx: usize,
    pub rx: Vec<usize>,
    /// Its id in trailers, since its last start.
    pub id: u32,
    pub sending: Arc<StreamTotals>,
    /// Frames and bytes received with its id before the start.
    pub before: (u64, u64),
    /// Final figures, after its account was closed.
    pub frozen: Option<FlowMetrics>,
    /// TrafficMetrics at the last clearing of counters.
    pub cleared: Option<FlowMetrics>,
    pub rates: Rates,
}

impl RunningFlow {
    pub(crate) fn new(flow: &Flow, config: &Config, places: &[usize]) -> Self {
        let mut running = RunningFlow {
            tx: 0,
            rx: Vec::new(),
            id: 0,
            sending: Arc::default(),
            before: (0, 0),
            frozen: None,
            cleared: None,
            rates: Rates::default(),
        };
        running.place(flow, config, places);
        running
    }

    pub(crate) fn place(&mut self, flow: &Flow, config: &Config, places: &[usize]) {
        let place = |name: &String| {
            let at = config.ports.iter().position(|port| port.name == *name)?;
            places.get(at).copied()
        };
        self.tx = place(&flow.tx).unwrap_or(0);
        self.rx = flow.rx.iter().filter_map(place).collect();
    }

    pub(crate) fn is_active(&self) -> bool {
        self.sending.doing() != TransmitState::Stopped
    }
}

/// Returns the figures of a flow, over all of its receiving ports.
pub(crate) fn received_metrics(ports: &[Port], running: &RunningFlow) -> (TrafficMetrics, FlowMetrics) {
    let (mut rx, mut all) = (TrafficMetrics::default(), FlowMetrics::default());
    if running.id == 0 {
        return (rx, all);
    }
    for place in &running.rx {
        let reception = ports[*place].listener.reception();
        let report = reception.check.report(None);
        let Some(row) = report.row(running.id) else { continue };
        let counts = row.counts;
        rx.frames += counts.received;
        rx.bytes += counts.bytes + FCS * counts.received;
        all.reordered += counts.reordered;
        all.corrupted += counts.corrupted;
        // Gaps below the highest number received: frames in flight are not missing.
        all.missing += counts.lost;
        all.distinct += counts.received - counts.duplicated - counts.stale;
        let times = row.pace.first_time_ns.zip(row.pace.last_time_ns);
        all.span = match (all.span, times) {
            (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
            (one, other) => one.or(other),
        };
        if let (Some(least), Some(most)) = (row.delay.latency_min_ns, row.delay.latency_max_ns) {
            let mean = report.mean_latency(running.id).unwrap_or(least);
            all.latency = Some((least, mean, most));
            all.percentiles = row.delay.latency_p50_ns.zip(row.delay.latency_p99_ns);
        }
    }
    (rx, all)
}

/// Returns matchers for frames of a stream without trailers.
pub(crate) fn matchers(stream: &Stream) -> impl Iterator<Item = Matcher> + '_ {
    stream.variants.iter().map(|variant| {
        let changes = variant.changes.iter().map(|change| (change.offset, change.offset + change.width));
        let sums = variant.checksums.iter().map(|sum| (sum.offset, sum.offset + sum.length()));
        Matcher::new(&variant.frame, &changes.chain(sums).collect::<Vec<_>>())
    })
}

/// Returns whether two flows differ only in their rate.
pub(crate) fn differ_in_rate(one: &Flow, other: &Flow) -> bool {
    let lengths = |flow: &Flow| flow.stream.variants.iter().map(|variant| variant.frame.len()).collect::<Vec<_>>();
    lengths(one) == lengths(other)
        && one.stream.size == other.stream.size
        && one.stream.shape == other.stream.shape
        && one.stream.count == other.stream.count
        && one.stream.span == other.stream.span
        && one.text == other.text
}
