//! How much is kept of what a file says beyond its frames: counted as what it takes in memory, not as what it is in the
//! file, where a block of 12 bytes may stand for more.

/// The most bytes that are kept of a file: options of sections and interfaces, names of interfaces, comments on
/// statistics, names of addresses, secrets.
pub(super) const MOST_KEPT: usize = 16 << 20;

/// What a thing takes beside its bytes: its place on the heap, and one in a list that may have twice the room it needs.
const EACH: usize = 64;

/// What is kept of one file so far.
#[derive(Debug, Default)]
pub(super) struct Budget {
    used: usize,
    left_out: u64,
}

impl Budget {
    /// Whether there is room for a thing of so many bytes, which is then taken up by it; else it is counted as left
    /// out.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let fits = self.used + bytes + EACH <= MOST_KEPT;
        if fits {
            self.used += bytes + EACH;
        } else {
            self.leave_out(1);
        }
        fits
    }

    /// As [`take`](Budget::take) for what is needed and bounded elsewhere: it leaves less room for other things.
    pub(super) fn charge(&mut self, bytes: usize) {
        self.used += bytes;
    }

    /// A thing that was taken up is kept no longer.
    pub(super) fn give_back(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes + EACH);
    }

    /// So many things cannot be kept.
    pub(super) fn leave_out(&mut self, things: u64) {
        self.left_out += things;
    }

    /// Things left out so far.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_things_fill_it_as_a_large_one_does() {
        let mut budget = Budget::default();
        assert!(!budget.take(MOST_KEPT) && budget.take(MOST_KEPT - EACH) && !budget.take(0));
        budget.give_back(MOST_KEPT - EACH);
        let small = (0..1_000_000).filter(|_| budget.take(16)).count();
        assert_eq!((small, budget.left_out()), (MOST_KEPT / (16 + EACH), 2 + (1_000_000 - small as u64)));
        budget.charge(1 << 30);
        budget.give_back(16);
        assert!(!budget.take(0), "what is needed leaves less room");
    }
}
