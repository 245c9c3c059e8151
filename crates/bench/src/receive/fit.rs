//! The two numbers that chunk times are made of.

/// Seconds that a chunk takes: so many whatever its size, and so many for each byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub fixed: f64,
    per_byte: f64,
}

impl Line {
    /// The line closest to these chunks (bytes, seconds) by least squares. What counts is how far it is off in parts of a time:
    /// else a longest chunk's noise would be many times the fixed part.
    pub(super) fn through(times: &[(f64, f64)]) -> Line {
        let (mut w, mut wx, mut wy, mut wxx, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (x, y) in times {
            let weight = 1.0 / (y * y);
            w += weight;
            wx += weight * x;
            wy += weight * y;
            wxx += weight * x * x;
            wxy += weight * x * y;
        }
        let per_byte = (w * wxy - wx * wy) / (w * wxx - wx * wx);
        Line { fixed: (wy - per_byte * wx) / w, per_byte }
    }

    /// What is reached where chunks are endless.
    pub(super) fn gbps(&self) -> f64 {
        8.0 / self.per_byte / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_and_a_fixed_part_are_found_again() {
        let times = [1.0, 2.0, 64.0, 128.0].map(|mib: f64| (mib * 1e6, 20e-6 + mib * 1e6 * 8.0 / 50e9));
        let line = Line::through(&times);
        assert!((line.gbps() - 50.0).abs() < 1e-6 && (line.fixed - 20e-6).abs() < 1e-12, "{line:?}");
    }
}
