//! Configuration of frames.

use crate::copy::Kernel;

/// Configuration of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Frame size in bytes.
    pub size: usize,
    /// Number of frames, allocated at once.
    pub frames: usize,
    /// Room in bytes kept beyond the edge of each stream, if enough frames are free: bounds the window.
    pub ahead: u64,
    /// Content of missing parts.
    pub missing: Missing,
    /// Bytes per bit of the bitmap.
    pub granule: usize,
    /// True to compute a CRC-32C of each frame.
    pub crc: bool,
    /// Copy kernel; see [`Frames::calibrate`](super::Frames::calibrate).
    pub kernel: Kernel,
}

/// Content of the missing parts of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// Zeros.
    #[default]
    Zeroed,
    /// Unspecified: bytes of earlier frames, or of packets that were not accepted.
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

/// Invalid configuration of frames, or memory that is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramesError {
    /// Frame size out of range.
    #[error("frame size {0}: out of range; expected 1 byte to 64 GiB")]
    Size(usize),
    /// Number of frames out of range.
    #[error("{0} frames of {1} bytes: out of range; expected at least 1 frame and at most 16 TiB in total")]
    Frames(usize, usize),
    /// Not enough memory.
    #[error("{0} frames of {1} bytes: not enough memory; use fewer or smaller frames")]
    Memory(usize, usize),
    /// Pieces do not match the configuration.
    #[error("external memory must be {0} pieces of {1} bytes")]
    Pieces(usize, usize),
    /// Granule of 0.
    #[error("bitmap granule of {0} bytes: must be at least 1")]
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
