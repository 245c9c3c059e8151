//! Decisions from input bytes.

/// Rest of the input; zeros after its end.
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    pub fn long(&mut self) -> u64 {
        let count = usize::from(self.byte() % 9);
        self.take(count).iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// Returns the number of bytes given by the first one, at most `most`.
    pub fn some(&mut self, max: usize) -> &'a [u8] {
        let count = usize::from(self.byte()) % (max + 1);
        self.take(count)
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}
