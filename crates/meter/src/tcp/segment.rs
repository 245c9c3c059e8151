//! TCP header fields that are analysed, extracted once.

use linerate_headers::tcp_option::{self, TcpOption};
use linerate_headers::{options, tcp};

/// TCP header fields that are analysed, except flags and length of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub sequence: u32,
    pub acknowledgement: u32,
    /// Unscaled, as in the header.
    pub window: u16,
    /// Identification of the IPv4 packet; 0 for IPv6.
    pub identification: u16,
    /// Options of a SYN.
    pub options: Options,
}

/// Options that a record reports, in one word: the maximum segment size, 0 if absent, the window scale, and two bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options(u32);

impl Segment {
    pub(crate) const NONE: Segment =
        Segment { sequence: 0, acknowledgement: 0, window: 0, identification: 0, options: Options::NONE };

    /// Reads a header, without its options.
    #[inline(always)]
    pub(crate) fn of(head: &[u8; tcp::LEN], identification: u16) -> Segment {
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
    pub(crate) const NO_SCALE: u8 = 15;
    pub(crate) const NONE: Options = Options((Options::NO_SCALE as u32) << SCALE);
    /// Maximum window scale (RFC 7323, 2.3).
    const MOST_SCALE: u8 = 14;

    /// Reads the captured options of a segment whose first 20 bytes were captured.
    pub(crate) fn read(segment: &[u8]) -> Options {
        let header = segment.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4);
        let Some(bytes) = segment.get(tcp::LEN..header.min(segment.len())) else { return Options::NONE };
        let (mut size, mut shift, mut bits) = (0, Options::NO_SCALE, 0);
        for option in tcp_option::Iter::over(options::Iter::over(bytes)).map_while(Result::ok) {
            match option {
                TcpOption::MaximumSegmentSize(mss) => size = mss,
                TcpOption::WindowScale(scale) => shift = scale.min(Options::MOST_SCALE),
                TcpOption::SackPermitted => bits |= SACK,
                TcpOption::Timestamps { .. } => bits |= TIMESTAMPS,
                TcpOption::Sack(_) | TcpOption::Unknown { .. } => {}
            }
        }
        Options(u32::from(size) | u32::from(shift) << SCALE | bits)
    }

    pub(crate) fn mss(self) -> u16 {
        self.0 as u16
    }

    /// Returns the window scale: at most 14, or [`Options::NO_SCALE`].
    pub(crate) fn scale(self) -> u8 {
        (self.0 >> SCALE) as u8
    }

    pub(crate) fn is_sack_permitted(self) -> bool {
        self.0 & SACK != 0
    }

    pub(crate) fn has_timestamps(self) -> bool {
        self.0 & TIMESTAMPS != 0
    }
}

const SCALE: u32 = 16;
const SACK: u32 = 1 << 24;
const TIMESTAMPS: u32 = 1 << 25;
