//! Limit on the metadata kept of a file, counted by its size in memory, since a block of 12 bytes in the file may need
//! more.

/// Maximum bytes kept of a file: options of sections and interfaces, interface names, comments on statistics, name
/// resolution, secrets.
pub(super) const MOST_KEPT: usize = 16 << 20;

/// Overhead per item: its allocation, and an entry in a list that may have twice the needed capacity.
const EACH: usize = 64;

/// Metadata kept of one file so far.
#[derive(Debug, Default)]
pub(super) struct Budget {
    used: usize,
    left_out: u64,
}

impl Budget {
    /// Charges an item of this size if it fits; otherwise counts it as left out. Returns whether it fits.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let fits = self.used + bytes + EACH <= MOST_KEPT;
        if fits {
            self.used += bytes + EACH;
        } else {
            self.count_omitted(1);
        }
        fits
    }

    /// Charges without a limit, like [`take`](Budget::take), for items bounded elsewhere: less room remains for
    /// others.
    pub(super) fn charge(&mut self, bytes: usize) {
        self.used += bytes;
    }

    /// Releases an item.
    pub(super) fn release(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes + EACH);
    }

    /// Counts items that cannot be kept.
    pub(super) fn count_omitted(&mut self, things: u64) {
        self.left_out += things;
    }

    /// Returns the number of items left out.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_items_fill_the_budget_like_a_large_one() {
        let mut budget = Budget::default();
        assert!(!budget.take(MOST_KEPT) && budget.take(MOST_KEPT - EACH) && !budget.take(0));
        budget.release(MOST_KEPT - EACH);
        let small = (0..1_000_000).filter(|_| budget.take(16)).count();
        assert_eq!((small, budget.left_out()), (MOST_KEPT / (16 + EACH), 2 + (1_000_000 - small as u64)));
        budget.charge(1 << 30);
        budget.release(16);
        assert!(!budget.take(0), "mandatory items leave less room");
    }
}
