//! The CRC-32C of frames: lines are folded where the processor multiplies without carries, else its instruction takes eight bytes at a
//! time, else tables do.
//!
//! Not a crate: where this was measured (Zen 4, bytes in a cache) `crc-fast` is as fast for long pieces and half as fast for 1448 bytes,
//! `crc32c` half as fast or less, and neither copies while it sums, which hides the sum behind the memory.

use linerate_wire::Crc32c;

/// A running CRC-32C.
#[derive(Clone, Copy, Debug)]
pub struct Crc(u32);

impl Crc {
    /// Of nothing.
    pub const NEW: Crc = Crc(u32::MAX);

    /// This checksum with `bytes` behind what it covers already.
    #[inline]
    pub fn with(self, bytes: &[u8]) -> Crc {
        #[cfg(target_arch = "x86_64")]
        if let Some(remainder) = super::x86::sum(self.0, bytes) {
            return Crc(remainder);
        }
        Crc(!Crc32c::behind(self.value()).with(bytes).value())
    }

    /// The same, and copies them, if both can be done in one pass.
    #[inline]
    pub(super) fn copying(self, to: &mut [u8], from: &[u8]) -> Option<Crc> {
        #[cfg(target_arch = "x86_64")]
        return super::x86::copy_summed(self.0, to, from).map(Crc);
        #[cfg(not(target_arch = "x86_64"))]
        return None::<Crc>.filter(|_| to.len() == from.len());
    }

    /// The checksum.
    pub fn value(self) -> u32 {
        !self.0
    }
}
