//! The account of a set of streams.

use super::{Check, Matcher, Options};
use crate::stream::{Mark, StreamSet};

impl Check {
    /// Creates the account of a set of streams, with memory for `more` stream numbers: a restarted stream has a new one.
    pub fn of(set: &StreamSet, more: usize) -> Self {
        let mut check = Check::new(set.key, Options { streams: set.streams.len().max(1) + more, verify: true });
        if let Some(gap) = set.even_gap() {
            check.expect_gap(gap);
        }
        for stream in set.streams.iter().filter(|stream| stream.mark == Mark::Count) {
            for variant in &stream.variants {
                let changes = variant.changes.iter().map(|change| (change.offset, change.offset + change.width));
                let fills = variant.fills.iter().map(|fill| (fill.offset, fill.offset + fill.length));
                let sums = variant.checksums.iter().map(|sum| (sum.offset, sum.offset + sum.length()));
                let parts: Vec<_> = changes.chain(fills).chain(sums).collect();
                check.count_only(stream.id, Matcher::new(&variant.frame, &parts));
            }
        }
        check
    }
}
