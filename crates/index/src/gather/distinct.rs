//! Some different values, in the order they came.

/// Slots that are looked at: of values that nobody has chosen a third of the slots is taken, and a few are enough.
const MOST_STEPS: usize = 64;

/// A value that can be hashed to a place.
pub(super) trait Value: Copy + Eq {
    fn hash(self) -> u64;
}

impl Value for u32 {
    #[inline]
    fn hash(self) -> u64 {
        u64::from(self).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl Value for u128 {
    #[inline]
    fn hash(self) -> u64 {
        let folded = (self >> 64) as u64 ^ (self as u64).rotate_left(29);
        folded.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Values, and where each is among them.
pub(super) struct DistinctValues<T> {
    values: Vec<T>,
    /// By hash, the next free one behind: number of the value, and one more.
    slots: Vec<u16>,
    shift: u32,
}

impl<T: Value> DistinctValues<T> {
    /// Room for so many, less than 32,768.
    pub(super) fn new(most: usize) -> Self {
        let slots = (most * 2).next_power_of_two();
        assert!(slots < 1 << 16, "a slot holds the number of a value");
        DistinctValues { values: Vec::with_capacity(most), slots: vec![0; slots], shift: 64 - slots.trailing_zeros() }
    }

    pub(super) fn clear(&mut self) {
        if !self.values.is_empty() {
            self.values.clear();
            self.slots.fill(0);
        }
    }

    pub(super) fn values(&self) -> &[T] {
        &self.values
    }

    /// Puts a value in, of which there are no more than there is room for; false where too many others have its place, as
    /// somebody may have chosen them.
    #[inline]
    pub(super) fn insert(&mut self, value: T) -> bool {
        let mask = self.slots.len() - 1;
        let first = (value.hash() >> self.shift) as usize;
        for at in first..first + MOST_STEPS {
            match self.slots[at & mask] {
                0 => {
                    self.values.push(value);
                    self.slots[at & mask] = self.values.len() as u16;
                    return true;
                }
                number if self.values[usize::from(number) - 1] == value => return true,
                _ => {}
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_there_once() {
        let mut distinct = DistinctValues::new(100);
        assert!((0..300u32).all(|n| distinct.insert(n % 100 * 65_536)));
        assert_eq!(distinct.values(), (0..100).map(|n| n * 65_536).collect::<Vec<u32>>());
        distinct.clear();
        assert!(distinct.insert(5));
        assert_eq!(distinct.values(), [5]);
    }

    #[test]
    fn values_chosen_to_meet_in_one_place_are_refused() {
        let mut distinct = DistinctValues::new(1000);
        let shift = distinct.shift;
        let mut meeting = (0..u32::MAX).filter(|n| n.hash() >> shift == 7).take(1000);
        assert_eq!(meeting.by_ref().take_while(|value| distinct.insert(*value)).count(), MOST_STEPS);
    }
}
