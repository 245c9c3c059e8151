//! Layout of an index file, specified in `docs/index-format.md`. All numbers are little-endian.

/// Magic number of an index.
pub const MAGIC: [u8; 8] = *b"lr-index";
/// Version of this layout.
pub const VERSION: u32 = 1;
/// Bytes of the file header.
pub const HEADER: usize = 32;
/// Magic number of an entry.
pub const ENTRY_MAGIC: u32 = u32::from_le_bytes(*b"part");
/// Bytes of an entry before its sets.
pub const ENTRY_HEADER: usize = 64;
/// Bytes of a set before its values.
pub const SET_HEADER: usize = 8;
/// Bytes of the checksum at the end of the header and of each entry.
pub const CHECKSUM: usize = 8;
/// Maximum bytes of an entry; those written have less than 22,000 bytes.
pub const LONGEST_ENTRY: usize = 64 << 10;

/// Minimum number of bytes of a capture file that an entry describes.
pub const PART_BYTES: u64 = 1 << 20;
/// Maximum bytes of an entry's addresses: the size of a filter of them.
pub const ADDRESS_BYTES: usize = 11 << 10;
/// Maximum bytes of an entry's ports: one bit each.
pub const PORT_BYTES: usize = 8 << 10;
/// Maximum number of listed VLAN ids; more are stored as one bit each.
pub const LISTED_VLANS: usize = 256;
/// Maximum number of listed EtherTypes; with more, any may occur.
pub const LISTED_ETHERTYPES: usize = 64;
/// Maximum number of listed link types; with more, any may occur.
pub const LISTED_LINKS: usize = 16;

/// Flag: bytes before the part's frames are needed to read other parts: headers, interfaces, names.
pub const DESCRIBED: u32 = 1;
/// Flag: the entry holds the 8 bytes at the position of the first record's time.
pub const MARKED: u32 = 2;
/// Flag: nothing follows, because the capture was finished normally.
pub const LAST: u32 = 4;

/// The type of the values of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SetKind {
    /// Link types of interfaces (`LINKTYPE_*`).
    Links = 1,
    /// EtherTypes, at each VLAN level.
    EtherTypes = 2,
    /// VLAN ids.
    Vlans = 3,
    /// IPv4 protocols and IPv6 next headers.
    Protocols = 4,
    /// Ports of TCP, UDP and SCTP, source and destination.
    Ports = 5,
    /// IPv4 addresses, including those in ARP and RARP.
    Ipv4 = 6,
    /// IPv6 addresses.
    Ipv6 = 7,
    /// Addresses of either version.
    Addresses = 8,
}

/// The encoding of the values of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Form {
    /// One after another, in any order.
    List = 0,
    /// One bit per possible value.
    Bits = 1,
    /// A blocked Bloom filter.
    Bloom = 2,
}

impl SetKind {
    /// Returns the kind with this number.
    pub fn of(number: u8) -> Option<SetKind> {
        use SetKind::{Addresses, EtherTypes, Ipv4, Ipv6, Links, Ports, Protocols, Vlans};
        [Links, EtherTypes, Vlans, Protocols, Ports, Ipv4, Ipv6, Addresses]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }

    /// Returns the bytes of a value.
    pub fn width(self) -> usize {
        match self {
            SetKind::Protocols => 1,
            SetKind::Ipv4 => 4,
            SetKind::Ipv6 | SetKind::Addresses => 16,
            _ => 2,
        }
    }
}

impl Form {
    /// Returns the form with this number.
    pub fn of(number: u8) -> Option<Form> {
        [Form::List, Form::Bits, Form::Bloom].into_iter().find(|form| *form as u8 == number)
    }
}

/// Computes a checksum that detects accidental damage: torn ends, bad disks. It does not protect against attackers.
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

/// Returns the header of an index.
pub fn header() -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&(HEADER as u32).to_le_bytes());
    let sum = checksum(&header[..HEADER - CHECKSUM]);
    header[HEADER - CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// Reads two bytes; 0 beyond the end, which callers have checked.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u16::from_le_bytes(*word))
}

/// Reads four bytes, like [`u16_at`].
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
}

/// Reads eight bytes, like [`u16_at`].
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word))
}
