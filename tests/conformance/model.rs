//! Model of a faulty port, without code of the port: the effects of a fault plan on a list of frames.

/// Faults of the checks, with fixed numbers to keep the model simple.
pub(super) const FAULTS: &str = "drop=3%&burst=1/500x7&repeat=2%&reorder=1/25x4&hold=60s&corrupt=2%x3@20-40&truncate=20000ppm\
                          x60&pad=1/50x8&seed=";
/// Index and probability of each fault, in the order of the keys.
const DROP: (u64, f64) = (0, 0.03);
const BURST: (u64, f64) = (1, 1.0 / 500.0);
const REPEAT: (u64, f64) = (2, 0.02);
const REORDER: (u64, f64) = (3, 1.0 / 25.0);
const CORRUPT: (u64, f64) = (4, 0.02);
const TRUNCATE: (u64, f64) = (5, 0.02);
const PAD: (u64, f64) = (6, 0.02);

/// Expected output.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Expected {
    /// Number of the frame, length and flipped bits, in output order.
    pub out: Vec<(u32, usize, u32)>,
    /// Number of those at the end that no later frame passes: they are sent when the input ends.
    pub at_end: usize,
    pub dropped: u64,
    pub repeated: u64,
    pub reordered: u64,
    pub corrupted: u64,
    pub truncated: u64,
    pub padded: u64,
}

/// Returns the expected output for frames of these lengths through queue 0.
pub(super) fn expect(seed: u64, lengths: &[usize]) -> Expected {
    let mut expected = Expected::default();
    // Output position of each frame: number of frames before it, with delayed frames after those that pass them.
    let mut leaving: Vec<(u64, bool, u32, usize, u32, bool)> = Vec::new();
    let mut passed = 0;
    for (number, length) in lengths.iter().enumerate() {
        let hit = |(fault, probability): (u64, f64), number: usize| {
            let draw = splitmix(splitmix(splitmix(seed, 0), fault), number as u64);
            (draw as f64) < probability * 18_446_744_073_709_551_616.0
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
        let repeated = hit(REPEAT, number);
        expected.repeated += u64::from(repeated);
        if hit(REORDER, number) {
            leaving.push((passed + 4, true, number as u32, length, bits, repeated));
        } else {
            passed += 1;
            leaving.push((passed, false, number as u32, length, bits, repeated));
        }
    }
    leaving.sort_by_key(|(position, held, number, ..)| (*position, *held, *number));
    for (position, held, number, length, bits, repeated) in leaving {
        let copies = 1 + usize::from(repeated);
        expected.out.extend(std::iter::repeat_n((number, length, bits), copies));
        expected.at_end += if position > passed { copies } else { 0 };
        // Passed by at least one frame, unless it was the last.
        expected.reordered += u64::from(held && position - 4 < passed);
    }
    expected
}

/// Returns output `index` of SplitMix64 (Steele, Lea, Flood 2014) from a state.
fn splitmix(state: u64, index: u64) -> u64 {
    let step: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut output = state.wrapping_add(step.wrapping_mul(index)).wrapping_add(step);
    output = (output ^ (output >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    output = (output ^ (output >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    output ^ (output >> 31)
}
