//! Rules as text: what `ovs-ofctl add-flow` takes, of one table.
//!
//! `priority=10,tcp,in_port=1,tp_dst=80,actions=mod_dl_dst:02:00:00:00:00:01,output:2`
//!
//! What a field needs is to be said: `tp_dst` wants `tcp` or `udp` (Open vSwitch leaves the field out and says so in a log; here it is
//! an error). What is not supported is refused by its name, with the reason.

mod actions;
mod matches;
mod show;
mod value;

pub use self::show::{show_actions, show_match, show_rule};

use crate::action::{PortNo, RingNo};
use crate::rule::{Match, Rule};

/// How ports are called, and rings.
pub trait PortNames {
    /// The number of a port by its name or number.
    fn number(&self, text: &str) -> Option<PortNo>;

    /// The number of a ring by its name; there is none unless somebody says so.
    fn ring(&self, _name: &str) -> Option<RingNo> {
        None
    }
}

impl<F: Fn(&str) -> Option<PortNo>> PortNames for F {
    fn number(&self, text: &str) -> Option<PortNo> {
        self(text)
    }
}

/// Ports 1 to the number that there are.
pub fn numbered(ports: usize) -> impl Fn(&str) -> Option<PortNo> {
    move |text| text.parse().ok().filter(|port| (1..=ports).contains(&usize::from(*port)))
}

/// Reads a rule.
///
/// # Errors
/// What is wrong with it, and what would be right.
pub fn parse_rule(text: &str, ports: &dyn PortNames) -> Result<Rule, String> {
    let (head, actions) = split(text);
    let actions = actions.ok_or("a rule ends with actions=, as in in_port=1,actions=output:2")?;
    let Head { matches, mut rule } = parse_head(head, ports, true)?;
    rule.matches = matches;
    rule.actions = actions::parse(actions, &rule.matches, ports)?;
    Ok(rule)
}

/// Which rules a command is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Those about no other frames than these, or, strictly, about exactly these.
    pub matches: Match,
    /// The priority, where only that one is meant.
    pub priority: Option<u16>,
    /// The cookie, where only that one is meant.
    pub cookie: Option<u64>,
}

/// Reads which rules a command is about: matches without actions; nothing is all of them.
///
/// # Errors
/// What is wrong with it.
pub fn parse_asked(text: &str, ports: &dyn PortNames) -> Result<Asked, String> {
    let (head, actions) = split(text);
    if actions.is_some() {
        return Err("rules are named by what they are about; leave out actions=".to_owned());
    }
    let Head { matches, rule } = parse_head(head, ports, false)?;
    let said = |key: &str| words(head).any(|word| word.split('=').next() == Some(key));
    let priority = said("priority").then_some(rule.priority);
    let cookie = said("cookie").then_some(rule.cookie);
    Ok(Asked { matches, priority, cookie })
}

struct Head {
    matches: Match,
    rule: Rule,
}

/// What stands before `actions=`, and behind it.
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

/// The words of a head, between commas and white space.
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
            None => Err(format!("{key} wants a number: {key}=N")),
        };
        match key {
            "priority" => rule.priority = number(0xffff)? as u16,
            "cookie" => rule.cookie = number(u64::MAX)?,
            "idle_timeout" | "hard_timeout" if !is_rule => {
                return Err(format!(
                    "{key}: rules are not found by that, but by what they are about, priority and cookie"
                ));
            }
            "idle_timeout" => rule.idle_timeout = number(0xffff)? as u16,
            "hard_timeout" => rule.hard_timeout = number(0xffff)? as u16,
            "table" => {
                if number(254)? > 0 {
                    return Err(format!("{word}: there is one table, 0"));
                }
            }
            // What dump-flows prints before a rule says nothing of what it is about.
            "duration" | "n_packets" | "n_bytes" | "idle_age" | "hard_age" if is_rule => {}
            _ => fields.add(key, value, ports)?,
        }
    }
    Ok(Head { matches: fields.finish()?, rule })
}
