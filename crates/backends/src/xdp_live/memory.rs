//! What a program reads from memory: long frames and tables.

/// Bytes that a program reads, gathered.
#[derive(Debug, Default)]
pub struct Memory {
    bytes: Vec<u8>,
}

/// More would be tables nobody needs.
pub const MOST_MEMORY: usize = 64 << 20;

impl Memory {
    /// Takes bytes in; where they lie. Beyond [`MOST_MEMORY`] they are only counted.
    pub fn place(&mut self, bytes: &[u8]) -> i32 {
        let place = self.bytes.len();
        let end = place + bytes.len().next_multiple_of(8);
        if end <= MOST_MEMORY {
            self.bytes.extend_from_slice(bytes);
        }
        self.bytes.resize(end.min(MOST_MEMORY + 8), 0);
        place as i32
    }

    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether more was taken in than there is room for.
    pub fn is_over(&self) -> bool {
        self.bytes.len() > MOST_MEMORY
    }
}
