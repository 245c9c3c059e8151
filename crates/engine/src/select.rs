//! Selection of frames, and truncation: applied to each frame after the merge.
//!
//! A frame is checked by the filter, then the [`Shard`], then for duplicates, then against the limit; what remains is
//! truncated.

mod dedup;
mod shard;
mod slice;

pub use self::dedup::WINDOW;
pub use self::shard::{Shard, ShardError, imbalance};
pub use self::slice::{Header, Slice, SliceError};

use self::dedup::Dedup;
use crate::consumer::Round;
use crate::error::ReceiveError;
use linerate_burst::{Account, Count, Desc, Flags, FrameIndex, Interface};
use linerate_filter::{Filter, FilterError};
use linerate_headers::{Layers, Link};
use std::sync::Arc;
use std::time::Duration;

/// Selection of frames, and truncation.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// pcap-filter text; empty selects everything. It is skipped for ports that have applied this same text
    /// ([`RxPort::filter`](linerate_port::RxPort::filter)).
    pub filter: String,
    /// A second filter, only of this selection: ports do not apply it.
    pub also: String,
    /// Part of the traffic to keep; `None` for all.
    pub shard: Option<Shard>,
    /// Deduplication window; `None` keeps duplicates.
    pub dedup: Option<Duration>,
    /// Maximum number of frames; `None` for no limit.
    pub frames: Option<u64>,
    /// Part of a frame to keep; `None` for all.
    pub slice: Option<Slice>,
}

impl Selection {
    /// Returns the longest captured length in bytes; 0 for no limit.
    pub fn longest(&self) -> u32 {
        if let Some(Slice::Bytes(bytes)) = self.slice { bytes } else { 0 }
    }

    /// Returns the snapshot length that ports must deliver; 0 for all.
    pub fn snap(&self) -> u32 {
        let sees_all = self.shard.is_some() || self.dedup.is_some() || !self.also.is_empty();
        if sees_all { 0 } else { self.longest() }
    }
}

/// A selection in use.
pub(crate) struct Selector {
    selection: Selection,
    /// Filter and link type of each interface.
    interfaces: Vec<(InterfaceFilter, Option<Link>)>,
    /// The filter as compiled for each link type so far.
    filters: Vec<(u16, InterfaceFilter)>,
    /// For each lane of the current round, whether its port has applied this filter.
    applied: Vec<bool>,
    dedup: Option<Dedup>,
    layers: Layers,
    /// Number of frames of each shard.
    shards: Vec<u64>,
    received: u64,
    delivered: u64,
    filtered: u64,
    duplicates: u64,
    past_limit: u64,
    sliced: u64,
}

/// Filter of an interface.
#[derive(Clone)]
enum InterfaceFilter {
    All,
    /// Compiled for the link type of the interface.
    Matching {
        whole: Arc<Filter>,
        /// The rest, if the port has applied its part.
        rest: Option<Arc<Filter>>,
    },
    /// The filter text is invalid for the link type.
    None,
}

impl Selector {
    pub(crate) fn new(selection: Selection) -> Self {
        Selector {
            interfaces: Vec::new(),
            filters: Vec::new(),
            applied: Vec::new(),
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

    /// Prepares for frames of new interfaces.
    ///
    /// # Errors
    /// If the filter text does not fit one of them: none of its frames is selected.
    #[inline]
    pub(crate) fn learn(&mut self, interfaces: &[Interface]) -> Result<(), ReceiveError> {
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

    /// Prepares for frames of one more interface. After an error none of them is selected.
    fn add_interface(&mut self, interface: &Interface) -> Result<(), FilterError> {
        let (filtering, result) = match self.filtering(interface.link.0) {
            Ok(filtering) => (filtering, Ok(())),
            Err(error) => (InterfaceFilter::None, Err(error)),
        };
        self.interfaces.push((filtering, Link::from_linktype(interface.link.0)));
        result
    }

    /// Returns the filters for a link type, shared by all interfaces of it.
    fn filtering(&mut self, link: u16) -> Result<InterfaceFilter, FilterError> {
        if let Some((_, filtering)) = self.filters.iter().find(|(of, _)| *of == link) {
            return Ok(filtering.clone());
        }
        let compile = |text: &str| Filter::compile(text, link).map(Arc::new);
        let Selection { filter, also, .. } = &self.selection;
        let filtering = match (filter.as_str(), also.as_str()) {
            ("", "") => InterfaceFilter::All,
            (text, "") => InterfaceFilter::Matching { whole: compile(text)?, rest: None },
            ("", also) => {
                let whole = compile(also)?;
                InterfaceFilter::Matching { rest: Some(Arc::clone(&whole)), whole }
            }
            (text, also) => {
                // Each separately first: parentheses could make invalid texts valid.
                compile(text)?;
                let rest = compile(also)?;
                InterfaceFilter::Matching { whole: compile(&format!("({text}) and ({also})"))?, rest: Some(rest) }
            }
        };
        self.filters.push((link, filtering.clone()));
        Ok(filtering)
    }

    /// Returns whether the limit is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.selection.frames.is_some_and(|limit| self.delivered >= limit)
    }

    /// Returns whether all frames are kept whole.
    pub(crate) fn is_everything(&self) -> bool {
        self.is_room_for(usize::MAX)
    }

    /// Returns whether all frames are kept whole, and `more` of them are within the limit.
    fn is_room_for(&self, more: usize) -> bool {
        let Selection { filter, also, shard, dedup, frames, slice } = &self.selection;
        let is_room = frames.is_none_or(|limit| self.delivered.saturating_add(more as u64) <= limit);
        is_room && filter.is_empty() && also.is_empty() && shard.is_none() && dedup.is_none() && slice.is_none()
    }

    /// Takes `frames` frames without reading any, if all of them are kept whole; otherwise returns false.
    #[inline]
    pub(crate) fn take_all(&mut self, frames: usize) -> bool {
        let all = self.is_room_for(frames);
        if all {
            self.received += frames as u64;
            self.delivered += frames as u64;
        }
        all
    }

    /// Starts a round: `filters` are those that the ports of its lanes have applied.
    pub(crate) fn start_round(&mut self, filters: &[&str]) {
        let Selector { applied, selection, .. } = self;
        applied.clear();
        applied.extend(filters.iter().map(|filter| *filter == selection.filter));
    }

    /// Selects a frame of a lane of the round: returns `None`, or the number of bytes to keep and its flags.
    #[inline]
    pub(crate) fn select(&mut self, lane: usize, desc: &Desc, frame: &[u8]) -> Option<(usize, Flags)> {
        self.received += 1;
        let is_filtered = self.applied.get(lane) == Some(&true);
        let (filtering, link) = &self.interfaces[usize::from(desc.interface)];
        let wanted = match filtering {
            InterfaceFilter::All => true,
            InterfaceFilter::Matching { rest, .. } if is_filtered && !desc.flags.contains(Flags::VLAN_RESTORED) => {
                rest.as_ref().is_none_or(|rest| rest.matches(frame, desc.wire))
            }
            InterfaceFilter::Matching { whole, .. } => whole.matches(frame, desc.wire),
            InterfaceFilter::None => false,
        };
        if !wanted {
            self.filtered += 1;
            return None;
        }
        if let Some(shard) = self.selection.shard {
            let part = shard.part_of(*link, frame);
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
        // A frame of exactly the slice's length, originally longer, was truncated by the backend.
        let is_cut = slice == Slice::Bytes(length as u32) && desc.wire as usize > length;
        if length == frame.len() && !is_cut {
            return Some((length, desc.flags));
        }
        self.sliced += 1;
        Some((length, desc.flags | Flags::SLICED))
    }

    /// Returns the selected frames of a round, in order; the order is built in `own` if the round has none, or not all are
    /// selected.
    pub(crate) fn choose<'p>(&mut self, round: &'p Round<'_>, own: &'p mut Vec<FrameIndex>) -> &'p [FrameIndex] {
        if self.take_all(round.frames()) {
            return round.order(own);
        }
        self.start_round(round.filters);
        if round.picks.is_empty() {
            round.order(own);
        } else {
            own.clear();
            own.extend_from_slice(round.picks);
        }
        own.retain(|pick| {
            let (lane, burst) = (pick.lane(), &round.bursts[pick.lane()]);
            let desc = round.placed(lane, &burst.descs()[pick.index()]);
            self.select(lane, &desc, burst.frame(pick.index())).is_some()
        });
        own
    }

    /// Returns the frames of each shard of the traffic, including those not selected; empty without a shard.
    pub(crate) fn shards(&self) -> &[u64] {
        &self.shards
    }

    /// Returns the number of duplicates dropped so far.
    pub(crate) fn duplicates(&self) -> u64 {
        self.duplicates
    }

    pub(crate) fn counters(&self, account: &mut Account) {
        account.add(Count::SelectReceived, self.received).add(Count::SelectDelivered, self.delivered);
        account.add(Count::Filtered, self.filtered).add(Count::OtherShard, self.other_shards());
        account.add(Count::Duplicate, self.duplicates).add(Count::PastLimit, self.past_limit);
        account.add(Count::Sliced, self.sliced);
        account.add(Count::DedupForgotten, self.dedup.as_ref().map_or(0, Dedup::evicted));
    }

    fn other_shards(&self) -> u64 {
        let own = self.selection.shard.and_then(|shard| self.shards.get(shard.index() as usize - 1));
        self.shards.iter().sum::<u64>() - own.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
