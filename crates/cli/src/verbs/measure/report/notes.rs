//! Notes about the results, such as on rates that a queue of the device has raised.

use super::{Report, ResultJson};

/// A queue is noted if it may have raised the rate by more than this part of the width of a goal.
const NOTICED: f64 = 4.0;

/// Returns the part by which a queue may have raised the rate of a trial of `seconds`. At a rate that is a part p too
/// high the queue grows evenly, to p times the duration: the median delay is half of that. Constant delays and a few
/// long ones have no such spread.
pub(super) fn queue_excess(p50_ns: i64, p99_ns: i64, seconds: f64) -> f64 {
    2.0 * p50_ns.min(p99_ns - p50_ns).max(0) as f64 / 1e9 / seconds
}

impl Report {
    /// Returns notes about the results.
    pub(super) fn remarks(&self) -> Vec<String> {
        let why = |result: &ResultJson| match result.verdict {
            "regular" => {
                "regular: a passing and a failing rate were found, at most --width apart (RFC 9971)".to_owned()
            }
            _ => result.why.to_owned(),
        };
        let mut whys: Vec<String> = self.results().map(|(_, result)| why(result)).collect();
        whys.extend(self.results().filter_map(|(size, result)| self.queued(size.size, result)));
        for size in &self.sizes {
            whys.extend(size.skipped.iter().map(|left| format!("{} bytes: {left}", size.size)));
            let counted = "bytes: no room for a trailer, so packets are only counted, without latency";
            whys.extend((size.mark == "count").then(|| format!("{} {counted}", size.size)));
        }
        whys.sort_unstable();
        whys.dedup();
        if !self.sizes_left.is_empty() && self.state != "running" {
            let left: Vec<String> = self.sizes_left.iter().map(u64::to_string).collect();
            whys.push(format!("not measured, because the run ended before: {} bytes", left.join(", ")));
        }
        whys.extend(self.deviations.iter().cloned());
        whys
    }

    /// Returns a note if a queue of the device may have raised the rate noticeably.
    fn queued(&self, size: u64, result: &ResultJson) -> Option<String> {
        let goal = self.goals.iter().find(|goal| goal.name == result.goal)?;
        let excess = result.queue_excess.filter(|excess| *excess > goal.width / NOTICED)?;
        Some(format!(
            "{size} bytes, {}: delays grew to {:.1} ms (p99): the rate may be {:.1} % too high, as a queue takes the \
             excess; try a longer --trial",
            goal.name,
            result.latency_p99_ns? as f64 / 1e6,
            excess * 100.0
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::queue_excess;

    #[test]
    fn a_growing_queue_differs_from_constant_and_rare_delays() {
        const MS: i64 = 1_000_000;
        assert_eq!(queue_excess(50 * MS, 100 * MS, 1.0), 0.1);
        assert_eq!(queue_excess(55 * MS, 105 * MS, 1.0), 0.1, "with 5 ms on the way");
        assert!(queue_excess(5 * MS, 5 * MS + 1000, 1.0) < 1e-5, "a long cable");
        assert!(queue_excess(MS / 10, 80 * MS, 1.0) < 1e-3, "one stall");
    }
}
