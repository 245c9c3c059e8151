//! Trials of a measurement: each is run, reported, and repeated after a failure of the tester.

use super::account::TrialResult;
use super::report::{Row, line};
use super::traffic::Frames;
use super::trial::SideTask;
use super::{Measurement, SizeParameters};
use crate::view::terminal::print_stderr;
use linerate_measure::TrialRequest;

/// Maximum repetitions after a failure of the tester: per trial, and per size.
const AGAIN: (u32, u32) = (3, 20);

impl Measurement<'_> {
    /// Runs and records a trial, and repeats it after a failure of the tester, within [`AGAIN`]. Returns `None` if the
    /// run is over or was stopped during the trial: an incomplete trial proves nothing.
    pub(super) fn trial(
        &mut self,
        test: &'static str,
        sized: &SizeParameters<'_>,
        frames: &Frames,
        ask: TrialRequest,
    ) -> anyhow::Result<Option<TrialResult>> {
        let mut again = 0;
        loop {
            let account = self.trial_with(test, sized, frames, ask, None)?;
            let is_last = again >= AGAIN.0 || self.repeated >= AGAIN.1;
            if is_last || account.as_ref().is_none_or(|account| account.tester.is_none()) {
                return Ok(account);
            }
            again += 1;
            self.repeated += 1;
        }
    }

    pub(super) fn trial_with(
        &mut self,
        test: &'static str,
        sized: &SizeParameters<'_>,
        frames: &Frames,
        ask: TrialRequest,
        task: Option<SideTask<'_>>,
    ) -> anyhow::Result<Option<TrialResult>> {
        if self.is_over() {
            return Ok(None);
        }
        self.number += 1;
        let mut account = self.bench.run(sized.sets, frames, self.number, task)?;
        if self.number == 1 && account.failure.is_none() {
            account.failure = account.nothing_arrived();
        }
        if account.failure.is_none() && self.bench.stop().is_requested() {
            return Ok(None);
        }
        self.keep(test, sized.size, ask, &account)?;
        self.rest();
        Ok(Some(account))
    }

    /// Prints a trial, and writes it into the reports.
    pub(super) fn keep(
        &mut self,
        test: &'static str,
        size: u64,
        ask: TrialRequest,
        account: &TrialResult,
    ) -> anyhow::Result<()> {
        if let Some(last) = self.report.sizes.last_mut() {
            let row = Row::new(last.trials.len() + 1, test, ask, account.clone());
            if !self.args.end.is_silent() {
                print_stderr(line(size, &row));
            }
            last.trials.push(row);
        }
        self.files.write(&self.report);
        match &account.failure {
            Some(failure) => Err(anyhow::anyhow!(failure.clone())),
            None => Ok(()),
        }
    }
}
