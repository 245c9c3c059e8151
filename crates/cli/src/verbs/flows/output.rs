//! Consumer of finished flows: adds them up and passes them to the exporters.

use super::largest_flows::{Heaviest, TOP};
use crate::view::rates::counted;
use crate::view::terminal::fail;
use anyhow::Context;
use linerate_burst::Ledger;
use linerate_engine::Stop;
use linerate_engine::metrics::{MetricsSource, source};
use linerate_export::{Exporter, Exports};
use linerate_headers::registry;
use linerate_meter::{Flow, Level, Records};
use linerate_query::columns::Batch;
use linerate_query::{Answer, PartialAnswer, Question};
use std::sync::Arc;

/// Number of flows, and the largest ones by the sum of their records.
#[derive(Clone, Default)]
pub(crate) struct Totals {
    pub flows: u64,
    /// Flows in tunnels, which are part of `flows`.
    pub inner_flows: u64,
    /// Most bytes first.
    pub top: Vec<Flow>,
    /// Most packets first.
    pub top_packets: Vec<Flow>,
    /// Result of the query, if there is one.
    pub answer: Option<Answer>,
}

/// Results to show.
#[derive(Clone, Default)]
pub(crate) struct ResultOptions {
    /// Number of flows, if not the default.
    pub top: Option<usize>,
    /// Query of the records.
    pub question: Option<Arc<Question>>,
}

/// Number of records per batch of the query.
const BATCH: usize = 256;

/// Adds records up and passes them to exporters.
pub(crate) struct Tee {
    exports: Exports,
    totals: Totals,
    by_bytes: Heaviest,
    by_packets: Heaviest,
    asked: Option<PartialAnswer>,
    /// TCP records without the connection state that an output has a column for.
    stateless: Option<u64>,
    /// Records of the next batch.
    waiting: Vec<Flow>,
    /// Counters of exporters for `--metrics`.
    _metrics: MetricsSource,
}

impl Tee {
    /// Starts the exporters; requests a stop when one of them fails.
    pub(crate) fn start(exporters: Vec<Box<dyn Exporter>>, stop: Stop) -> anyhow::Result<Self> {
        Tee::showing(exporters, stop, &ResultOptions::default())
    }

    /// Does the same, with the results to show.
    pub(crate) fn showing(
        exporters: Vec<Box<dyn Exporter>>,
        stop: Stop,
        shown: &ResultOptions,
    ) -> anyhow::Result<Self> {
        let mut formats = exporters.iter().map(|exporter| exporter.format());
        let stateless = formats.any(|(_, level)| level == Level::Tcp).then_some(0);
        let exports = Exports::start(exporters, move || stop.request())?;
        let metrics = source(exports.live());
        let top = shown.top.unwrap_or(TOP);
        let (by_bytes, by_packets) = (Heaviest::by(Flow::frame_bytes, top), Heaviest::by(Flow::packets, top));
        let asked = shown.question.as_ref().map(|question| PartialAnswer::new(question, 1));
        Ok(Tee {
            exports,
            totals: Totals::default(),
            by_bytes,
            by_packets,
            asked,
            stateless,
            waiting: Vec::new(),
            _metrics: metrics,
        })
    }

    /// Returns the totals of the flows that have ended.
    pub(crate) fn so_far(&self) -> Totals {
        let (top, top_packets) = (self.by_bytes.clone().finish(), self.by_packets.clone().finish());
        Totals { top, top_packets, ..self.totals.clone() }
    }

    /// Adds the batch to the query.
    fn ask(&mut self) {
        if let Some(asked) = &mut self.asked {
            asked.take(&Batch::of_flows(&self.waiting, asked.columns()));
            self.waiting.clear();
        }
    }

    /// Closes all files and starts new ones.
    pub(crate) fn reopen(&self, report: fn(String)) {
        self.exports.reopen(report);
    }

    /// Finishes the exporters and adds their counts to the ledger. Returns the totals, and whether all was written;
    /// `has_failed`: the run failed.
    pub(crate) fn finish(mut self, has_failed: bool, ledger: &mut Ledger) -> (Totals, anyhow::Result<()>) {
        self.ask();
        self.totals.answer = self.asked.as_ref().map(PartialAnswer::answer);
        self.totals.top = self.by_bytes.finish();
        self.totals.top_packets = self.by_packets.finish();
        if let Some(stateless) = self.stateless.filter(|records| *records > 0) {
            let records = counted(stateless, "TCP record");
            fail(format_args!("{records} without connection state; meter with --level tcp to record it"));
        }
        let written = self.exports.finish(has_failed, ledger);
        (self.totals, written.context("records could not be written"))
    }
}

impl Records for Tee {
    fn take(&mut self, flow: &Flow) {
        self.totals.flows += flow.flows;
        self.totals.inner_flows += u64::from(flow.tunnel.is_some());
        if let Some(stateless) = &mut self.stateless {
            *stateless += u64::from(flow.protocol == registry::TCP && flow.tcp.is_none());
        }
        self.by_bytes.add(flow);
        self.by_packets.add(flow);
        if self.asked.is_some() {
            self.waiting.push(flow.clone());
            if self.waiting.len() == BATCH {
                self.ask();
            }
        }
        self.exports.take(flow);
    }
}
