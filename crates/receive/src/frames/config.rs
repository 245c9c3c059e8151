//! How frames are to be.

use crate::copy::Kernel;

/// How frames are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of a frame.
    pub size: usize,
    /// How many there are, taken from the system at once.
    pub frames: usize,
    /// So much room is kept behind the edge of each stream, if there are frames enough: no sender has more on its way.
    pub ahead: u64,
    /// What is where bytes are missing.
    pub missing: Missing,
    /// Bytes to a bit of the bitmap.
    pub granule: usize,
    /// Whether there is a CRC-32C of each frame.
    pub crc: bool,
    /// How bytes are copied; see [`Frames::calibrate`](super::Frames::calibrate).
    pub kernel: Kernel,
}

/// What is where bytes are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// Zeros.
    #[default]
    Zeroed,
    /// Whatever was there before: bytes of other frames, and of packets that were not taken.
    Left,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            size: 64 << 20,
            frames: 8,
            ahead: 32 << 20,
            missing: Missing::Zeroed,
            granule: 4096,
            crc: true,
            kernel: Kernel::default(),
        }
    }
}

/// Why there can be no such frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramesError {
    /// No bytes, or more than a mapping has.
    #[error("frames of {0} bytes: give a size from 1 byte to 64 GiB")]
    Size(usize),
    /// None.
    #[error("a pool of {0} frames of {1} bytes: give at least one, and at most 16 TiB in all")]
    Frames(usize, usize),
    /// More than there is.
    #[error("{0} frames of {1} bytes are more memory than there is: ask for fewer, or for smaller ones")]
    Memory(usize, usize),
    /// Pieces of memory that do not fit.
    #[error("the memory given is not {0} pieces of {1} bytes")]
    Pieces(usize, usize),
    /// No bytes to a bit.
    #[error("a bit of the bitmap for {0} bytes: give at least 1")]
    Granule(usize),
}

impl Config {
    pub(super) fn check(&self) -> Result<(), FramesError> {
        if !(1..=64 << 30).contains(&self.size) {
            return Err(FramesError::Size(self.size));
        }
        if self.frames == 0 || self.size.checked_mul(self.frames).is_none_or(|bytes| bytes > 16 << 40) {
            return Err(FramesError::Frames(self.frames, self.size));
        }
        if self.granule == 0 {
            return Err(FramesError::Granule(self.granule));
        }
        Ok(())
    }
}
