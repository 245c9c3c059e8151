//! Counters of stage `tcp`.

use linerate_burst::{Account, Count};
use std::ops::{Index, IndexMut};

const FIRST: usize = Count::TcpReceived as usize;
const COUNTERS: usize = Count::TcpUnsent as usize - FIRST + 1;

#[derive(Clone, Debug)]
pub(super) struct Counts([u64; COUNTERS]);

impl Counts {
    pub(super) fn new() -> Self {
        Counts([0; COUNTERS])
    }

    /// Adds the counters; of zero ones only those that are always reported.
    pub(super) fn add_to(&self, account: &mut Account) {
        for (number, frames) in self.0.iter().enumerate() {
            let count = Count::ALL[FIRST + number];
            if *frames > 0 || matches!(count, Count::TcpReceived | Count::TcpTaken) {
                account.add(count, *frames);
            }
        }
    }
}

impl Index<Count> for Counts {
    type Output = u64;

    #[inline]
    fn index(&self, count: Count) -> &u64 {
        &self.0[count as usize - FIRST]
    }
}

impl IndexMut<Count> for Counts {
    #[inline]
    fn index_mut(&mut self, count: Count) -> &mut u64 {
        &mut self.0[count as usize - FIRST]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_burst::Stage;

    #[test]
    fn counters_of_the_stage_are_consecutive() {
        let of_stage: Vec<usize> =
            Count::ALL.iter().filter(|count| count.stage() == Stage::Tcp).map(|count| *count as usize).collect();
        assert_eq!(of_stage, (FIRST..FIRST + COUNTERS).collect::<Vec<_>>());
        assert!(Count::ALL.iter().enumerate().all(|(number, count)| *count as usize == number));
    }
}
