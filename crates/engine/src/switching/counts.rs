//! Counters of a switch.

use linerate_burst::{Account, Count};
use linerate_switch::Reason;

/// Counters of frames received by ports, or returned by engines.
#[derive(Clone, Copy, Default)]
pub(super) struct SwitchCounts {
    pub received: u64,
    pub switched: u64,
    pub copies: u64,
    pub truncated: u64,
    pub inspected: u64,
    pub skipped: u64,
    pub by_reason: [u64; Reason::ALL.len()],
}

impl SwitchCounts {
    /// Returns the number of frames with a known fate.
    pub(super) fn known(&self) -> u64 {
        self.switched + self.truncated + self.by_reason.iter().sum::<u64>()
    }

    pub(super) fn add_to(&self, account: &mut Account) {
        let SwitchCounts { received, switched, copies, truncated, inspected, skipped, by_reason } = self;
        account.add(Count::SwitchReceived, *received).add(Count::Switched, *switched);
        account.add(Count::SwitchCopies, *copies).add(Count::SwitchTruncated, *truncated);
        account.add(Count::SwitchInspected, *inspected).add(Count::SwitchSkipped, *skipped);
        for (reason, frames) in Reason::ALL.into_iter().zip(by_reason) {
            account.add(count_of(reason), *frames);
        }
    }
}

fn count_of(reason: Reason) -> Count {
    match reason {
        Reason::Malformed => Count::SwitchMalformed,
        Reason::NoRule => Count::SwitchNoRule,
        Reason::Rule => Count::SwitchRuleDrop,
        Reason::SamePort => Count::SwitchSamePort,
        Reason::Vlan => Count::SwitchVlan,
        Reason::Reserved => Count::SwitchReserved,
        Reason::Ttl => Count::SwitchTtl,
        Reason::Local => Count::SwitchLocal,
        Reason::NoPort => Count::SwitchNoPort,
        Reason::Sample => Count::SwitchSampled,
        Reason::Listed => Count::SwitchListed,
    }
}
