//! Parser of matches.

use super::PortNames;
use super::value::{masked, masked_mac, masked_v4, masked_v6, number};
use crate::key::{
    DL_DST, DL_SRC, DL_TYPE, Field, ICMP, ICMPV6, IN_PORT, IPV6_DST, IPV6_SRC, Key, NW_DST, NW_FRAG, NW_PROTO, NW_SRC,
    NW_TOS, NW_TTL, SCTP, TCP, TCP_FLAGS, TP_DST, TP_SRC, TYPE_ARP, TYPE_IPV4, TYPE_IPV6, TYPE_RARP, UDP, VLAN_TCI,
};
use crate::rule::Match;

/// Prerequisites of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prerequisite {
    V4OrArp,
    V6,
    Ip,
    IpOrArp,
    Arp,
    Ports,
    Tcp,
    Icmp,
}

/// Fields parsed so far.
#[derive(Default)]
pub(super) struct Fields {
    matches: Match,
    needs: Vec<(String, Prerequisite)>,
}

/// Words for a type and a protocol.
const WORDS: [(&str, u16, Option<u8>); 13] = [
    ("ip", TYPE_IPV4, None),
    ("ipv6", TYPE_IPV6, None),
    ("arp", TYPE_ARP, None),
    ("rarp", TYPE_RARP, None),
    ("icmp", TYPE_IPV4, Some(ICMP)),
    ("tcp", TYPE_IPV4, Some(TCP)),
    ("udp", TYPE_IPV4, Some(UDP)),
    ("sctp", TYPE_IPV4, Some(SCTP)),
    ("icmp6", TYPE_IPV6, Some(ICMPV6)),
    ("tcp6", TYPE_IPV6, Some(TCP)),
    ("udp6", TYPE_IPV6, Some(UDP)),
    ("sctp6", TYPE_IPV6, Some(SCTP)),
    ("ip6", TYPE_IPV6, None),
];

/// Alternative names of fields in Open vSwitch.
const ALIASES: [(&str, &str); 20] = [
    ("eth_src", "dl_src"),
    ("eth_dst", "dl_dst"),
    ("eth_type", "dl_type"),
    ("ip_src", "nw_src"),
    ("ip_dst", "nw_dst"),
    ("ip_proto", "nw_proto"),
    ("ip_frag", "nw_frag"),
    ("ip_ecn", "nw_ecn"),
    ("tcp_src", "tp_src"),
    ("tcp_dst", "tp_dst"),
    ("udp_src", "tp_src"),
    ("udp_dst", "tp_dst"),
    ("sctp_src", "tp_src"),
    ("sctp_dst", "tp_dst"),
    ("icmpv6_type", "icmp_type"),
    ("icmpv6_code", "icmp_code"),
    ("icmp6_type", "icmp_type"),
    ("icmp6_code", "icmp_code"),
    ("ttl", "nw_ttl"),
    ("tos", "nw_tos"),
];

/// Fields of Open vSwitch that are not supported, and the reasons.
const REFUSED: [(&str, &str); 12] = [
    ("ct_", "connections are not tracked"),
    ("tun_", "the switch has no tunnel ports"),
    ("reg", "registers are not implemented"),
    ("xreg", "registers are not implemented"),
    ("xxreg", "registers are not implemented"),
    ("metadata", "registers are not implemented"),
    ("conj_id", "conjunctions are not implemented"),
    ("mpls", "MPLS labels cannot be matched"),
    ("ipv6_label", "flow labels cannot be matched"),
    ("nd_", "neighbour discovery options cannot be matched"),
    ("nsh", "service headers cannot be matched"),
    ("arp_", "only arp_op, arp_spa and arp_tpa can be matched"),
];

/// Names of TCP flags, from the lowest bit on.
pub(super) const FLAGS: [&str; 12] =
    ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]"];

/// Returns the canonical name of a field.
pub(super) fn name_of(key: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == key).map_or(key, |(_, name)| name)
}

impl Fields {
    pub(super) fn add(&mut self, key: &str, value: Option<&str>, ports: &dyn PortNames) -> Result<(), String> {
        let Some(value) = value else { return self.word(key) };
        let name = name_of(key);
        match name {
            "in_port" => {
                let port = ports.number(value).ok_or_else(|| format!("in_port={value}: no such port"))?;
                self.set(key, IN_PORT, (port.into(), IN_PORT.all()))
            }
            "dl_src" => self.set(key, DL_SRC, wide(masked_mac(key, value)?)),
            "dl_dst" => self.set(key, DL_DST, wide(masked_mac(key, value)?)),
            "dl_type" => self.set(key, DL_TYPE, wide((number(key, value, 0xffff)?, 0xffff))),
            "dl_vlan" => self.dl_vlan(key, value),
            "dl_vlan_pcp" => self.dl_vlan_pcp(key, value),
            "vlan_tci" => self.set(key, VLAN_TCI, wide(masked(key, value, 0xffff)?)),
            "nw_src" => self.address(key, NW_SRC, value),
            "nw_dst" => self.address(key, NW_DST, value),
            "arp_spa" => self.needing(key, Prerequisite::Arp).set(key, NW_SRC, wide32(masked_v4(key, value)?)),
            "arp_tpa" => self.needing(key, Prerequisite::Arp).set(key, NW_DST, wide32(masked_v4(key, value)?)),
            "arp_op" => {
                self.needing(key, Prerequisite::Arp).set(key, NW_PROTO, wide((number(key, value, 0xff)?, 0xff)))
            }
            "ipv6_src" => self.needing(key, Prerequisite::V6).set(key, IPV6_SRC, masked_v6(key, value)?),
            "ipv6_dst" => self.needing(key, Prerequisite::V6).set(key, IPV6_DST, masked_v6(key, value)?),
            "nw_proto" => {
                self.needing(key, Prerequisite::IpOrArp).set(key, NW_PROTO, wide((number(key, value, 0xff)?, 0xff)))
            }
            "nw_tos" => self.tos(key, value, 0),
            "ip_dscp" => self.tos(key, value, 2),
            "nw_ecn" => self.needing(key, Prerequisite::Ip).set(key, NW_TOS, wide((number(key, value, 3)?, 3))),
            "nw_ttl" => self.needing(key, Prerequisite::Ip).set(key, NW_TTL, wide((number(key, value, 0xff)?, 0xff))),
            "nw_frag" => self.fragment(key, value),
            "tp_src" => self.needing(key, Prerequisite::Ports).set(key, TP_SRC, wide(masked(key, value, 0xffff)?)),
            "tp_dst" => self.needing(key, Prerequisite::Ports).set(key, TP_DST, wide(masked(key, value, 0xffff)?)),
            "icmp_type" => {
                self.needing(key, Prerequisite::Icmp).set(key, TP_SRC, wide((number(key, value, 0xff)?, 0xffff)))
            }
            "icmp_code" => {
                self.needing(key, Prerequisite::Icmp).set(key, TP_DST, wide((number(key, value, 0xff)?, 0xffff)))
            }
            "tcp_flags" => {
                let flags = tcp_flags(value)?;
                self.needing(key, Prerequisite::Tcp).set(key, TCP_FLAGS, wide(flags))
            }
            _ => Err(unknown(key)),
        }
    }

    /// Adds a type and a protocol by one word.
    fn word(&mut self, key: &str) -> Result<(), String> {
        let Some((_, dl_type, protocol)) = WORDS.iter().find(|(word, ..)| *word == key) else {
            return Err(unknown(key));
        };
        self.set(key, DL_TYPE, (u128::from(*dl_type), 0xffff))?;
        protocol.map_or(Ok(()), |protocol| self.set(key, NW_PROTO, (u128::from(protocol), 0xff)))
    }

    fn needing(&mut self, key: &str, needs: Prerequisite) -> &mut Self {
        self.needs.push((key.to_owned(), needs));
        self
    }

    fn set(&mut self, key: &str, field: Field, (value, mask): (u128, u128)) -> Result<(), String> {
        let Match { mask: given, value: before } = &mut self.matches;
        let both = given.get(field) & mask;
        if (before.get(field) ^ value) & both != 0 {
            return Err(format!("{key} contradicts an earlier field; no frame would match"));
        }
        let (all, value) = (given.get(field) | mask, before.get(field) | value & mask);
        given.set(field, all);
        before.set(field, value);
        Ok(())
    }

    fn dl_vlan(&mut self, key: &str, value: &str) -> Result<(), String> {
        let vlan = number(key, value, 0xffff)?;
        match vlan {
            0xffff => self.set(key, VLAN_TCI, (0, 0xffff)),
            0..0x1000 => self.set(key, VLAN_TCI, wide((vlan | 0x1000, 0x1fff))),
            _ => Err(format!("{key}={value}: invalid VLAN; expected 0 to 4095, or 0xffff for frames without a tag")),
        }
    }

    fn dl_vlan_pcp(&mut self, key: &str, value: &str) -> Result<(), String> {
        let priority = number(key, value, 7)?;
        self.set(key, VLAN_TCI, wide((priority << 13 | 0x1000, 0xf000)))
    }

    fn address(&mut self, key: &str, field: Field, value: &str) -> Result<(), String> {
        if value.contains(':') {
            return Err(format!("{key}: {value} is an IPv6 address; use ipv6 with ipv6_src or ipv6_dst"));
        }
        self.needing(key, Prerequisite::V4OrArp).set(key, field, wide32(masked_v4(key, value)?))
    }

    fn tos(&mut self, key: &str, value: &str, shift: u32) -> Result<(), String> {
        let tos = number(key, value, 0xff >> shift)? << shift;
        if tos & !0xfc != 0 {
            return Err(format!("{key}={value}: the lower two bits are nw_ecn; expected a multiple of 4"));
        }
        self.needing(key, Prerequisite::Ip).set(key, NW_TOS, wide((tos, 0xfc)))
    }

    fn fragment(&mut self, key: &str, value: &str) -> Result<(), String> {
        let (any, later) = (u128::from(Key::FRAGMENT), u128::from(Key::LATER));
        let bits = match value {
            "no" => (0, any),
            "yes" => (any, any),
            "first" => (any, any | later),
            "later" => (any | later, any | later),
            "not_later" => (0, later),
            _ => return Err(format!("{key}={value}: invalid value; expected no, yes, first, later or not_later")),
        };
        self.needing(key, Prerequisite::Ip).set(key, NW_FRAG, bits)
    }

    /// Returns the match, if all prerequisites are met.
    pub(super) fn finish(self) -> Result<Match, String> {
        for (key, needs) in &self.needs {
            if !is_satisfied(*needs, &self.matches) {
                let what = match needs {
                    Prerequisite::V4OrArp => "ip (or tcp, udp, ..), or arp",
                    Prerequisite::V6 => "ipv6 (or tcp6, udp6, ..)",
                    Prerequisite::Ip => "ip or ipv6",
                    Prerequisite::IpOrArp => "ip, ipv6 or arp",
                    Prerequisite::Arp => "arp",
                    Prerequisite::Ports => "tcp, udp or sctp (of IPv6: tcp6, udp6, sctp6)",
                    Prerequisite::Tcp => "tcp or tcp6",
                    Prerequisite::Icmp => "icmp or icmp6",
                };
                return Err(format!("{key} needs {what}; add it, as in tcp,tp_dst=80"));
            }
        }
        Ok(self.matches)
    }
}

/// Returns the type and the protocol that a match determines.
pub(super) fn fixed_values(matches: &Match) -> (Option<u16>, Option<u8>) {
    let sure = |field: Field| (matches.mask.get(field) == field.all()).then(|| matches.value.get(field));
    let protocol = sure(NW_PROTO).map(|protocol| protocol as u8);
    (sure(DL_TYPE).map(|dl_type| dl_type as u16), protocol)
}

fn is_satisfied(needs: Prerequisite, matches: &Match) -> bool {
    let (dl_type, protocol) = fixed_values(matches);
    let (is_v4, is_v6) = (dl_type == Some(TYPE_IPV4), dl_type == Some(TYPE_IPV6));
    let is_arp = matches!(dl_type, Some(TYPE_ARP | TYPE_RARP));
    match needs {
        Prerequisite::V4OrArp => is_v4 || is_arp,
        Prerequisite::V6 => is_v6,
        Prerequisite::Ip => is_v4 || is_v6,
        Prerequisite::IpOrArp => is_v4 || is_v6 || is_arp,
        Prerequisite::Arp => is_arp,
        Prerequisite::Ports => (is_v4 || is_v6) && matches!(protocol, Some(TCP | UDP | SCTP)),
        Prerequisite::Tcp => (is_v4 || is_v6) && protocol == Some(TCP),
        Prerequisite::Icmp => is_v4 && protocol == Some(ICMP) || is_v6 && protocol == Some(ICMPV6),
    }
}

/// Parses `+syn-ack`, or bits with an optional mask.
fn tcp_flags(text: &str) -> Result<(u64, u64), String> {
    if !text.starts_with(['+', '-']) {
        return masked("tcp_flags", text, 0xfff);
    }
    let (mut value, mut mask) = (0, 0);
    let mut rest = text;
    while let Some(is_set) = rest.chars().next().map(|sign| sign == '+') {
        let end = rest[1..].find(['+', '-']).map_or(rest.len(), |at| at + 1);
        let name = &rest[1..end];
        let bit = FLAGS.iter().position(|flag| *flag == name).ok_or_else(|| {
            format!(
                "tcp_flags: unknown flag {name:?}; expected fin, syn, rst, psh, ack, urg, ece, cwr or ns, such as +syn-ack"
            )
        })?;
        if mask >> bit & 1 == 1 {
            return Err(format!("tcp_flags: duplicate flag {name}"));
        }
        (value, mask) = (value | u64::from(is_set) << bit, mask | 1 << bit);
        rest = &rest[end..];
    }
    Ok((value, mask))
}

fn unknown(key: &str) -> String {
    match REFUSED.iter().find(|(start, _)| key.starts_with(start)) {
        Some((_, reason)) => format!("{key}: not supported: {reason}"),
        None => format!("{key:?}: unknown field; see docs/guide/switch.md"),
    }
}

fn wide((value, mask): (u64, u64)) -> (u128, u128) {
    (value.into(), mask.into())
}

fn wide32((value, mask): (u32, u32)) -> (u128, u128) {
    (value.into(), mask.into())
}
