//! TCP options negotiated by the SYNs (RFC 7323, RFC 2018), and timestamps.

use super::template::Options;
use linerate_headers::options;
use linerate_headers::tcp_option::{Iter, TcpOption};

/// Negotiated options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NegotiatedOptions {
    /// Our window scale.
    pub shift: Option<u8>,
    pub sack: bool,
    pub stamps: bool,
    /// Maximum window that we can or want to announce.
    pub window: u64,
}

/// Parses the options of a SYN; a malformed option ends the list.
pub(super) fn offered(bytes: &[u8], shift: u8, window: u64) -> (NegotiatedOptions, u32) {
    let (mut agreed, mut stamp) = (NegotiatedOptions::default(), 0);
    for option in Iter::over(options::Iter::over(bytes)).map_while(Result::ok) {
        match option {
            TcpOption::WindowScale(_) => agreed.shift = Some(shift),
            TcpOption::SackPermitted => agreed.sack = true,
            TcpOption::Timestamps { value, .. } => (agreed.stamps, stamp) = (true, value),
            _ => {}
        }
    }
    (agreed.with_window(window), stamp)
}

/// Returns the timestamp of a segment.
#[inline]
pub(super) fn stamp(bytes: &[u8]) -> Option<u32> {
    match bytes {
        // The usual layout.
        [1, 1, 8, 10, a, b, c, d, _, _, _, _] => Some(u32::from_be_bytes([*a, *b, *c, *d])),
        [] => None,
        _ => Iter::over(options::Iter::over(bytes)).map_while(Result::ok).find_map(|option| match option {
            TcpOption::Timestamps { value, .. } => Some(value),
            _ => None,
        }),
    }
}

impl NegotiatedOptions {
    /// Encodes them in a cookie.
    pub(super) fn bits(&self) -> u32 {
        u32::from(self.shift.is_some()) | u32::from(self.sack) << 1 | u32::from(self.stamps) << 2
    }

    /// Decodes them.
    pub(super) fn from_bits(bits: u32, shift: u8, window: u64) -> Self {
        let shift = (bits & 1 != 0).then_some(shift);
        NegotiatedOptions { shift, sack: bits & 2 != 0, stamps: bits & 4 != 0, window: 0 }.with_window(window)
    }

    /// Returns the options of our SYN.
    pub(super) fn answer(&self, segment: u16, value: u32, echo: u32) -> Options {
        let mut options = Options::NONE;
        let [high, low] = segment.to_be_bytes();
        options.put(&[2, 4, high, low]);
        if self.sack {
            options.put(&[1, 1, 4, 2]);
        }
        if self.stamps {
            put_stamps(value, echo, &mut options);
        }
        if let Some(shift) = self.shift {
            options.put(&[1, 3, 3, shift]);
        }
        options
    }

    fn with_window(self, window: u64) -> Self {
        NegotiatedOptions { window: window.min(u64::from(u16::MAX) << self.shift.unwrap_or(0)), ..self }
    }
}

/// Appends timestamps in the usual layout.
pub(super) fn put_stamps(value: u32, echo: u32, options: &mut Options) {
    options.put(&[1, 1, 8, 10]);
    options.put(&value.to_be_bytes());
    options.put(&echo.to_be_bytes());
}
