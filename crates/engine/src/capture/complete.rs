//! Completion of each desc while its frame is copied: interface, lateness, headers and flow, selection, totals.
//!
//! All of it is inlined into the copy loop.

use crate::select::Selector;
use linerate_burst::{CommitState, Desc, FinishDesc, Flags, FrameIndex, Interface, Nanos};
use linerate_headers::Link;
use linerate_headers::flow::locate_inner;

/// Completes descs of lanes.
#[derive(Clone, Copy)]
pub(super) struct DescFinisher<'a> {
    /// For each lane, the index of each of its interfaces in the list of all.
    pub maps: &'a [&'a [u16]],
    /// Locator of headers and flows, if needed.
    pub locator: Option<&'a Locator>,
}

impl FinishDesc for DescFinisher<'_> {
    #[inline(always)]
    fn finish(&mut self, desc: &mut Desc, frame: &[u8], pick: FrameIndex) -> bool {
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

/// Completes descs, and keeps those selected.
pub(super) struct Select<'a> {
    pub complete: DescFinisher<'a>,
    pub selector: &'a mut Selector,
}

impl FinishDesc for Select<'_> {
    #[inline(always)]
    fn finish(&mut self, desc: &mut Desc, frame: &[u8], pick: FrameIndex) -> bool {
        self.complete.finish(desc, frame, pick);
        let selected = self.selector.select(pick.lane(), desc, frame);
        if let Some((length, flags)) = selected {
            (desc.captured, desc.flags) = (length as u32, flags);
        }
        selected.is_some()
    }
}

/// Totals of the frames kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Totals {
    pub frames: u64,
    pub bytes: u64,
    pub wire_bytes: u64,
    pub first: Nanos,
    pub last: Nanos,
}

impl Totals {
    pub(super) const NONE: Totals = Totals { frames: 0, bytes: 0, wire_bytes: 0, first: Nanos::MAX, last: Nanos::ZERO };

    /// Returns the smallest and the greatest time.
    pub(super) fn span(&self) -> Option<(Nanos, Nanos)> {
        (self.frames > 0).then_some((self.first, self.last))
    }

    /// Adds frames that were just copied; a separate loop, since the copy loop uses enough registers.
    pub(super) fn add(&mut self, descs: &[Desc], state: &mut CommitState) {
        let (mut bytes, mut wire_bytes, mut flags) = (0, 0, 0);
        let (mut first, mut last) = (self.first, self.last);
        for desc in descs {
            bytes += u64::from(desc.captured);
            wire_bytes += u64::from(desc.wire);
            flags |= desc.flags.0;
            (first, last) = (first.min(desc.time), last.max(desc.time));
        }
        self.frames += descs.len() as u64;
        self.bytes += bytes;
        self.wire_bytes += wire_bytes;
        (self.first, self.last) = (first, last);
        state.last_time = state.last_time.max(last);
        if flags & (Flags::LATE.0 | Flags::SLICED.0) != 0 {
            let with = |flag| descs.iter().filter(|desc| desc.flags.contains(flag)).count() as u32;
            state.late += with(Flags::LATE);
            state.sliced += with(Flags::SLICED);
        }
    }
}

/// Finds headers and flows.
#[derive(Default)]
pub(super) struct Locator {
    /// Link type of each interface.
    links: Vec<Option<Link>>,
    /// True if all of them are Ethernet.
    ethernet: bool,
}

impl Locator {
    /// Adds new interfaces.
    pub(super) fn learn(&mut self, interfaces: &[Interface]) {
        let new = &interfaces[self.links.len().min(interfaces.len())..];
        self.links.extend(new.iter().map(|interface| Link::from_linktype(interface.link.0)));
        self.ethernet = self.links.iter().all(|link| *link == Some(Link::Ethernet));
    }

    #[inline(always)]
    fn locate(&self, desc: &mut Desc, frame: &[u8]) {
        let link = if self.ethernet { Some(Link::Ethernet) } else { self.link_of(desc) };
        if let Some(link) = link {
            let located = locate_inner(link, frame);
            (desc.l3, desc.l4, desc.hash) = (located.l3, located.l4, located.hash);
        }
    }

    #[inline(never)]
    fn link_of(&self, desc: &Desc) -> Option<Link> {
        self.links.get(usize::from(desc.interface)).copied().flatten()
    }
}
