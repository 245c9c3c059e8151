//! Which frames to keep, and how much of them: applied to each frame after the merge.
//!
//! A frame passes the filter, then the [`Shard`], then the search for duplicates, then the limit; what is left of it
//! is cut.

mod dedup;
mod shard;
mod slice;

pub use self::dedup::WINDOW;
pub use self::shard::{Shard, ShardError, imbalance};
pub use self::slice::{Header, Slice, SliceError};

use self::dedup::Dedup;
use crate::consumer::Round;
use crate::error::ReceiveError;
use linerate_burst::{Account, Count, Desc, Flags, Interface, Pick};
use linerate_filter::{Filter, FilterError};
use linerate_wire::{Layers, Link};
use std::sync::Arc;
use std::time::Duration;

/// Which frames to keep, and how much of them.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// pcap-filter text; empty selects everything. Ports may have applied it already.
    pub filter: String,
    /// Another one, of this selection alone: ports do not know it.
    pub also: String,
    /// Which part of the traffic to keep; `None` for all.
    pub shard: Option<Shard>,
    /// For how long a frame is remembered, so that it is not kept twice; `None` keeps duplicates.
    pub dedup: Option<Duration>,
    /// Most frames to keep; `None` for no limit.
    pub frames: Option<u64>,
    /// How much of a frame to keep; `None` for all.
    pub slice: Option<Slice>,
}

impl Selection {
    /// Most bytes of a frame that a port needs to hand over; 0 for all.
    pub fn snap(&self) -> u32 {
        match (self.shard, self.dedup, self.slice) {
            (None, None, Some(Slice::Bytes(bytes))) if self.also.is_empty() => bytes,
            _ => 0,
        }
    }
}

/// A selection at work.
pub(crate) struct Selector {
    selection: Selection,
    /// Of each interface: what its frames have to pass, and begin with.
    interfaces: Vec<(Filtering, Option<Link>)>,
    /// The filter as compiled for each link type so far.
    filters: Vec<(u16, Filtering)>,
    dedup: Option<Dedup>,
    layers: Layers,
    /// Frames of each part that the traffic is divided into.
    shards: Vec<u64>,
    received: u64,
    delivered: u64,
    filtered: u64,
    duplicates: u64,
    past_limit: u64,
    sliced: u64,
}

/// What frames of an interface have to pass.
#[derive(Clone)]
enum Filtering {
    All,
    /// Compiled for the link type of the interface.
    Matching {
        whole: Arc<Filter>,
        /// What is left of it where the port has applied its part.
        rest: Option<Arc<Filter>>,
    },
    /// The filter text makes no sense for the link type.
    None,
}

impl Selector {
    pub fn new(selection: Selection) -> Self {
        Selector {
            interfaces: Vec::new(),
            filters: Vec::new(),
            dedup: selection.dedup.map(Dedup::new),
            layers: Layers::new(),
            shards: vec![0; selection.shard.map_or(0, |shard| shard.of() as usize)],
            selection,
            received: 0,
            delivered: 0,
            filtered: 0,
            duplicates: 0,
            past_limit: 0,
            sliced: 0,
        }
    }

    /// Gets ready for frames of interfaces that are new among these.
    ///
    /// # Errors
    /// The filter text does not fit one of them: none of its frames is selected.
    #[inline]
    pub fn learn(&mut self, interfaces: &[Interface]) -> Result<(), ReceiveError> {
        if interfaces.len() == self.interfaces.len() { Ok(()) } else { self.learn_all(interfaces) }
    }

    #[cold]
    fn learn_all(&mut self, interfaces: &[Interface]) -> Result<(), ReceiveError> {
        let mut result = Ok(());
        for interface in &interfaces[self.interfaces.len().min(interfaces.len())..] {
            let added = self
                .add_interface(interface)
                .map_err(|error| ReceiveError::Filter { interface: interface.name.clone(), reason: error.to_string() });
            result = result.and(added);
        }
        result
    }

    /// Gets ready for frames of one more interface. After an error none of them is selected.
    fn add_interface(&mut self, interface: &Interface) -> Result<(), FilterError> {
        let (filtering, result) = match self.filtering(interface.link.0) {
            Ok(filtering) => (filtering, Ok(())),
            Err(error) => (Filtering::None, Err(error)),
        };
        self.interfaces.push((filtering, Link::from_linktype(interface.link.0)));
        result
    }

    /// The filters for a link type; the same serve all interfaces of it.
    fn filtering(&mut self, link: u16) -> Result<Filtering, FilterError> {
        if let Some((_, filtering)) = self.filters.iter().find(|(of, _)| *of == link) {
            return Ok(filtering.clone());
        }
        let compile = |text: &str| Filter::compile(text, link).map(Arc::new);
        let Selection { filter, also, .. } = &self.selection;
        let filtering = match (filter.as_str(), also.as_str()) {
            ("", "") => Filtering::All,
            (text, "") => Filtering::Matching { whole: compile(text)?, rest: None },
            ("", also) => {
                let whole = compile(also)?;
                Filtering::Matching { rest: Some(Arc::clone(&whole)), whole }
            }
            (text, also) => {
                // Each by itself first: brackets do not make sense of what makes none.
                compile(text)?;
                let rest = compile(also)?;
                Filtering::Matching { whole: compile(&format!("({text}) and ({also})"))?, rest: Some(rest) }
            }
        };
        self.filters.push((link, filtering.clone()));
        Ok(filtering)
    }

    /// Whether no more frames are wanted.
    pub fn is_full(&self) -> bool {
        self.selection.frames.is_some_and(|limit| self.delivered >= limit)
    }

    /// Whether all frames are wanted whole.
    pub fn is_everything(&self) -> bool {
        self.is_room_for(usize::MAX)
    }

    /// Whether frames are wanted whole whatever they are, and so many more of them.
    fn is_room_for(&self, more: usize) -> bool {
        let Selection { filter, also, shard, dedup, frames, slice } = &self.selection;
        let is_room = frames.is_none_or(|limit| self.delivered.saturating_add(more as u64) <= limit);
        is_room && filter.is_empty() && also.is_empty() && shard.is_none() && dedup.is_none() && slice.is_none()
    }

    /// Takes `frames` frames without looking at any, if all of them are wanted whole; else false.
    #[inline]
    pub fn take_all(&mut self, frames: usize) -> bool {
        let all = self.is_room_for(frames);
        if all {
            self.received += frames as u64;
            self.delivered += frames as u64;
        }
        all
    }

    /// Decides on a frame: `None` if it is not wanted, else how many bytes of it to keep and its flags.
    /// `is_filtered` says that the backend has applied the filter already.
    #[inline]
    pub fn select(&mut self, desc: &Desc, frame: &[u8], is_filtered: bool) -> Option<(usize, Flags)> {
        self.received += 1;
        let (filtering, link) = &self.interfaces[usize::from(desc.interface)];
        let wanted = match filtering {
            Filtering::All => true,
            Filtering::Matching { rest, .. } if is_filtered && !desc.flags.contains(Flags::VLAN_RESTORED) => {
                rest.as_ref().is_none_or(|rest| rest.matches(frame, desc.wire))
            }
            Filtering::Matching { whole, .. } => whole.matches(frame, desc.wire),
            Filtering::None => false,
        };
        if !wanted {
            self.filtered += 1;
            return None;
        }
        if let Some(shard) = self.selection.shard {
            let part = shard.part_of(desc, *link, frame);
            self.shards[part as usize - 1] += 1;
            if part != shard.index() {
                return None;
            }
        }
        if self.dedup.as_mut().is_some_and(|dedup| dedup.is_duplicate(desc.time, frame, desc.wire)) {
            self.duplicates += 1;
            return None;
        }
        if self.is_full() {
            self.past_limit += 1;
            return None;
        }
        self.delivered += 1;
        let Some(slice) = self.selection.slice else { return Some((frame.len(), desc.flags)) };
        let length = slice.length(*link, frame, &mut self.layers);
        // A frame that comes as long as the slice, and was longer, was cut by the backend.
        let is_cut = slice == Slice::Bytes(length as u32) && desc.wire as usize > length;
        if length == frame.len() && !is_cut {
            return Some((length, desc.flags));
        }
        self.sliced += 1;
        Some((length, desc.flags | Flags::SLICED))
    }

    /// The frames of a round that are wanted, in order; the order is made in `own` where there is none, or not all are wanted.
    pub fn choose<'p>(&mut self, round: &'p Round<'_>, own: &'p mut Vec<Pick>) -> &'p [Pick] {
        if self.take_all(round.frames()) {
            return round.order(own);
        }
        if round.picks.is_empty() {
            round.order(own);
        } else {
            own.clear();
            own.extend_from_slice(round.picks);
        }
        own.retain(|pick| {
            let (lane, burst) = (pick.lane(), &round.bursts[pick.lane()]);
            let desc = round.placed(lane, &burst.descs()[pick.index()]);
            self.select(&desc, burst.frame(pick.index()), round.filtered[lane]).is_some()
        });
        own
    }

    /// Frames of each part that the traffic was divided into, whichever of them was kept; none without a shard.
    pub fn shards(&self) -> &[u64] {
        &self.shards
    }

    /// Frames left out so far because they came a second time.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    pub fn counters(&self, account: &mut Account) {
        account.add(Count::SelectReceived, self.received).add(Count::SelectDelivered, self.delivered);
        account.add(Count::Filtered, self.filtered).add(Count::OtherShard, self.other_shards());
        account.add(Count::Duplicate, self.duplicates).add(Count::PastLimit, self.past_limit);
        account.add(Count::Sliced, self.sliced);
        account.add(Count::DedupForgotten, self.dedup.as_ref().map_or(0, Dedup::forgotten));
    }

    fn other_shards(&self) -> u64 {
        let own = self.selection.shard.and_then(|shard| self.shards.get(shard.index() as usize - 1));
        self.shards.iter().sum::<u64>() - own.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_burst::{Ledger, LinkType, Nanos, Stage, StampSource};

    #[test]
    fn nothing_longer_than_the_snap_length_passes_and_what_was_cut_is_flagged() {
        let mut selector = ethernet(Selection { slice: Some(Slice::Bytes(4)), ..Selection::default() });
        // Captured and wire length, then what is kept; a file may claim a wire length below the captured one.
        for (captured, wire, kept, sliced) in
            [(3, 9, 3, false), (4, 4, 4, false), (4, 9, 4, true), (5, 5, 4, true), (6, 3, 4, true)]
        {
            let desc = Desc { wire, ..Desc::new(Nanos(1), 0, captured) };
            let (length, flags) = selector.select(&desc, &[0; 6][..captured as usize], false).unwrap();
            assert_eq!((length, flags.contains(Flags::SLICED)), (kept, sliced), "{captured} of {wire}");
        }
    }

    fn ethernet(selection: Selection) -> Selector {
        let mut selector = Selector::new(selection);
        selector.add_interface(&Interface::new("", LinkType::ETHERNET, StampSource::User)).unwrap();
        selector
    }

    /// A frame of a flow of its own, at a time of its own.
    fn frame(number: u8) -> (Desc, [u8; 60]) {
        let mut frame = [0; 60];
        frame[5] = number;
        (Desc::new(Nanos(u64::from(number) * 100), 0, 60), frame)
    }

    /// A port that has applied the one filter knows nothing of the other.
    #[test]
    fn both_filters_have_to_be_passed_whoever_applied_the_one() {
        let frame = |number: u8, kind: u8| [[2, 0, 0, 0, 0, number].as_slice(), &[0; 6], &[8, kind], &[0; 46]].concat();
        let (one, other) = ("ether host 2:0:0:0:0:7", "arp");
        for (filter, also) in [(one, other), (one, ""), ("", other), ("", "")] {
            let selection = Selection { filter: filter.into(), also: also.into(), ..Selection::default() };
            let mut selector = ethernet(selection.clone());
            for (number, kind) in [(7, 6), (7, 0), (8, 6), (8, 0)] {
                let (has_one, has_other) = (filter.is_empty() || number == 7, also.is_empty() || kind == 6);
                let (desc, frame) = (Desc::new(Nanos(1), 0, 60), frame(number, kind));
                assert_eq!(selector.select(&desc, &frame, false).is_some(), has_one && has_other, "{selection:?}");
                if has_one {
                    assert_eq!(selector.select(&desc, &frame, true).is_some(), has_other, "{selection:?}");
                }
                // What the port saw without its tag says nothing.
                let restored = Desc { flags: Flags::VLAN_RESTORED, ..desc };
                assert_eq!(selector.select(&restored, &frame, true).is_some(), has_one && has_other, "{selection:?}");
            }
        }
        let wrong = Selection { filter: "ip) or (ip".into(), also: "arp".into(), ..Selection::default() };
        assert!(
            Selector::new(wrong).add_interface(&Interface::new("", LinkType::ETHERNET, StampSource::User)).is_err()
        );
    }

    #[test]
    fn each_frame_is_in_one_shard_and_all_shards_are_counted() {
        let mut kept = [0; 200];
        for index in 1..=3 {
            let mut selector = ethernet(Selection { shard: Shard::new(index, 3).ok(), ..Selection::default() });
            for (number, times) in kept.iter_mut().enumerate() {
                let (desc, frame) = frame(number as u8);
                *times += u32::from(selector.select(&desc, &frame, false).is_some());
            }
            let shards = selector.shards();
            assert_eq!((shards.len(), shards.iter().sum::<u64>()), (3, 200));
            assert_eq!(shards[index as usize - 1], selector.delivered);
            assert_eq!(selector.other_shards(), 200 - selector.delivered);
            assert!(shards.iter().all(|frames| *frames > 40), "{shards:?}");
        }
        assert_eq!(kept, [1; 200]);
    }

    #[test]
    fn what_was_not_kept_has_a_reason() {
        let selection = Selection {
            shard: Shard::new(1, 2).ok(),
            dedup: Some(Duration::from_nanos(50)),
            frames: Some(20),
            ..Selection::default()
        };
        let mut selector = ethernet(selection);
        for number in 0..200 {
            let (desc, frame) = frame(number);
            for _ in 0..3 {
                selector.select(&desc, &frame, false);
            }
        }
        let own = selector.shards()[0] / 3;
        assert!(own > 20);
        assert_eq!((selector.duplicates, selector.past_limit, selector.delivered), (own * 2, own - 20, 20));
        let mut ledger = Ledger::new();
        selector.counters(ledger.account(Stage::Select, ""));
        assert_eq!(ledger.imbalances(), []);
        assert_eq!(ledger.total(Count::OtherShard), 600 - own * 3);
    }

    #[test]
    fn everything_is_what_asks_for_nothing() {
        assert!(Selector::new(Selection::default()).is_everything());
        let none = Selection::default;
        for selection in [
            Selection { filter: "ip".into(), ..none() },
            Selection { also: "ip".into(), ..none() },
            Selection { shard: Shard::new(1, 1).ok(), ..none() },
            Selection { dedup: Some(WINDOW), ..none() },
            Selection { frames: Some(9), ..none() },
            Selection { slice: Some(Slice::Bytes(9)), ..none() },
        ] {
            assert!(!Selector::new(selection.clone()).is_everything(), "{selection:?}");
        }
        // As long as a limit is not near.
        let mut selector = Selector::new(Selection { frames: Some(9), ..none() });
        assert!(selector.take_all(5) && !selector.take_all(5) && selector.take_all(4) && selector.is_full());
    }

    #[test]
    fn ports_hand_over_whole_frames_where_more_than_the_beginning_is_looked_at() {
        let bytes = Selection { slice: Some(Slice::Bytes(96)), ..Selection::default() };
        assert_eq!(bytes.snap(), 96);
        assert_eq!(Selection { dedup: Some(WINDOW), ..bytes.clone() }.snap(), 0);
        assert_eq!(Selection { shard: Shard::new(1, 2).ok(), ..bytes }.snap(), 0);
        let header = Selection { slice: Some(Slice::Header(Header::Transport, 0)), ..Selection::default() };
        assert_eq!((header.snap(), Selection::default().snap()), (0, 0));
    }
}
