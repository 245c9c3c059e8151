//! Rules in the format of `ovs-ofctl dump-flows`, so that both can be compared.

use super::matches::{FLAGS, fixed_values};
use crate::action::Action;
use crate::key::{
    DL_DST, DL_SRC, DL_TYPE, Field, ICMP, ICMPV6, IN_PORT, IPV6_DST, IPV6_SRC, Key, NW_DST, NW_FRAG, NW_PROTO, NW_SRC,
    NW_TOS, NW_TTL, SCTP, TCP, TCP_FLAGS, TP_DST, TP_SRC, TYPE_ARP, TYPE_IPV4, TYPE_IPV6, TYPE_RARP, UDP, VLAN_TCI,
};
use crate::rule::{InstalledRule, Match, Rule};
use linerate_burst::Nanos;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Formats a line of `dump-flows`, without its leading space; `rings` holds the names of rings.
pub fn show_rule(installed: &InstalledRule, now: Nanos, rings: &[String]) -> String {
    let InstalledRule { rule, since, used, frames, bytes, .. } = installed;
    let seconds = |since: &Nanos| now.0.saturating_sub(since.0) as f64 / 1e9;
    let mut text = format!(
        "cookie=0x{:x}, duration={:.3}s, table=0, n_packets={frames}, n_bytes={bytes}, ",
        rule.cookie,
        seconds(since)
    );
    for (name, limit) in [("idle_timeout", rule.idle_timeout), ("hard_timeout", rule.hard_timeout)] {
        if limit > 0 {
            text += &format!("{name}={limit}, ");
        }
    }
    text + &format!("idle_age={}, {}", seconds(used) as u64, show_plain(rule, rings))
}

/// Formats priority, matches and actions.
fn show_plain(rule: &Rule, rings: &[String]) -> String {
    let mut parts = Vec::new();
    if rule.priority != Rule::PRIORITY {
        parts.push(format!("priority={}", rule.priority));
    }
    parts.extend(Some(show_match(&rule.matches)).filter(|text| !text.is_empty()));
    let gap = if parts.is_empty() { "" } else { " " };
    format!("{}{gap}actions={}", parts.join(","), show_actions(&rule.actions, rings))
}

/// Formats a match; empty for all frames.
pub fn show_match(matches: &Match) -> String {
    let mut parts: Vec<String> = Vec::new();
    let (dl_type, protocol) = fixed_values(matches);
    let get = |field: Field| (matches.value.get(field), matches.mask.get(field));
    let is_ip = matches!(dl_type, Some(TYPE_IPV4 | TYPE_IPV6));
    let word = is_ip.then_some(protocol).flatten().and_then(|protocol| word_of(dl_type, protocol));
    let of_type = word.or(match dl_type {
        Some(TYPE_IPV4) => Some("ip"),
        Some(TYPE_IPV6) => Some("ipv6"),
        Some(TYPE_ARP) => Some("arp"),
        Some(TYPE_RARP) => Some("rarp"),
        _ => None,
    });
    parts.extend(of_type.map(str::to_owned));
    put(&mut parts, "in_port", get(IN_PORT), IN_PORT.all(), |port| port.to_string());
    vlan(&mut parts, get(VLAN_TCI));
    put(&mut parts, "dl_src", get(DL_SRC), DL_SRC.all(), mac);
    put(&mut parts, "dl_dst", get(DL_DST), DL_DST.all(), mac);
    if of_type.is_none() {
        put(&mut parts, "dl_type", get(DL_TYPE), DL_TYPE.all(), |kind| format!("0x{kind:04x}"));
    }
    let is_arp = matches!(dl_type, Some(TYPE_ARP | TYPE_RARP));
    match dl_type {
        Some(TYPE_IPV6) => {
            address(&mut parts, "ipv6_src", get(IPV6_SRC), 128, v6);
            address(&mut parts, "ipv6_dst", get(IPV6_DST), 128, v6);
        }
        _ => {
            address(&mut parts, if is_arp { "arp_spa" } else { "nw_src" }, get(NW_SRC), 32, v4);
            address(&mut parts, if is_arp { "arp_tpa" } else { "nw_dst" }, get(NW_DST), 32, v4);
        }
    }
    if word.is_none() {
        put(&mut parts, if is_arp { "arp_op" } else { "nw_proto" }, get(NW_PROTO), 0xff, |number| number.to_string());
    }
    let (tos, of) = get(NW_TOS);
    put(&mut parts, "nw_tos", (tos & 0xfc, of & 0xfc), 0xfc, |tos| tos.to_string());
    put(&mut parts, "nw_ecn", (tos & 3, of & 3), 3, |ecn| ecn.to_string());
    put(&mut parts, "nw_ttl", get(NW_TTL), 0xff, |ttl| ttl.to_string());
    parts.extend(fragment(get(NW_FRAG)).map(|text| format!("nw_frag={text}")));
    let is_icmp = word.is_some_and(|word| word.starts_with("icmp"));
    let names = if is_icmp { ["icmp_type", "icmp_code"] } else { ["tp_src", "tp_dst"] };
    put(&mut parts, names[0], get(TP_SRC), 0xffff, |number| number.to_string());
    put(&mut parts, names[1], get(TP_DST), 0xffff, |number| number.to_string());
    parts.extend(flags(get(TCP_FLAGS)));
    parts.join(",")
}

fn word_of(dl_type: Option<u16>, protocol: u8) -> Option<&'static str> {
    Some(match (dl_type, protocol) {
        (Some(TYPE_IPV4), ICMP) => "icmp",
        (Some(TYPE_IPV4), TCP) => "tcp",
        (Some(TYPE_IPV4), UDP) => "udp",
        (Some(TYPE_IPV4), SCTP) => "sctp",
        (Some(TYPE_IPV6), ICMPV6) => "icmp6",
        (Some(TYPE_IPV6), TCP) => "tcp6",
        (Some(TYPE_IPV6), UDP) => "udp6",
        (Some(TYPE_IPV6), SCTP) => "sctp6",
        _ => return None,
    })
}

/// Adds a field, with its mask if partial; nothing if the mask is empty.
fn put(parts: &mut Vec<String>, name: &str, (value, mask): (u128, u128), all: u128, show: impl Fn(u128) -> String) {
    match mask {
        0 => {}
        mask if mask == all => parts.push(format!("{name}={}", show(value))),
        mask if name.starts_with("dl_") => parts.push(format!("{name}={}/{}", show(value), show(mask))),
        mask => parts.push(format!("{name}=0x{value:x}/0x{mask:x}")),
    }
}

fn vlan(parts: &mut Vec<String>, (value, mask): (u128, u128)) {
    let tagged = u128::from(Key::TAGGED);
    match mask {
        0x1fff if value & tagged > 0 => parts.push(format!("dl_vlan={}", value & 0xfff)),
        0xf000 if value & tagged > 0 => parts.push(format!("dl_vlan_pcp={}", value >> 13)),
        0xffff if value & tagged > 0 => {
            parts.push(format!("dl_vlan={}", value & 0xfff));
            parts.push(format!("dl_vlan_pcp={}", value >> 13));
        }
        _ => put(parts, "vlan_tci", (value, mask), 0xffff, |tci| format!("0x{tci:04x}")),
    }
}

fn address(parts: &mut Vec<String>, name: &str, (value, mask): (u128, u128), bits: u32, show: fn(u128) -> String) {
    let ones = mask.count_ones();
    let is_prefix = ones > 0 && mask.leading_zeros() == 128 - bits && mask.trailing_zeros() == bits - ones;
    match ones {
        0 => {}
        ones if ones == bits => parts.push(format!("{name}={}", show(value))),
        ones if is_prefix => parts.push(format!("{name}={}/{ones}", show(value))),
        _ => parts.push(format!("{name}={}/{}", show(value), show(mask))),
    }
}

fn fragment(bits: (u128, u128)) -> Option<&'static str> {
    match bits {
        (0, 1) => Some("no"),
        (1, 1) => Some("yes"),
        (1, 3) => Some("first"),
        (3, 3) => Some("later"),
        (0, 2) => Some("not_later"),
        (0, 3) => Some("no"),
        _ => None,
    }
}

fn flags((value, mask): (u128, u128)) -> Option<String> {
    match mask {
        0 => None,
        0xfff => Some(format!("tcp_flags=0x{value:03x}/0xfff")),
        _ => {
            let sign = |bit: usize| if value >> bit & 1 == 1 { '+' } else { '-' };
            let named = (0..FLAGS.len()).filter(|bit| mask >> bit & 1 == 1);
            Some(named.fold("tcp_flags=".to_owned(), |text, bit| format!("{text}{}{}", sign(bit), FLAGS[bit])))
        }
    }
}

fn mac(mac: u128) -> String {
    let bytes: Vec<_> = mac.to_be_bytes()[10..].iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

fn v4(address: u128) -> String {
    Ipv4Addr::from_bits(address as u32).to_string()
}

fn v6(address: u128) -> String {
    Ipv6Addr::from_bits(address).to_string()
}

/// Formats actions; `rings` holds the names of rings.
pub fn show_actions(actions: &[Action], rings: &[String]) -> String {
    let one = |action: &Action| match *action {
        Action::Output { port, most: None } => format!("output:{port}"),
        Action::Output { port, most: Some(most) } => format!("output(port={port},max_len={most})"),
        Action::InPort => "IN_PORT".to_owned(),
        Action::Normal => "NORMAL".to_owned(),
        Action::Flood => "FLOOD".to_owned(),
        Action::All => "ALL".to_owned(),
        Action::SetSource(address) => format!("mod_dl_src:{}", mac(address.into())),
        Action::SetDestination(address) => format!("mod_dl_dst:{}", mac(address.into())),
        Action::SetVlan(vlan) => format!("mod_vlan_vid:{vlan}"),
        Action::SetPriority(priority) => format!("mod_vlan_pcp:{priority}"),
        Action::StripVlan => "strip_vlan".to_owned(),
        Action::PushVlan(kind) => format!("push_vlan:0x{kind:04x}"),
        Action::SetV4Source(address) => format!("mod_nw_src:{}", v4(address.into())),
        Action::SetV4Destination(address) => format!("mod_nw_dst:{}", v4(address.into())),
        Action::SetV6Source(address) => format!("set_field:{}->ipv6_src", v6(address)),
        Action::SetV6Destination(address) => format!("set_field:{}->ipv6_dst", v6(address)),
        Action::SetTos(tos) => format!("mod_nw_tos:{tos}"),
        Action::SetEcn(ecn) => format!("mod_nw_ecn:{ecn}"),
        Action::SetTtl(ttl) => format!("mod_nw_ttl:{ttl}"),
        Action::DecTtl => "dec_ttl".to_owned(),
        Action::SetSourcePort(port) => format!("mod_tp_src:{port}"),
        Action::SetDestinationPort(port) => format!("mod_tp_dst:{port}"),
        Action::Sample(one_in) => format!("sample:1/{one_in}"),
        Action::Inspect(ring) => format!("inspect:{}", rings.get(usize::from(ring)).map_or("", String::as_str)),
    };
    if actions.is_empty() { "drop".to_owned() } else { actions.iter().map(one).collect::<Vec<_>>().join(",") }
}
