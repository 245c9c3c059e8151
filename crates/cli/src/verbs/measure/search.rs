//! Search for the rates of goals (RFC 2544, section 26.1; RFC 9971), and latency at parts of the result.

use super::report::LoadLatency;
use super::traffic::Frames;
use super::{Measurement, SizeParameters};
use crate::exit::usage;
use linerate_generate::Rate;
use linerate_measure::{Search, Trial, TrialRequest};

/// Parts of the result at which latency is measured, as in CSIT; the first is almost no load.
const PARTS: [f64; 4] = [0.001, 0.1, 0.5, 0.9];
/// Minimum load of the first part in frames per second.
const FEWEST: f64 = 100.0;

impl Measurement<'_> {
    /// Searches for all goals with frames of one size.
    pub(super) fn search(&mut self, sized: &SizeParameters<'_>) -> anyhow::Result<()> {
        let mut search = Search::new(sized.limits, &self.plan.goals).map_err(usage)?;
        self.known().found(&search.found());
        let mut result = Ok(());
        while let Some(ask) = search.next_trial() {
            let frames = Frames::Paced(Rate::Frames(ask.load), ask.duration);
            match self.trial("throughput", sized, &frames, ask) {
                Ok(None) => break,
                Ok(Some(account)) => {
                    search.add(Trial {
                        load: ask.load,
                        duration: ask.duration,
                        effective: ask.duration,
                        loss: account.counts.loss_ratio,
                        is_limited: account.tester.is_some(),
                    });
                    self.known().found(&search.found());
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.known().found(&search.found());
        result
    }

    /// Returns the throughput of this size, if found.
    pub(super) fn throughput(&mut self) -> Option<f64> {
        self.known().throughput()
    }

    /// Measures latency at parts of the result of the last goal, if requested.
    pub(super) fn latency_at_loads(&mut self, sized: &SizeParameters<'_>) -> anyhow::Result<()> {
        let Some(goal) = self.plan.goals.last().filter(|_| self.args.method.latency).cloned() else { return Ok(()) };
        let Some(found) = self.known().lower_of(goal.name) else { return Ok(()) };
        for part in PARTS {
            let load = (found * part).max(FEWEST.min(found * PARTS[1]));
            let ask = TrialRequest { load, duration: goal.final_duration };
            let frames = Frames::Paced(Rate::Frames(load), ask.duration);
            let Some(account) = self.trial("latency", sized, &frames, ask)? else { break };
            let (lost, latency, tester) = (account.counts.lost, account.latency, account.tester);
            let row = LoadLatency { of_result: part, load, lost, tester, latency };
            self.known().at_loads.push(row);
        }
        Ok(())
    }
}
