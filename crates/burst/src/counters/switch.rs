//! Counters of the switch, after the rows passed in.

macro_rules! switch_rows {
    ($($before:tt)*) => {
        send_rows! {
            $($before)*

            /// Packets received on a port of the switch, or returned over the ring by the inspecting engine.
            SwitchReceived = Switch, Received, "received";
            /// Packets that left by at least one port, changed or not, or were sent to the engine for a verdict.
            Switched = Switch, Delivered, "delivered";
            /// Packets that a rule drops.
            SwitchRuleDrop = Switch, Refused, "rule_drop";
            /// Packets that match no rule.
            SwitchNoRule = Switch, Refused, "no_rule";
            /// Packets whose rule sends them out of the port on which they arrived.
            SwitchSamePort = Switch, Refused, "same_port";
            /// Packets for a station on the port on which they arrived.
            SwitchLocal = Switch, Refused, "local";
            /// Packets of a VLAN that their ingress port is not a member of.
            SwitchVlan = Switch, Refused, "unknown_vlan";
            /// Packets addressed to the next bridge only (01:80:c2:00:00:00 to 0f).
            SwitchReserved = Switch, Refused, "reserved_mac";
            /// Packets whose TTL or hop limit expired.
            SwitchTtl = Switch, Refused, "ttl";
            /// Packets for which no other port exists.
            SwitchNoPort = Switch, Refused, "no_port";
            /// Packets outside the sample.
            SwitchSampled = Switch, Refused, "not_sampled";
            /// Packets of flows that the engine had blacklisted.
            SwitchListed = Switch, Refused, "blacklisted";
            /// Packets shorter than an Ethernet header, or with a truncated tag.
            SwitchMalformed = Switch, Refused, "malformed";
            /// Packets received truncated; they are not sent.
            SwitchTruncated = Switch, Lost, "truncated";
            /// Packets injected by the engine beyond the `--inject-limit` per second.
            SwitchInjectLimit = Switch, Lost, "inject_limit";
            /// Packets not switched because the switch panicked (a bug).
            SwitchDied = Switch, Lost, "switch_panicked";
            /// Copies of packets handed to ports: one per egress port.
            SwitchCopies = Switch, Note, "copies";
            /// Packets sent to the engine for a verdict.
            SwitchInspected = Switch, Note, "inspected";
            /// Packets of flows that the engine had whitelisted, which were therefore not sent to it.
            SwitchSkipped = Switch, Note, "whitelisted";
            /// Returned packets that the engine had injected.
            SwitchInjected = Switch, Note, "injected";
            /// Packets whose rule was found in the cache.
            SwitchCached = Switch, Note, "cached";
            /// Packets for which the rules were searched.
            SwitchLookups = Switch, Note, "lookups";
            /// MAC addresses learned.
            SwitchLearned = Switch, Note, "macs_learned";
            /// MAC addresses that moved to another port.
            SwitchMoved = Switch, Note, "macs_moved";
            /// MAC addresses evicted because the table was full.
            SwitchEvicted = Switch, Note, "macs_evicted";
        }
    };
}
