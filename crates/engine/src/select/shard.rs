//! One of n parts of the traffic, whole flows each.

use linerate_headers::{Link, flow};
use std::fmt;
use std::str::FromStr;

/// One of several equal parts of the traffic, as text `2/8`. Both directions of a flow are in one shard, as are all
/// fragments of a packet ([`linerate_headers::flow`]); frames that belong to no flow are in the first shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Index of the shard, from 1.
    index: u32,
    /// Number of shards.
    of: u32,
    /// True if tunnelled packets are assigned by their inner addresses and ports, instead of those of the tunnel.
    inner: bool,
}

/// Error in the text of a shard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardError {
    /// Not two numbers separated by a slash.
    #[error("invalid shard {0:?}; expected INDEX/COUNT, such as 1/4 for the first of four")]
    Form(String),
    /// Index 0, or above the count.
    #[error("invalid shard {index}/{of}; expected an index from 1 to {of}")]
    Index {
        /// Requested index.
        index: u32,
        /// Number of shards.
        of: u32,
    },
    /// Count of 0, or above [`Shard::MOST`].
    #[error("invalid shard count {0}; expected 1 to {most}", most = Shard::MOST)]
    Count(u32),
}

impl Shard {
    /// Maximum number of shards.
    pub const MOST: u32 = 4096;

    /// Creates shard `index`, from 1, of `of` shards.
    pub fn new(index: u32, of: u32) -> Result<Self, ShardError> {
        match (index, of) {
            (_, of) if of == 0 || of > Shard::MOST => Err(ShardError::Count(of)),
            (index, of) if index == 0 || index > of => Err(ShardError::Index { index, of }),
            (index, of) => Ok(Shard { index, of, inner: false }),
        }
    }

    /// Returns the same shard, with tunnelled packets assigned by their inner addresses and ports:
    /// [`flow::locate_inner`].
    pub fn by_inner_packet(self) -> Self {
        Shard { inner: true, ..self }
    }

    /// Returns the index of the shard, from 1.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns the number of shards.
    pub fn of(&self) -> u32 {
        self.of
    }

    /// Returns the index of the shard that a frame is in, from 1.
    #[inline]
    pub fn part_of(&self, link: Option<Link>, frame: &[u8]) -> u32 {
        let hash = match link {
            Some(link) if self.inner => flow::locate_inner(link, frame).hash,
            Some(link) => flow::locate(link, frame).hash,
            None => 0,
        };
        flow::shard(hash, self.of) + 1
    }
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Self, ShardError> {
        let numbers = text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        let (index, of) = numbers.ok_or_else(|| ShardError::Form(text.to_owned()))?;
        Shard::new(index, of)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

/// Returns the imbalance of shards by their frames: maximum over mean; 1 without frames.
pub fn imbalance(frames: &[u64]) -> f64 {
    let most = frames.iter().copied().max().unwrap_or_default();
    let all: u64 = frames.iter().sum();
    if all == 0 { 1.0 } else { most as f64 * frames.len() as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for text in ["1/1", "1/8", "8/8", "4096/4096"] {
            assert_eq!(text.parse::<Shard>().unwrap().to_string(), text);
        }
        for (text, expected) in [
            ("", "INDEX/COUNT"),
            ("3", "INDEX/COUNT"),
            ("1/2/3", "INDEX/COUNT"),
            ("a/2", "INDEX/COUNT"),
            ("-1/2", "INDEX/COUNT"),
            ("0/8", "from 1 to 8"),
            ("9/8", "invalid shard 9/8"),
            ("1/0", "1 to 4096"),
            ("1/4097", "1 to 4096"),
        ] {
            let error = text.parse::<Shard>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn imbalance_is_the_most_over_the_mean() {
        assert_eq!(imbalance(&[]), 1.0);
        assert_eq!(imbalance(&[0, 0]), 1.0);
        assert_eq!(imbalance(&[5, 5]), 1.0);
        assert_eq!(imbalance(&[1, 0, 2]), 2.0);
    }
}
