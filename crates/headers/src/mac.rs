//! The 48-bit MAC address (IEEE 802, EUI-48).

use std::fmt;
use std::str::FromStr;

/// A MAC address, in network byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// The broadcast address.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);

    /// Returns whether it is a group address; true for broadcast.
    #[inline]
    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns whether it was assigned locally, not by the manufacturer.
    #[inline]
    pub fn is_local(self) -> bool {
        self.0[0] & 2 != 0
    }
}

impl fmt::Display for MacAddr {
    /// Six pairs of lower-case hexadecimal digits, with colons.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Error: the text is not a MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadMac;

impl fmt::Display for BadMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a MAC address; write six hexadecimal pairs, as in 02:00:00:00:00:01")
    }
}

impl std::error::Error for BadMac {}

impl FromStr for MacAddr {
    type Err = BadMac;

    /// Six pairs of hexadecimal digits with colons or hyphens between them.
    fn from_str(text: &str) -> Result<Self, BadMac> {
        let mut bytes = [0; 6];
        let mut pairs = text.split([':', '-']);
        for byte in &mut bytes {
            let pair = pairs.next().ok_or(BadMac)?;
            if pair.len() != 2 || !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(BadMac);
            }
            *byte = u8::from_str_radix(pair, 16).map_err(|_| BadMac)?;
        }
        if pairs.next().is_some() { Err(BadMac) } else { Ok(MacAddr(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_invalid_text_is_rejected() {
        let mac = MacAddr([0x02, 0, 0, 0xab, 0xcd, 0xef]);
        assert_eq!(mac.to_string(), "02:00:00:ab:cd:ef");
        assert_eq!("02-00-00-AB-CD-EF".parse(), Ok(mac));
        for bad in ["", "02:00:00:ab:cd", "02:00:00:ab:cd:ef:00", "2:0:0:ab:cd:ef", "+2:00:00:ab:cd:ef", "äö:00"] {
            assert_eq!(bad.parse::<MacAddr>(), Err(BadMac), "{bad}");
        }
        assert!(MacAddr::BROADCAST.is_multicast() && mac.is_local() && !mac.is_multicast());
    }
}
