//! A set of distinct values, in order of arrival.

/// Maximum number of slots probed: with a third of the slots in use a few suffice, unless values were chosen to
/// collide.
const MOST_STEPS: usize = 64;

/// A value with a hash.
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

/// Values, and a hash table of their positions.
pub(super) struct DistinctValues<T> {
    values: Vec<T>,
    /// Open addressing with linear probing: number of the value plus one.
    slots: Vec<u16>,
    shift: u32,
}

impl<T: Value> DistinctValues<T> {
    /// Returns a set with room for `most` values, less than 32,768.
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

    /// Inserts a value; the caller ensures that there is room. Returns false if too many others collide with it, for
    /// example because an attacker chose them.
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
    fn each_value_is_stored_once() {
        let mut distinct = DistinctValues::new(100);
        assert!((0..300u32).all(|n| distinct.insert(n % 100 * 65_536)));
        assert_eq!(distinct.values(), (0..100).map(|n| n * 65_536).collect::<Vec<u32>>());
        distinct.clear();
        assert!(distinct.insert(5));
        assert_eq!(distinct.values(), [5]);
    }

    #[test]
    fn colliding_values_are_rejected() {
        let mut distinct = DistinctValues::new(1000);
        let shift = distinct.shift;
        let mut meeting = (0..u32::MAX).filter(|n| n.hash() >> shift == 7).take(1000);
        assert_eq!(meeting.by_ref().take_while(|value| distinct.insert(*value)).count(), MOST_STEPS);
    }
}
