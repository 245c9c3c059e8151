//! Parser of actions.

use super::PortNames;
use super::matches::{fixed_values, name_of};
use super::value::{mac, number, v4, v6};
use crate::action::Action;
use crate::key::{TCP, TYPE_IPV4, TYPE_IPV6, UDP, is_tag};
use crate::rule::Match;

/// Maximum number of actions of a rule.
const MOST: usize = 256;

/// Actions of Open vSwitch that are not supported, and the reasons.
const REFUSED: [(&str, &str); 22] = [
    ("resubmit", "only table 0 exists"),
    ("goto_table", "only table 0 exists"),
    ("group", "groups are not implemented"),
    ("learn", "frames cannot create rules; normal learns MACs"),
    ("ct", "connections are not tracked"),
    ("nat", "connections are not tracked"),
    ("controller", "controllers are not implemented"),
    ("set_tunnel", "the switch has no tunnel ports"),
    ("tunnel", "the switch has no tunnel ports"),
    ("meter", "meters are not implemented"),
    ("enqueue", "ports have one queue"),
    ("set_queue", "ports have one queue"),
    ("pop_queue", "ports have one queue"),
    ("load", "registers are not implemented; use set_field:VALUE->FIELD"),
    ("move", "registers are not implemented; use set_field:VALUE->FIELD"),
    ("push_mpls", "MPLS labels cannot be changed"),
    ("pop_mpls", "MPLS labels cannot be changed"),
    ("bundle", "bundles are not implemented"),
    ("conjunction", "conjunctions are not implemented"),
    ("local", "the switch has no local port"),
    ("clone", "nested actions are not implemented"),
    ("write_actions", "only table 0 exists"),
];

/// Parses actions; `matches` limits the frames they apply to.
pub(super) fn parse(text: &str, matches: &Match, ports: &dyn PortNames) -> Result<Vec<Action>, String> {
    let mut actions = Vec::new();
    let (mut words, mut is_dropped) = (0, false);
    for word in split(text)? {
        words += 1;
        if word.eq_ignore_ascii_case("drop") {
            is_dropped = true;
        } else {
            actions.push(one(word, matches, ports)?);
        }
        if actions.len() > MOST {
            return Err(format!("too many actions; expected at most {MOST}"));
        }
    }
    for (at, action) in actions.iter().enumerate() {
        if matches!(action, Action::Inspect(_)) && actions[..at].contains(action) {
            return Err("duplicate inspect; a ring inspects a frame only once".to_owned());
        }
    }
    if is_dropped && words > 1 {
        return Err("drop cannot be combined with other actions".to_owned());
    }
    Ok(actions)
}

/// Splits at commas and white space outside of parentheses.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let (mut words, mut depth, mut start) = (Vec::new(), 0usize, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.checked_sub(1).ok_or("actions: unmatched )")?,
            b',' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => {
                words.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err("actions: unmatched (".to_owned());
    }
    words.push(&text[start..]);
    words.retain(|word| !word.is_empty());
    Ok(words)
}

fn one(word: &str, matches: &Match, ports: &dyn PortNames) -> Result<Action, String> {
    let key_ends = word.find([':', '(', '=']).unwrap_or(word.len());
    let (key, rest) = word.split_at(key_ends);
    let value = rest.strip_prefix([':', '=']).unwrap_or(rest);
    let lower = key.to_ascii_lowercase();
    let ip = |action: Action| match fixed_values(matches) {
        (Some(TYPE_IPV4 | TYPE_IPV6), _) => Ok(action),
        _ => Err(format!("{key} needs ip or ipv6 in the rule")),
    };
    let only_v4 = |action: Action| match fixed_values(matches) {
        (Some(TYPE_IPV4), _) => Ok(action),
        _ => Err(format!("{key} needs ip, tcp, udp or icmp in the rule")),
    };
    let port = |action: fn(u16) -> Action| {
        let number = number(key, value, 0xffff)? as u16;
        match fixed_values(matches) {
            (Some(TYPE_IPV4 | TYPE_IPV6), Some(TCP | UDP)) => Ok(action(number)),
            _ => Err(format!("{key} needs tcp, udp, tcp6 or udp6 in the rule")),
        }
    };
    match lower.as_str() {
        "output" if rest.starts_with('(') => output(rest, ports),
        "output" => Ok(Action::Output { port: known(value, ports)?, most: None }),
        "in_port" => without_value(word, rest, Action::InPort),
        "normal" => without_value(word, rest, Action::Normal),
        "flood" => without_value(word, rest, Action::Flood),
        "all" => without_value(word, rest, Action::All),
        "mod_dl_src" => Ok(Action::SetSource(mac(key, value)?)),
        "mod_dl_dst" => Ok(Action::SetDestination(mac(key, value)?)),
        "mod_vlan_vid" => Ok(Action::SetVlan(number(key, value, 4095)? as u16)),
        "mod_vlan_pcp" => Ok(Action::SetPriority(number(key, value, 7)? as u8)),
        "strip_vlan" | "pop_vlan" => without_value(word, rest, Action::StripVlan),
        "push_vlan" => push(key, value),
        "mod_nw_src" => only_v4(Action::SetV4Source(v4(key, value)?)),
        "mod_nw_dst" => only_v4(Action::SetV4Destination(v4(key, value)?)),
        "mod_nw_tos" => ip(Action::SetTos(tos(key, value)?)),
        "mod_nw_ecn" => ip(Action::SetEcn(number(key, value, 3)? as u8)),
        "mod_nw_ttl" => ip(Action::SetTtl(number(key, value, 255)? as u8)),
        "dec_ttl" => ip(without_value(word, rest, Action::DecTtl)?),
        "mod_tp_src" => port(Action::SetSourcePort),
        "mod_tp_dst" => port(Action::SetDestinationPort),
        "set_field" => set_field(value, matches),
        "sample" if !rest.starts_with('(') => sample(value),
        "inspect" => ports
            .ring(value)
            .map(Action::Inspect)
            .ok_or_else(|| format!("inspect:{value}: no such ring; start linerate switch with --inspect NAME")),
        "mirror" => Err(format!("{word}: not supported; add the mirror as a port and use output:N")),
        _ if rest.is_empty() && ports.number(word).is_some() => {
            Ok(Action::Output { port: known(word, ports)?, most: None })
        }
        _ => Err(unknown(word, &lower)),
    }
}

fn without_value(word: &str, rest: &str, action: Action) -> Result<Action, String> {
    if rest.is_empty() { Ok(action) } else { Err(format!("{word}: this action takes no value")) }
}

fn known(text: &str, ports: &dyn PortNames) -> Result<u16, String> {
    ports.number(text).ok_or_else(|| format!("output:{text}: no such port"))
}

fn push(key: &str, value: &str) -> Result<Action, String> {
    let kind = number(key, value, 0xffff)? as u16;
    if is_tag(kind) {
        Ok(Action::PushVlan(kind))
    } else {
        Err(format!("{key}:{value}: invalid tag type; expected 0x8100 or 0x88a8"))
    }
}

fn tos(key: &str, value: &str) -> Result<u8, String> {
    let tos = number(key, value, 255)? as u8;
    if tos & 3 == 0 {
        Ok(tos)
    } else {
        Err(format!("{key}:{value}: the lower two bits are ECN; expected a multiple of 4"))
    }
}

/// Parses `(port=N,max_len=L)`.
fn output(rest: &str, ports: &dyn PortNames) -> Result<Action, String> {
    let wrong = || format!("output{rest}: expected output(port=N,max_len=BYTES)");
    let inner = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).ok_or_else(wrong)?;
    let (mut port, mut most) = (None, None);
    for part in inner.split(',') {
        match part.trim().split_once('=') {
            Some(("port", text)) => port = Some(known(text, ports)?),
            // Shorter frames would be invalid Ethernet.
            Some(("max_len", text)) => {
                most = Some(number("max_len", text, u32::MAX.into())? as u32).filter(|most| *most >= 14)
            }
            _ => return Err(wrong()),
        }
    }
    let (Some(port), Some(most)) = (port, most) else { return Err(wrong() + " with 14 bytes or more") };
    Ok(Action::Output { port, most: Some(most) })
}

/// Parses `1/N`.
fn sample(value: &str) -> Result<Action, String> {
    let one_in = value.strip_prefix("1/").and_then(|text| number("sample", text, u32::MAX.into()).ok());
    one_in
        .filter(|one_in| *one_in > 0)
        .map(|one_in| Action::Sample(one_in as u32))
        .ok_or_else(|| format!("sample:{value}: expected sample:1/N, which applies later actions to one frame in N"))
}

/// Parses `VALUE->FIELD`.
fn set_field(text: &str, matches: &Match) -> Result<Action, String> {
    let (value, field) =
        text.split_once("->").ok_or_else(|| format!("set_field:{text}: expected set_field:VALUE->FIELD"))?;
    if value.contains('/') {
        return Err(format!("set_field:{text}: masks are not supported; the whole field is set"));
    }
    let field = field.trim();
    let (dl_type, protocol) = fixed_values(matches);
    let want = |is_so: bool, what: &str| {
        if is_so { Ok(()) } else { Err(format!("set_field: {field} needs {what} in the rule")) }
    };
    let is_ip = matches!(dl_type, Some(TYPE_IPV4 | TYPE_IPV6));
    let only_v6 = || want(dl_type == Some(TYPE_IPV6), "ipv6");
    match name_of(field) {
        "dl_src" => Ok(Action::SetSource(mac(field, value)?)),
        "dl_dst" => Ok(Action::SetDestination(mac(field, value)?)),
        "nw_src" => want(dl_type == Some(TYPE_IPV4), "ip").and(Ok(Action::SetV4Source(v4(field, value)?))),
        "nw_dst" => want(dl_type == Some(TYPE_IPV4), "ip").and(Ok(Action::SetV4Destination(v4(field, value)?))),
        "ipv6_src" => only_v6().and(Ok(Action::SetV6Source(v6(field, value)?))),
        "ipv6_dst" => only_v6().and(Ok(Action::SetV6Destination(v6(field, value)?))),
        "nw_tos" => want(is_ip, "ip or ipv6").and(Ok(Action::SetTos(tos(field, value)?))),
        "nw_ecn" => want(is_ip, "ip or ipv6").and(Ok(Action::SetEcn(number(field, value, 3)? as u8))),
        "nw_ttl" => want(is_ip, "ip or ipv6").and(Ok(Action::SetTtl(number(field, value, 255)? as u8))),
        name @ ("tp_src" | "tp_dst") => {
            want(is_ip && matches!(protocol, Some(TCP | UDP)), "tcp or udp")?;
            let port = number(field, value, 0xffff)? as u16;
            Ok(if name == "tp_src" { Action::SetSourcePort(port) } else { Action::SetDestinationPort(port) })
        }
        _ => Err(format!(
            "set_field: {field} cannot be set; expected eth_src, eth_dst, ip_src, ip_dst, ipv6_src, ipv6_dst, nw_tos, nw_ecn, \
             nw_ttl, tcp_src, tcp_dst, udp_src or udp_dst; for VLANs use mod_vlan_vid and mod_vlan_pcp"
        )),
    }
}

fn unknown(word: &str, lower: &str) -> String {
    match REFUSED.iter().find(|(name, _)| *name == lower) {
        Some((_, reason)) => format!("{word}: not supported: {reason}"),
        None => format!("{word:?}: unknown port or action; see docs/guide/switch.md"),
    }
}
