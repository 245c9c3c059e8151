//! Rejected requests, counted per client, so that no number of them fills the log or the terminal.

use serde_json::{Value, json};
use std::net::IpAddr;

/// Maximum number of rows; the latest are kept.
const MOST: usize = 100;

/// Rejected clients with reasons.
#[derive(Debug, Default)]
pub(crate) struct RejectedClients {
    /// Rows, latest last.
    rows: Vec<Rejection>,
    /// Number of rejections, including those of evicted rows.
    all: u64,
}

#[derive(Debug)]
struct Rejection {
    address: IpAddr,
    why: &'static str,
    times: u64,
    first_ns: u64,
    last_ns: u64,
}

impl RejectedClients {
    /// Counts a rejection; returns its number if it should be reported: the first, the tenth, the hundredth.
    pub(crate) fn refuse(&mut self, address: IpAddr, why: &'static str, now_ns: u64) -> Option<u64> {
        self.all += 1;
        let mut row = match self.rows.iter().position(|row| (row.address, row.why) == (address, why)) {
            Some(at) => self.rows.remove(at),
            None => Rejection { address, why, times: 0, first_ns: now_ns, last_ns: now_ns },
        };
        if self.rows.len() == MOST {
            self.rows.remove(0);
        }
        (row.times, row.last_ns) = (row.times + 1, now_ns);
        let times = row.times;
        self.rows.push(row);
        (10u64.pow(times.ilog10()) == times).then_some(times)
    }

    /// Returns the number of rejections.
    pub(crate) fn all(&self) -> u64 {
        self.all
    }

    /// Returns the rows, latest first.
    pub(crate) fn json(&self) -> Value {
        let row = |row: &Rejection| {
            json!({"address": row.address.to_string(), "why": row.why, "times": row.times,
                "first_ns": row.first_ns, "last_ns": row.last_ns})
        };
        self.rows.iter().rev().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_rejections_are_listed_with_their_counts() {
        let mut strangers = RejectedClients::default();
        let address = |number: u32| IpAddr::V4(number.into());
        let reported: Vec<u64> = (0..1000).filter_map(|time| strangers.refuse(address(1), "no token", time)).collect();
        assert_eq!(reported, [1, 10, 100, 1000]);
        for number in 2..500 {
            assert_eq!(strangers.refuse(address(number), "no token", 2000), Some(1));
        }
        strangers.refuse(address(450), "another host", 3000);
        strangers.refuse(address(450), "no token", 3001);
        let rows = strangers.json();
        let rows = rows.as_array().unwrap();
        assert_eq!((strangers.all(), rows.len()), (1500, MOST));
        let brief = |row: &Value| (row["address"].to_string(), row["why"].to_string(), row["times"].as_u64());
        assert_eq!(brief(&rows[0]), ("\"0.0.1.194\"".into(), "\"no token\"".into(), Some(2)));
        assert_eq!(brief(&rows[1]), ("\"0.0.1.194\"".into(), "\"another host\"".into(), Some(1)));
    }
}
