//! Rules as text: the syntax of `ovs-ofctl add-flow`, with one table.
//!
//! `priority=10,tcp,in_port=1,tp_dst=80,actions=mod_dl_dst:02:00:00:00:00:01,output:2`
//!
//! Prerequisites of a field must be given: `tp_dst` needs `tcp` or `udp` (Open vSwitch ignores the field and logs that;
//! here it is an error). Unsupported features are refused by name, with the reason.

mod actions;
mod dump_flows;
mod matches;
mod value;

pub use self::dump_flows::{show_actions, show_match, show_rule};

use crate::action::{PortNo, RingNo};
use crate::rule::{Match, Rule};

/// Names of ports and rings.
pub trait PortNames {
    /// Returns the number of a port by its name or number.
    fn number(&self, text: &str) -> Option<PortNo>;

    /// Returns the number of a ring by its name; by default no rings exist.
    fn ring(&self, _name: &str) -> Option<RingNo> {
        None
    }
}

impl<F: Fn(&str) -> Option<PortNo>> PortNames for F {
    fn number(&self, text: &str) -> Option<PortNo> {
        self(text)
    }
}

/// Returns a parser for port numbers 1 to `ports`.
pub fn numbered(ports: usize) -> impl Fn(&str) -> Option<PortNo> {
    move |text| text.parse().ok().filter(|port| (1..=ports).contains(&usize::from(*port)))
}

/// Parses a rule.
///
/// # Errors
/// The problem and its remedy.
pub fn parse_rule(text: &str, ports: &dyn PortNames) -> Result<Rule, String> {
    let (head, actions) = split(text);
    let actions = actions.ok_or("missing actions=, as in in_port=1,actions=output:2")?;
    let Head { matches, mut rule } = parse_head(head, ports, true)?;
    rule.matches = matches;
    rule.actions = actions::parse(actions, &rule.matches, ports)?;
    Ok(rule)
}

/// Selection of rules by a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSelection {
    /// Match: rules for only these frames, or, strictly, with exactly this match.
    pub matches: Match,
    /// Priority, if given.
    pub priority: Option<u16>,
    /// Cookie, if given.
    pub cookie: Option<u64>,
}

/// Parses a selection of rules: matches without actions; empty for all rules.
///
/// # Errors
/// The problem.
pub fn parse_selection(text: &str, ports: &dyn PortNames) -> Result<RuleSelection, String> {
    let (head, actions) = split(text);
    if actions.is_some() {
        return Err("actions= cannot select rules; remove it".to_owned());
    }
    let Head { matches, rule } = parse_head(head, ports, false)?;
    let is_given = |key: &str| words(head).any(|word| word.split('=').next() == Some(key));
    let priority = is_given("priority").then_some(rule.priority);
    let cookie = is_given("cookie").then_some(rule.cookie);
    Ok(RuleSelection { matches, priority, cookie })
}

struct Head {
    matches: Match,
    rule: Rule,
}

/// Splits a text into the parts before and after `actions=`.
fn split(text: &str) -> (&str, Option<&str>) {
    let at = |word: &str| {
        let starts = text.match_indices(word).map(|(at, _)| at);
        starts.into_iter().find(|at| *at == 0 || text[..*at].ends_with([',', ' ', '\t']))
    };
    match at("actions=").map(|at| (at, 8)).or(at("action=").map(|at| (at, 7))) {
        Some((at, length)) => (&text[..at], Some(&text[at + length..])),
        None => (text, None),
    }
}

/// Splits a head into words, at commas and white space.
fn words(head: &str) -> impl Iterator<Item = &str> {
    head.split([',', ' ', '\t', '\n', '\r']).filter(|word| !word.is_empty())
}

fn parse_head(head: &str, ports: &dyn PortNames, is_rule: bool) -> Result<Head, String> {
    let mut rule = Rule { priority: Rule::PRIORITY, ..Rule::normal() };
    let mut fields = matches::Fields::default();
    for word in words(head) {
        let (key, value) = word.split_once('=').map_or((word, None), |(key, value)| (key, Some(value)));
        let number = |most: u64| match value {
            Some(value) => value::number(key, value, most),
            None => Err(format!("{key}: missing number; expected {key}=N")),
        };
        match key {
            "priority" => rule.priority = number(0xffff)? as u16,
            "cookie" => rule.cookie = number(u64::MAX)?,
            "idle_timeout" | "hard_timeout" if !is_rule => {
                return Err(format!("{key} cannot select rules; use match fields, priority or cookie"));
            }
            "idle_timeout" => rule.idle_timeout = number(0xffff)? as u16,
            "hard_timeout" => rule.hard_timeout = number(0xffff)? as u16,
            "table" => {
                if number(254)? > 0 {
                    return Err(format!("{word}: no such table; only table 0 exists"));
                }
            }
            // Statistics that dump-flows prints before a rule are ignored.
            "duration" | "n_packets" | "n_bytes" | "idle_age" | "hard_age" if is_rule => {}
            _ => fields.add(key, value, ports)?,
        }
    }
    Ok(Head { matches: fields.finish()?, rule })
}
