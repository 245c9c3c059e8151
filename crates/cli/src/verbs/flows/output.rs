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
    /// Most packets first.
    pub top_packets: Vec<Flow>,
    /// What became of the records, where they are written.
    pub written: Option<Written>,
}

/// How many records are shown.
const TOP: usize = 10;

impl Totals {
    /// What became of the records, for people.
    pub fn told(&self) -> String {
        let Some(Written { records, files, .. }) = self.written else { return String::new() };
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        let files = if files > 0 { format!(", in {} file{}", grouped(files), plural(files)) } else { String::new() };
        format!("  {} record{} written{files}\n", grouped(records), plural(records))
    }

    fn add(&mut self, flow: &Flow) {
        self.flows += flow.flows;
        self.inner_flows += u64::from(flow.tunnel.is_some());
        keep(&mut self.top, flow, Flow::frame_bytes);
        keep(&mut self.top_packets, flow, Flow::packets);
    }
}

/// Keeps a flow if it is among those of which there is the most.
fn keep(top: &mut Vec<Flow>, flow: &Flow, size: impl Fn(&Flow) -> u64) {
    let own = size(flow);
    if top.len() < TOP || top.last().is_some_and(|least| size(least) < own) {
        let place = top.partition_point(|other| size(other) >= own);
        top.insert(place, flow.clone());
        top.truncate(TOP);
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

    /// What was added up, and whether all was written; `has_failed` says whether the run did.
    pub fn finish(mut self, has_failed: bool) -> (Totals, anyhow::Result<()>) {
        let Some(queue) = self.queue else { return (self.totals, Ok(())) };
        let (written, result) = queue.finish(has_failed);
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
