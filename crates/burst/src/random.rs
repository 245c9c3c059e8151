//! Pseudorandom numbers that depend only on a seed: SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
//! Generators, 2014).

/// Increment of the state per output: 2^64 divided by the golden ratio, odd.
pub const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The factors that mix a state.
pub const FACTORS: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];

/// Returns the output for a state.
#[inline]
pub fn mix(mut state: u64) -> u64 {
    state = (state ^ state >> 30).wrapping_mul(FACTORS[0]);
    state = (state ^ state >> 27).wrapping_mul(FACTORS[1]);
    state ^ state >> 31
}

/// Returns output `n` of a seed.
#[inline]
pub fn draw(seed: u64, n: u64) -> u64 {
    mix(seed.wrapping_add(n.wrapping_add(1).wrapping_mul(GAMMA)))
}

/// Advances the state and returns the next output.
#[inline]
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(GAMMA);
    mix(*state)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From state 0, as published with the reference code.
    #[test]
    fn outputs_are_those_of_splitmix64() {
        let wanted = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        let mut state = 0;
        for (n, wanted) in (0..).zip(wanted) {
            assert_eq!((draw(0, n), next(&mut state)), (wanted, wanted));
        }
    }
}
