//! Snapshots of open records while a meter runs.
//!
//! They need no state and write nothing: a glance reads one line of each record, and the other of those that had a
//! packet recently.

use crate::expire::STRETCH;
use crate::flow::Flow;
use crate::key::{End, Tunnel, Wide, is_icmp};
use crate::meter::Meter;
use crate::record::{Hot, WideRecord, age};
use linerate_burst::Nanos;
use linerate_names::Names;
use std::sync::Arc;

/// Snapshot of an open record.
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveFlow {
    /// As [`Flow::id`]; the same for several records of a conversation, which differ in [`first`](ActiveFlow::first).
    pub id: u64,
    /// The originator and the responder.
    pub ends: [End; 2],
    /// IP protocol number.
    pub protocol: u8,
    /// The outer tag directly in front of the first packet; 0 if absent.
    pub vlan: u16,
    /// Tunnel of an inner flow.
    pub tunnel: Option<Tunnel>,
    /// Flows in this record, as [`Flow::flows`].
    pub flows: u64,
    /// Packets from the originator, and from the responder.
    pub packets: [u64; 2],
    /// Bytes of these, whole frames without FCS.
    pub frame_bytes: [u64; 2],
    /// TCP retransmissions, from level `tcp` on.
    pub retransmitted: [u64; 2],
    /// TCP flags seen of each side.
    pub tcp_flags: [u8; 2],
    /// Time of the earliest packet.
    pub first: Nanos,
    /// Time of the latest packet.
    pub last: Nanos,
    /// Names found so far, if configured.
    pub names: Option<Arc<Names>>,
}

impl ActiveFlow {
    /// Returns the snapshot of a record that has ended.
    pub fn of(flow: &Flow) -> Self {
        let sides = &flow.sides;
        let again = |side: usize| flow.tcp.as_ref().map_or(0, |tcp| tcp.sides[side].retransmitted.segments());
        ActiveFlow {
            id: flow.id,
            ends: flow.ends,
            protocol: flow.protocol,
            vlan: flow.vlans[0],
            tunnel: flow.tunnel,
            flows: flow.flows,
            packets: [0, 1].map(|side| sides[side].packets),
            frame_bytes: [0, 1].map(|side| sides[side].frame_bytes),
            retransmitted: [0, 1].map(again),
            tcp_flags: [0, 1].map(|side| sides[side].tcp_flags),
            first: flow.first(),
            last: flow.last(),
            names: flow.names.clone(),
        }
    }
}

impl Meter {
    /// Calls `show` for each record at places `from..from + most` that had a packet at `since` or later. `show`
    /// receives its packets so far and a function that builds the snapshot on demand. Returns the place to continue
    /// from, `None` after the last one.
    pub fn glance(
        &self,
        from: usize,
        most: usize,
        since: Nanos,
        mut show: impl FnMut(u64, &dyn Fn() -> ActiveFlow),
    ) -> Option<usize> {
        let end = self.hot.len().min(from.saturating_add(most));
        // A record's line has the age of its packets, if their times are near; else the other line is needed too.
        let is_near = self.clock.is_near(since.0);
        let is_late = |hot: &Hot, place: usize| match is_near {
            true => hot.ways.iter().any(|way| age(since.0, way.seen) <= 0),
            false => self.cold[place].ended(hot) >= since.0,
        };
        let mut place = from;
        while place < end {
            // Stretches without flows are skipped, as in the sweep.
            if self.crowd[place / STRETCH] == 0 {
                place = (place / STRETCH + 1) * STRETCH;
                continue;
            }
            let hot = &self.hot[place];
            if !hot.is_free() && is_late(hot, place) {
                show(hot.packets(&self.spills, place as u32), &|| self.active_flow(place as u32));
            }
            place += 1;
        }
        (place < self.hot.len()).then_some(place)
    }

    /// Returns the number of open records.
    pub fn open_flows(&self) -> u64 {
        self.flows
    }

    fn active_flow(&self, record: u32) -> ActiveFlow {
        let (hot, cold) = (&self.hot[record as usize], &self.cold[record as usize]);
        let words = hot.words();
        let wide: WideRecord = if words.is_wide() { self.wide[record as usize] } else { WideRecord::default() };
        let key: &Wide = &wide.key;
        let originator = hot.originator();
        let mut ends = words.both_ends(key);
        let mut sides = [0, 1].map(|side| cold.side(hot, side, &self.spills, record));
        let mut retransmitted = self.tcp.retransmitted(record);
        ends.rotate_left(originator);
        sides.rotate_left(originator);
        retransmitted.rotate_left(originator);
        if is_icmp(words.protocol()) {
            let [kind, code] = ends[0].port.to_be_bytes();
            (ends[0].port, ends[1].port) = (kind.into(), code.into());
        }
        ActiveFlow {
            id: self.general.id(words, key),
            ends,
            protocol: words.protocol(),
            vlan: words.vlan(),
            tunnel: key.tunnel(wide.parent),
            flows: 1,
            packets: sides.map(|side| side.packets),
            frame_bytes: sides.map(|side| side.frame_bytes),
            retransmitted,
            tcp_flags: sides.map(|side| side.tcp_flags),
            first: Nanos(cold.began()),
            last: Nanos(cold.ended(hot)),
            names: self.names.as_ref().and_then(|names| names.of(record)),
        }
    }
}
