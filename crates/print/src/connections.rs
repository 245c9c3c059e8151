//! Initial sequence numbers of TCP connections, to which later ones are relative.
//!
//! A set-associative table of fixed size with four slots per set; a new connection takes the least recently used slot.
//! Hostile traffic cannot make it grow or slow it down, but only evict connections, which then start again.

/// Number of sets, of four slots each.
const SETS: usize = 1 << 15;
const PLACES: usize = 4;

/// Endpoint of a connection: address and port. IPv4 addresses are mapped to IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct End {
    pub address: [u8; 16],
    pub port: u16,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    ends: [End; 2],
    /// Initial sequence number of each endpoint.
    first: [u32; 2],
    /// Time of last use; 0 for a free slot.
    used: u32,
}

/// Table of known connections.
#[derive(Debug)]
pub(crate) struct Connections {
    is_absolute: bool,
    entries: Vec<Entry>,
    now: u32,
}

/// Offsets to subtract from the numbers of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Offsets of sequence and acknowledgement number.
    pub sequence: u32,
    pub acknowledgement: u32,
    /// Offset of selective acknowledgement blocks.
    pub blocks: u32,
}

impl Connections {
    /// Creates a table; all offsets are 0 if `is_absolute`.
    pub(crate) fn new(is_absolute: bool) -> Self {
        Connections { is_absolute, entries: Vec::new(), now: 0 }
    }

    /// Returns the offsets for a segment with an acknowledgement number; it may be the first one.
    pub(crate) fn origin(&mut self, from: End, to: End, is_first: bool, sequence: u32, acknowledgement: u32) -> Origin {
        if self.is_absolute {
            return Origin::default();
        }
        if self.entries.is_empty() {
            self.entries = vec![Entry::default(); SETS * PLACES];
        }
        let is_turned = to < from;
        let ends = if is_turned { [to, from] } else { [from, to] };
        // After 4 billion segments the clock wraps around and ages are wrong once, without other effects.
        self.now = self.now.wrapping_add(1).max(1);
        let set = &mut self.entries[set(&ends) * PLACES..][..PLACES];
        let known = set.iter().position(|entry| entry.used > 0 && entry.ends == ends);
        let (own, other) = if is_turned { (1, 0) } else { (0, 1) };
        match known {
            Some(at) if !is_first => {
                let entry = &mut set[at];
                entry.used = self.now;
                Origin { sequence: entry.first[own], acknowledgement: entry.first[other], blocks: entry.first[other] }
            }
            _ => {
                let oldest = (0..PLACES).min_by_key(|at| set[*at].used).unwrap_or_default();
                let entry = &mut set[known.unwrap_or(oldest)];
                *entry = Entry { ends, first: [0; 2], used: self.now };
                entry.first[own] = sequence;
                entry.first[other] = acknowledgement.wrapping_sub(1);
                Origin { blocks: entry.first[other], ..Origin::default() }
            }
        }
    }
}

/// Returns the set of a connection.
fn set([one, other]: &[End; 2]) -> usize {
    const KEY: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = u64::from(one.port) << 16 | u64::from(other.port);
    for end in [one, other] {
        for half in end.address.as_chunks::<8>().0 {
            let product = u128::from(hash ^ u64::from_be_bytes(*half) ^ KEY) * u128::from(KEY);
            hash = (product as u64) ^ (product >> 64) as u64;
        }
    }
    hash as usize % SETS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(number: u32, port: u16) -> End {
        let mut address = [0; 16];
        address[12..].copy_from_slice(&number.to_be_bytes());
        End { address, port }
    }

    #[test]
    fn both_directions_are_relative_to_the_first_segment() {
        let mut connections = Connections::new(false);
        for (a, b) in [(end(1, 5), end(2, 80)), (end(2, 5), end(1, 80))] {
            let first = connections.origin(a, b, false, 1000, 501);
            assert_eq!(first, Origin { blocks: 500, ..Origin::default() }, "the first segment is absolute");
            let back = Origin { sequence: 500, acknowledgement: 1000, blocks: 1000 };
            assert_eq!(connections.origin(b, a, false, 501, 1001), back);
            let again = Origin { sequence: 1000, acknowledgement: 500, blocks: 500 };
            assert_eq!(connections.origin(a, b, false, 1001, 501), again);
            assert_eq!(connections.origin(b, a, true, 7, 8).sequence, 0, "starts again");
            assert_eq!(connections.origin(a, b, false, 9, 8).acknowledgement, 7);
        }
    }

    #[test]
    fn many_connections_evict_the_oldest_in_constant_memory() {
        let mut connections = Connections::new(false);
        for number in 0..SETS as u32 * PLACES as u32 * 2 {
            connections.origin(end(number, 1), end(7, 80), false, 1, 1);
        }
        assert_eq!(connections.entries.len(), SETS * PLACES);
        let known = |number| end(number, 1);
        let last = SETS as u32 * PLACES as u32 * 2 - 1;
        assert_eq!(connections.origin(known(last), end(7, 80), false, 5, 5).sequence, 1);
        assert_eq!(connections.origin(known(0), end(7, 80), false, 5, 5).sequence, 0, "evicted");
        assert!(size_of::<Entry>() * SETS * PLACES <= 8 << 20);
    }
}
