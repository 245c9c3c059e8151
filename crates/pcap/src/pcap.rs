//! The classic pcap format: a file header of 24 bytes, then records.
//!
//! Sources: draft-ietf-opsawg-pcap and libpcap's `pcap/pcap.h`, `sf-pcap.c`; the 24-byte record of the "modified" variant is in
//! libpcap's `pcap-int.h` (`pcap_sf_patched_pkthdr`).

use crate::error::{Fault, Step};
use linerate_burst::{Desc, Flags, LinkType, MAX_FRAME, Nanos};

/// Bytes of the file header.
pub const FILE_HEADER: usize = 24;

/// Times in microseconds.
pub const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
/// Times in nanoseconds.
pub const MAGIC_NANOS: u32 = 0xa1b2_3c4d;
/// Times in microseconds, records with 8 bytes more: Alexey Kuznetsov's patched libpcap.
pub const MAGIC_MODIFIED: u32 = 0xa1b2_cd34;

/// Undefined bits of the link type field. Programs refuse files that set them.
const RESERVED: u32 = 0x03ff_0000;

/// Bit of the link type field: the uppermost four bits are the FCS length in 16-bit words.
const HAS_FCS: u32 = 1 << 26;
const FCS_SHIFT: u32 = 28;

const SHORT_RECORD: usize = 16;
const LONG_RECORD: usize = 24;

/// `sll_pkttype` of a frame that the host sent (`PACKET_OUTGOING`, linux/if_packet.h).
const PACKET_OUTGOING: u8 = 4;

/// Order of the two lengths of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lengths {
    /// Captured, then on the wire.
    InOrder,
    /// On the wire, then captured: before version 2.3, and DG/UX ("version 543.0").
    Swapped,
    /// Version 2.3, written either way: the smaller one is the captured length.
    Unknown,
}

/// File header: all that is needed to parse the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    swapped: bool,
    modified: bool,
    /// Nanoseconds per unit of the second word of a time.
    unit: u32,
    lengths: Lengths,
    pub snap: u32,
    pub link: LinkType,
    /// Bytes of FCS at the end of each frame; 0 if not given.
    pub fcs: u8,
    /// Frames whose fraction of a second was out of range.
    pub times_changed: u64,
}

/// Returns the link type for its number in a file: raw IP also has the numbers 12 and 14, used by some systems.
pub(crate) fn link_type(number: u16) -> LinkType {
    match number {
        12 | 14 => LinkType::RAW,
        number => LinkType(number),
    }
}

impl FileHeader {
    /// Returns whether a file with these first bytes is a pcap file.
    pub(crate) fn is_magic(start: [u8; 4]) -> bool {
        magic(start).is_some()
    }

    pub(crate) fn parse(bytes: &[u8; FILE_HEADER]) -> Result<Self, Fault> {
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let Some((magic, swapped)) = magic(word(0)) else {
            return Err(Fault::damaged("missing pcap file header"));
        };
        let u16_at = |at: usize| {
            let half = u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
            if swapped { half.swap_bytes() } else { half }
        };
        let lengths = match (u16_at(4), u16_at(6)) {
            (2, 0..=2) | (543, 0) => Lengths::Swapped,
            (2, 3) => Lengths::Unknown,
            (2, _) => Lengths::InOrder,
            (major, minor) => return Err(Fault::Unsupported(format!("pcap version {major}.{minor}; expected 2"))),
        };
        let network = order(word(20), swapped);
        if network & RESERVED != 0 {
            return Err(Fault::Unsupported(format!("link type {network:#010x}, with reserved bits set")));
        }
        Ok(FileHeader {
            swapped,
            modified: magic == MAGIC_MODIFIED,
            unit: if magic == MAGIC_NANOS { 1 } else { 1000 },
            lengths,
            snap: order(word(16), swapped),
            link: link_type(network as u16),
            fcs: if network & HAS_FCS != 0 { (network >> FCS_SHIFT) as u8 * 2 } else { 0 },
            times_changed: 0,
        })
    }

    /// Appends a desc for each complete record from `at`, until `descs` is at its capacity.
    pub(crate) fn parse_records(&mut self, bytes: &[u8], at: &mut usize, descs: &mut Vec<Desc>) -> Step {
        match (self.swapped, self.modified) {
            (false, false) => self.walk::<false, false>(bytes, at, descs),
            (true, false) => self.walk::<true, false>(bytes, at, descs),
            (false, true) => self.walk::<false, true>(bytes, at, descs),
            (true, true) => self.walk::<true, true>(bytes, at, descs),
        }
    }

    fn walk<const SWAPPED: bool, const MODIFIED: bool>(
        &mut self,
        bytes: &[u8],
        cursor: &mut usize,
        descs: &mut Vec<Desc>,
    ) -> Step {
        let header_length = if MODIFIED { LONG_RECORD } else { SHORT_RECORD };
        let (unit, fcs) = (u64::from(self.unit), self.fcs);
        let (mut at, mut times_changed) = (*cursor, 0);
        let step = loop {
            if descs.len() == descs.capacity() {
                break Step::Full;
            }
            let rest = bytes.get(at..).unwrap_or_default();
            let Some(header) = rest.first_chunk::<SHORT_RECORD>() else {
                break Step::Need(header_length);
            };
            let word = |at: usize| order([header[at], header[at + 1], header[at + 2], header[at + 3]], SWAPPED);
            let (captured, wire) = self.lengths(word(8), word(12));
            if captured as usize > MAX_FRAME {
                break Step::Stop(Fault::too_long(captured));
            }
            let length = header_length + captured as usize;
            if rest.len() < length {
                break Step::Need(length);
            }
            let (seconds, fraction) = (u64::from(word(0)) * 1_000_000_000, word(4));
            let mut time = seconds + u64::from(fraction) * unit;
            if u64::from(fraction) * unit >= 1_000_000_000 {
                time = carried(seconds, fraction, unit);
                times_changed += 1;
            }
            let mut desc = Desc::new(Nanos(time), (at + header_length) as u32, captured);
            desc.wire = wire;
            if MODIFIED && rest[22] == PACKET_OUTGOING {
                desc.flags = Flags::OUTGOING;
            }
            if fcs != 0 {
                desc.take_fcs_off(fcs);
            }
            descs.push(desc);
            at += length;
        };
        *cursor = at;
        self.times_changed += times_changed;
        step
    }

    /// Returns the lengths of a record as (captured, wire), in whichever order they were written.
    #[inline]
    fn lengths(&self, first: u32, second: u32) -> (u32, u32) {
        match self.lengths {
            Lengths::InOrder => (first, second),
            Lengths::Swapped => (second, first),
            Lengths::Unknown => (first.min(second), first.max(second)),
        }
    }
}

/// Returns the time of a frame whose fraction of a second is out of range. In C it is signed (`tv_usec`, `tv_nsec`),
/// and some programs write values below zero or above a second: it is added with its sign, down to 1970.
#[cold]
fn carried(seconds: u64, fraction: u32, unit: u64) -> u64 {
    seconds.saturating_add_signed(i64::from(fraction.cast_signed()) * unit.cast_signed())
}

/// Returns whether programs can be expected to open pcap files of this link type: registered ones, with room for
/// future ones, and those reserved for private use.
pub fn holds(link: LinkType) -> bool {
    matches!(link.0, 0..=19 | 32 | 50..=51 | 99..=511)
}

/// Returns the header of a nanosecond file in native byte order, which matches the records of a block; `fcs` is the
/// number of FCS bytes at the end of each frame, an even number up to 30.
pub fn file_header(link: LinkType, fcs: u8) -> [u8; FILE_HEADER] {
    let mut header = [0; FILE_HEADER];
    header[0..4].copy_from_slice(&MAGIC_NANOS.to_ne_bytes());
    header[4..6].copy_from_slice(&2u16.to_ne_bytes());
    header[6..8].copy_from_slice(&4u16.to_ne_bytes());
    header[16..20].copy_from_slice(&(MAX_FRAME as u32).to_ne_bytes());
    let fcs = if fcs == 0 { 0 } else { HAS_FCS | u32::from(fcs / 2) << FCS_SHIFT };
    header[20..24].copy_from_slice(&(u32::from(link.0) | fcs).to_ne_bytes());
    header
}

/// Returns the magic, and whether the file has the other byte order.
fn magic(start: [u8; 4]) -> Option<(u32, bool)> {
    [false, true]
        .into_iter()
        .map(|swapped| (order(start, swapped), swapped))
        .find(|(magic, _)| [MAGIC_MICROS, MAGIC_NANOS, MAGIC_MODIFIED].contains(magic))
}

#[inline]
fn order(word: [u8; 4], swapped: bool) -> u32 {
    let word = u32::from_ne_bytes(word);
    if swapped { word.swap_bytes() } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(magic: u32, version: (u16, u16), network: u32) -> [u8; FILE_HEADER] {
        let mut header = file_header(LinkType::ETHERNET, 0);
        header[0..4].copy_from_slice(&magic.to_ne_bytes());
        header[4..6].copy_from_slice(&version.0.to_ne_bytes());
        header[6..8].copy_from_slice(&version.1.to_ne_bytes());
        header[20..24].copy_from_slice(&network.to_ne_bytes());
        header
    }

    fn one_record(header: &[u8; FILE_HEADER], words: [u32; 4], rest: &[u8]) -> (Step, Vec<Desc>) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).chain(rest.iter().copied()).collect();
        let mut descs = Vec::with_capacity(4);
        let step = FileHeader::parse(header).unwrap().parse_records(&bytes, &mut 0, &mut descs);
        (step, descs)
    }

    #[test]
    fn all_numbers_of_raw_ip_are_one_link_type() {
        let link = |network| FileHeader::parse(&header(MAGIC_MICROS, (2, 4), network)).unwrap().link;
        assert_eq!([12, 14, 101, 228].map(link), [LinkType::RAW, LinkType::RAW, LinkType::RAW, LinkType(228)]);
    }

    #[test]
    fn fcs_length_counts_only_if_bit_26_is_set() {
        let fcs = |network| FileHeader::parse(&header(MAGIC_MICROS, (2, 4), network)).unwrap();
        assert_eq!((fcs(0x2400_0001).fcs, fcs(0x2400_0001).link), (4, LinkType::ETHERNET));
        assert_eq!((fcs(0x3000_0084).fcs, fcs(0x3000_0084).link), (0, LinkType(0x84)));
    }

    #[test]
    fn reserved_bits_of_the_link_type_are_rejected() {
        for network in [0x0001_0001, 0x0200_0001, 0x0403_0001] {
            let fault = FileHeader::parse(&header(MAGIC_MICROS, (2, 4), network)).unwrap_err();
            assert_eq!(fault, Fault::Unsupported(format!("link type {network:#010x}, with reserved bits set")));
        }
    }

    #[test]
    fn old_versions_have_swapped_lengths() {
        let lengths = |version, first, second| {
            let (_, descs) = one_record(&header(MAGIC_MICROS, version, 1), [1, 2, first, second], &[0; 5]);
            descs.first().map(|desc| (desc.captured, desc.wire))
        };
        assert_eq!(lengths((2, 4), 5, 9), Some((5, 9)));
        assert_eq!(lengths((2, 4), 5, 4), Some((5, 4)), "captured may exceed the wire length");
        assert_eq!(lengths((2, 2), 9, 5), Some((5, 9)));
        assert_eq!(lengths((543, 0), 9, 5), Some((5, 9)));
        assert_eq!((lengths((2, 3), 9, 5), lengths((2, 3), 5, 9)), (Some((5, 9)), Some((5, 9))));
        let fault = FileHeader::parse(&header(MAGIC_MICROS, (1, 0), 1)).unwrap_err();
        assert_eq!(fault, Fault::Unsupported("pcap version 1.0; expected 2".into()));
    }

    #[test]
    fn modified_record_is_longer_and_has_the_direction() {
        let mut rest = vec![0, 0, 0, 3, 8, 0, PACKET_OUTGOING, 0];
        rest.extend(b"frame");
        let (step, descs) = one_record(&header(MAGIC_MODIFIED, (2, 4), 1), [1, 2, 5, 9], &rest);
        let expected = Desc { wire: 9, flags: Flags::OUTGOING, ..Desc::new(Nanos::from_parts(1, 2000), 24, 5) };
        assert_eq!((step, descs), (Step::Need(24), vec![expected]));
    }

    #[test]
    fn a_fraction_beyond_a_second_is_carried_and_counted() {
        let minus_8 = (-8i32).cast_unsigned();
        for (magic, words, time, changed) in [
            (MAGIC_MICROS, [2, 999_999], Nanos::from_parts(2, 999_999_000), 0),
            (MAGIC_MICROS, [2, 1_000_000], Nanos::from_parts(3, 0), 1),
            (MAGIC_MICROS, [2, minus_8], Nanos::from_parts(1, 999_992_000), 1),
            (MAGIC_MICROS, [0, minus_8], Nanos::ZERO, 1),
            (MAGIC_MICROS, [u32::MAX, i32::MAX as u32], Nanos::from_parts((1 << 32) + 2146, 483_647_000), 1),
            (MAGIC_NANOS, [2, 999_999_999], Nanos::from_parts(2, 999_999_999), 0),
            (MAGIC_NANOS, [2, 1_500_000_000], Nanos::from_parts(3, 500_000_000), 1),
            (MAGIC_NANOS, [2, minus_8], Nanos::from_parts(1, 999_999_992), 1),
        ] {
            let mut file = FileHeader::parse(&header(magic, (2, 4), 1)).unwrap();
            let record: Vec<u8> = [words[0], words[1], 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
            let mut descs = Vec::with_capacity(1);
            file.parse_records(&record, &mut 0, &mut descs);
            assert_eq!((descs[0].time, file.times_changed), (time, changed), "{words:?}");
        }
    }

    #[test]
    fn excessive_length_stops_the_parser() {
        let (step, _) = one_record(&header(MAGIC_NANOS, (2, 4), 1), [1, 2, MAX_FRAME as u32, 9], &[]);
        assert_eq!(step, Step::Need(16 + MAX_FRAME));
        let (step, _) = one_record(&header(MAGIC_NANOS, (2, 4), 1), [1, 2, MAX_FRAME as u32 + 1, 9], &[]);
        assert_eq!(step, Step::Stop(Fault::too_long(262_145)));
    }
}
