//! What a faulty port does to a list of frames, told a second time, in the plainest way: no code of the port.

/// Faults of the checks: fixed numbers, so that the model stays plain.
pub(super) const FAULTS: &str = "drop=3%&burst=1/500x7&repeat=2%&reorder=1/25x4&hold=60s&corrupt=2%x3@20-40&truncate=20000ppm\
                          x60&pad=1/50x8&seed=";
/// In the order of the keys: what draws are made for.
const DROP: (u64, f64) = (0, 0.03);
const BURST: (u64, f64) = (1, 1.0 / 500.0);
const REPEAT: (u64, f64) = (2, 0.02);
const REORDER: (u64, f64) = (3, 1.0 / 25.0);
const CORRUPT: (u64, f64) = (4, 0.02);
const TRUNCATE: (u64, f64) = (5, 0.02);
const PAD: (u64, f64) = (6, 0.02);

/// What is to come out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Expected {
    /// Number of the frame, length, and bits turned over, in the order of leaving.
    pub out: Vec<(u32, usize, u32)>,
    /// Of those, the last that nothing passes any more: they leave when the input has ended.
    pub at_end: usize,
    pub dropped: u64,
    pub repeated: u64,
    pub reordered: u64,
    pub corrupted: u64,
    pub truncated: u64,
    pub padded: u64,
}

/// Of frames with these lengths, through queue 0.
pub(super) fn expect(seed: u64, lengths: &[usize]) -> Expected {
    let mut expected = Expected::default();
    // Where each frame leaves: behind so many others, those held back behind those that pass.
    let mut leaving: Vec<(u64, bool, u32, usize, u32, bool)> = Vec::new();
    let mut passed = 0;
    for (number, length) in lengths.iter().enumerate() {
        let hit = |(what, chance): (u64, f64), number: usize| {
            let draw = splitmix(splitmix(splitmix(seed, 0), what), number as u64);
            (draw as f64) < chance * 18_446_744_073_709_551_616.0
        };
        if hit(DROP, number) || (number.saturating_sub(6)..=number).any(|begin| hit(BURST, begin)) {
            expected.dropped += 1;
            continue;
        }
        let mut length = *length;
        if hit(TRUNCATE, number) && length > 60 {
            expected.truncated += 1;
            length = 60;
        }
        if hit(PAD, number) {
            expected.padded += 1;
            length += 8;
        }
        let bits = if hit(CORRUPT, number) && length > 20 { 3 } else { 0 };
        expected.corrupted += u64::from(bits > 0);
        let twice = hit(REPEAT, number);
        expected.repeated += u64::from(twice);
        if hit(REORDER, number) {
            leaving.push((passed + 4, true, number as u32, length, bits, twice));
        } else {
            passed += 1;
            leaving.push((passed, false, number as u32, length, bits, twice));
        }
    }
    leaving.sort_by_key(|(place, held, number, ..)| (*place, *held, *number));
    for (place, held, number, length, bits, twice) in leaving {
        let copies = 1 + usize::from(twice);
        expected.out.extend(std::iter::repeat_n((number, length, bits), copies));
        expected.at_end += if place > passed { copies } else { 0 };
        // It has been passed unless it came as the very last.
        expected.reordered += u64::from(held && place - 4 < passed);
    }
    expected
}

/// Output `index` of SplitMix64 (Steele, Lea, Flood 2014) from a state.
fn splitmix(state: u64, index: u64) -> u64 {
    let step: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut output = state.wrapping_add(step.wrapping_mul(index)).wrapping_add(step);
    output = (output ^ (output >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    output = (output ^ (output >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    output ^ (output >> 31)
}
