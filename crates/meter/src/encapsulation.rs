//! Optional parts of records about the headers in front of their packets: MAC addresses, the inner VLAN, MPLS labels,
//! TEIDs.
//!
//! None of them is part of a key. They are recorded for first packets only and stored outside the records: MAC
//! addresses in an array, if configured, the rest in pages that are allocated when a flow has such packets.

use crate::config::Config;
use crate::facts::Facts;
use crate::flow::MPLS_LABELS;
use crate::meter::Meter;
use crate::pages::{self, Pages};
use crate::record::Hot;
use linerate_burst::resident;
use linerate_headers::MacAddr;

/// Encapsulation of one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Encapsulation {
    pub macs: Option<[MacAddr; 2]>,
    /// VLAN ID of the second tag.
    pub inner_vlan: u16,
    /// MPLS labels, outermost first.
    pub labels: [u32; MPLS_LABELS],
    /// TEID of the GTP-U tunnel that carried the packet.
    pub teid: Option<u32>,
    /// For a packet in a tunnel, the id of the outer flow.
    pub parent: u64,
}

impl Encapsulation {
    /// Returns the addresses of an Ethernet frame.
    #[inline(always)]
    pub(crate) fn of_ethernet(frame: &[u8]) -> Self {
        let addresses = frame.first_chunk().map(|[a, b, c, d, e, f, g, h, i, j, k, l]: &[u8; 12]| {
            [MacAddr([*g, *h, *i, *j, *k, *l]), MacAddr([*a, *b, *c, *d, *e, *f])]
        });
        Encapsulation { macs: addresses, ..Encapsulation::default() }
    }

    fn is_rare(&self) -> bool {
        self.inner_vlan != 0 || self.teid.is_some() || self.labels != [0; MPLS_LABELS]
    }
}

/// Encapsulations of all records.
pub(crate) struct Encapsulations {
    /// Allocated for all records if MAC addresses are configured.
    macs: Option<Vec<Macs>>,
    rare: Pages<EndEncapsulation>,
}

/// MAC addresses of the lower and the higher end.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(4))]
struct Macs {
    ends: [MacAddr; 2],
    are_known: bool,
}

/// Additional bytes per flow if MAC addresses are recorded.
pub(crate) const MAC_BYTES: usize = size_of::<Macs>();
const _: () = assert!(MAC_BYTES == 16);

/// Maximum number of bytes of the rest per record.
pub(crate) const RARE_BYTES: usize = pages::bytes::<EndEncapsulation>();

/// Encapsulation by end: of packets from the lower one, and from the higher one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndEncapsulation {
    pub inner_vlan: u16,
    pub labels: [[u32; MPLS_LABELS]; 2],
    pub teids: [Option<u32>; 2],
}

impl Encapsulations {
    pub(crate) fn new(config: &Config, max_flows: usize) -> Self {
        Encapsulations { macs: config.macs.then(|| resident(max_flows)), rare: Pages::default() }
    }

    #[inline(always)]
    pub(crate) fn has_macs(&self) -> bool {
        self.macs.is_some()
    }

    /// Records the encapsulation of a packet that has just been counted.
    pub(crate) fn note(&mut self, record: u32, hot: &Hot, side: usize, found: &Encapsulation) {
        let place = record as usize;
        let begins = hot.is_one_packet();
        if let (true, Some(list), Some(mut ends)) = (begins, &mut self.macs, found.macs) {
            list.resize(list.len().max(place + 1), Macs::default());
            ends.rotate_right(side);
            list[place] = Macs { ends, are_known: true };
        }
        if found.is_rare() && hot.is_one_packet_of(side) {
            let rare = self.rare.at(record);
            if begins {
                rare.inner_vlan = found.inner_vlan;
            }
            rare.labels[side] = found.labels;
            rare.teids[side] = found.teid;
        }
    }

    /// Removes and returns the data of a flow that ends. MAC addresses are those of the lower and the higher end.
    pub(crate) fn take(&mut self, record: u32) -> (Option<[MacAddr; 2]>, EndEncapsulation) {
        let macs = self.macs.as_mut().and_then(|list| list.get_mut(record as usize)).map(std::mem::take);
        (macs.filter(|macs| macs.are_known).map(|macs| macs.ends), self.rare.take(record))
    }
}

impl Meter {
    /// Records the encapsulation of a packet that was counted, if it is the first one of its direction.
    pub(crate) fn note_encapsulation(&mut self, record: u32, facts: &Facts, found: &Encapsulation) {
        if !facts.is_encapsulated {
            return;
        }
        let hot = &self.hot[record as usize];
        if found.parent != 0 && hot.is_one_packet() {
            self.wide[record as usize].parent = found.parent;
        }
        self.encapsulations.note(record, hot, facts.sides()[0], found);
    }
}
