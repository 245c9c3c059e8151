//! What counts of a TCP header, found once.

use linerate_wire::tcp_option::{self, TcpOption};
use linerate_wire::{options, tcp};

/// What counts of a TCP header but flags and length of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub sequence: u32,
    pub acknowledgement: u32,
    /// As it stands in the header.
    pub window: u16,
    /// Of the IPv4 packet around it; 0 where it has none.
    pub identification: u16,
    /// Of a SYN.
    pub options: Options,
}

/// The options that a record tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// 0 where there is none.
    pub mss: u16,
    /// At most 14 (RFC 7323, 2.3); [`Options::NO_SCALE`] where there is none.
    pub scale: u8,
    pub sack_permitted: bool,
    pub timestamps: bool,
}

impl Segment {
    pub const NONE: Segment =
        Segment { sequence: 0, acknowledgement: 0, window: 0, identification: 0, options: Options::NONE };

    /// Of a header, without its options.
    #[inline(always)]
    pub fn of(head: &[u8; tcp::LEN], identification: u16) -> Segment {
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        Segment {
            sequence: word(4),
            acknowledgement: word(8),
            window: u16::from_be_bytes([head[14], head[15]]),
            identification,
            options: Options::NONE,
        }
    }
}

impl Options {
    /// No scale.
    pub const NO_SCALE: u8 = 15;
    pub const NONE: Options = Options { mss: 0, scale: Options::NO_SCALE, sack_permitted: false, timestamps: false };
    const MOST_SCALE: u8 = 14;

    /// Of a segment whose first 20 bytes are there, as far as its options are.
    #[inline(never)]
    pub fn read(segment: &[u8]) -> Options {
        let mut found = Options::NONE;
        let header = segment.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4);
        let Some(bytes) = segment.get(tcp::LEN..header.min(segment.len())) else { return found };
        for option in tcp_option::Iter::over(options::Iter::over(bytes)).map_while(Result::ok) {
            match option {
                TcpOption::MaximumSegmentSize(mss) => found.mss = mss,
                TcpOption::WindowScale(scale) => found.scale = scale.min(Options::MOST_SCALE),
                TcpOption::SackPermitted => found.sack_permitted = true,
                TcpOption::Timestamps { .. } => found.timestamps = true,
                TcpOption::Sack(_) | TcpOption::Unknown { .. } => {}
            }
        }
        found
    }
}
