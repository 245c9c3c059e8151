//! Flows with a permanent verdict of the engine: bounded in number, each kept while it has frames.

use super::decide::{Decisions, Fate, FramePosition};
use linerate_burst::{Desc, Nanos};
use std::collections::HashMap;
use std::time::Duration;

/// Maximum number of flows; the engine is asked about others as before.
const MOST: usize = 1 << 16;
/// Idle timeout of a flow.
const IDLE: Duration = Duration::from_secs(120);
/// Interval of removing idle flows.
const SWEEP: Duration = Duration::from_secs(10);

/// An address, padded to 16 bytes, and a port.
type End = [u8; 18];

/// Flow key: the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    ends: [End; 2],
    protocol: u8,
    version: u8,
    /// Tags between the MAC addresses and the IP header.
    tags: [u8; 16],
    /// Hash of the innermost packet: a tunnel carries many flows, and a verdict applies to one of them.
    hash: u32,
}

/// Verdict on a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub fate: Fate,
    last: Nanos,
    /// Last block that may contain frames from before the verdict.
    said_in: u64,
    /// Last frame that was sent through the ring anyway.
    pub ahead: Option<FramePosition>,
}

impl Entry {
    /// Returns whether no frame of it is pending, which one that bypasses the ring would overtake.
    pub(super) fn is_clear(&self, decisions: &Decisions) -> bool {
        !decisions.is_by_arrival()
            && decisions.is_clear(self.said_in)
            && self.ahead.is_none_or(|place| decisions.is_through(place))
    }
}

/// Flows with verdicts.
#[derive(Debug, Default)]
pub(super) struct FlowVerdicts {
    flows: HashMap<Key, Entry>,
    swept: Nanos,
    /// Number of verdicts rejected because the table was full, or the frame belongs to no flow.
    pub refused: u64,
}

impl FlowVerdicts {
    /// Returns the fate of a frame, if its flow has one.
    #[inline]
    pub(super) fn fate(&mut self, now: Nanos, desc: &Desc, frame: &[u8]) -> Option<Fate> {
        self.find(now, desc, frame).map(|entry| entry.fate)
    }

    /// Returns the verdict on the flow of a frame.
    #[inline]
    pub(super) fn find(&mut self, now: Nanos, desc: &Desc, frame: &[u8]) -> Option<&mut Entry> {
        if self.flows.is_empty() {
            return None;
        }
        let entry = self.flows.get_mut(&key(desc, frame)?).filter(|entry| now.since(entry.last) < IDLE)?;
        entry.last = now;
        Some(entry)
    }

    /// Sets the fate of later frames of a flow; earlier ones are in block `said_in` at the latest.
    pub(super) fn insert(&mut self, now: Nanos, desc: &Desc, frame: &[u8], fate: Fate, said_in: u64) {
        match key(desc, frame) {
            Some(key) if self.flows.len() < MOST || self.flows.contains_key(&key) => {
                self.flows.insert(key, Entry { fate, last: now, said_in, ahead: None });
            }
            _ => self.refused += 1,
        }
    }

    /// Removes idle flows periodically.
    pub(super) fn tick(&mut self, now: Nanos) {
        if !self.flows.is_empty() && (now.since(self.swept) >= SWEEP || now < self.swept) {
            self.swept = now;
            self.flows.retain(|_, entry| now.since(entry.last) < IDLE);
        }
    }

    /// Removes all verdicts, since their engine has detached.
    pub(super) fn clear(&mut self) {
        self.flows.clear();
    }
}

/// Returns the key of a complete packet; a fragment has no ports.
fn key(desc: &Desc, frame: &[u8]) -> Option<Key> {
    let l3 = usize::from(desc.l3);
    let packet = frame.get(l3..).filter(|_| desc.l3 != Desc::NO_LAYER)?;
    let (version, protocol, addresses) = match packet.first()? >> 4 {
        4 if packet.get(6)? & 0x3f == 0 && *packet.get(7)? == 0 => (4, *packet.get(9)?, packet.get(12..20)?),
        6 => (6, *packet.get(6)?, packet.get(8..40)?),
        _ => return None,
    };
    // Extension headers of IPv6 are not parsed here.
    if version == 6 && [0, 43, 44, 51, 60].contains(&protocol) {
        return None;
    }
    let ports = match protocol {
        6 | 17 | 132 | 136 => frame.get(usize::from(desc.l4)..)?.get(..4)?,
        _ => &[0; 4],
    };
    let mut tags = [0; 16];
    if l3 > 12 {
        tags.get_mut(..l3 - 12)?.copy_from_slice(&frame[12..l3]);
    }
    let half = addresses.len() / 2;
    let end = |address: &[u8], port: &[u8]| {
        let mut end = [0; 18];
        end[..half].copy_from_slice(address);
        end[16..].copy_from_slice(port);
        end
    };
    let mut ends = [end(&addresses[..half], &ports[..2]), end(&addresses[half..], &ports[2..])];
    ends.sort_unstable();
    Some(Key { ends, protocol, version, tags, hash: desc.hash })
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_headers::Link;
    use linerate_headers::build::Frame;
    use linerate_headers::flow::locate_inner;
    use linerate_headers::{MacAddr, ethernet, ipv4, udp};

    fn frame(from: ([u8; 4], u16), to: ([u8; 4], u16), flags: u8) -> (Desc, Vec<u8>) {
        let link = ethernet::Header { source: MacAddr([2; 6]), destination: MacAddr([4; 6]), ether_type: 0 };
        let ip = ipv4::Header { source: from.0.into(), destination: to.0.into(), ..ipv4::Header::new(0) };
        let ports = udp::Header { source_port: from.1, destination_port: to.1 };
        let mut bytes = Frame::new(&[&link, &ip, &ports], b"payload").to_vec().unwrap();
        bytes[20] |= flags;
        let located = locate_inner(Link::Ethernet, &bytes);
        let desc = Desc::new(Nanos(0), 0, bytes.len() as u32);
        (Desc { l3: located.l3, l4: located.l4, hash: located.hash, ..desc }, bytes)
    }

    const A: ([u8; 4], u16) = ([10, 0, 0, 1], 1000);
    const B: ([u8; 4], u16) = ([10, 0, 0, 2], 53);

    #[test]
    fn both_directions_are_one_flow_until_the_idle_timeout() {
        let mut listed = FlowVerdicts::default();
        let second = |number: u64| Nanos(number * 1_000_000_000);
        let ((desc, there), (back_desc, back)) = (frame(A, B, 0), frame(B, A, 0));
        listed.insert(second(1), &desc, &there, Fate::Blocked, 0);
        assert_eq!(listed.fate(second(100), &back_desc, &back), Some(Fate::Blocked));
        assert_eq!(listed.fate(second(219), &desc, &there), Some(Fate::Blocked), "it was seen at 100");
        assert_eq!(listed.fate(second(340), &desc, &there), None);
        listed.tick(second(340));
        assert_eq!((listed.flows.len(), listed.refused), (0, 0));
        for other in [frame((A.0, 1001), B, 0), frame(([10, 0, 0, 3], 1000), B, 0)] {
            listed.insert(second(341), &desc, &there, Fate::Passed, 0);
            assert_eq!(listed.fate(second(341), &other.0, &other.1), None);
        }
        let (fragment, bytes) = frame(A, B, 0x20);
        assert_eq!(listed.fate(second(341), &fragment, &bytes), None);
        listed.insert(second(341), &fragment, &bytes, Fate::Passed, 0);
        listed.insert(second(341), &Desc::new(Nanos(0), 0, 3), &[1, 2, 3], Fate::Passed, 0);
        assert_eq!((listed.flows.len(), listed.refused), (1, 2));
        // A frame of another VLAN is another flow.
        let mut tagged = there.clone();
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        let located = locate_inner(Link::Ethernet, &tagged);
        let desc = Desc { l3: located.l3, l4: located.l4, ..Desc::new(Nanos(0), 0, tagged.len() as u32) };
        assert_eq!(listed.fate(second(341), &desc, &tagged), None);
    }

    #[test]
    fn verdict_on_a_tunnelled_flow_affects_no_other_flow() {
        let inside = |from, to| {
            let (_, bytes) = frame(from, to, 0);
            let link = ethernet::Header { source: MacAddr([2; 6]), destination: MacAddr([4; 6]), ether_type: 0 };
            let ip = ipv4::Header {
                source: [192, 0, 2, 1].into(),
                destination: [192, 0, 2, 2].into(),
                ..ipv4::Header::new(4)
            };
            let bytes = Frame::new(&[&link, &ip], &bytes[14..]).to_vec().unwrap();
            let located = locate_inner(Link::Ethernet, &bytes);
            let desc = Desc::new(Nanos(0), 0, bytes.len() as u32);
            (Desc { l3: located.l3, l4: located.l4, hash: located.hash, ..desc }, bytes)
        };
        let mut listed = FlowVerdicts::default();
        let (desc, bytes) = inside(A, B);
        listed.insert(Nanos(1), &desc, &bytes, Fate::Blocked, 0);
        let (back, other) = (inside(B, A), inside((A.0, 1001), B));
        assert_eq!(listed.fate(Nanos(2), &back.0, &back.1), Some(Fate::Blocked));
        assert_eq!(listed.fate(Nanos(2), &other.0, &other.1), None);
    }

    #[test]
    fn the_number_of_flows_is_bounded() {
        let mut listed = FlowVerdicts::default();
        for number in 0..MOST as u32 + 10 {
            let (desc, bytes) = frame(([10, 1, (number >> 24) as u8, (number >> 16) as u8], number as u16), B, 0);
            listed.insert(Nanos(1), &desc, &bytes, Fate::Passed, 0);
        }
        assert_eq!((listed.flows.len(), listed.refused), (MOST, 10));
    }
}
