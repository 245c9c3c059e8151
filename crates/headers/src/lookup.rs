//! Lookup of a protocol by number: the rows of the registry, inverted at compile time.

use crate::registry::{Next, ROWS};
use crate::{Number, Protocol};
use Number::UdpPort;

/// Every number of a row, as a key, with its protocol: at the slot given by [`slot`], or in the first free slot after
/// it.
static NUMBERS: [Option<(u64, Protocol)>; SLOTS] = numbers();

/// Slots for numbers: several times as many as numbers, so that most are found at the first slot.
const SLOTS: usize = 256;

/// Every UDP port of a row.
static PORTS: [u16; count_ports()] = ports();

/// Returns the protocol selected by a number. An IP protocol number means the same after IPv4 and IPv6: extension
/// headers after IPv4, which are invalid, are walked too.
#[inline]
pub(crate) fn protocol(number: Number) -> Option<Protocol> {
    let key = number.key();
    let mut place = slot(key);
    loop {
        let (found, protocol) = NUMBERS[place]?;
        if found == key {
            return Some(protocol);
        }
        place = (place + 1) % SLOTS;
    }
}

/// Returns whether a row has one of these UDP ports. All are compared, which takes a few instructions without a branch.
#[inline(always)]
pub(crate) fn has_port(destination: u16, source: u16) -> bool {
    PORTS.iter().fold(false, |found, port| found | (*port == destination) | (*port == source))
}

/// Returns the payload protocol of a UDP datagram with these ports.
pub(crate) fn protocol_by_ports(destination: u16, source: u16) -> Next {
    if !has_port(destination, source) {
        return Next::End;
    }
    protocol(UdpPort(destination)).or_else(|| protocol(UdpPort(source))).map_or(Next::End, Next::Guess)
}

/// Returns the first slot of a key: the upper bits of a product scatter well (Knuth, volume 3, section 6.4).
const fn slot(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % SLOTS
}

const fn numbers() -> [Option<(u64, Protocol)>; SLOTS] {
    let mut slots = [None; SLOTS];
    let mut index = 0;
    while index < ROWS.len() {
        let mut number = 0;
        while number < ROWS[index].numbers.len() {
            let key = ROWS[index].numbers[number].key();
            let mut place = slot(key);
            while slots[place].is_some() {
                place = (place + 1) % SLOTS;
            }
            slots[place] = Some((key, ROWS[index].protocol));
            number += 1;
        }
        index += 1;
    }
    slots
}

const fn count_ports() -> usize {
    let (mut count, mut place) = (0, 0);
    while place < SLOTS {
        count += port_at(place).is_some() as usize;
        place += 1;
    }
    count
}

const fn ports() -> [u16; count_ports()] {
    let mut ports = [0; count_ports()];
    let (mut count, mut place) = (0, 0);
    while place < SLOTS {
        if let Some(port) = port_at(place) {
            ports[count] = port;
            count += 1;
        }
        place += 1;
    }
    ports
}

/// Returns the UDP port at this index.
const fn port_at(place: usize) -> Option<u16> {
    match NUMBERS[place] {
        Some((key, _)) if UdpPort(key as u16).key() == key => Some(key as u16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{geneve, vxlan};

    #[test]
    fn every_number_of_a_row_leads_to_it() {
        for row in &ROWS {
            for number in row.numbers {
                assert_eq!(protocol(*number), Some(row.protocol), "{number}");
            }
        }
        assert_eq!(protocol(Number::EtherType(0x1234)), None);
        assert_eq!(protocol(UdpPort(53)), None);
    }

    #[test]
    fn most_numbers_are_in_their_first_slot() {
        let all: Vec<Number> = ROWS.iter().flat_map(|row| row.numbers).copied().collect();
        let first = all.iter().filter(|number| NUMBERS[slot(number.key())].is_some_and(|(key, _)| key == number.key()));
        assert!(all.len() * 3 < SLOTS && first.count() * 4 > all.len() * 3, "more slots are needed");
    }

    #[test]
    fn ports_announce_from_either_end_and_the_destination_first() {
        for port in 0..=u16::MAX {
            let expected = protocol(UdpPort(port)).map_or(Next::End, Next::Guess);
            assert_eq!((protocol_by_ports(port, 1), protocol_by_ports(1, port)), (expected, expected), "{port}");
        }
        assert_eq!(protocol_by_ports(vxlan::PORT, geneve::PORT), Next::Guess(Protocol::Vxlan));
    }
}
