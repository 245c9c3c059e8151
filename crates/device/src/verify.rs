//! What frames on a device have to be, as far as the host knows.

use crate::form::Form;
use linerate_receive::copy::Crc;
use linerate_receive::frames::{Frame, Missing};
use linerate_receive::pattern::{Mismatch, Pattern};
use std::ops::Range;

/// What is to lie on the device.
pub(crate) struct Wanted {
    pub form: Form,
    pub missing: Missing,
}

/// Bytes that are made at a time: of whole samples.
const STEP: usize = 256 << 10;

impl Wanted {
    /// The CRC-32C of a frame, by the pattern of its stream or by its bytes on the host; none where nobody can know it.
    pub(crate) fn crc32c(&self, frame: &Frame, pattern: Option<&Pattern>) -> Option<u32> {
        match pattern {
            Some(_) if self.missing == Missing::Left && !frame.is_complete() => None,
            Some(pattern) => Some(self.of_pattern(frame, pattern)),
            None if self.form == Form::Raw => frame.meta.crc32c,
            None => None,
        }
    }

    fn of_pattern(&self, frame: &Frame, pattern: &Pattern) -> u32 {
        let (len, mut crc, mut bytes) = (frame.meta.len, Crc::NEW, vec![0; STEP]);
        for start in (0..len).step_by(STEP) {
            let end = len.min(start + STEP);
            let made = &mut bytes[..end - start];
            pattern.fill(frame.meta.offset + start as u64, made);
            frame.missing().iter().for_each(|gap| made[within(gap, start, end)].fill(0));
            crc = match self.form {
                Form::Raw => crc.with(made),
                form => crc.with(&form.convert(made)),
            };
        }
        crc.value()
    }
}

/// The part of a range that is in `start..end`, counted from `start`.
fn within(range: &Range<u64>, start: usize, end: usize) -> Range<usize> {
    let clamp = |at: u64| (at as usize).clamp(start, end) - start;
    clamp(range.start)..clamp(range.end)
}

/// Whether bytes that came are of this pattern.
pub(crate) fn is_right(frame: &Frame, bytes: &[u8], pattern: &Pattern) -> Result<(), Mismatch> {
    frame.there().try_for_each(|there| {
        pattern.check(frame.meta.offset + there.start, &bytes[there.start as usize..there.end as usize])
    })
}
