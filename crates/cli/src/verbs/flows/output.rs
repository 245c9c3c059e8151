//! What takes the finished flows: adds them up, and hands them to whatever writes them.

use super::heaviest::{Heaviest, TOP};
use anyhow::Context;
use linerate_burst::Ledger;
use linerate_engine::Stop;
use linerate_engine::metrics::{Source, source};
use linerate_meter::{Flow, Records};
use linerate_query::columns::Batch;
use linerate_query::{Answer, Asked, Question};
use linerate_records::{Exporter, Exports};
use std::sync::Arc;

/// How many records there were, and the flows of which there is most, all records of each together.
#[derive(Clone, Default)]
pub(crate) struct Totals {
    /// All, and those in tunnels.
    pub flows: u64,
    pub inner_flows: u64,
    /// Most bytes first.
    pub top: Vec<Flow>,
    /// Most packets first.
    pub top_packets: Vec<Flow>,
    /// What came of a question, if there is one.
    pub answer: Option<Answer>,
}

/// What is shown of records.
#[derive(Clone, Default)]
pub(crate) struct Shown {
    /// How many flows, if not as many as usual.
    pub top: Option<usize>,
    /// What is asked about them.
    pub question: Option<Arc<Question>>,
}

/// Records that are asked about together.
const TOGETHER: usize = 256;

/// Adds records up and has them written.
pub(crate) struct Tee {
    exports: Exports,
    totals: Totals,
    by_bytes: Heaviest,
    by_packets: Heaviest,
    asked: Option<Asked>,
    /// Records that are not asked about yet.
    waiting: Vec<Flow>,
    /// Tells those who collect counters what became of records.
    _told: Source,
}

impl Tee {
    /// Asks for a stop when an exporter takes no more records.
    pub(crate) fn start(exporters: Vec<Box<dyn Exporter>>, stop: Stop) -> anyhow::Result<Self> {
        Tee::showing(exporters, stop, &Shown::default())
    }

    /// The same, and what is shown of the records.
    pub(crate) fn showing(exporters: Vec<Box<dyn Exporter>>, stop: Stop, shown: &Shown) -> anyhow::Result<Self> {
        let exports = Exports::start(exporters, move || stop.request())?;
        let told = source(exports.live());
        let top = shown.top.unwrap_or(TOP);
        let (by_bytes, by_packets) = (Heaviest::by(Flow::frame_bytes, top), Heaviest::by(Flow::packets, top));
        let asked = shown.question.as_ref().map(|question| Asked::new(question, 1));
        Ok(Tee { exports, totals: Totals::default(), by_bytes, by_packets, asked, waiting: Vec::new(), _told: told })
    }

    /// What was added up of the flows that have ended.
    pub(crate) fn so_far(&self) -> Totals {
        let (top, top_packets) = (self.by_bytes.clone().finish(), self.by_packets.clone().finish());
        Totals { top, top_packets, ..self.totals.clone() }
    }

    /// Asks about the records that wait.
    fn ask(&mut self) {
        if let Some(asked) = &mut self.asked {
            asked.take(&Batch::of_flows(&self.waiting, asked.columns()));
            self.waiting.clear();
        }
    }

    /// Has all that is written completed, and begun anew.
    pub(crate) fn reopen(&self, told: fn(String)) {
        self.exports.reopen(told);
    }

    /// What was added up, and whether all was written, of which the ledger has the account; `has_failed` says whether the run
    /// did.
    pub(crate) fn finish(mut self, has_failed: bool, ledger: &mut Ledger) -> (Totals, anyhow::Result<()>) {
        self.ask();
        self.totals.answer = self.asked.as_ref().map(Asked::answer);
        self.totals.top = self.by_bytes.finish();
        self.totals.top_packets = self.by_packets.finish();
        let written = self.exports.finish(has_failed, ledger);
        (self.totals, written.context("records could not be written"))
    }
}

impl Records for Tee {
    fn take(&mut self, flow: &Flow) {
        self.totals.flows += flow.flows;
        self.totals.inner_flows += u64::from(flow.tunnel.is_some());
        self.by_bytes.add(flow);
        self.by_packets.add(flow);
        if self.asked.is_some() {
            self.waiting.push(flow.clone());
            if self.waiting.len() == TOGETHER {
                self.ask();
            }
        }
        self.exports.take(flow);
    }
}
