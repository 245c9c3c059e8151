//! One stream of frames over several senders.

use std::str::FromStr;

/// The part of a stream that one of several senders has: the frames of certain source MAC addresses, so that
/// each host's frames stay together and in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Which part, from 0.
    pub index: u32,
    /// Of how many.
    pub of: u32,
}

/// A split that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a split; write PART/PARTS with PART from 0, as in 0/2")]
pub struct BadSplit(String);

impl Split {
    /// All of the stream.
    pub const WHOLE: Split = Split { index: 0, of: 1 };

    /// Whether a frame belongs to this part.
    pub fn holds(&self, frame: &[u8]) -> bool {
        // FNV-1a (Fowler, Noll, Vo): short, and even over addresses that differ in their last byte.
        let source = frame.get(6..12).unwrap_or(frame);
        let hash = source
            .iter()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        // The high bits depend on every byte.
        (hash >> 32) % u64::from(self.of.max(1)) == u64::from(self.index)
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn splits_are_read() {
        assert_eq!("1/2".parse(), Ok(Split { index: 1, of: 2 }));
        for wrong in ["", "1", "2/2", "0/0", "-1/2", "a/b"] {
            assert!(wrong.parse::<Split>().is_err(), "{wrong}");
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
