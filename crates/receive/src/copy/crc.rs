//! The CRC-32C of frames.

use linerate_wire::Crc32c;

/// A running CRC-32C.
#[derive(Clone, Copy, Debug)]
pub struct Crc(Crc32c);

impl Crc {
    /// Of nothing.
    pub const NEW: Crc = Crc(Crc32c::NEW);

    /// This checksum with `bytes` behind what it covers already.
    #[inline]
    pub fn with(self, bytes: &[u8]) -> Crc {
        Crc(self.0.with(bytes))
    }

    /// The checksum.
    pub fn value(self) -> u32 {
        self.0.value()
    }
}
