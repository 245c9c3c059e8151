//! Community ID v1: a flow hash shared with Zeek, Suricata, Wireshark and others
//! (github.com/corelight/community-id-spec).

use crate::flow::{Flow, Quality};
use crate::key::{icmp_pair, is_icmp};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use linerate_headers::registry;
use ring::digest::{Digest, SHA1_FOR_LEGACY_USE_ONLY};
use std::net::IpAddr;

/// Characters of an ID: `1:` and 20 bytes in base64.
const TEXT: usize = 30;

impl Flow {
    /// Returns the Community ID: `1:` and the base64 SHA-1 of `seed`, addresses, protocol and ports. The seed is 0
    /// unless all tools that exchange IDs are configured with another.
    ///
    /// Both directions have the same ID. ICMP uses its type and that of the reply in place of ports; types without a
    /// reply use type and code, and the ends are not sorted. Protocols other than TCP, UDP, SCTP and ICMP have no
    /// ports, nor have later fragments whose first fragment was not seen (the specification leaves fragments open).
    pub fn community_id(&self, seed: u16) -> String {
        let [originator, responder] = self.ends;
        let (mut ports, mut is_one_way) = ([originator.port, responder.port], false);
        if is_icmp(self.protocol) {
            let pair = u8::try_from(ports[0]).ok().and_then(|kind| icmp_pair(self.protocol, kind));
            is_one_way = pair.is_none();
            ports = pair.map_or(ports, |pair| pair.map(u16::from));
        }
        let has_ports =
            matches!(self.protocol, registry::TCP | registry::UDP | registry::SCTP) || is_icmp(self.protocol);
        let has_ports = has_ports && !self.quality.contains(Quality::ORPHAN_FRAGMENTS);
        if !has_ports {
            ports = [0; 2];
        }
        let mut ends = [(originator.address, ports[0]), (responder.address, ports[1])];
        if !is_one_way {
            ends.sort();
        }
        let mut text = String::with_capacity(TEXT);
        text.push_str("1:");
        STANDARD.encode_string(digest(seed, self.protocol, &ends, has_ports), &mut text);
        text
    }
}

/// Returns the SHA-1 of all input, assembled first: it fits one SHA-1 block.
fn digest(seed: u16, protocol: u8, ends: &[(IpAddr, u16); 2], has_ports: bool) -> Digest {
    let (mut bytes, mut used) = ([0; 2 + 2 * 16 + 2 + 4], 0);
    let mut add = |more: &[u8]| {
        bytes[used..][..more.len()].copy_from_slice(more);
        used += more.len();
    };
    add(&seed.to_be_bytes());
    for (address, _) in ends {
        match address {
            IpAddr::V4(address) => add(&address.octets()),
            IpAddr::V6(address) => add(&address.octets()),
        }
    }
    add(&[protocol, 0]);
    if has_ports {
        ends.iter().for_each(|(_, port)| add(&port.to_be_bytes()));
    }
    ring::digest::digest(&SHA1_FOR_LEGACY_USE_ONLY, &bytes[..used])
}
