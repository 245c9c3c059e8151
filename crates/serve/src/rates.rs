//! Recent rates, from counters sampled twice per second.

use linerate_otg::metrics::TrafficMetrics;
use std::time::{Duration, Instant};

/// Last two samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rates {
    last: Option<(Instant, [u64; 4])>,
    /// Frames and bytes per second, sent and received.
    rates: [f64; 4],
    is_known: bool,
}

/// Minimum interval between samples.
const SHORTEST: Duration = Duration::from_millis(100);

impl Rates {
    /// Adds a sample.
    pub(crate) fn note(&mut self, now: Instant, tx: &TrafficMetrics, rx: &TrafficMetrics) {
        let counts = [tx.frames, tx.bytes, rx.frames, rx.bytes];
        if let Some((then, before)) = self.last {
            let span = now.saturating_duration_since(then);
            if span < SHORTEST {
                return;
            }
            self.is_known = true;
            for (rate, (count, before)) in self.rates.iter_mut().zip(counts.into_iter().zip(before)) {
                *rate = count.saturating_sub(before) as f64 / span.as_secs_f64();
            }
        }
        self.last = Some((now, counts));
    }

    /// Returns whether there are two samples.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Sets the rates in the figures.
    pub(crate) fn fill(&self, tx: &mut TrafficMetrics, rx: &mut TrafficMetrics) {
        [tx.frame_rate, tx.byte_rate, rx.frame_rate, rx.byte_rate] = self.rates;
    }
}
