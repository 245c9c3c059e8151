//! Blocks of addresses and of ports, and their mapping to other blocks.

use std::net::IpAddr;
use std::str::FromStr;

/// Address block: `10.0.0.0/8`, or one address. IPv4 addresses are numbers of 32 bits, IPv6 addresses of 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    bits: u128,
    /// Number of bits of an address, and of its fixed prefix.
    width: u32,
    length: u32,
}

impl Prefix {
    /// Returns whether both hold addresses of one family.
    pub fn is_like(&self, other: &Prefix) -> bool {
        self.width == other.width
    }

    /// Returns whether an address, in network byte order, belongs to the block.
    pub fn holds(&self, address: &[u8]) -> bool {
        address.len() * 8 == self.width as usize && (number(address) ^ self.bits) & !self.host_mask() == 0
    }

    /// Maps an address of the block `from` into this block: it keeps the bits that are free in both.
    pub fn place(&self, from: &Prefix, address: u128) -> u128 {
        self.bits | address & self.host_mask() & from.host_mask()
    }

    /// Returns the mask of the bits in which addresses of the block differ.
    fn host_mask(&self) -> u128 {
        low_bits(self.width - self.length)
    }
}

/// Returns a number with the lowest `bits` bits set.
pub(super) fn low_bits(bits: u32) -> u128 {
    1u128.checked_shl(bits).map_or(u128::MAX, |top| top - 1)
}

/// Converts an address in network byte order to a number.
pub(super) fn number(address: &[u8]) -> u128 {
    address.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

impl FromStr for Prefix {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length.parse::<u32>().map_err(|_| ())?)),
            None => (text, None),
        };
        let (bits, width) = match address.parse().map_err(|_| ())? {
            IpAddr::V4(address) => (u32::from(address).into(), 32),
            IpAddr::V6(address) => (u128::from(address), 128),
        };
        let length = length.unwrap_or(width);
        if length > width {
            return Err(());
        }
        Ok(Prefix { bits: bits & !low_bits(width - length), width, length })
    }
}

/// Port range: `80`, or `8000-8999`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// Returns the number of ports, less one.
    pub fn span(&self) -> u16 {
        self.last - self.first
    }

    /// Maps a port of the range `from` into this range: with the same distance from the first, or to the only one.
    pub fn place(&self, from: &Ports, port: u16) -> Option<u16> {
        let is_there = (from.first..=from.last).contains(&port);
        is_there.then(|| self.first + (port - from.first).min(self.span()))
    }
}

impl FromStr for Ports {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let ports = Ports { first: first.parse().map_err(|_| ())?, last: last.parse().map_err(|_| ())? };
        if ports.first <= ports.last { Ok(ports) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn moved(from: &str, to: &str, address: &str) -> String {
        let (from, to): (Prefix, Prefix) = (from.parse().unwrap(), to.parse().unwrap());
        let address: Ipv4Addr = address.parse().unwrap();
        Ipv4Addr::from(to.place(&from, u32::from(address).into()) as u32).to_string()
    }

    #[test]
    fn blocks_are_moved_onto_blocks_of_any_size() {
        assert_eq!(moved("10.0.0.0/8", "172.0.0.0/8", "10.1.2.3"), "172.1.2.3");
        assert_eq!(moved("10.0.0.0/8", "192.168.0.0/16", "10.1.2.3"), "192.168.2.3");
        assert_eq!(moved("10.1.0.0/16", "172.0.0.0/8", "10.1.2.3"), "172.0.2.3");
        assert_eq!(moved("10.1.2.3", "10.9.9.9", "10.1.2.3"), "10.9.9.9");
        assert_eq!(moved("0.0.0.0/0", "10.0.0.0/8", "99.1.2.3"), "10.1.2.3");
    }

    #[test]
    fn blocks_contain_addresses_with_their_prefix() {
        let block: Prefix = "10.128.0.0/9".parse().unwrap();
        assert!(block.holds(&[10, 128, 0, 0]) && block.holds(&[10, 255, 255, 255]));
        assert!(!block.holds(&[10, 127, 255, 255]) && !block.holds(&[10, 128]));
        assert!("::/0".parse::<Prefix>().unwrap().holds(&[0xff; 16]));
        for wrong in ["", "10", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1", "a/8"] {
            assert!(wrong.parse::<Prefix>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn ports_keep_their_distance() {
        let (from, to): (Ports, Ports) = ("1000-1999".parse().unwrap(), "60000-60999".parse().unwrap());
        assert_eq!((to.place(&from, 1000), to.place(&from, 1999)), (Some(60_000), Some(60_999)));
        assert_eq!((to.place(&from, 999), to.place(&from, 2000)), (None, None));
        assert_eq!(Ports { first: 80, last: 80 }.place(&from, 1500), Some(80));
        for wrong in ["", "-", "2-1", "65536", "1-65536", "x"] {
            assert!(wrong.parse::<Ports>().is_err(), "{wrong}");
        }
    }
}
