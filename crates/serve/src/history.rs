//! What all ports together did in the last ten minutes, a point a second: for whoever looks at it later.

use serde_json::{Value, json};
use std::collections::VecDeque;

/// Points that are kept.
const MOST: usize = 600;

/// The points.
#[derive(Debug, Default)]
pub(crate) struct History {
    points: VecDeque<Point>,
    /// What was missing by the last one.
    missing: u64,
}

#[derive(Debug)]
struct Point {
    /// Seconds of UTC.
    time: u64,
    sent_per_s: u64,
    received_per_s: u64,
    lost: u64,
}

impl History {
    /// Takes note of rates, and of how many frames are missing by now, if the second is another.
    pub(crate) fn note(&mut self, time: u64, sent_per_s: u64, received_per_s: u64, missing: u64) {
        if self.points.back().is_some_and(|point| point.time == time) {
            return;
        }
        // New accounts begin at 0.
        let lost = missing.saturating_sub(self.missing);
        self.missing = missing;
        if self.points.len() == MOST {
            self.points.pop_front();
        }
        self.points.push_back(Point { time, sent_per_s, received_per_s, lost });
    }

    /// A list for each: seconds of UTC, sent and received a second, lost since the one before.
    pub(crate) fn json(&self) -> Value {
        let point = |point: &Point| json!([point.time, point.sent_per_s, point.received_per_s, point.lost]);
        json!({"points": self.points.iter().map(point).collect::<Vec<_>>()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_minutes_are_kept_a_point_a_second() {
        let mut history = History::default();
        for half in 0..2000u64 {
            history.note(half / 2, 10, 9, if half < 1600 { half / 2 } else { half / 2 - 800 });
        }
        let told = history.json();
        let points = told["points"].as_array().unwrap();
        assert_eq!((points.len(), &points[0], &points[599]), (600, &json!([400, 10, 9, 1]), &json!([999, 10, 9, 1])));
        // The accounts were new there.
        assert_eq!(points[400], json!([800, 10, 9, 0]));
    }
}
