//! Slow path of frames: tunnels, fragments, and frames without IP.

use super::Meter;
use crate::encapsulation::Encapsulation;
use crate::facts::{DecodeResult, Facts, Packet};
use crate::flow::{Quality, Records};
use crate::flow_names::Place;
use crate::fragments::is_orphan;
use crate::pipeline::{Extra, Pipeline};
use linerate_burst::Burst;
use linerate_headers::Link;

impl Meter {
    /// Takes any frame.
    #[inline(never)]
    pub(super) fn look(
        &mut self,
        pipeline: &mut Pipeline,
        link: Option<Link>,
        (burst, number): (Burst<'_>, usize),
        records: &mut dyn Records,
    ) {
        let (desc, frame) = (&burst.descs()[number], burst.frame(number));
        let Some(link) = link else {
            self.counts.unknown_link += 1;
            self.counts.unknown_link_bytes += u64::from(desc.wire);
            return;
        };
        match self.general.look(link, desc, frame) {
            DecodeResult::Packets(outer, inner) => {
                for packet in std::iter::once(outer).chain(inner) {
                    if packet.fragment.is_some() {
                        self.take_fragment(pipeline, packet, burst, records);
                    } else {
                        self.push_packet(pipeline, &packet, (burst, Place::other(number)), records);
                    }
                }
            }
            DecodeResult::NotIp => {
                self.counts.not_ip += 1;
                self.counts.not_ip_bytes += u64::from(desc.wire);
            }
            DecodeResult::Malformed => {
                self.counts.malformed += 1;
                self.counts.malformed_bytes += u64::from(desc.wire);
            }
        }
    }

    fn take_fragment(&mut self, pipeline: &mut Pipeline, packet: Packet, burst: Burst<'_>, records: &mut dyn Records) {
        let mut ready = std::mem::take(&mut self.ready);
        self.counts.fragments_held += u64::from(self.fragments.take(packet, &mut ready));
        self.counts.fragments_no_room = self.fragments.no_room;
        for mut packet in ready.drain(..) {
            self.note_fragment(&mut packet);
            self.push_packet(pipeline, &packet, (burst, Place::NOWHERE), records);
        }
        self.ready = ready;
    }

    fn note_fragment(&mut self, packet: &mut Packet) {
        if is_orphan(packet) {
            self.counts.fragments_orphaned += 1;
            packet.facts.note(Quality::ORPHAN_FRAGMENTS);
        } else if packet.fragment.is_none() {
            self.counts.fragments_joined += 1;
        }
    }

    fn push_packet(
        &mut self,
        pipeline: &mut Pipeline,
        packet: &Packet,
        (burst, place): (Burst<'_>, Place),
        records: &mut dyn Records,
    ) {
        let (words, wide, side) = packet.key();
        let hash = self.hash(words, &wide);
        let is_encapsulated = packet.encapsulation != Encapsulation::default();
        let group = pipeline.newest();
        if let Some((slot, extra)) = group.room().next() {
            slot.facts = Facts { words, hash, is_encapsulated, side, ..packet.facts };
            slot.place = place;
            *extra = Extra { wide, encapsulation: packet.encapsulation, network: packet.network };
        }
        group.grow(1);
        if group.is_full() {
            self.turn::<true>(pipeline, burst, records);
        }
    }

    /// Accounts packets that were held.
    pub(crate) fn account_all(&mut self, ready: &mut Vec<Packet>, records: &mut dyn Records) {
        for mut packet in ready.drain(..) {
            self.note_fragment(&mut packet);
            let (words, wide, side) = packet.key();
            let (hash, is_encapsulated) = (self.hash(words, &wide), packet.encapsulation != Encapsulation::default());
            let facts = Facts { words, hash, is_encapsulated, side, ..packet.facts };
            let record = self.search(&facts, &wide, records);
            self.note_encapsulation(record, &facts, &packet.encapsulation);
        }
    }
}
