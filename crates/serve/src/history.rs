//! Rates of all ports together in the last ten minutes, one point per second, for clients that connect later.

use serde_json::{Value, json};
use std::collections::VecDeque;

/// Maximum number of points.
const MOST: usize = 600;

#[derive(Debug, Default)]
pub(crate) struct History {
    points: VecDeque<Point>,
    /// Number of missing frames at the last point.
    missing: u64,
}

#[derive(Debug)]
struct Point {
    /// UTC seconds.
    time: u64,
    sent_per_s: u64,
    received_per_s: u64,
    lost: u64,
}

impl History {
    /// Adds a point if the second has changed: rates, and the number of frames missing so far.
    pub(crate) fn note(&mut self, time: u64, sent_per_s: u64, received_per_s: u64, missing: u64) {
        if self.points.back().is_some_and(|point| point.time == time) {
            return;
        }
        // Restarted accounts count from 0.
        let lost = missing.saturating_sub(self.missing);
        self.missing = missing;
        if self.points.len() == MOST {
            self.points.pop_front();
        }
        self.points.push_back(Point { time, sent_per_s, received_per_s, lost });
    }

    /// Returns one list per point: UTC seconds, sent and received per second, lost since the previous point.
    pub(crate) fn json(&self) -> Value {
        let point = |point: &Point| json!([point.time, point.sent_per_s, point.received_per_s, point.lost]);
        json!({"points": self.points.iter().map(point).collect::<Vec<_>>()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_point_per_second_is_kept_for_ten_minutes() {
        let mut history = History::default();
        for half in 0..2000u64 {
            history.note(half / 2, 10, 9, if half < 1600 { half / 2 } else { half / 2 - 800 });
        }
        let shown = history.json();
        let points = shown["points"].as_array().unwrap();
        assert_eq!((points.len(), &points[0], &points[599]), (600, &json!([400, 10, 9, 1]), &json!([999, 10, 9, 1])));
        // The accounts restarted there.
        assert_eq!(points[400], json!([800, 10, 9, 0]));
    }
}
