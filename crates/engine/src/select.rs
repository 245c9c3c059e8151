//! Filter text, snap length and frame limit, applied to each frame after the merge.

use linerate_burst::{Account, Count, Desc, Flags, Interface};
use linerate_filter::{Filter, FilterError};

/// Which frames to keep, and how much of them.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// pcap-filter text; empty selects everything.
    pub filter: String,
    /// Most bytes of a frame to keep; 0 for all.
    pub snap: u32,
    /// Most frames to keep; `None` for no limit.
    pub frames: Option<u64>,
}

/// A selection at work.
pub(crate) struct Selector {
    selection: Selection,
    /// A filter for each interface, compiled for its link type.
    filters: Vec<Option<Filter>>,
    received: u64,
    delivered: u64,
    filtered: u64,
    past_limit: u64,
    sliced: u64,
}

impl Selector {
    pub fn new(selection: Selection) -> Self {
        Selector { selection, filters: Vec::new(), received: 0, delivered: 0, filtered: 0, past_limit: 0, sliced: 0 }
    }

    /// Gets ready for frames of one more interface.
    pub fn add_interface(&mut self, interface: &Interface) -> Result<(), FilterError> {
        let filter = match self.selection.filter.as_str() {
            "" => None,
            text => Some(Filter::compile(text, interface.link.0)?),
        };
        self.filters.push(filter);
        Ok(())
    }

    /// Whether no more frames are wanted.
    pub fn is_full(&self) -> bool {
        self.selection.frames.is_some_and(|limit| self.delivered >= limit)
    }

    /// Judges a frame: `None` if it is not wanted, else how many bytes of it to keep and its flags.
    /// `judged` says that the backend has applied the filter already.
    #[inline]
    pub fn select(&mut self, desc: &Desc, frame: &[u8], judged: bool) -> Option<(usize, Flags)> {
        self.received += 1;
        if let Some(filter) = &self.filters[usize::from(desc.interface)]
            && !(judged && !desc.flags.contains(Flags::VLAN_RESTORED))
            && !filter.matches(frame, desc.wire)
        {
            self.filtered += 1;
            return None;
        }
        if self.is_full() {
            self.past_limit += 1;
            return None;
        }
        self.delivered += 1;
        let snap = self.selection.snap as usize;
        if snap == 0 || frame.len() < snap {
            return Some((frame.len(), desc.flags));
        }
        if desc.wire as usize <= snap {
            return Some((frame.len(), desc.flags));
        }
        self.sliced += 1;
        Some((snap, desc.flags | Flags::SLICED))
    }

    pub fn counters(&self, account: &mut Account) {
        account.add(Count::SelectReceived, self.received).add(Count::SelectDelivered, self.delivered);
        account.add(Count::Filtered, self.filtered).add(Count::PastLimit, self.past_limit);
        account.add(Count::Sliced, self.sliced);
    }
}
