//! Copies bytes to their final place, optionally with their CRC-32C.
//!
//! Memory larger than the caches that another thread or device reads later is best written with non-temporal stores: a
//! store through the cache first reads the line that it overwrites. The gain or loss depends on the processor and on
//! the length of the pieces, so it is measured at run time ([`calibrate`]). Only whole cache lines bypass the cache;
//! unaligned ends and short pieces are copied normally.

mod calibrate;
mod crc;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use self::calibrate::{KernelThroughput, calibrate};
pub use self::crc::Crc;

use std::fmt;

/// A copy kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel(Kind);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Plain,
    #[cfg(target_arch = "x86_64")]
    Set(x86::Set),
}

/// Shorter pieces are copied by the C library with all kernels.
const SHORT: usize = 256;

/// Chunk size where copying and checksumming are two passes: a chunk stays in the L1 cache.
const STEP: usize = 8192;

impl Kernel {
    /// `memcpy` of the C library.
    pub const PLAIN: Kernel = Kernel(Kind::Plain);

    /// Returns all kernels that the processor supports.
    pub fn all() -> impl Iterator<Item = Kernel> {
        #[cfg(target_arch = "x86_64")]
        let sets = [x86::Set::Repeat, x86::Set::Avx2, x86::Set::Avx512]
            .into_iter()
            .filter(|set| set.is_there())
            .map(|set| Kernel(Kind::Set(set)));
        #[cfg(not(target_arch = "x86_64"))]
        let sets = [];
        [Kernel::PLAIN].into_iter().chain(sets)
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Plain => "plain",
            #[cfg(target_arch = "x86_64")]
            Kind::Set(x86::Set::Repeat) => "rep-movsb",
            #[cfg(target_arch = "x86_64")]
            Kind::Set(x86::Set::Avx2) => "avx2-nt",
            #[cfg(target_arch = "x86_64")]
            Kind::Set(x86::Set::Avx512) => "avx512-nt",
        }
    }

    /// Returns the kernel of this name, if the processor supports it.
    pub fn named(name: &str) -> Option<Kernel> {
        Kernel::all().find(|kernel| kernel.name() == name)
    }

    /// Copies pieces to `to`, one after the other. Returns the number of bytes.
    ///
    /// # Panics
    /// If `to` is too short.
    pub fn copy_all<'a>(self, to: &mut [u8], pieces: impl IntoIterator<Item = &'a [u8]>) -> usize {
        let mut at = 0;
        for piece in pieces {
            self.copy(&mut to[at..at + piece.len()], piece);
            at += piece.len();
        }
        self.fence();
        at
    }

    /// Copies `from` to `to` of the same length. Other threads may read it only after the next
    /// [`fence`](Kernel::fence).
    #[inline]
    pub(crate) fn copy(self, to: &mut [u8], from: &[u8]) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Set(set) if from.len() >= SHORT => x86::copy(set, to, from),
            _ => to.copy_from_slice(from),
        }
    }

    /// Copies and updates a checksum.
    #[inline]
    pub(crate) fn copy_summed(self, to: &mut [u8], from: &[u8], crc: Crc) -> Crc {
        #[cfg(target_arch = "x86_64")]
        if self.0 == Kind::Set(x86::Set::Avx512)
            && from.len() >= SHORT
            && let Some(crc) = crc.copying(to, from)
        {
            return crc;
        }
        // Chunks end at cache lines of the destination.
        let first = (to.as_ptr().align_offset(64) + STEP).min(to.len());
        let (to_first, to_rest) = to.split_at_mut(first);
        let (from_first, from_rest) = from.split_at(first);
        let steps = [(to_first, from_first)].into_iter().chain(to_rest.chunks_mut(STEP).zip(from_rest.chunks(STEP)));
        steps.fold(crc, |crc, (to, from)| {
            let crc = crc.with(from);
            self.copy(to, from);
            crc
        })
    }

    /// Makes earlier copies visible to other threads before any later store.
    #[inline]
    pub(crate) fn fence(self) {
        #[cfg(target_arch = "x86_64")]
        if self.0 != Kind::Plain {
            x86::fence();
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests;
