//! Pseudo-random numbers from a seed.

/// SplitMix64 (Steele and others, 2014).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Creates the generator of one item of a seed.
    pub(crate) fn new(seed: u64, number: u64) -> Self {
        let mut dice = Dice(seed);
        let key = dice.next();
        Dice(key ^ number.wrapping_mul(0xd1b5_4a32_d192_ed03))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Returns a number below `end`, or 0 if that is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { (self.next() % end as u64) as usize }
    }

    pub(crate) fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    /// Returns a number up to `most`, with every magnitude equally likely.
    pub(crate) fn size(&mut self, most: usize) -> usize {
        let bits = usize::BITS - most.leading_zeros();
        let end = 2usize << self.below(bits as usize);
        self.below(end.min(most.saturating_add(1)))
    }

    pub(crate) fn of<'a, T>(&mut self, values: &'a [T]) -> &'a T {
        &values[self.below(values.len())]
    }
}
