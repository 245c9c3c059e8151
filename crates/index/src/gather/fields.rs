//! The fields of a frame at the positions that filters read, whatever else is there, and however much was captured.

use super::{EntryBuilder, KNOWN};
use crate::link::{ARP_TYPES, IPV4, IPV6, Link, MOST_TAGS, VLAN_TYPES, WITH_PORTS};

/// End of the ports of an IPv4 packet without options, in an Ethernet frame.
const USUAL: usize = 38;

impl EntryBuilder {
    /// Adds the fields of a frame.
    #[inline]
    pub(super) fn frame(&mut self, link: Link, frame: &[u8]) {
        if link == Link::EtherType(12)
            && let Some(bytes) = frame.first_chunk::<USUAL>()
            && bytes[12..15] == [8, 0, 0x45]
        {
            let flow = flow_of(bytes);
            let place = &mut self.known[place_of(flow)];
            if *place == flow {
                return;
            }
            *place = flow;
        }
        self.packet(link, frame);
    }

    fn packet(&mut self, link: Link, frame: &[u8]) {
        match link {
            Link::EtherType(at) => self.after_ethertype(at, frame),
            Link::Ip => match frame.first().map(|byte| byte >> 4) {
                Some(4) => self.ip(IPV4, 0, frame),
                Some(6) => self.ip(IPV6, 0, frame),
                _ => {}
            },
        }
    }

    fn after_ethertype(&mut self, at: usize, frame: &[u8]) {
        let mut at = at;
        for _ in 0..=MOST_TAGS {
            let Some(ethertype) = half(frame, at) else { return };
            if !VLAN_TYPES.contains(&ethertype) {
                return self.ip(ethertype, at + 2, frame);
            }
            self.ethertype(ethertype);
            if let Some(tag) = half(frame, at + 2) {
                self.vlans.insert(tag & 0xfff);
            }
            at += 4;
        }
    }

    fn ip(&mut self, ethertype: u16, at: usize, frame: &[u8]) {
        self.ethertype(ethertype);
        match ethertype {
            IPV4 => {
                [12, 16].into_iter().filter_map(|place| word(frame, at + place)).for_each(|word| {
                    self.addresses.add_ipv4(word);
                });
                let Some(protocol) = self.protocol(frame, at + 9) else { return };
                let length = usize::from(frame[at] & 0xf) * 4;
                self.ports(protocol, frame, at + length);
            }
            IPV6 => {
                self.ipv6_address(frame, at + 8);
                self.ipv6_address(frame, at + 24);
                let Some(protocol) = self.protocol(frame, at + 6) else { return };
                self.ports(protocol, frame, at + 40);
            }
            ethertype if ARP_TYPES.contains(&ethertype) => {
                [14, 24].into_iter().filter_map(|place| word(frame, at + place)).for_each(|word| {
                    self.addresses.add_ipv4(word);
                });
            }
            _ => {}
        }
    }

    fn protocol(&mut self, frame: &[u8], at: usize) -> Option<u8> {
        let protocol = *frame.get(at)?;
        self.protocols[usize::from(protocol / 64)] |= 1 << (protocol % 64);
        Some(protocol)
    }

    /// Adds ports, also of later fragments, which have none: a filter may read these positions nevertheless.
    fn ports(&mut self, protocol: u8, frame: &[u8], at: usize) {
        if WITH_PORTS.contains(&protocol) {
            [0, 2].into_iter().filter_map(|place| half(frame, at + place)).for_each(|port| self.ports.insert(port));
        }
    }

    fn ipv6_address(&mut self, frame: &[u8], at: usize) {
        match frame.get(at..).and_then(<[u8]>::first_chunk) {
            Some(bytes) => self.addresses.add_ipv6(u128::from_be_bytes(*bytes)),
            // A filter for a network may need only the captured part of it.
            None if frame.len() >= at + 4 => self.addresses.is_any = true,
            None => {}
        }
    }
}

/// Returns all fields that are gathered from an IPv4 frame without options; never (0, 0).
#[inline]
fn flow_of(bytes: &[u8; USUAL]) -> (u64, u64) {
    let [mut addresses, mut ports] = [[0; 8]; 2];
    addresses.copy_from_slice(&bytes[26..34]);
    ports[..4].copy_from_slice(&bytes[34..38]);
    (ports[4], ports[5]) = (bytes[23], 1);
    (u64::from_ne_bytes(addresses), u64::from_ne_bytes(ports))
}

#[inline]
fn place_of((addresses, ports): (u64, u64)) -> usize {
    let mixed = (addresses ^ ports.rotate_left(23)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (64 - KNOWN.trailing_zeros())) as usize
}

#[inline]
fn half(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

#[inline]
fn word(frame: &[u8], at: usize) -> Option<u32> {
    frame.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}
