//! Frames that are not plain: tunnels, fragments, and what is not IP.

use super::{Batch, Meter};
use crate::facts::{Facts, Found, Packet};
use crate::flow::{Quality, Records};
use crate::fragments::is_orphan;
use linerate_burst::Desc;
use linerate_wire::Link;

impl Meter {
    /// Any frame.
    #[inline(never)]
    pub(super) fn look(&mut self, link: Option<Link>, desc: &Desc, frame: &[u8]) {
        let found = link.map_or(Found::NotIp, |link| self.general.look(link, desc, frame));
        match found {
            Found::Packets(outer, inner) => {
                for packet in std::iter::once(outer).chain(inner) {
                    if packet.fragment.is_some() {
                        self.take_fragment(packet);
                    } else {
                        self.push_packet(&packet);
                    }
                }
            }
            Found::NotIp => {
                self.counts.not_ip += 1;
                self.counts.not_ip_bytes += u64::from(desc.wire);
            }
            Found::Malformed => {
                self.counts.malformed += 1;
                self.counts.malformed_bytes += u64::from(desc.wire);
            }
        }
    }

    fn take_fragment(&mut self, packet: Packet) {
        let mut ready = std::mem::take(&mut self.ready);
        self.counts.fragments_held += u64::from(self.fragments.take(packet, &mut ready));
        for packet in ready.drain(..) {
            self.push_fragment(packet);
        }
        self.ready = ready;
    }

    fn push_fragment(&mut self, mut packet: Packet) {
        if is_orphan(&packet) {
            self.counts.fragments_orphaned += 1;
            packet.facts.note(Quality::ORPHAN_FRAGMENTS);
        } else if packet.fragment.is_none() {
            self.counts.fragments_joined += 1;
        }
        self.push_packet(&packet);
    }

    fn push_packet(&mut self, packet: &Packet) {
        let (words, wide, side) = packet.key();
        let index = self.batch.wides.len();
        self.batch.wides.push(wide);
        let encapsulation = self.batch.encapsulations.push(packet.encapsulation);
        self.push(Facts { words, wide: index, encapsulation, side, ..packet.facts });
    }

    /// Accounts packets that waited.
    pub(crate) fn account_all(&mut self, ready: &mut Vec<Packet>, records: &mut dyn Records) {
        self.batch.facts.clear();
        self.batch.wides.clear();
        self.batch.encapsulations.clear();
        for packet in ready.drain(..) {
            self.push_fragment(packet);
        }
        let Batch { facts, wides, encapsulations, .. } = std::mem::take(&mut self.batch);
        for facts in &facts {
            let record = self.search(facts, &wides, records);
            self.note_encapsulation(record, facts, &encapsulations);
        }
    }
}
