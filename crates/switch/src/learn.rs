//! MAC learning: the port of each MAC, by VLAN, from received frames.

use crate::action::PortNo;
use linerate_burst::Nanos;
use linerate_burst::random;
use std::time::Duration;

/// Entries of a bucket: one cache line.
const WAYS: usize = 4;

/// Size and age limit of the MAC table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnOptions {
    /// Minimum number of MACs that fit if evenly distributed.
    pub entries: usize,
    /// Time without a frame after which a MAC is forgotten.
    pub age: Duration,
    /// Seed of the hash: it must be random if untrusted senders choose MACs.
    pub seed: u64,
}

impl Default for LearnOptions {
    /// 8,192 MACs for 300 s (IEEE 802.1Q table 8-6), no seed.
    fn default() -> Self {
        LearnOptions { entries: 8192, age: Duration::from_secs(300), seed: 0 }
    }
}

/// Counters of MAC learning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearnCounts {
    /// New MACs.
    pub new: u64,
    /// MACs that moved to another port.
    pub moved: u64,
    /// MACs evicted because the table was full.
    pub evicted: u64,
}

/// MAC in a VLAN, and its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// VLAN; 0 without one.
    pub vlan: u16,
    /// MAC, in the lower 48 bits.
    pub mac: u64,
    /// Input port of its last frame.
    pub port: PortNo,
    /// Time of its last frame.
    pub seen: Nanos,
}

/// MAC table: the number of buckets is fixed, so senders cannot make it grow.
#[derive(Debug)]
pub(crate) struct Stations {
    buckets: Vec<[Entry; WAYS]>,
    age: u64,
    seed: u64,
    pub learned: LearnCounts,
}

/// Entry; `key` is 0 if unused.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    key: u64,
    /// Port in the upper bits, time in units of 2^20 ns in the lower ones.
    seen: u64,
}

const TIME_BITS: u32 = 48;

impl Stations {
    pub(crate) fn new(options: LearnOptions) -> Self {
        let buckets = (options.entries.div_ceil(WAYS) * 2).next_power_of_two();
        let age = u64::try_from(options.age.as_nanos() >> 20).unwrap_or(u64::MAX).max(1);
        let buckets = vec![[Entry::default(); WAYS]; buckets];
        Stations { buckets, age, seed: options.seed, learned: LearnCounts::default() }
    }

    #[inline]
    fn bucket(&self, key: u64) -> usize {
        random::mix(key ^ self.seed) as usize & (self.buckets.len() - 1)
    }

    /// Records a frame from a MAC at a port.
    #[inline]
    pub(crate) fn learn(&mut self, now: Nanos, vlan: u16, mac: u64, port: PortNo) {
        let (key, now) = (key(vlan, mac), ticks(now));
        let bucket = self.bucket(key);
        let bucket = &mut self.buckets[bucket];
        let seen = u64::from(port) << TIME_BITS | now;
        if let Some(entry) = bucket.iter_mut().find(|entry| entry.key == key) {
            self.learned.moved += u64::from(entry.port() != port && entry.is_alive(now, self.age));
            entry.seen = seen;
            return;
        }
        self.learned.new += 1;
        let oldest = bucket.iter_mut().min_by_key(|entry| (entry.key != 0, entry.time()));
        if let Some(entry) = oldest {
            self.learned.evicted += u64::from(entry.key != 0 && entry.is_alive(now, self.age));
            *entry = Entry { key, seen };
        }
    }

    /// Returns the port of a MAC.
    #[inline]
    pub(crate) fn find(&self, now: Nanos, vlan: u16, mac: u64) -> Option<PortNo> {
        let key = key(vlan, mac);
        let entry = self.buckets[self.bucket(key)].iter().find(|entry| entry.key == key)?;
        entry.is_alive(ticks(now), self.age).then(|| entry.port())
    }

    /// Returns all known MACs, ordered by VLAN and MAC.
    pub(crate) fn list(&self, now: Nanos) -> Vec<Station> {
        let alive = |entry: &&Entry| entry.key != 0 && entry.is_alive(ticks(now), self.age);
        let station = |entry: &Entry| Station {
            vlan: (entry.key >> 48) as u16 & 0xfff,
            mac: entry.key & 0xffff_ffff_ffff,
            port: entry.port(),
            seen: Nanos(entry.time() << 20),
        };
        let mut stations: Vec<_> = self.buckets.iter().flatten().filter(alive).map(station).collect();
        stations.sort_by_key(|station| (station.vlan, station.mac));
        stations
    }

    pub(crate) fn flush(&mut self) {
        self.buckets.fill([Entry::default(); WAYS]);
    }
}

impl Entry {
    fn port(self) -> PortNo {
        (self.seen >> TIME_BITS) as PortNo
    }

    fn time(self) -> u64 {
        self.seen & ((1 << TIME_BITS) - 1)
    }

    fn is_alive(self, now: u64, age: u64) -> bool {
        now.saturating_sub(self.time()) < age
    }
}

/// Returns a key, which is never 0.
fn key(vlan: u16, mac: u64) -> u64 {
    u64::from(vlan | 0x8000) << 48 | mac
}

fn ticks(now: Nanos) -> u64 {
    now.0 >> 20
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Compared with a map that forgets only by age: the table agrees, and forgets nothing while there is room.
        #[test]
        fn table_behaves_like_a_map(steps in prop::collection::vec((0..3u16, 0..40u64, 1..4u16, 0..200u64, any::<bool>()), 1..300)) {
            let options = LearnOptions { entries: 1024, age: Duration::from_secs(1), seed: 7 };
            let (mut table, mut map, mut now) = (Stations::new(options), HashMap::new(), 1u64 << 50);
            for (vlan, mac, port, wait, learn) in steps {
                now += wait << 20;
                if learn {
                    table.learn(Nanos(now), vlan, mac, port);
                    map.insert((vlan, mac), (port, now));
                }
                let known = map.get(&(vlan, mac)).filter(|(_, seen)| (now - seen) >> 20 < 1_000_000_000 >> 20);
                prop_assert_eq!(table.find(Nanos(now), vlan, mac), known.map(|(port, _)| *port));
            }
            prop_assert_eq!(table.learned.evicted, 0);
        }
    }

    #[test]
    fn a_full_table_evicts_the_oldest_and_counts_it() {
        let options = LearnOptions { entries: 4, age: Duration::from_secs(100), seed: 1 };
        let mut table = Stations::new(options);
        for mac in 0..1000 {
            table.learn(Nanos(mac << 20), 1, mac, 1);
        }
        assert_eq!(table.learned.new, 1000);
        assert_eq!(table.list(Nanos(1000 << 20)).len() as u64 + table.learned.evicted, 1000);
        assert_eq!(table.find(Nanos(1000 << 20), 1, 999), Some(1));
        table.flush();
        assert!(table.list(Nanos(1000 << 20)).is_empty());
    }
}
