//! Rules: match and actions.

use crate::action::{Action, PortNo, RingNo};
use crate::key::Key;
use linerate_burst::Nanos;
use std::sync::Arc;

/// Match of a rule: the frames whose bits in `mask` equal those of `value`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Match {
    /// Bits to match.
    pub mask: Key,
    /// Their values; 0 elsewhere.
    pub value: Key,
}

impl Match {
    /// Returns whether it matches a frame.
    pub fn matches(&self, key: &Key) -> bool {
        key.masked(&self.mask) == self.value
    }

    /// Returns whether it matches all frames that `other` matches.
    pub fn covers(&self, other: &Match) -> bool {
        other.mask.masked(&self.mask) == self.mask && other.value.masked(&self.mask) == self.value
    }

    /// Returns whether some frame can match both.
    pub fn overlaps(&self, other: &Match) -> bool {
        self.value.masked(&other.mask) == other.value.masked(&self.mask)
    }
}

/// Rule as parsed from text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Priority; the higher one wins. The default is 32768.
    pub priority: u16,
    /// Number chosen by the user.
    pub cookie: u64,
    /// Seconds without a frame after which it expires; 0: never.
    pub idle_timeout: u16,
    /// Seconds after which it expires; 0: never.
    pub hard_timeout: u16,
    /// Match.
    pub matches: Match,
    /// Actions; if empty, frames are dropped.
    pub actions: Vec<Action>,
}

impl Rule {
    /// Default priority.
    pub const PRIORITY: u16 = 32768;

    /// Returns whether it can expire.
    pub(crate) fn is_timed(&self) -> bool {
        self.idle_timeout > 0 || self.hard_timeout > 0
    }

    /// Returns the default rule: `normal` for every frame, with the lowest priority.
    pub fn normal() -> Rule {
        let (matches, actions) = (Match::default(), vec![Action::Normal]);
        Rule { priority: 0, cookie: 0, idle_timeout: 0, hard_timeout: 0, matches, actions }
    }
}

/// Rule in a switch.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct InstalledRule {
    // Fields changed by each frame share the first cache line.
    /// Frames that matched it.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Time of the last match, or of its creation.
    pub used: Nanos,
    /// Port, if its only action is to send frames there.
    pub(crate) only: Option<PortNo>,
    /// Sequence number: of two rules with the same priority the lower number wins.
    pub number: u64,
    /// Creation time.
    pub since: Nanos,
    /// The rule.
    pub rule: Rule,
    /// Actions of a rule with `inspect`, kept for frames that come back after the rule was removed.
    pub(crate) list: Option<Arc<[Action]>>,
}

/// Frame to be inspected.
#[derive(Clone, Copy, Debug)]
pub struct Inspect<'a> {
    /// Ring of the inspector.
    pub ring: RingNo,
    /// Input port.
    pub in_port: PortNo,
    /// Current bytes.
    pub bytes: &'a [u8],
    /// Remaining actions.
    pub rest: RemainingActions<'a>,
}

/// Remaining actions of a frame.
#[derive(Clone, Copy, Debug)]
pub struct RemainingActions<'a> {
    /// All actions of its rule.
    pub actions: &'a Arc<[Action]>,
    /// Index of the first remaining action.
    pub from: usize,
}

/// Result of handing a frame to an inspector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InspectOutcome {
    /// Taken; if it comes back, call [`Switch::resume`](crate::Switch::resume).
    Taken,
    /// Allowed by an earlier verdict: the remaining actions are applied at once.
    Passes,
    /// Blocked by an earlier verdict.
    Blocked,
}

impl InstalledRule {
    pub(crate) fn new(rule: Rule, number: u64, now: Nanos) -> Self {
        let inspects = rule.actions.iter().any(|action| matches!(action, Action::Inspect(_)));
        let list = inspects.then(|| Arc::from(&rule.actions[..]));
        let only = match rule.actions[..] {
            [Action::Output { port, most: None }] => Some(port),
            _ => None,
        };
        InstalledRule { frames: 0, bytes: 0, used: now, only, number, since: now, rule, list }
    }

    /// Returns whether it has expired.
    pub(crate) fn is_over(&self, now: Nanos) -> bool {
        let over = |seconds: u16, since: Nanos| {
            seconds > 0 && now.0.saturating_sub(since.0) >= u64::from(seconds) * 1_000_000_000
        };
        over(self.rule.hard_timeout, self.since) || over(self.rule.idle_timeout, self.used)
    }
}
