//! Requests of those who may not ask: counted, each with whoever it was of, so that no number of them fills the log or the terminal.

use serde_json::{Value, json};
use std::net::IpAddr;

/// Rows that are kept: those of the latest.
const MOST: usize = 100;

/// Who was refused, and why.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    /// The latest last.
    rows: Vec<Row>,
    /// All that there were, also those whose rows are gone.
    all: u64,
}

#[derive(Debug)]
struct Row {
    address: IpAddr,
    why: &'static str,
    times: u64,
    first_ns: u64,
    last_ns: u64,
}

impl Strangers {
    /// Another one; how often that is by now, where it is worth being told: the first time, the tenth, the hundredth.
    pub(crate) fn refuse(&mut self, address: IpAddr, why: &'static str, now_ns: u64) -> Option<u64> {
        self.all += 1;
        let mut row = match self.rows.iter().position(|row| (row.address, row.why) == (address, why)) {
            Some(at) => self.rows.remove(at),
            None => Row { address, why, times: 0, first_ns: now_ns, last_ns: now_ns },
        };
        if self.rows.len() == MOST {
            self.rows.remove(0);
        }
        (row.times, row.last_ns) = (row.times + 1, now_ns);
        let times = row.times;
        self.rows.push(row);
        (10u64.pow(times.ilog10()) == times).then_some(times)
    }

    /// How many there were in all.
    pub(crate) fn all(&self) -> u64 {
        self.all
    }

    /// The latest first.
    pub(crate) fn json(&self) -> Value {
        let row = |row: &Row| {
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
    fn however_many_there_are_the_latest_are_told_with_their_numbers() {
        let mut strangers = Strangers::default();
        let address = |number: u32| IpAddr::V4(number.into());
        let told: Vec<u64> = (0..1000).filter_map(|time| strangers.refuse(address(1), "no token", time)).collect();
        assert_eq!(told, [1, 10, 100, 1000]);
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
