//! Parses numbers and lengths; `None` if the input is too short.

/// Counts the work of the parsers, in bytes or fields examined. Tests compare it with the length of the input.
#[inline(always)]
pub(crate) fn count(_steps: usize) {
    #[cfg(test)]
    work::STEPS.set(work::STEPS.get() + _steps);
}

#[cfg(test)]
pub(crate) mod work {
    use std::cell::Cell;

    thread_local!(pub static STEPS: Cell<usize> = const { Cell::new(0) });

    /// Returns the number of steps that a function takes.
    pub(crate) fn of<T>(run: impl FnOnce() -> T) -> usize {
        STEPS.set(0);
        drop(run());
        STEPS.get()
    }
}

/// Remaining input.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        count(1);
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Reads a length of one byte, and content of that length.
    pub(crate) fn vector8(&mut self) -> Option<Cursor<'a>> {
        let length = self.u8()?;
        self.take(length.into()).map(Cursor)
    }

    /// Reads a length of two bytes, and content of that length.
    pub(crate) fn vector16(&mut self) -> Option<Cursor<'a>> {
        let length = self.u16()?;
        self.take(length.into()).map(Cursor)
    }

    /// Reads a QUIC integer: its first two bits give its length (RFC 9000, 16).
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let first = self.0.first()?;
        let bytes = self.take(1 << (first >> 6))?;
        Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)) & (u64::MAX >> (66 - 8 * bytes.len())))
    }

    /// Skips zero bytes.
    pub(crate) fn skip_zeros(&mut self) {
        let zeros = self.0.as_chunks::<16>().0.iter().take_while(|some| u128::from_ne_bytes(**some) == 0).count();
        let rest = &self.0[zeros * 16..];
        self.0 = &rest[rest.iter().take_while(|byte| **byte == 0).count()..];
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_runs_are_skipped() {
        for (zeros, length) in (0..70).flat_map(|zeros| [(zeros, zeros), (zeros, zeros + 1), (zeros, 75)]) {
            let mut bytes = vec![0; length];
            bytes[zeros.min(length)..].iter_mut().for_each(|byte| *byte = 7);
            let mut rest = Cursor(&bytes);
            rest.skip_zeros();
            assert_eq!(rest.0.len(), length - zeros, "{zeros} of {length}");
        }
    }

    /// RFC 9000, A.1.
    #[test]
    fn quic_varints_are_parsed() {
        for (bytes, number) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ] {
            assert_eq!(Cursor(bytes).varint(), Some(number));
            assert_eq!(Cursor(&bytes[..bytes.len() - 1]).varint(), None);
        }
    }
}
