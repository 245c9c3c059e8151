//! Rates that a queue of the device has raised.

/// A queue is noted if it may have raised the rate by more than this part of the width of a goal.
pub(super) const NOTICED: f64 = 4.0;

/// Returns the part by which a queue may have raised the rate of a trial of `seconds`. At a rate that is a part p too
/// high the queue grows evenly, to p times the duration: the median delay is half of that. Constant delays and a few
/// long ones have no such spread.
pub(super) fn queue_excess(p50_ns: i64, p99_ns: i64, seconds: f64) -> f64 {
    2.0 * p50_ns.min(p99_ns - p50_ns).max(0) as f64 / 1e9 / seconds
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
