//! Verification of frames on a device, as far as the host knows their contents.

use crate::form::Form;
use linerate_transport::copy::Crc;
use linerate_transport::frames::{Frame, Missing};
use linerate_transport::pattern::{Mismatch, Pattern};
use std::ops::Range;

/// Expected contents of the device.
pub(crate) struct ExpectedBytes {
    pub form: Form,
    pub missing: Missing,
}

/// Bytes generated at a time: whole samples.
const STEP: usize = 256 << 10;

impl ExpectedBytes {
    /// Returns the expected CRC-32C of a frame, from the pattern of its stream or from its bytes on the host; `None` if
    /// it is unknown.
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

/// Returns the part of a range in `start..end`, relative to `start`.
fn within(range: &Range<u64>, start: usize, end: usize) -> Range<usize> {
    let clamp = |at: u64| (at as usize).clamp(start, end) - start;
    clamp(range.start)..clamp(range.end)
}

/// Checks the received bytes against the pattern.
pub(crate) fn is_right(frame: &Frame, bytes: &[u8], pattern: &Pattern) -> Result<(), Mismatch> {
    frame.there().try_for_each(|there| {
        pattern.check(frame.meta.offset + there.start, &bytes[there.start as usize..there.end as usize])
    })
}
