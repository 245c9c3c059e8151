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
    /// What each interface's frames have to pass.
    judges: Vec<Judge>,
    received: u64,
    delivered: u64,
    filtered: u64,
    past_limit: u64,
    sliced: u64,
}

/// What frames of an interface have to pass.
enum Judge {
    All,
    /// Compiled for the link type of the interface.
    Matching(Filter),
    /// The filter text makes no sense for the link type.
    None,
}

impl Selector {
    pub fn new(selection: Selection) -> Self {
        Selector { selection, judges: Vec::new(), received: 0, delivered: 0, filtered: 0, past_limit: 0, sliced: 0 }
    }

    /// Gets ready for frames of one more interface. After an error none of them is selected.
    pub fn add_interface(&mut self, interface: &Interface) -> Result<(), FilterError> {
        let (judge, result) = match self.selection.filter.as_str() {
            "" => (Judge::All, Ok(())),
            text => match Filter::compile(text, interface.link.0) {
                Ok(filter) => (Judge::Matching(filter), Ok(())),
                Err(error) => (Judge::None, Err(error)),
            },
        };
        self.judges.push(judge);
        result
    }

    /// Whether no more frames are wanted.
    pub fn is_full(&self) -> bool {
        self.selection.frames.is_some_and(|limit| self.delivered >= limit)
    }

    /// Takes `frames` frames without looking at any, if all frames are wanted whole; else false.
    #[inline]
    pub fn take_all(&mut self, frames: usize) -> bool {
        let Selection { filter, snap, frames: limit } = &self.selection;
        let all = filter.is_empty() && *snap == 0 && limit.is_none();
        if all {
            self.received += frames as u64;
            self.delivered += frames as u64;
        }
        all
    }

    /// Judges a frame: `None` if it is not wanted, else how many bytes of it to keep and its flags.
    /// `judged` says that the backend has applied the filter already.
    #[inline]
    pub fn select(&mut self, desc: &Desc, frame: &[u8], judged: bool) -> Option<(usize, Flags)> {
        self.received += 1;
        let wanted = match &self.judges[usize::from(desc.interface)] {
            Judge::All => true,
            Judge::Matching(_) if judged && !desc.flags.contains(Flags::VLAN_RESTORED) => true,
            Judge::Matching(filter) => filter.matches(frame, desc.wire),
            Judge::None => false,
        };
        if !wanted {
            self.filtered += 1;
            return None;
        }
        if self.is_full() {
            self.past_limit += 1;
            return None;
        }
        self.delivered += 1;
        let snap = self.selection.snap as usize;
        // A frame that comes as long as the snap length, and was longer, was cut by the backend.
        let is_whole = frame.len() < snap || frame.len() == snap && desc.wire as usize <= snap;
        if snap == 0 || is_whole {
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

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_burst::{LinkType, Nanos, StampSource};

    #[test]
    fn nothing_longer_than_the_snap_length_passes_and_what_was_cut_is_flagged() {
        let mut selector = Selector::new(Selection { snap: 4, ..Selection::default() });
        selector.add_interface(&Interface::new("", LinkType::ETHERNET, StampSource::User)).unwrap();
        // Captured and wire length, then what is kept; a file may claim a wire length below the captured one.
        for (captured, wire, kept, sliced) in
            [(3, 9, 3, false), (4, 4, 4, false), (4, 9, 4, true), (5, 5, 4, true), (6, 3, 4, true)]
        {
            let desc = Desc { wire, ..Desc::new(Nanos(1), 0, captured) };
            let (length, flags) = selector.select(&desc, &[0; 6][..captured as usize], false).unwrap();
            assert_eq!((length, flags.contains(Flags::SLICED)), (kept, sliced), "{captured} of {wire}");
        }
    }
}
