//! What is done with each desc while its frame is copied: interface, lateness, headers and flow, selection, totals.
//!
//! All of it is inlined into the copy loop.

use crate::select::Selector;
use linerate_burst::{Committed, Desc, Finish, Flags, Interface, Nanos, Pick};
use linerate_wire::Link;
use linerate_wire::flow::locate;

/// Completes descs as lanes show them.
pub(crate) struct Complete<'a> {
    /// For each lane, the place of each of its interfaces in the list of all.
    pub maps: &'a [&'a [u16]],
    /// Where headers and flows are to be found.
    pub locator: Option<&'a Locator>,
}

impl Finish for Complete<'_> {
    #[inline(always)]
    fn finish(&mut self, desc: &mut Desc, frame: &[u8], pick: Pick) -> bool {
        let interface = self.maps[pick.lane()].get(usize::from(desc.interface)).copied();
        desc.interface = interface.unwrap_or_default();
        if pick.is_late() {
            desc.flags |= Flags::LATE;
        }
        if let Some(locator) = self.locator {
            locator.locate(desc, frame);
        }
        true
    }
}

/// Completes descs, and keeps what is selected.
pub(crate) struct Select<'a> {
    pub complete: Complete<'a>,
    pub selector: &'a mut Selector,
    /// For each lane, whether its backend has applied the filter.
    pub filtered: &'a [bool],
}

impl Finish for Select<'_> {
    #[inline(always)]
    fn finish(&mut self, desc: &mut Desc, frame: &[u8], pick: Pick) -> bool {
        self.complete.finish(desc, frame, pick);
        let selected = self.selector.select(desc, frame, self.filtered[pick.lane()]);
        if let Some((length, flags)) = selected {
            (desc.captured, desc.flags) = (length as u32, flags);
        }
        selected.is_some()
    }
}

/// Adds up what `inner` keeps.
pub(crate) struct Count<'a, F> {
    pub inner: &'a mut F,
    pub totals: Totals,
    pub state: Committed,
}

impl<F: Finish> Finish for Count<'_, F> {
    #[inline(always)]
    fn finish(&mut self, desc: &mut Desc, frame: &[u8], pick: Pick) -> bool {
        let wanted = self.inner.finish(desc, frame, pick);
        if wanted {
            self.totals.add(desc);
            if desc.flags.0 & (Flags::LATE.0 | Flags::SLICED.0) != 0 {
                self.state.late += u32::from(desc.flags.contains(Flags::LATE));
                self.state.sliced += u32::from(desc.flags.contains(Flags::SLICED));
            }
        }
        wanted
    }
}

/// What was kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Totals {
    pub frames: u64,
    pub bytes: u64,
    pub wire_bytes: u64,
    pub first: Nanos,
    pub last: Nanos,
}

impl Totals {
    pub const NONE: Totals = Totals { frames: 0, bytes: 0, wire_bytes: 0, first: Nanos::MAX, last: Nanos::ZERO };

    /// The least and the greatest time.
    pub fn span(&self) -> Option<(Nanos, Nanos)> {
        (self.frames > 0).then_some((self.first, self.last))
    }

    #[inline(always)]
    fn add(&mut self, desc: &Desc) {
        self.frames += 1;
        self.bytes += u64::from(desc.captured);
        self.wire_bytes += u64::from(desc.wire);
        self.first = self.first.min(desc.time);
        self.last = self.last.max(desc.time);
    }
}

/// Finds headers and flows.
#[derive(Default)]
pub(crate) struct Locator {
    /// What frames of each interface begin with.
    links: Vec<Option<Link>>,
}

impl Locator {
    /// Takes up interfaces that are new.
    pub fn learn(&mut self, interfaces: &[Interface]) {
        let new = &interfaces[self.links.len().min(interfaces.len())..];
        self.links.extend(new.iter().map(|interface| Link::from_linktype(interface.link.0)));
    }

    #[inline(always)]
    fn locate(&self, desc: &mut Desc, frame: &[u8]) {
        if let Some(Some(link)) = self.links.get(usize::from(desc.interface)) {
            let located = locate(*link, frame);
            (desc.l3, desc.l4, desc.hash) = (located.l3, located.l4, located.hash);
        }
    }
}
