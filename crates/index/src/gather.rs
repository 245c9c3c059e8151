//! Gathers the values in the frames of a part, in memory that is reused for each part.

mod distinct;
mod fields;

use crate::bloom;
use crate::layout::{
    ADDRESS_BYTES, CHECKSUM, ENTRY_MAGIC, Form, LISTED_ETHERTYPES, LISTED_LINKS, LISTED_VLANS, MARKED, PORT_BYTES,
    SET_HEADER, SetKind, checksum,
};
use distinct::DistinctValues;
use linerate_burst::{Burst, Interface, Nanos};
use std::ops::Range;

/// Number of recent flows remembered: further frames of them are skipped.
const KNOWN: usize = 4096;

/// The sets of a part, while they grow.
pub struct EntryBuilder {
    known: Box<[(u64, u64); KNOWN]>,
    links: Vec<u16>,
    ethertypes: Vec<u16>,
    vlans: Bits<64>,
    protocols: [u64; 4],
    ports: Bits<1024>,
    addresses: Addresses,
    /// Number of frames.
    pub frames: u64,
    /// Least and greatest time.
    pub times: (Nanos, Nanos),
}

impl Default for EntryBuilder {
    fn default() -> Self {
        EntryBuilder::new()
    }
}

/// Addresses: all of them, or a Bloom filter.
struct Addresses {
    ipv4: DistinctValues<u32>,
    ipv6: DistinctValues<u128>,
    bloom: Box<[u64; ADDRESS_BYTES / 8]>,
    is_bloom: bool,
    /// An address could not be determined.
    is_any: bool,
}

/// One bit for each of `64 * N` values, and the values set, in order of arrival.
struct Bits<const N: usize> {
    words: Box<[u64; N]>,
    set: Vec<u16>,
}

impl EntryBuilder {
    /// Returns an empty gatherer.
    pub fn new() -> Self {
        let mut gather = EntryBuilder {
            known: Box::new([(0, 0); KNOWN]),
            links: Vec::new(),
            ethertypes: Vec::new(),
            vlans: Bits::new(),
            protocols: [0; 4],
            ports: Bits::new(),
            addresses: Addresses {
                ipv4: DistinctValues::new(ADDRESS_BYTES / 4),
                ipv6: DistinctValues::new(ADDRESS_BYTES / 16),
                bloom: Box::new([0; ADDRESS_BYTES / 8]),
                is_bloom: false,
                is_any: false,
            },
            frames: 0,
            times: (Nanos::MAX, Nanos::ZERO),
        };
        gather.clear();
        gather
    }

    /// Clears all sets.
    pub fn clear(&mut self) {
        self.known.fill((0, 0));
        self.links.clear();
        self.ethertypes.clear();
        self.vlans.clear();
        self.protocols = [0; 4];
        self.ports.clear();
        let Addresses { ipv4, ipv6, bloom, is_bloom, is_any } = &mut self.addresses;
        ipv4.clear();
        ipv6.clear();
        if std::mem::take(is_bloom) {
            bloom.fill(0);
        }
        *is_any = false;
        self.frames = 0;
        self.times = (Nanos::MAX, Nanos::ZERO);
    }

    /// Adds the frames of a burst.
    pub fn add(&mut self, burst: Burst<'_>, interfaces: &[Interface]) {
        let (mut least, mut greatest) = self.times;
        // Frames of one interface are usually consecutive.
        let (mut interface, mut link) = (None, None);
        for (desc, frame) in burst.iter() {
            least = least.min(desc.time);
            greatest = greatest.max(desc.time);
            if interface != Some(desc.interface) {
                interface = Some(desc.interface);
                let of = interfaces.get(usize::from(desc.interface)).map_or(1, |interface| interface.link.0);
                link = crate::link::Link::of(of);
                self.link(of);
            }
            if let Some(link) = link {
                self.frame(link, frame);
            }
        }
        self.times = (least, greatest);
        self.frames += burst.len() as u64;
    }

    fn link(&mut self, link: u16) {
        if !self.links.contains(&link) && self.links.len() <= LISTED_LINKS {
            self.links.push(link);
        }
    }

    fn ethertype(&mut self, ethertype: u16) {
        if !self.ethertypes.contains(&ethertype) && self.ethertypes.len() <= LISTED_ETHERTYPES {
            self.ethertypes.push(ethertype);
        }
    }

    /// Appends the entry that describes this part of a file; `mark` is the 8 bytes at the position of its first
    /// record's time.
    pub fn entry(&self, part: Range<u64>, mark: Option<[u8; 8]>, flags: u32, to: &mut Vec<u8>) {
        let start = to.len();
        to.extend(ENTRY_MAGIC.to_le_bytes());
        to.extend([0; 4]);
        let times = if self.frames == 0 { (Nanos::ZERO, Nanos::ZERO) } else { self.times };
        for word in [part.start, part.end, self.frames, times.0.0, times.1.0] {
            to.extend(word.to_le_bytes());
        }
        to.extend(mark.unwrap_or_default());
        to.extend((flags | if mark.is_some() { MARKED } else { 0 }).to_le_bytes());
        to.extend([0; 4]);
        let sets = if self.frames == 0 { 0 } else { self.encode(to) };
        let length = (to.len() - start + CHECKSUM) as u32;
        to[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
        to[start + 60..start + 64].copy_from_slice(&sets.to_le_bytes());
        let sum = checksum(&to[start..]);
        to.extend(sum.to_le_bytes());
    }

    /// Appends the sets, each with its header; returns their number. A missing set may hold any value.
    fn encode(&self, to: &mut Vec<u8>) -> u32 {
        let before = to.len();
        let mut sets = 0;
        let mut put = |kind: SetKind, form: Form, values: &dyn Fn(&mut Vec<u8>)| {
            let start = to.len();
            to.extend([kind as u8, form as u8, 0, 0, 0, 0, 0, 0]);
            values(to);
            let bytes = (to.len() - start - SET_HEADER) as u32;
            to[start + 4..start + 8].copy_from_slice(&bytes.to_le_bytes());
            to.resize(to.len().next_multiple_of(8), 0);
            sets += 1;
        };
        if self.links.len() <= LISTED_LINKS {
            put(SetKind::Links, Form::List, &|to| append(to, &self.links, u16::to_le_bytes));
        }
        if self.ethertypes.len() <= LISTED_ETHERTYPES {
            put(SetKind::EtherTypes, Form::List, &|to| append(to, &self.ethertypes, u16::to_le_bytes));
        }
        if self.vlans.set.len() <= LISTED_VLANS {
            put(SetKind::Vlans, Form::List, &|to| append(to, &self.vlans.set, u16::to_le_bytes));
        } else {
            put(SetKind::Vlans, Form::Bits, &|to| append(to, &*self.vlans.words, u64::to_le_bytes));
        }
        put(SetKind::Protocols, Form::Bits, &|to| append(to, &self.protocols, u64::to_le_bytes));
        if self.ports.set.len() * 2 <= PORT_BYTES {
            put(SetKind::Ports, Form::List, &|to| append(to, &self.ports.set, u16::to_le_bytes));
        } else {
            put(SetKind::Ports, Form::Bits, &|to| append(to, &*self.ports.words, u64::to_le_bytes));
        }
        let Addresses { ipv4, ipv6, bloom, is_bloom, is_any } = &self.addresses;
        if *is_bloom && !is_any {
            put(SetKind::Addresses, Form::Bloom, &|to| append(to, &**bloom, u64::to_le_bytes));
        } else if !is_any {
            put(SetKind::Ipv4, Form::List, &|to| append(to, ipv4.values(), u32::to_le_bytes));
            put(SetKind::Ipv6, Form::List, &|to| append(to, ipv6.values(), u128::to_le_bytes));
        }
        debug_assert!(to.len() - before < 22_000, "{} bytes", to.len() - before);
        sets
    }
}

/// Appends the bytes of values, all at once.
fn append<T: Copy, const N: usize>(to: &mut Vec<u8>, values: &[T], bytes_of: impl Fn(T) -> [u8; N]) {
    let start = to.len();
    to.resize(start + values.len() * N, 0);
    to[start..].as_chunks_mut().0.iter_mut().zip(values).for_each(|(bytes, value)| *bytes = bytes_of(*value));
}

impl Addresses {
    #[inline]
    fn add_ipv4(&mut self, address: u32) {
        if self.is_bloom {
            bloom::insert(&mut *self.bloom, bloom::of_ipv4(address));
        } else if !self.has_room(4) || !self.ipv4.insert(address) {
            self.become_bloom();
            self.add_ipv4(address);
        }
    }

    #[inline]
    fn add_ipv6(&mut self, address: u128) {
        if self.is_bloom {
            bloom::insert(&mut *self.bloom, bloom::of_ipv6(address));
        } else if !self.has_room(16) || !self.ipv6.insert(address) {
            self.become_bloom();
            self.add_ipv6(address);
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.ipv4.values().len() * 4 + self.ipv6.values().len() * 16 + bytes <= ADDRESS_BYTES
    }

    #[cold]
    fn become_bloom(&mut self) {
        self.is_bloom = true;
        self.ipv4.values().iter().for_each(|address| bloom::insert(&mut *self.bloom, bloom::of_ipv4(*address)));
        self.ipv6.values().iter().for_each(|address| bloom::insert(&mut *self.bloom, bloom::of_ipv6(*address)));
    }
}

impl<const N: usize> Bits<N> {
    fn new() -> Self {
        Bits { words: Box::new([0; N]), set: Vec::with_capacity(N) }
    }

    fn clear(&mut self) {
        self.words.fill(0);
        self.set.clear();
    }

    #[inline]
    fn insert(&mut self, value: u16) {
        let (word, bit) = (usize::from(value) / 64 % N, 1 << (value % 64));
        if self.words[word] & bit == 0 {
            self.words[word] |= bit;
            self.set.push(value);
        }
    }
}
