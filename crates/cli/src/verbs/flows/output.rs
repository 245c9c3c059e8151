//! What takes the finished flows: adds them up, and hands them to whatever writes them.

use super::heaviest::Heaviest;
use anyhow::Context;
use linerate_burst::Ledger;
use linerate_engine::Stop;
use linerate_meter::{Flow, Records};
use linerate_records::{Exporter, Exports};

/// How many records there were, and the flows of which there is most, all records of each together.
#[derive(Clone, Default)]
pub struct Totals {
    /// All, and those in tunnels.
    pub flows: u64,
    pub inner_flows: u64,
    /// Most bytes first.
    pub top: Vec<Flow>,
    /// Most packets first.
    pub top_packets: Vec<Flow>,
}

/// Adds records up and has them written.
pub struct Tee {
    exports: Exports,
    totals: Totals,
    by_bytes: Heaviest,
    by_packets: Heaviest,
}

impl Tee {
    /// Asks for a stop when an exporter takes no more records.
    pub fn start(exporters: Vec<Box<dyn Exporter>>, stop: Stop) -> anyhow::Result<Self> {
        let exports = Exports::start(exporters, move || stop.request())?;
        let (by_bytes, by_packets) = (Heaviest::by(Flow::frame_bytes), Heaviest::by(Flow::packets));
        Ok(Tee { exports, totals: Totals::default(), by_bytes, by_packets })
    }

    /// What was added up of the flows that have ended.
    pub fn so_far(&self) -> Totals {
        let (top, top_packets) = (self.by_bytes.clone().finish(), self.by_packets.clone().finish());
        Totals { top, top_packets, ..self.totals.clone() }
    }

    /// Has all that is written completed, and begun anew.
    pub fn reopen(&self, told: fn(String)) {
        self.exports.reopen(told);
    }

    /// What was added up, and whether all was written, of which the ledger has the account; `has_failed` says whether the run
    /// did.
    pub fn finish(mut self, has_failed: bool, ledger: &mut Ledger) -> (Totals, anyhow::Result<()>) {
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
        self.exports.take(flow);
    }
}
