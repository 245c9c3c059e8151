//! Bytes to their final place, and their CRC-32C on the way.

mod crc;

pub use self::crc::Crc;

/// How bytes are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel;

impl Kernel {
    /// Copies `from` to `to`, which is as long.
    #[inline]
    pub fn copy(self, to: &mut [u8], from: &[u8]) {
        to.copy_from_slice(from);
    }

    /// The same, and goes on with a checksum.
    #[inline]
    pub fn copy_summed(self, to: &mut [u8], from: &[u8], crc: Crc) -> Crc {
        to.copy_from_slice(from);
        crc.with(from)
    }
}
