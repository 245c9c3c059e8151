//! What takes the finished flows: adds them up, and hands them to whatever writes them.

use super::out::{Place, Queue, Written};
use crate::view::rates::grouped;
use anyhow::Context;
use linerate_engine::Stop;
use linerate_meter::{Flow, Records};

/// How many records there were, and those with the most bytes.
#[derive(Default)]
pub(super) struct Totals {
    /// All, and those in tunnels.
    pub flows: u64,
    pub inner_flows: u64,
    /// Most bytes first.
    pub top: Vec<Flow>,
    /// What became of the records, where they are written.
    pub written: Option<Written>,
}

/// How many records are shown.
const TOP: usize = 10;

impl Totals {
    /// What became of the records, for people.
    pub fn told(&self) -> String {
        let Some(Written { records, files, .. }) = self.written else { return String::new() };
        let files = if files > 0 { format!(", in {} files", grouped(files)) } else { String::new() };
        format!("  {} records written{files}\n", grouped(records))
    }

    fn add(&mut self, flow: &Flow) {
        self.flows += flow.flows;
        self.inner_flows += u64::from(flow.tunnel.is_some());
        if self.top.len() < TOP || self.top.last().is_some_and(|least| least.frame_bytes() < flow.frame_bytes()) {
            let place = self.top.partition_point(|other| other.frame_bytes() >= flow.frame_bytes());
            self.top.insert(place, flow.clone());
            self.top.truncate(TOP);
        }
    }
}

/// Adds records up and has them written.
pub(super) struct Tee {
    queue: Option<Queue>,
    totals: Totals,
}

impl Tee {
    /// Writes nowhere if there is no place; asks for a stop when records cannot be written.
    pub fn start(place: Option<Place>, stop: Stop) -> anyhow::Result<Self> {
        let queue = place.map(|place| Queue::start(place, stop)).transpose()?;
        Ok(Tee { queue, totals: Totals::default() })
    }

    /// What was added up, and whether all was written.
    pub fn finish(mut self) -> (Totals, anyhow::Result<()>) {
        let Some(queue) = self.queue else { return (self.totals, Ok(())) };
        let (written, result) = queue.finish();
        self.totals.written = Some(written);
        (self.totals, result.context("records could not be written"))
    }
}

impl Records for Tee {
    fn take(&mut self, flow: &Flow) {
        self.totals.add(flow);
        if let Some(queue) = &mut self.queue {
            queue.take(flow);
        }
    }
}
