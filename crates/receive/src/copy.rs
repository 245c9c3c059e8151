//! Bytes to their final place, and their CRC-32C on the way.
//!
//! Memory that is larger than the caches, and read later by somebody else, is best written past them: a store through the cache first
//! reads the line that it overwrites. How much that gains, or loses, depends on the processor and on how long the pieces are, so it is
//! measured where it runs ([`calibrate`]). Only whole lines go past the cache; the ends of a piece, and short pieces, go the usual way.

mod calibrate;
mod crc;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use self::calibrate::{Measured, calibrate};
pub use self::crc::Crc;

use std::fmt;

/// How bytes are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel(Kind);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Plain,
    #[cfg(target_arch = "x86_64")]
    Set(x86::Set),
}

/// Shorter pieces are copied in the usual way by all of them.
const SHORT: usize = 256;

/// Where copying and summing are two passes, so many bytes at a time: they stay in the nearest cache.
const STEP: usize = 8192;

impl Kernel {
    /// As any program does, by the C library.
    pub const PLAIN: Kernel = Kernel(Kind::Plain);

    /// All that the processor can run.
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

    /// Its name.
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

    /// The one of this name, if the processor can run it.
    pub fn named(name: &str) -> Option<Kernel> {
        Kernel::all().find(|kernel| kernel.name() == name)
    }

    /// Copies pieces to `to`, one behind the other, and says how many bytes that were.
    ///
    /// # Panics
    /// If there is no room for them.
    pub fn copy_all<'a>(self, to: &mut [u8], pieces: impl IntoIterator<Item = &'a [u8]>) -> usize {
        let mut at = 0;
        for piece in pieces {
            self.copy(&mut to[at..at + piece.len()], piece);
            at += piece.len();
        }
        self.fence();
        at
    }

    /// Copies `from` to `to`, which is as long. Other threads may see it after the next [`fence`](Kernel::fence) alone.
    #[inline]
    pub(crate) fn copy(self, to: &mut [u8], from: &[u8]) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Set(set) if from.len() >= SHORT => x86::copy(set, to, from),
            _ => to.copy_from_slice(from),
        }
    }

    /// The same, and goes on with a checksum.
    #[inline]
    pub(crate) fn copy_summed(self, to: &mut [u8], from: &[u8], crc: Crc) -> Crc {
        #[cfg(target_arch = "x86_64")]
        if self.0 == Kind::Set(x86::Set::Avx512)
            && from.len() >= SHORT
            && let Some(crc) = crc.copying(to, from)
        {
            return crc;
        }
        // Steps end where lines of the place end.
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

    /// What was copied is seen by whoever gets to know of it from here on.
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
