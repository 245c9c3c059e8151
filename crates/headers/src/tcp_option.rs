//! TCP options: maximum segment size (RFC 9293), window scale and timestamps (RFC 7323), selective
//! acknowledgement (RFC 2018).

use crate::options::{self, Options};
use crate::{Flaw, Malformed, Protocol};

const MAXIMUM_SEGMENT_SIZE: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// Maximum segment size of the sender, in bytes of payload.
    MaximumSegmentSize(u16),
    /// Shift of the sender's window.
    WindowScale(u8),
    /// The sender supports selective acknowledgement.
    SackPermitted,
    /// Blocks received above the acknowledgement number.
    Sack(SackBlocks<'a>),
    /// Timestamps.
    Timestamps {
        /// The sender's clock.
        value: u32,
        /// The latest timestamp of the other side.
        echo: u32,
    },
    /// Any other kind.
    Unknown {
        /// Its kind; never 0 or 1, which have no length.
        kind: u8,
        /// Data after kind and length.
        data: &'a [u8],
    },
}

/// The blocks of a selective acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SackBlocks<'a>(&'a [[u8; 8]]);

impl<'a> SackBlocks<'a> {
    /// Creates it from blocks as in the option: first sequence number, then the one after the last.
    pub fn new(blocks: &'a [[u8; 8]]) -> Self {
        SackBlocks(blocks)
    }

    /// Returns each block: its first sequence number, and the one after its last.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, u32)> + use<'a> {
        self.0
            .iter()
            .map(|&[a, b, c, d, e, f, g, h]| (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])))
    }
}

/// Iterates over the options of a segment; a wrong length is the last item.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    raw: options::Iter<'a>,
    failed: bool,
}

impl<'a> Iter<'a> {
    /// Iterates over kinds and data.
    #[inline]
    pub fn over(raw: options::Iter<'a>) -> Self {
        Iter { raw, failed: false }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Result<TcpOption<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let option = self.raw.next()?.ok().and_then(|(kind, data)| decode(kind, data));
        self.failed = option.is_none();
        Some(option.ok_or(Malformed { protocol: Protocol::Tcp, flaw: Flaw::OptionLength }))
    }
}

/// Decodes an option by its kind; `None` if the length does not match the kind.
fn decode(kind: u8, data: &[u8]) -> Option<TcpOption<'_>> {
    Some(match (kind, data) {
        (MAXIMUM_SEGMENT_SIZE, &[high, low]) => TcpOption::MaximumSegmentSize(u16::from_be_bytes([high, low])),
        (WINDOW_SCALE, &[shift]) => TcpOption::WindowScale(shift),
        (SACK_PERMITTED, []) => TcpOption::SackPermitted,
        (SACK, blocks) => match blocks.as_chunks() {
            (blocks @ [_, ..], []) => TcpOption::Sack(SackBlocks(blocks)),
            _ => return None,
        },
        (TIMESTAMPS, &[a, b, c, d, e, f, g, h]) => {
            TcpOption::Timestamps { value: u32::from_be_bytes([a, b, c, d]), echo: u32::from_be_bytes([e, f, g, h]) }
        }
        (MAXIMUM_SEGMENT_SIZE | WINDOW_SCALE | SACK_PERMITTED | TIMESTAMPS, _) => return None,
        (kind, data) => TcpOption::Unknown { kind, data },
    })
}

/// Encodes options for a header, in this order, without padding between them; `None` if they take more than 40 bytes,
/// or for an unknown option of kind 0 or 1.
///
/// ```
/// use linerate_headers::tcp_option::{TcpOption, encode};
/// let options = encode(&[TcpOption::MaximumSegmentSize(1460), TcpOption::SackPermitted]).unwrap();
/// assert_eq!(options.as_bytes(), [2, 4, 0x05, 0xb4, 4, 2, 0, 0]);
/// ```
pub fn encode(list: &[TcpOption<'_>]) -> Option<Options> {
    let mut bytes = [0; options::MAX];
    let mut used = 0;
    let mut put = |kind: u8, parts: [&[u8]; 2]| {
        let length = 2 + parts[0].len() + parts[1].len();
        let option = bytes.get_mut(used..used + length)?;
        option[..2].copy_from_slice(&[kind, length as u8]);
        let (first, second) = option[2..].split_at_mut(parts[0].len());
        first.copy_from_slice(parts[0]);
        second.copy_from_slice(parts[1]);
        used += length;
        Some(())
    };
    for option in list {
        match *option {
            TcpOption::MaximumSegmentSize(size) => put(MAXIMUM_SEGMENT_SIZE, [&size.to_be_bytes(), &[]])?,
            TcpOption::WindowScale(shift) => put(WINDOW_SCALE, [&[shift], &[]])?,
            TcpOption::SackPermitted => put(SACK_PERMITTED, [&[], &[]])?,
            TcpOption::Sack(SackBlocks(blocks)) => put(SACK, [blocks.as_flattened(), &[]])?,
            TcpOption::Timestamps { value, echo } => put(TIMESTAMPS, [&value.to_be_bytes(), &echo.to_be_bytes()])?,
            TcpOption::Unknown { kind: 0 | 1, .. } => return None,
            TcpOption::Unknown { kind, data } => put(kind, [data, &[]])?,
        }
    }
    Options::new(&bytes[..used])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_a_linux_syn() {
        let bytes = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 1, 2, 0, 0, 0, 0, 1, 3, 3, 7];
        let options: Vec<_> = Iter::over(options::Iter::over(&bytes)).map(Result::unwrap).collect();
        let expected = [
            TcpOption::MaximumSegmentSize(1460),
            TcpOption::SackPermitted,
            TcpOption::Timestamps { value: 258, echo: 0 },
            TcpOption::WindowScale(7),
        ];
        assert_eq!(options, expected);
        let encoded = encode(&expected).unwrap();
        assert!(Iter::over(encoded.iter()).map(Result::unwrap).eq(expected));
    }

    #[test]
    fn sack_blocks_and_unknown_options() {
        let blocks = [[0, 0, 0, 1, 0, 0, 0, 2], [0, 0, 0, 5, 0, 0, 0, 9]];
        let list = [TcpOption::Unknown { kind: 254, data: &[1] }, TcpOption::Sack(SackBlocks::new(&blocks))];
        let encoded = encode(&list).unwrap();
        assert!(Iter::over(encoded.iter()).map(Result::unwrap).eq(list));
        assert_eq!(SackBlocks::new(&blocks).iter().collect::<Vec<_>>(), [(1, 2), (5, 9)]);
    }

    #[test]
    fn wrong_lengths_end_the_list() {
        for bad in [&[2, 3, 1][..], &[3, 2], &[4, 3, 0], &[5, 2], &[5, 9, 1, 2, 3, 4, 5, 6, 7], &[8, 4, 0, 0], &[7, 9]]
        {
            let bytes = [bad, &[4, 2]].concat();
            let mut iter = Iter::over(options::Iter::over(&bytes));
            assert_eq!(iter.next().unwrap().unwrap_err().flaw, Flaw::OptionLength, "{bad:?}");
            assert_eq!(iter.next(), None);
        }
    }

    #[test]
    fn oversized_options_are_rejected() {
        assert!(encode(&[TcpOption::Unknown { kind: 1, data: &[] }]).is_none());
        assert!(encode(&[TcpOption::Unknown { kind: 9, data: &[0; 38] }]).is_some());
        assert!(encode(&[TcpOption::Unknown { kind: 9, data: &[0; 39] }]).is_none());
    }
}
