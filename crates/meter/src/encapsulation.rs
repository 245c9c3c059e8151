//! What few records say of the headers in front of their packets: MAC addresses, the inner VLAN, MPLS labels, TEIDs.
//!
//! Nothing of it is part of a key. It is noted of first packets alone, and lies beside the records: MAC addresses in an array,
//! if they are asked for, the rest in pages that are made where flows have such packets.

use crate::config::Config;
use crate::facts::Facts;
use crate::flow::MPLS_LABELS;
use crate::meter::Meter;
use crate::pages::{self, Pages};
use crate::record::Hot;
use linerate_burst::resident;
use linerate_wire::MacAddr;

/// Of one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Encapsulation {
    /// Source and destination.
    pub macs: Option<[MacAddr; 2]>,
    /// The second tag.
    pub inner_vlan: u16,
    /// Outermost first.
    pub labels: [u32; MPLS_LABELS],
    /// Of the GTP-U tunnel that it came through.
    pub teid: Option<u32>,
    /// Of a packet in a tunnel the id of the outer flow.
    pub parent: u64,
}

impl Encapsulation {
    /// Of a frame behind Ethernet: its addresses.
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

/// Of all records.
pub(crate) struct Encapsulations {
    /// Room for all, if MAC addresses are asked for.
    macs: Option<Vec<Macs>>,
    rare: Pages<Rare>,
}

/// Those of the lower and the higher end.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(4))]
struct Macs {
    ends: [MacAddr; 2],
    are_known: bool,
}

/// Bytes more of each flow where MAC addresses are asked for.
pub(crate) const MAC_BYTES: usize = size_of::<Macs>();
const _: () = assert!(MAC_BYTES == 16);

/// The most bytes that the rest takes for each record.
pub(crate) const RARE_BYTES: usize = pages::bytes::<Rare>();

/// By end: what packets from the lower one had, and from the higher one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rare {
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

    /// Notes what is to be noted of a packet that has just been counted.
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

    /// What is known of a flow that ends; nothing of it stays. MAC addresses are those of the lower and the higher end.
    pub(crate) fn take(&mut self, record: u32) -> (Option<[MacAddr; 2]>, Rare) {
        let macs = self.macs.as_mut().and_then(|list| list.get_mut(record as usize)).map(std::mem::take);
        (macs.filter(|macs| macs.are_known).map(|macs| macs.ends), self.rare.take(record))
    }
}

impl Meter {
    /// Notes what is in front of a packet that was counted, if it is the first one of its direction.
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
