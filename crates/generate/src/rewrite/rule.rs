//! Rules in user syntax: `ip=10.0.0.0/8:192.168.0.0/16`, `vlan=pop`, `ttl=-1`.

use super::prefix::{Ports, Prefix};
use linerate_headers::{MacAddr, vlan};
use std::str::FromStr;

/// Rewriting rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Replaces MAC addresses: the given old one, or any except destination groups, by the new one.
    Mac(End, Option<MacAddr>, MacAddr),
    /// Moves IP addresses from one block to another.
    Ip(End, Prefix, Prefix),
    /// Moves ports from one range to another.
    Port(End, Ports, Ports),
    /// Changes the outermost VLAN tag.
    Vlan(Tag),
    /// Changes the time to live or hop limit.
    Ttl(Ttl),
}

/// End of a packet that a rule applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both ends.
    Either,
    /// Sender.
    Source,
    /// Receiver.
    Destination,
}

impl End {
    /// Returns whether a rule for this end applies to `end`.
    pub fn is(self, end: End) -> bool {
        self == End::Either || self == end
    }
}

/// Change of the outermost VLAN tag; except for `Push`, frames without a tag stay unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Inserts a customer tag with this identifier and priority.
    Push(u16, u8),
    /// Removes the tag.
    Pop,
    /// Sets the identifier.
    Id(u16),
    /// Replaces the first identifier by the second one.
    Swap(u16, u16),
    /// Sets the priority.
    Priority(u8),
}

/// Change of the time to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// Sets this value.
    Set(u8),
    /// Adds this value, up to 255.
    Add(u8),
    /// Subtracts this value, down to 1.
    Subtract(u8),
    /// Raises lower values to this one.
    Floor(u8),
}

impl Ttl {
    /// Returns the new value.
    pub fn of(self, old: u8) -> u8 {
        match self {
            Ttl::Set(value) => value,
            Ttl::Add(more) => old.saturating_add(more),
            Ttl::Subtract(less) => old.saturating_sub(less).max(old.min(1)),
            Ttl::Floor(least) => old.max(least),
        }
    }
}

/// Invalid rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid rule {rule:?}; {wanted}")]
pub struct BadRule {
    /// Text of the rule.
    pub rule: String,
    /// Valid forms.
    pub wanted: &'static str,
}

const KINDS: &str = "expected WHAT=HOW, where WHAT is mac, src-mac, dst-mac, ip, src-ip, dst-ip, port, src-port, \
                     dst-port, vlan or ttl";
const MACS: &str = "expected mac=OLD:NEW, src-mac=NEW, dst-mac=NEW or src-mac=OLD:NEW, with addresses such as \
                    02:00:00:00:00:01";
const IPS: &str = "expected ip=OLD:NEW with blocks or addresses of one family, such as 10.0.0.0/8:192.168.0.0/16; if \
                   colons are ambiguous, OLD=NEW";
const PORTS: &str = "expected port=OLD:NEW, such as 80:8080 or 1000-1999:5000-5999; ranges of equal length, or NEW is \
                     one port";
const TAGS: &str = "expected vlan=push:ID, vlan=push:ID:PRIORITY, vlan=pop, vlan=set:ID, vlan=OLD:NEW or \
                    vlan=priority:PRIORITY; identifiers up to 4095, priorities up to 7";
const TTLS: &str = "expected ttl=N, ttl=+N, ttl=-N or ttl=floor:N, with N from 0 to 255";

impl FromStr for Rule {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<Self, BadRule> {
        let bad = |wanted| BadRule { rule: text.to_owned(), wanted };
        let (what, how) = text.split_once('=').ok_or_else(|| bad(KINDS))?;
        let (end, what) = match what.split_once('-') {
            Some(("src", what)) => (End::Source, what),
            Some(("dst", what)) => (End::Destination, what),
            _ => (End::Either, what),
        };
        let (rule, wanted) = match what {
            "mac" => (mac(end, how), MACS),
            "ip" => (ip(end, how), IPS),
            "port" => (port(end, how), PORTS),
            "vlan" if end == End::Either => (tag(how).map(Rule::Vlan), TAGS),
            "ttl" if end == End::Either => (ttl(how).map(Rule::Ttl), TTLS),
            _ => (None, KINDS),
        };
        rule.ok_or_else(|| bad(wanted))
    }
}

fn mac(end: End, how: &str) -> Option<Rule> {
    match how.parse() {
        Ok(new) if end != End::Either => Some(Rule::Mac(end, None, new)),
        _ => pair(how).map(|(old, new)| Rule::Mac(end, Some(old), new)),
    }
}

fn ip(end: End, how: &str) -> Option<Rule> {
    let (old, new): (Prefix, Prefix) = pair(how)?;
    old.is_like(&new).then_some(Rule::Ip(end, old, new))
}

fn port(end: End, how: &str) -> Option<Rule> {
    let (old, new): (Ports, Ports) = pair(how)?;
    (new.span() == 0 || new.span() == old.span()).then_some(Rule::Port(end, old, new))
}

fn tag(how: &str) -> Option<Tag> {
    let id = |text: &str| text.parse().ok().filter(|id| *id <= vlan::MAX_ID);
    let priority = |text: &str| text.parse().ok().filter(|priority| *priority <= 7);
    let (first, rest) = how.split_once(':').unwrap_or((how, ""));
    match first {
        "pop" if rest.is_empty() => Some(Tag::Pop),
        "set" => id(rest).map(Tag::Id),
        "priority" => priority(rest).map(Tag::Priority),
        "push" => match rest.split_once(':') {
            Some((number, level)) => Some(Tag::Push(id(number)?, priority(level)?)),
            None => Some(Tag::Push(id(rest)?, 0)),
        },
        _ => Some(Tag::Swap(id(first)?, id(rest)?)),
    }
}

fn ttl(how: &str) -> Option<Ttl> {
    let number = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    match how.as_bytes().first()? {
        b'+' => number(&how[1..]).map(Ttl::Add),
        b'-' => number(&how[1..]).map(Ttl::Subtract),
        b'f' => number(how.strip_prefix("floor:")?).map(Ttl::Floor),
        _ => number(how).map(Ttl::Set),
    }
}

/// Parses two values separated by `=`, or by `:` if only one position is possible.
fn pair<T: FromStr>(text: &str) -> Option<(T, T)> {
    let at = |place: usize| Some((text[..place].parse().ok()?, text[place + 1..].parse().ok()?));
    if let Some(place) = text.find('=') {
        return at(place);
    }
    let mut found = text.match_indices(':').filter_map(|(place, _)| at(place));
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rules_are_parsed_as_users_write_them() {
        let mac = |last| MacAddr([2, 0, 0, 0, 0, last]);
        let block = |text: &str| text.parse::<Prefix>().unwrap();
        let ports = |text: &str| text.parse::<Ports>().unwrap();
        for (text, rule) in [
            ("mac=02:00:00:00:00:01:02:00:00:00:00:02", Rule::Mac(End::Either, Some(mac(1)), mac(2))),
            ("mac=02-00-00-00-00-01=02:00:00:00:00:02", Rule::Mac(End::Either, Some(mac(1)), mac(2))),
            ("src-mac=02:00:00:00:00:01", Rule::Mac(End::Source, None, mac(1))),
            ("dst-mac=02:00:00:00:00:01:02:00:00:00:00:02", Rule::Mac(End::Destination, Some(mac(1)), mac(2))),
            ("ip=10.0.0.0/8:192.168.0.0/16", Rule::Ip(End::Either, block("10.0.0.0/8"), block("192.168.0.0/16"))),
            ("src-ip=2001:db8::/32:fd00::/16", Rule::Ip(End::Source, block("2001:db8::/32"), block("fd00::/16"))),
            ("dst-ip=::1=fd00::1", Rule::Ip(End::Destination, block("::1"), block("fd00::1"))),
            ("port=80:8080", Rule::Port(End::Either, ports("80"), ports("8080"))),
            ("dst-port=1-9:11-19", Rule::Port(End::Destination, ports("1-9"), ports("11-19"))),
            ("vlan=push:7", Rule::Vlan(Tag::Push(7, 0))),
            ("vlan=push:4095:5", Rule::Vlan(Tag::Push(4095, 5))),
            ("vlan=pop", Rule::Vlan(Tag::Pop)),
            ("vlan=set:0", Rule::Vlan(Tag::Id(0))),
            ("vlan=1:2", Rule::Vlan(Tag::Swap(1, 2))),
            ("vlan=priority:7", Rule::Vlan(Tag::Priority(7))),
            ("ttl=64", Rule::Ttl(Ttl::Set(64))),
            ("ttl=-1", Rule::Ttl(Ttl::Subtract(1))),
            ("ttl=+9", Rule::Ttl(Ttl::Add(9))),
            ("ttl=floor:5", Rule::Ttl(Ttl::Floor(5))),
        ] {
            assert_eq!(text.parse(), Ok(rule), "{text}");
        }
    }

    #[test]
    fn invalid_rules_list_valid_forms() {
        for (text, wanted) in [
            ("", KINDS),
            ("ip", KINDS),
            ("dst-vlan=pop", KINDS),
            ("colour=red", KINDS),
            ("mac=02:00:00:00:00:01", MACS),
            ("src-mac=", MACS),
            ("ip=10.0.0.0/8:fd00::/8", IPS),
            ("ip=10.0.0.0/33:11.0.0.0/8", IPS),
            ("ip=::1:2:3::4", IPS),
            ("port=1-2:5-9", PORTS),
            ("port=0:65536", PORTS),
            ("vlan=push:4096", TAGS),
            ("vlan=push:1:8", TAGS),
            ("vlan=pop:1", TAGS),
            ("ttl=256", TTLS),
            ("ttl=--1", TTLS),
            ("ttl=+", TTLS),
        ] {
            assert_eq!(text.parse::<Rule>(), Err(BadRule { rule: text.to_owned(), wanted }), "{text}");
        }
        let error = "vlan=9999".parse::<Rule>().unwrap_err().to_string();
        assert!(error.starts_with("invalid rule \"vlan=9999\"; expected vlan=push:ID"), "{error}");
    }

    #[test]
    fn time_to_live_stays_within_its_bounds() {
        let of = |ttl: Ttl, values: [u8; 4]| values.map(|value| ttl.of(value));
        assert_eq!(of(Ttl::Subtract(2), [0, 1, 2, 64]), [0, 1, 1, 62]);
        assert_eq!(of(Ttl::Add(10), [0, 1, 250, 255]), [10, 11, 255, 255]);
        assert_eq!(of(Ttl::Floor(5), [0, 4, 5, 6]), [5, 5, 5, 6]);
        assert_eq!(of(Ttl::Set(0), [0, 4, 5, 6]), [0; 4]);
    }

    proptest! {
        #[test]
        fn any_text_is_a_rule_or_an_error(text in "(ip|mac|port|vlan|ttl|src-ip)?=?.*") {
            let _ = text.parse::<Rule>();
        }
    }
}
