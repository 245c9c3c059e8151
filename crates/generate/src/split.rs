//! One stream of frames over several senders.

use std::str::FromStr;

/// The share of a stream that one of several senders has: the frames of certain source MAC addresses, so that each
/// host's frames stay together and in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Index of the part, from 0.
    pub index: u32,
    /// Number of parts.
    pub of: u32,
}

/// Invalid split.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid split {0:?}; expected PART/PARTS with PART from 0, such as 0/2")]
pub struct BadSplit(String);

impl Split {
    /// The whole stream.
    pub const WHOLE: Split = Split { index: 0, of: 1 };

    /// Returns whether a frame belongs to this part.
    pub fn holds(&self, frame: &[u8]) -> bool {
        let source = frame.get(6..12).unwrap_or(&frame[..frame.len().min(8)]);
        let word = source.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
        mix(word) % u64::from(self.of.max(1)) == u64::from(self.index)
    }
}

impl FromStr for Split {
    type Err = BadSplit;

    fn from_str(text: &str) -> Result<Self, BadSplit> {
        let parts = text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        match parts {
            Some((index, of)) if index < of => Ok(Split { index, of }),
            _ => Err(BadSplit(text.to_owned())),
        }
    }
}

/// Finalizer of MurmurHash3 (Appleby, 2011): spreads addresses that differ in one bit.
fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    word = (word ^ word >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ word >> 33
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn splits_are_parsed() {
        assert_eq!("1/2".parse(), Ok(Split { index: 1, of: 2 }));
        for wrong in ["", "1", "2/2", "0/0", "-1/2", "a/b"] {
            assert!(wrong.parse::<Split>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_in_a_row_are_spread_over_the_parts() {
        for of in 2..5 {
            for index in 0..of {
                let holds = |host| Split { index, of }.holds(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, host, 8, 0]);
                let held = (0..60).filter(|host| holds(*host)).count() as u32;
                assert!(held > 60 / of / 3, "part {index} of {of} has {held} of 60 addresses");
            }
        }
    }

    proptest! {
        #[test]
        fn every_frame_belongs_to_one_part(frame in proptest::collection::vec(any::<u8>(), 0..80), of in 1u32..9) {
            let holders = (0..of).filter(|index| Split { index: *index, of }.holds(&frame)).count();
            prop_assert_eq!(holders, 1);
        }
    }
}
