//! Aggregation of one-packet flows when the table is full: one record per target.
//!
//! A flood from spoofed addresses fills any table. Its flows have one packet each and are evicted first; those to one
//! address, port and protocol are aggregated in one record that counts them. The number of targets is limited too:
//! above the limit the target is left unspecified.

use crate::flow::{Direction, EndReason, Flow, Quality, Records, Side};
use crate::key::End;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Targets with their own record.
const TARGETS: usize = 256;

/// Maximum memory for them: nodes of the tree are at least half full.
pub(crate) const BYTES: usize = TARGETS * 2 * size_of::<((End, u8), Flow)>();

/// Records of floods in progress.
#[derive(Default)]
pub(crate) struct Flood(BTreeMap<(End, u8), Flow>);

impl Flood {
    /// Adds a flow of one packet, outside of tunnels.
    pub(crate) fn add(&mut self, flow: &Flow) {
        // The end that sent nothing is the target.
        let sender = usize::from(flow.sides[0].packets == 0);
        let (side, anyone) = (flow.sides[sender], open(flow.ends[0].address));
        let mut target = flow.ends[1 - sender];
        if self.0.len() >= TARGETS && !self.0.contains_key(&(target, flow.protocol)) {
            target = anyone;
        }
        let begin = || Flow {
            id: 0,
            ends: [anyone, target],
            vlans: [0; 2],
            sides: [Side::default(); 2],
            end: EndReason::Evicted,
            direction: Direction::FirstPacket,
            quality: Quality(Quality::EVICTED.0 | Quality::ONE_WAY.0),
            flows: 0,
            macs: None,
            mpls: Default::default(),
            teids: [None; 2],
            tcp: None,
            stats: None,
            names: None,
            exporter: None,
            ..flow.clone()
        };
        let sum = self.0.entry((target, flow.protocol)).or_insert_with(begin);
        sum.sides[0].add(&side);
        sum.flows += 1;
        sum.extensions |= flow.extensions;
        sum.quality.0 |= flow.quality.0;
    }

    /// Exports the records so far.
    pub(crate) fn flush(&mut self, records: &mut dyn Records) {
        std::mem::take(&mut self.0).values().for_each(|flow| records.take(flow));
    }
}

/// Returns the unspecified address and port.
fn open(like: IpAddr) -> End {
    let address = match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    End { address, port: 0 }
}
