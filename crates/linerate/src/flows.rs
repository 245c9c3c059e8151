//! Flow records one by one.

use crate::error::Error;
use crate::summary::Summary;
use linerate_engine::stepped::SteppedRun;
use linerate_engine::{MeterConsumer, Meters, Receive, Selection};
use linerate_meter::{Config, Flow, Records};
use std::collections::VecDeque;
use std::sync::PoisonError;

/// Flow records of a run, in the order in which flows end: an iterator.
///
/// A packet in a tunnel is counted in the flow of the tunnel and in its own
/// ([`Tunnels::Both`](linerate_meter::Tunnels), the default): for sums leave out flows with `tunnel`, or set
/// [`Config::tunnels`].
///
/// While the caller works on a record, packets wait in the buffers of the ports, as with [`Packets`](crate::Packets).
pub struct Flows {
    run: Option<SteppedRun<MeterConsumer<Ended>>>,
    /// Records after the end of the run.
    rest: VecDeque<Flow>,
    summary: Option<Summary>,
}

/// Records that were not yet returned.
#[derive(Default)]
struct Ended(VecDeque<Flow>);

impl Records for Ended {
    fn take(&mut self, flow: &Flow) {
        self.0.push_back(flow.clone());
    }
}

impl Flows {
    pub(crate) fn new(receive: Receive, selection: Selection, config: &Config) -> Self {
        let metering = MeterConsumer::new(Meters::new(config, 1), selection, Ended::default());
        Flows { run: Some(SteppedRun::start(receive, metering)), rest: VecDeque::new(), summary: None }
    }

    /// Returns the result of the run, after the last record; `None` before. A failure has it in [`Error::Run`].
    pub fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    fn finish(&mut self, run: SteppedRun<MeterConsumer<Ended>>) -> Result<(), Error> {
        let (report, metering) = run.finish();
        self.rest = metering.done().1.0;
        self.summary = Some(Summary::of(report, None)?);
        Ok(())
    }
}

impl Iterator for Flows {
    type Item = Result<Flow, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(mut run) = self.run.take() {
            let records = run.consumer().records();
            let ended = records.lock().unwrap_or_else(PoisonError::into_inner).0.pop_front();
            drop(records);
            if ended.is_none() && !run.step() {
                if let Err(error) = self.finish(run) {
                    return Some(Err(error));
                }
                break;
            }
            self.run = Some(run);
            if let Some(flow) = ended {
                return Some(Ok(flow));
            }
        }
        self.rest.pop_front().map(Ok)
    }
}
