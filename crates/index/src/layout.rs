//! How an index lies in its file: told in `docs/index-format.md`. All numbers are little-endian.

/// The first bytes of an index.
pub const MAGIC: [u8; 8] = *b"lr-index";
/// Of this layout.
pub const VERSION: u32 = 1;
/// Bytes of the header of the file.
pub const HEADER: usize = 32;
/// The first bytes of an entry.
pub const ENTRY_MAGIC: u32 = u32::from_le_bytes(*b"part");
/// Bytes of an entry in front of its sets.
pub const ENTRY_HEADER: usize = 64;
/// Bytes of a set in front of its values.
pub const SET_HEADER: usize = 8;
/// Bytes of the checksum at the end of header and entry.
pub const CHECKSUM: usize = 8;
/// The longest entry there is; those written have less than 22,000 bytes.
pub const LONGEST_ENTRY: usize = 64 << 10;

/// Bytes of a capture file that an entry is about, at least.
pub const PART_BYTES: u64 = 1 << 20;
/// The most bytes that addresses of an entry take: as many as a filter of them.
pub const ADDRESS_BYTES: usize = 11 << 10;
/// The most bytes that ports take: one bit each.
pub const PORT_BYTES: usize = 8 << 10;
/// VLAN ids that are listed; more are a bit each.
pub const LISTED_VLANS: usize = 256;
/// EtherTypes that are listed; more may be any.
pub const LISTED_ETHERTYPES: usize = 64;
/// Link types that are listed; more may be any.
pub const LISTED_LINKS: usize = 16;

/// Bytes in front of an entry's frames that whoever reads other parts of the file needs: headers, interfaces, names.
pub const DESCRIBED: u32 = 1;
/// The 8 bytes of the first record where its time lies are in the entry.
pub const MARKED: u32 = 2;
/// There is nothing behind it: the capture was ended as it should be.
pub const LAST: u32 = 4;

/// Which values a set has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Link types of interfaces (`LINKTYPE_*`).
    Links = 1,
    /// EtherTypes, of each VLAN level.
    EtherTypes = 2,
    /// VLAN ids.
    Vlans = 3,
    /// IPv4 protocols and IPv6 next headers.
    Protocols = 4,
    /// Ports of TCP, UDP and SCTP, both sides.
    Ports = 5,
    /// Addresses of IPv4, and those that ARP and RARP ask about.
    Ipv4 = 6,
    /// Addresses of IPv6.
    Ipv6 = 7,
    /// Addresses of either.
    Addresses = 8,
}

/// How the values of a set lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Form {
    /// One after the other, in any order.
    List = 0,
    /// A bit for each value there is.
    Bits = 1,
    /// A blocked Bloom filter.
    Bloom = 2,
}

impl Kind {
    /// Of its number.
    pub fn of(number: u8) -> Option<Kind> {
        use Kind::{Addresses, EtherTypes, Ipv4, Ipv6, Links, Ports, Protocols, Vlans};
        [Links, EtherTypes, Vlans, Protocols, Ports, Ipv4, Ipv6, Addresses]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }

    /// Bytes of a value.
    pub fn width(self) -> usize {
        match self {
            Kind::Protocols => 1,
            Kind::Ipv4 => 4,
            Kind::Ipv6 | Kind::Addresses => 16,
            _ => 2,
        }
    }
}

impl Form {
    /// Of its number.
    pub fn of(number: u8) -> Option<Form> {
        [Form::List, Form::Bits, Form::Bloom].into_iter().find(|form| *form as u8 == number)
    }
}

/// Finds bytes that were not written as they are: torn ends, bad disks. It keeps nobody out.
pub fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = 0x6c72_2d69_6e64_6578;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        sum = step(sum, u64_at(word, 0));
    }
    let mut rest = [0; 8];
    rest[..words.remainder().len()].copy_from_slice(words.remainder());
    step(sum, u64::from_le_bytes(rest) ^ bytes.len() as u64)
}

fn step(sum: u64, word: u64) -> u64 {
    let mixed = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

/// The header of an index.
pub fn header() -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&(HEADER as u32).to_le_bytes());
    let sum = checksum(&header[..HEADER - CHECKSUM]);
    header[HEADER - CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// Two bytes; 0 beyond the end, which callers have checked.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u16::from_le_bytes(*word))
}

/// Four bytes, as [`u16_at`].
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
}

/// Eight bytes, as [`u16_at`].
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word))
}
