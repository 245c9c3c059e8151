//! DNS names by which clients resolved addresses: from the DNS answers that they received.
//!
//! Answers are [parsed](DnsAnswer::of) by the thread that sees all frames in order, and passed to each meter, since the
//! flow after an answer may belong to another meter. A flow looks up once, when it starts, the newest answer that is
//! older than its first packet; so the result depends neither on the number of meters, nor on how far ahead the answers
//! are parsed.

use crate::hash::mixed;
use linerate_burst::Nanos;
use linerate_headers::registry::UDP;
use linerate_headers::{Link, ethernet, ipv4, ipv6, udp, vlan};
use linerate_names::dns::Addresses;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Port of DNS servers.
const DNS: u16 = 53;
/// Bounds of the lifetime of an answer in seconds: its TTL is clamped to them. Programs cache addresses longer than the
/// TTL.
const LEAST: u64 = 60;
const MOST: u64 = 24 * 3600;
/// Pairs of client and address that are kept, by sets; the oldest of a set is evicted.
const SETS: usize = 1 << 14;
const WAYS: usize = 4;
/// Maximum length of a name.
const NAME: usize = 255;
/// Maximum number of answers waiting for packet time to reach them; more are applied at once.
const AHEAD: usize = 4096;
/// Maximum memory, including the overhead of an entry besides its name.
pub(crate) const BYTES: usize = SETS * WAYS * (size_of::<Option<Entry>>() + 1 + NAME + 32) + AHEAD * 256;

/// A DNS answer with addresses, sent to the client that asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsAnswer {
    /// Time of the answer.
    pub time: Nanos,
    /// Client that asked.
    pub client: IpAddr,
    /// Name that it asked for.
    pub name: Arc<str>,
    /// Addresses in the answer.
    pub addresses: Arc<[IpAddr]>,
    /// TTL in seconds.
    pub seconds: u32,
}

impl DnsAnswer {
    /// Returns the answer in a frame, if it is complete, over UDP and Ethernet with at most one tag, and IP without
    /// further headers.
    #[inline]
    pub fn of(link: Option<Link>, time: Nanos, frame: &[u8]) -> Option<DnsAnswer> {
        let kind = |at: usize| frame.get(at..at + 2).map(|kind| u16::from_be_bytes([kind[0], kind[1]]));
        let (kind, packet) = match kind(12)? {
            vlan::CUSTOMER => (kind(16)?, ethernet::LEN + vlan::LEN),
            kind => (kind, ethernet::LEN),
        };
        // Offsets of the protocol and the source port without headers in between.
        let (protocol, port) = match kind {
            ethernet::IPV4 => (9, 20),
            ethernet::IPV6 => (6, 40),
            _ => return None,
        };
        let head = frame.get(packet..packet + port + 2)?;
        if head[protocol] != UDP || head[port..] != DNS.to_be_bytes() || link != Some(Link::Ethernet) {
            return None;
        }
        DnsAnswer::read(time, kind == ethernet::IPV4, &frame[packet..])
    }

    #[inline(never)]
    fn read(time: Nanos, is_ipv4: bool, packet: &[u8]) -> Option<DnsAnswer> {
        let (client, payload) = if is_ipv4 {
            let header =
                ipv4::View::parse(packet).ok().filter(|header| header.header_len() == 20 && !header.is_fragment())?;
            (IpAddr::V4(header.destination()), header.payload())
        } else {
            let header = ipv6::View::parse(packet).ok()?;
            (IpAddr::V6(header.destination()), header.payload())
        };
        let Addresses { name, addresses, seconds } = Addresses::parse(udp::View::parse(payload).ok()?.payload())?;
        if name.len() > NAME {
            return None;
        }
        Some(DnsAnswer { time, client, name: name.into(), addresses: addresses.into(), seconds })
    }
}

/// Resolved names known to a meter.
#[derive(Debug)]
pub(crate) struct Resolved {
    key: [u64; 2],
    /// A byte of the hash of each entry: most flows are to addresses that were not resolved, and this much stays in the
    /// cache.
    tags: Vec<[u8; WAYS]>,
    /// Empty until there is an answer. Both orders of a pair are in the same set.
    sets: Vec<[Option<Entry>; WAYS]>,
    /// Answers later than the start of any flow so far.
    ahead: VecDeque<DnsAnswer>,
}

#[derive(Clone, Debug)]
struct Entry {
    client: IpAddr,
    address: IpAddr,
    name: Arc<str>,
    time: Nanos,
    until: Nanos,
}

impl Resolved {
    /// Creates an empty table; `key` must be random where untrusted senders choose the names.
    pub(crate) fn new(key: [u64; 2]) -> Self {
        Resolved { key, tags: Vec::new(), sets: Vec::new(), ahead: VecDeque::new() }
    }

    /// Adds an answer; answers must be added in the order of the frames.
    pub(crate) fn add_dns_answer(&mut self, answer: DnsAnswer) {
        self.ahead.push_back(answer);
        if self.ahead.len() > AHEAD
            && let Some(answer) = self.ahead.pop_front()
        {
            self.keep(&answer);
        }
    }

    /// Returns the name by which each of two addresses had resolved the other at this time.
    pub(crate) fn names(&mut self, pair: [IpAddr; 2], now: Nanos) -> [Option<Arc<str>>; 2] {
        while let Some(answer) = self.ahead.pop_front_if(|answer| answer.time < now) {
            self.keep(&answer);
        }
        let (place, tag) = self.place(pair);
        if self.tags.get(place).is_none_or(|tags| !tags.contains(&tag)) {
            return [None, None];
        }
        let [one, other] = pair;
        [[one, other], [other, one]].map(|[client, address]| {
            let is_it = |entry: &&Entry| entry.client == client && entry.address == address;
            let entry = self.sets[place].iter().flatten().find(is_it)?;
            (entry.time < now && now <= entry.until).then(|| Arc::clone(&entry.name))
        })
    }

    fn keep(&mut self, answer: &DnsAnswer) {
        if self.sets.is_empty() {
            self.sets = vec![[const { None }; WAYS]; SETS];
            self.tags = vec![[0; WAYS]; SETS];
        }
        let DnsAnswer { time, client, ref name, ref addresses, seconds } = *answer;
        let until = time.after(Duration::from_secs(u64::from(seconds).clamp(LEAST, MOST)));
        for address in addresses.iter().copied() {
            let (place, tag) = self.place([client, address]);
            let set = &mut self.sets[place];
            let is_it =
                |entry: &Option<Entry>| entry.as_ref().is_some_and(|e| e.client == client && e.address == address);
            let at = set.iter().position(is_it).unwrap_or_else(|| {
                let oldest = set.iter().enumerate().min_by_key(|(_, entry)| entry.as_ref().map(|entry| entry.time));
                oldest.map_or(0, |(at, _)| at)
            });
            self.tags[place][at] = tag;
            set[at] = Some(Entry { client, address, name: Arc::clone(name), time, until });
        }
    }

    /// Returns the set of a pair in any order, and its tag byte.
    fn place(&self, pair: [IpAddr; 2]) -> (usize, u8) {
        let [one, other] = pair.map(|address| match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        });
        let words = [one.min(other), one.max(other)].map(|bits| [bits as u64, (bits >> 64) as u64]);
        let hash = mixed(self.key, words.into_iter().flatten());
        (hash as usize % SETS, (hash >> 56) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn answer(seconds: u64, client: &str, name: &str, addresses: &[&str], ttl: u32) -> DnsAnswer {
        let addresses = addresses.iter().map(|text| address(text)).collect();
        DnsAnswer { time: at(seconds), client: address(client), name: name.into(), addresses, seconds: ttl }
    }

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn newest_valid_answer_names_an_address() {
        let mut resolved = Resolved::new([1, 2]);
        resolved.add_dns_answer(answer(100, "10.0.0.1", "a.example", &["192.0.2.1", "2001:db8::1"], 300));
        resolved.add_dns_answer(answer(200, "10.0.0.1", "b.example", &["192.0.2.1"], 1));
        resolved.add_dns_answer(answer(300, "10.0.0.1", "c.example", &["192.0.2.2"], u32::MAX));
        let mut ask = |client: &str, to: &str, seconds| {
            resolved.names([address(client), address(to)], at(seconds))[0].as_ref().map(ToString::to_string)
        };
        assert_eq!(ask("10.0.0.1", "192.0.2.1", 100), None, "not yet");
        assert_eq!(ask("10.0.0.1", "192.0.2.1", 101).as_deref(), Some("a.example"));
        assert_eq!(ask("10.0.0.2", "192.0.2.1", 101), None, "another client");
        assert_eq!(ask("10.0.0.1", "192.0.2.1", 230).as_deref(), Some("b.example"));
        assert_eq!(ask("10.0.0.1", "192.0.2.1", 261), None, "a TTL of a second lasts a minute");
        assert_eq!(ask("10.0.0.1", "2001:db8::1", 261).as_deref(), Some("a.example"));
        assert_eq!(ask("10.0.0.1", "192.0.2.2", 300 + MOST).as_deref(), Some("c.example"));
        assert_eq!(ask("10.0.0.1", "192.0.2.2", 301 + MOST), None, "a day at most");
    }

    /// Compares with a list of all answers, as long as there is room.
    #[test]
    fn answers_match_a_naive_list() {
        let mut state = 7;
        let mut random = |most: u64| linerate_burst::random::next(&mut state) % most;
        let mut resolved = Resolved::new([3, 4]);
        let mut list: Vec<DnsAnswer> = Vec::new();
        let mut now = 1000;
        for _ in 0..20_000 {
            now += 1 + random(3);
            let client = IpAddr::from([10, 0, 0, random(20) as u8]);
            let address = IpAddr::from([192, 0, 2, random(40) as u8]);
            if random(3) == 0 {
                let name = format!("n{}", random(1000)).into();
                let answer =
                    DnsAnswer { time: at(now), client, name, addresses: [address].into(), seconds: random(300) as u32 };
                list.push(answer.clone());
                resolved.add_dns_answer(answer);
            } else {
                let newest = list.iter().rev().find(|one| one.client == client && one.addresses[0] == address);
                let counts =
                    |one: &&DnsAnswer| now <= one.time.0 / 1_000_000_000 + u64::from(one.seconds).clamp(LEAST, MOST);
                let expected = newest.filter(counts).map(|one| Arc::clone(&one.name));
                let either = resolved.names([client, address], at(now));
                assert_eq!(either[0], expected);
                let [one, other] = resolved.names([address, client], at(now));
                assert_eq!([other, one], either);
            }
        }
        assert!(list.len() > 5000);
    }

    #[test]
    fn answer_flood_stays_within_announced_memory() {
        let mut resolved = Resolved::new([5, 6]);
        for n in 0..200_000u32 {
            let time = if n % 2 == 0 { at(1) } else { at(u64::from(u32::MAX)) };
            let addresses = [IpAddr::V4(n.into())].into();
            resolved.add_dns_answer(DnsAnswer {
                time,
                client: address("::1"),
                name: "x".into(),
                addresses,
                seconds: 60,
            });
        }
        assert!(resolved.ahead.len() <= AHEAD && resolved.sets.len() == SETS);
        const { assert!(BYTES < 40 << 20) };
    }

    #[test]
    fn answers_are_parsed_from_frames() {
        let message = b"\x12\x34\x81\x80\0\x01\0\x01\0\0\0\0\x01a\x02bc\0\0\x01\0\x01\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x09";
        let udp = [&[0, 53, 4, 0, 0, 8 + message.len() as u8, 0, 0][..], message].concat();
        let ipv4 = |first: u8, offset: u8| {
            let length = [0, 20 + udp.len() as u8];
            [&[first, 0][..], &length, &[0, 0, offset, 0, 64, 17, 0, 0, 192, 0, 2, 53, 10, 0, 0, 7], &udp].concat()
        };
        let frame = |kinds: &[u8], packet: &[u8]| [&[0; 12][..], kinds, packet].concat();
        let of = |frame: &[u8]| DnsAnswer::of(Some(Link::Ethernet), at(5), frame);
        let expected = answer(5, "10.0.0.7", "a.bc", &["192.0.2.9"], 60);
        assert_eq!(of(&frame(&[8, 0], &ipv4(0x45, 0))), Some(expected.clone()));
        assert_eq!(of(&frame(&[0x81, 0, 0, 7, 8, 0], &ipv4(0x45, 0))), Some(expected));
        assert_eq!(of(&frame(&[8, 0], &ipv4(0x45, 0x20))), None, "a fragment");
        assert_eq!(DnsAnswer::of(None, at(5), &frame(&[8, 0], &ipv4(0x45, 0))), None);
        let whole = frame(&[8, 0], &ipv4(0x45, 0));
        (0..whole.len()).for_each(|length| assert_eq!(of(&whole[..length]), None, "{length}"));
        let ipv6 = [&[0x60, 0, 0, 0, 0, udp.len() as u8, 17, 64][..], &[0x20; 16], &[0xfd; 16], &udp].concat();
        let found = of(&frame(&[0x86, 0xdd], &ipv6)).unwrap();
        assert_eq!(found.client, IpAddr::from([0xfd; 16]));
    }
}
