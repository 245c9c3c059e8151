//! A rule: what it is about, and what is done with that.

use crate::action::{Action, PortNo, RingNo};
use crate::key::Key;
use linerate_burst::Nanos;
use std::sync::Arc;

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

    /// Whether it goes by itself some time.
    pub(crate) fn is_timed(&self) -> bool {
        self.idle_timeout > 0 || self.hard_timeout > 0
    }

    /// One for every frame, before all others are known.
    pub fn normal() -> Rule {
        let (matches, actions) = (Match::default(), vec![Action::Normal]);
        Rule { priority: 0, cookie: 0, idle_timeout: 0, hard_timeout: 0, matches, actions }
    }
}

/// A rule that is at work.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Installed {
    // What is touched for each frame is one cache line, the first.
    /// Frames that came for it.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When a frame last came for it, or it was made.
    pub used: Nanos,
    /// All that it does is to send frames out of one port.
    pub(crate) only: Option<PortNo>,
    /// Of two rules of one priority the older one goes first: the lower number.
    pub number: u64,
    /// Since when it is there.
    pub since: Nanos,
    /// What it says.
    pub rule: Rule,
    /// Its actions once more, for frames that come back for the rest of them, whatever became of the rule; of rules that inspect.
    pub(crate) list: Option<Arc<[Action]>>,
}

/// A frame that is to be decided about.
#[derive(Clone, Copy, Debug)]
pub struct Inspect<'a> {
    /// By whom.
    pub ring: RingNo,
    /// The port that it came by.
    pub in_port: PortNo,
    /// Its bytes by now.
    pub bytes: &'a [u8],
    /// What is done with it later on.
    pub rest: Rest<'a>,
}

/// What is left to be done with a frame: these actions, from one of them on.
#[derive(Clone, Copy, Debug)]
pub struct Rest<'a> {
    /// All of its rule.
    pub actions: &'a Arc<[Action]>,
    /// The first of those that are left.
    pub from: usize,
}

/// What becomes of a frame that is to be decided about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inspected {
    /// It was taken; if it comes back there is [`Switch::resume`](crate::Switch::resume).
    Taken,
    /// It was decided before that it passes: what is left to be done is done at once.
    Passes,
    /// It was decided before that it is dropped.
    Blocked,
}

impl Installed {
    pub(crate) fn new(rule: Rule, number: u64, now: Nanos) -> Self {
        let inspects = rule.actions.iter().any(|action| matches!(action, Action::Inspect(_)));
        let list = inspects.then(|| Arc::from(&rule.actions[..]));
        let only = match rule.actions[..] {
            [Action::Output { port, most: None }] => Some(port),
            _ => None,
        };
        Installed { frames: 0, bytes: 0, used: now, only, number, since: now, rule, list }
    }

    /// Whether its time is over.
    pub(crate) fn is_over(&self, now: Nanos) -> bool {
        let over = |seconds: u16, since: Nanos| {
            seconds > 0 && now.0.saturating_sub(since.0) >= u64::from(seconds) * 1_000_000_000
        };
        over(self.rule.hard_timeout, self.since) || over(self.rule.idle_timeout, self.used)
    }
}
