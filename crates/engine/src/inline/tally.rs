//! Accounts of the frames of one direction.

use super::decide::{Fate, PolicyReason};
use super::policy::FailMode;
use linerate_burst::{Count, Ledger, Stage};

/// Frames of one direction, by their fate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FateCounts {
    pub received: u64,
    passed: u64,
    replaced: u64,
    blocked: u64,
    policy_passed: u64,
    policy_dropped: u64,
    unfit: u64,
    /// Number of frames without a free block.
    pub no_block: u64,
    /// Number of frames by reason for the policy.
    no_engine: u64,
    overload: u64,
    held_too_long: u64,
    /// Number of frames whose flow had a verdict.
    pub listed: u64,
    /// Number of frames that were held.
    pub held: u64,
    /// Number of late verdicts.
    pub late: u64,
}

impl FateCounts {
    /// Counts the fate of a frame.
    #[inline]
    pub(crate) fn count(&mut self, fate: Fate) {
        match fate {
            Fate::Passed => self.passed += 1,
            Fate::Replaced => self.replaced += 1,
            Fate::Blocked => self.blocked += 1,
            Fate::Unfit => self.unfit += 1,
            Fate::Policy(fail, why) => {
                match fail {
                    FailMode::Open => self.policy_passed += 1,
                    FailMode::Closed => self.policy_dropped += 1,
                }
                match why {
                    PolicyReason::Death => self.no_engine += 1,
                    PolicyReason::Overload => self.overload += 1,
                    PolicyReason::Held => self.held_too_long += 1,
                }
            }
        }
    }

    /// Adds to the account of the direction with this name.
    pub(crate) fn counters(&self, name: &str, ledger: &mut Ledger) {
        let FateCounts { received, passed, replaced, blocked, policy_passed, policy_dropped, unfit, .. } = *self;
        let account = ledger.account(Stage::Verdict, name);
        account.add(Count::VerdictReceived, received).add(Count::InlinePassed, passed);
        account.add(Count::InlineReplaced, replaced).add(Count::InlinePolicyPassed, policy_passed);
        account.add(Count::InlineBlocked, blocked).add(Count::InlinePolicyDropped, policy_dropped);
        account.add(Count::InlineUnfit, unfit).add(Count::InlineNoBlock, self.no_block);
        account.add(Count::InlineNoEngine, self.no_engine).add(Count::InlineOverload, self.overload);
        account.add(Count::InlineHeldTooLong, self.held_too_long).add(Count::InlineHeld, self.held);
        account.add(Count::InlineLate, self.late).add(Count::InlineListed, self.listed);
    }

    /// Ends the account: adds frames without a fate.
    pub(crate) fn close(&self, name: &str, ledger: &mut Ledger) {
        let FateCounts { received, passed, replaced, blocked, policy_passed, policy_dropped, unfit, .. } = *self;
        let known = passed + replaced + blocked + policy_passed + policy_dropped + unfit + self.no_block;
        ledger.account(Stage::Verdict, name).add(Count::InlineUndecided, received - known);
    }
}
