//! Latency and loss rates of RFC 2544 (26.2, 26.3), and the maximum receive rate.

use super::report::{Forwarding, LatencyRun, LatencyTest, LossRow};
use super::traffic::{Frames, Phase};
use super::{Measurement, SizeParameters};
use linerate_generate::Rate;
use linerate_measure::TrialRequest;
use linerate_measure::rate::LossRate;
use linerate_measure::statistics::Spread;

impl Measurement<'_> {
    /// Measures latency (26.2) at the throughput: the tagged frame is in the middle; all others have latencies too.
    pub(super) fn latency(&mut self, sized: &SizeParameters<'_>) -> anyhow::Result<()> {
        let span = self.plan.latency;
        let Some(load) = self.throughput() else {
            return self.left_out("latency", "skipped: needs a throughput, and none was found");
        };
        let half = Phase::with_duration(load, span.seconds / 2.0);
        let frames = Frames::Phases(vec![half, Phase { load, frames: 1 }, half]);
        self.known().latency = Some(LatencyTest::new(load, span.seconds, span.shortened()));
        for _ in 0..span.times {
            let ask = TrialRequest { load, duration: span.seconds };
            let Some(account) = self.trial("latency", sized, &frames, ask)? else { break };
            if let Some(test) = &mut self.known().latency {
                test.add(account.directions.iter().map(LatencyRun::of).collect());
            }
        }
        Ok(())
    }

    /// Measures loss rates (26.3) from the maximum load down, until two loads in a row are without loss.
    pub(super) fn loss(&mut self, sized: &SizeParameters<'_>) -> anyhow::Result<()> {
        let span = self.plan.loss;
        let mut method = LossRate::new(sized.limits.greatest, span.seconds, self.plan.steps);
        self.known().loss_shortened = span.shortened();
        while let Some(ask) = method.next_trial() {
            let frames = Frames::Paced(Rate::Frames(ask.load), ask.duration);
            let Some(account) = self.trial("loss", sized, &frames, ask)? else { break };
            method.add(account.counts.loss_ratio);
            let row = LossRow {
                of_max_load: ask.load / sized.limits.greatest,
                load: ask.load,
                loss_ratio: account.counts.loss_ratio,
                by_direction: account.directions.iter().map(|way| way.counts.loss_ratio).collect(),
                tester: account.tester.clone(),
            };
            self.known().loss.push(row);
        }
        Ok(())
    }

    /// Measures the forwarded rate at the maximum load.
    pub(super) fn mrr(&mut self, sized: &SizeParameters<'_>) -> anyhow::Result<()> {
        let (load, span) = (sized.limits.greatest, self.plan.mrr);
        let (mut rates, mut faults) = (Vec::new(), Vec::new());
        for _ in 0..span.times {
            let ask = TrialRequest { load, duration: span.seconds };
            let frames = Frames::Paced(Rate::Frames(load), ask.duration);
            let Some(account) = self.trial("mrr", sized, &frames, ask)? else { break };
            rates.push(account.forwarded(ask.duration));
            faults.extend(account.tester.clone());
            let directions = account.directions.len();
            let spread = Spread::of(&rates);
            self.known().forwarding = spread.map(|spread| Forwarding::new(load, directions, &rates, &spread, &faults));
        }
        Ok(())
    }

    /// Records the reason why a test was skipped.
    pub(super) fn left_out(&mut self, test: &str, why: &str) -> anyhow::Result<()> {
        self.known().skipped.push(format!("{test}: {why}"));
        Ok(())
    }
}
