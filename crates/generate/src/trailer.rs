//! The last 16 bytes of a frame's payload: which frame it is, and when it was sent.
//!
//! Two numbers in network byte order: stream (24 bits) and sequence (40 bits); time (the lower 40 bits of UTC
//! nanoseconds) and a check (24 bits) of the other three under a key.

/// Bytes of a trailer.
pub const LEN: usize = 16;
/// Bits of a time that a trailer has.
pub const TIME_BITS: u32 = 40;
/// Bits of a sequence number.
pub const SEQUENCE_BITS: u32 = 40;

/// What the checks of a run are computed under, so that trailers of other runs and other traffic are not taken for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub u64);

/// What a trailer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Which stream, 24 bits.
    pub stream: u32,
    /// Which frame of it, 40 bits.
    pub sequence: u64,
    /// When it was sent: UTC nanoseconds, 40 bits.
    pub time: u64,
}

impl Default for Key {
    fn default() -> Self {
        Key(0x6c69_6e65_7261_7465)
    }
}

impl Trailer {
    /// Its bytes; of numbers that are too large the lower bits.
    pub fn bytes(&self, key: &Key) -> [u8; LEN] {
        let name = u64::from(self.stream) << SEQUENCE_BITS | self.sequence & ((1 << SEQUENCE_BITS) - 1);
        let time = self.time & ((1 << TIME_BITS) - 1);
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&name.to_be_bytes());
        bytes[8..].copy_from_slice(&(time << 24 | check(name, time, key)).to_be_bytes());
        bytes
    }
}

/// The check of a name and a time: two rounds of the finalizer of MurmurHash3 (Appleby, 2011), of which the upper 24
/// bits are kept. Multiplication wraps.
pub fn check(name: u64, time: u64, key: &Key) -> u64 {
    let mut word = (name ^ key.0).wrapping_mul(0xff51_afd7_ed55_8ccd);
    word = (word ^ word >> 32 ^ time).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word = (word ^ word >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word >> 40
}
