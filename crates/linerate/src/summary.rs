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
}

impl Summary {
    /// Returns the result of a run, or its failure.
    pub(crate) fn of(mut report: RunReport) -> Result<Self, Error> {
        match report.failure.take() {
            Some(failure) => Err(failure.into()),
            None => Ok(Summary { report }),
        }
    }

    /// Returns the number of selected packets.
    pub fn packets(&self) -> u64 {
        let accounts = self.report.ledger.accounts().iter();
        accounts.filter(|account| account.stage == Stage::Select).map(|account| account.sum(Kind::Delivered)).sum()
    }

    /// Returns the number of packets that were lost between the wire and this process.
    pub fn lost(&self) -> u64 {
        self.report.ledger.lost()
    }

    /// Returns whether every packet is accounted for.
    pub fn is_exact(&self) -> bool {
        self.report.quiesced
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
