//! Longest burst without loss, and the buffer size derived from it (RFC 2544, section 26.4; RFC 9004).

use super::account::{TrialCounts, TrialResult};
use super::report::Bursts;
use super::traffic::Frames;
use super::{Measurement, SizeParameters};
use crate::view::rates::counted;
use linerate_generate::Rate;
use linerate_measure::TrialRequest;
use linerate_measure::burst::LongestBurst;

/// If the throughput is at least this part of the maximum load, no burst fills a buffer.
const FULL: f64 = 0.99;
/// Maximum repetitions of a burst that the tester itself did not send or receive completely.
const AGAIN: u64 = 3;

/// Result of a burst, or the failure of the tester, and the number of trials.
type BurstResult = (Result<TrialResult, String>, u64);

impl Measurement<'_> {
    /// Measures the longest burst; each run is a search of its own. Gaps are those of the line rate or `--max`; with
    /// neither, the tester sends at its maximum rate.
    pub(super) fn bursts(&mut self, sized: &SizeParameters<'_>) -> anyhow::Result<()> {
        let Some(throughput) = self.throughput() else {
            return self.left_out("back-to-back", "skipped: needs a throughput, and none was found");
        };
        let top = sized.tester.filter(|_| sized.line.is_none());
        let greatest = top.unwrap_or(sized.limits.greatest);
        let rate = if top.is_some() { Rate::Top } else { Rate::Frames(greatest) };
        if throughput >= FULL * greatest {
            let why = "skipped: the throughput equals the burst rate, so no burst fills a buffer (RFC 9004, 5.2)";
            return self.left_out("back-to-back", why);
        }
        let limit = (greatest * self.plan.burst_limit).round() as u64;
        let mut test = Bursts::new(greatest, throughput, limit, self.plan.bursts.shortened());
        self.known().bursts = Some(test.clone());
        for _ in 0..self.plan.bursts.times {
            let mut search = LongestBurst::new(limit, 1);
            let (mut rates, mut tested) = (Vec::new(), 0);
            while let Some(frames) = search.next_burst() {
                let ask = TrialRequest { load: greatest, duration: frames as f64 / greatest };
                let Some((result, trials)) = self.burst(sized, &Frames::Burst(frames, rate), ask)? else {
                    return Ok(());
                };
                tested += trials;
                let account = match result {
                    Ok(account) => account,
                    Err(fault) => {
                        test.tester = Some(fault);
                        self.known().bursts = Some(test);
                        self.files.write(&self.report);
                        return Ok(());
                    }
                };
                let is_whole = account.counts.lost == 0;
                search.add(is_whole);
                if is_whole && top.is_some() {
                    let slowest = account.directions.iter().map(|way| way.seconds).fold(0.0, f64::max);
                    rates.push((frames, frames.saturating_sub(1) as f64 / slowest));
                }
            }
            // Rate of the longest burst itself, if it was not paced.
            let rate = rates.iter().max_by_key(|(frames, _)| *frames).map_or(greatest, |(_, rate)| *rate);
            test.add(search.found(), search.is_limited(), tested, rate);
            self.known().bursts = Some(test.clone());
            self.files.write(&self.report);
        }
        Ok(())
    }

    /// Sends a burst, and repeats it after a failure of the tester; returns the result, or that failure, and the number
    /// of trials.
    fn burst(
        &mut self,
        sized: &SizeParameters<'_>,
        frames: &Frames,
        ask: TrialRequest,
    ) -> anyhow::Result<Option<BurstResult>> {
        let mut trials = 0;
        loop {
            let Some(account) = self.trial_with("back-to-back", sized, frames, ask, None)? else { return Ok(None) };
            trials += 1;
            let TrialCounts { unsent, intended, .. } = account.counts;
            let too_few = || (unsent > 0).then(|| format!("did not send {unsent} of {}", counted(intended, "packet")));
            match account.tester.clone().or_else(too_few) {
                None => return Ok(Some((Ok(account), trials))),
                Some(fault) if trials > AGAIN => return Ok(Some((Err(fault), trials))),
                Some(_) => {}
            }
        }
    }
}
