//! Result of a run.

use crate::error::Error;
use linerate_burst::Kind;
use linerate_burst::{Ledger, Stage};
use linerate_engine::RunReport;
use std::time::Duration;

/// Result of a run: its packets, and where each of them went.
#[derive(Debug)]
pub struct Summary {
    report: RunReport,
    packets: u64,
    has_failed: bool,
}

impl Summary {
    /// Returns the result of a run, or its failure; `packets`: number of packets that the caller has taken, if not all.
    pub(crate) fn of(mut report: RunReport, packets: Option<u64>) -> Result<Self, Error> {
        let failure = report.failure.take();
        let accounts = report.ledger.accounts().iter().filter(|account| account.stage == Stage::Select);
        let packets = packets.unwrap_or_else(|| accounts.map(|account| account.sum(Kind::Delivered)).sum());
        let summary = Summary { report, packets, has_failed: failure.is_some() };
        match failure {
            Some(error) => Err(Error::Run { error, summary: Some(Box::new(summary)) }),
            None => Ok(summary),
        }
    }

    /// Records that the failure of the run was returned before.
    pub(crate) fn failed(self, has_failed: bool) -> Self {
        Summary { has_failed: self.has_failed || has_failed, ..self }
    }

    /// Returns the number of packets that were returned, written or metered.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the number of packets that were lost between the wire and this process.
    pub fn lost(&self) -> u64 {
        self.report.ledger.lost()
    }

    /// Returns whether all that had arrived was read to the end, so that every packet is accounted for: not after a
    /// failure, and not if [`Packets`](crate::Packets) was left early, without a limit.
    pub fn is_exact(&self) -> bool {
        self.report.quiesced && !self.has_failed
    }

    /// Returns the packet accounting: counters by stage and reason.
    pub fn ledger(&self) -> &Ledger {
        &self.report.ledger
    }

    /// Returns events at ports, such as links that went down, in order.
    pub fn events(&self) -> &[String] {
        &self.report.events
    }

    /// Returns the duration of the run.
    pub fn elapsed(&self) -> Duration {
        self.report.elapsed
    }
}
