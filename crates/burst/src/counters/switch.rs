//! The rows of what is switched, behind those in front of them.

macro_rules! switch_rows {
    ($($before:tt)*) => {
        send_rows! {
            $($before)*

            /// Frames that came by a port of the switch, or, of a ring, that came back from who decides about them.
            SwitchReceived = Switch, Received, "received";
            /// Frames that left by a port at least, as they came or changed, or went to be decided about.
            Switched = Switch, Delivered, "delivered";
            /// Frames whose rule drops them.
            SwitchRuleDrop = Switch, Refused, "rule_drop";
            /// Frames that no rule is about.
            SwitchNoRule = Switch, Refused, "no_rule";
            /// Frames whose rule sends them out of the port that they came by.
            SwitchSamePort = Switch, Refused, "same_port";
            /// Frames for a station behind the port that they came by.
            SwitchLocal = Switch, Refused, "local";
            /// Frames of a VLAN that the port they came by is not in.
            SwitchVlan = Switch, Refused, "unknown_vlan";
            /// Frames for the next bridge alone (01:80:c2:00:00:00 to 0f).
            SwitchReserved = Switch, Refused, "reserved_mac";
            /// Frames whose time to live was over.
            SwitchTtl = Switch, Refused, "ttl";
            /// Frames that there was no other port for.
            SwitchNoPort = Switch, Refused, "no_port";
            /// Frames that were not among those of a sample.
            SwitchSampled = Switch, Refused, "not_sampled";
            /// Frames of flows that who decides had blacklisted before.
            SwitchListed = Switch, Refused, "blacklisted";
            /// Frames shorter than a header of Ethernet, or with a tag that is cut.
            SwitchMalformed = Switch, Refused, "malformed";
            /// Frames of which only the beginning came; they are not sent.
            SwitchTruncated = Switch, Lost, "truncated";
            /// Frames that who decides made itself, more in a second than `--inject-limit` lets go.
            SwitchInjectLimit = Switch, Lost, "inject_limit";
            /// Frames for a switch that had died of a bug of this program, or was about to.
            SwitchDied = Switch, Lost, "switch_died";
            /// Copies of frames that were handed to ports: as many of a frame as it leaves by.
            SwitchCopies = Switch, Note, "copies";
            /// Frames that went to be decided about.
            SwitchInspected = Switch, Note, "inspected";
            /// Frames of flows that who decides had whitelisted before, and that did not go there for that.
            SwitchSkipped = Switch, Note, "whitelisted";
            /// Of those that came back, frames that who decides had made itself.
            SwitchInjected = Switch, Note, "injected";
            /// Frames whose rule was known from one like them.
            SwitchCached = Switch, Note, "cached";
            /// Frames for which the rules were searched.
            SwitchLookups = Switch, Note, "lookups";
            /// MACs that were learned.
            SwitchLearned = Switch, Note, "macs_learned";
            /// MACs that came by another port than before.
            SwitchMoved = Switch, Note, "macs_moved";
            /// MACs that were forgotten for others, since there was no room.
            SwitchEvicted = Switch, Note, "macs_evicted";
        }
    };
}
