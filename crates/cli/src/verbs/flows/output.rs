//! What takes the finished flows: adds them up, and hands them to whatever writes them.

use super::heaviest::Heaviest;
use super::out::{Place, Queue, Written};
use crate::view::rates::grouped;
use anyhow::Context;
use linerate_engine::Stop;
use linerate_meter::{Flow, Records};

/// How many records there were, and the flows of which there is most, all records of each together.
#[derive(Default)]
pub struct Totals {
    /// All, and those in tunnels.
    pub flows: u64,
    pub inner_flows: u64,
    /// Most bytes first.
    pub top: Vec<Flow>,
    /// Most packets first.
    pub top_packets: Vec<Flow>,
    /// What became of the records, where they are written.
    pub written: Option<Written>,
}

impl Totals {
    /// What became of the records, for people.
    pub fn told(&self) -> String {
        let Some(Written { records, files, .. }) = self.written else { return String::new() };
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        let files = if files > 0 { format!(", in {} file{}", grouped(files), plural(files)) } else { String::new() };
        format!("  {} record{} written{files}\n", grouped(records), plural(records))
    }
}

/// Adds records up and has them written.
pub struct Tee {
    queue: Option<Queue>,
    totals: Totals,
    by_bytes: Heaviest,
    by_packets: Heaviest,
}

impl Tee {
    /// Writes nowhere if there is no place; asks for a stop when records cannot be written.
    pub fn start(place: Option<Place>, stop: Stop) -> anyhow::Result<Self> {
        let queue = place.map(|place| Queue::start(place, stop)).transpose()?;
        let (by_bytes, by_packets) = (Heaviest::by(Flow::frame_bytes), Heaviest::by(Flow::packets));
        Ok(Tee { queue, totals: Totals::default(), by_bytes, by_packets })
    }

    /// What was added up, and whether all was written; `has_failed` says whether the run did.
    pub fn finish(mut self, has_failed: bool) -> (Totals, anyhow::Result<()>) {
        self.totals.top = self.by_bytes.finish();
        self.totals.top_packets = self.by_packets.finish();
        let Some(queue) = self.queue else { return (self.totals, Ok(())) };
        let (written, result) = queue.finish(has_failed);
        self.totals.written = Some(written);
        (self.totals, result.context("records could not be written"))
    }
}

impl Records for Tee {
    fn take(&mut self, flow: &Flow) {
        self.totals.flows += flow.flows;
        self.totals.inner_flows += u64::from(flow.tunnel.is_some());
        self.by_bytes.add(flow);
        self.by_packets.add(flow);
        if let Some(queue) = &mut self.queue {
            queue.take(flow);
        }
    }
}
