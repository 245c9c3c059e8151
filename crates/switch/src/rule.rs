//! A rule: what it is about, and what is done with that.

use crate::action::Action;
use crate::key::Key;
use linerate_burst::Nanos;

/// Which frames a rule is about: those whose bits in `mask` are those of `value`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Match {
    /// The bits that are looked at.
    pub mask: Key,
    /// What they are; 0 elsewhere.
    pub value: Key,
}

impl Match {
    /// Whether it is about this frame.
    pub fn matches(&self, key: &Key) -> bool {
        key.masked(&self.mask) == self.value
    }

    /// Whether all frames that `other` is about are frames that this is about.
    pub fn covers(&self, other: &Match) -> bool {
        other.mask.masked(&self.mask) == self.mask && other.value.masked(&self.mask) == self.value
    }

    /// Whether there can be a frame that both are about.
    pub fn overlaps(&self, other: &Match) -> bool {
        self.value.masked(&other.mask) == other.value.masked(&self.mask)
    }
}

/// A rule as its text says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The higher one goes first, 32768 unless said.
    pub priority: u16,
    /// A number that means something to whoever gave it.
    pub cookie: u64,
    /// It goes after so many seconds without a frame; 0: never.
    pub idle_timeout: u16,
    /// It goes after so many seconds; 0: never.
    pub hard_timeout: u16,
    /// Which frames it is about.
    pub matches: Match,
    /// What is done with them; nothing: they are dropped.
    pub actions: Vec<Action>,
}

impl Rule {
    /// The priority of rules that name none.
    pub const PRIORITY: u16 = 32768;

    /// One for every frame, before all others are known.
    pub fn normal() -> Rule {
        let (matches, actions) = (Match::default(), vec![Action::Normal]);
        Rule { priority: 0, cookie: 0, idle_timeout: 0, hard_timeout: 0, matches, actions }
    }
}

/// A rule that is at work.
#[derive(Clone, Debug)]
pub struct Installed {
    /// What it says.
    pub rule: Rule,
    /// Of two rules of one priority the older one goes first: the lower number.
    pub number: u64,
    /// Since when it is there.
    pub since: Nanos,
    /// When a frame last came for it, or it was made.
    pub used: Nanos,
    /// Frames that came for it.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Installed {
    /// Whether its time is over.
    pub(crate) fn is_over(&self, now: Nanos) -> bool {
        let over = |seconds: u16, since: Nanos| {
            seconds > 0 && now.0.saturating_sub(since.0) >= u64::from(seconds) * 1_000_000_000
        };
        over(self.rule.hard_timeout, self.since) || over(self.rule.idle_timeout, self.used)
    }
}
