//! Optional parts of a record, with which encoders skip absent fields without evaluating them.

use super::{Field, Part};
use linerate_meter::{Flow, Quality};

/// Optional parts of a record, one bit each; the quality bits are above them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PresentParts(u32);

/// The first bit of quality.
const QUALITY: u32 = 16;

impl PresentParts {
    /// No parts.
    pub const NOTHING: PresentParts = PresentParts(0);
    const TAGS: PresentParts = PresentParts(1);
    const TUNNEL: PresentParts = PresentParts(1 << 1);
    const EXTENSIONS: PresentParts = PresentParts(1 << 2);
    const MACS: PresentParts = PresentParts(1 << 3);
    const LABELS: PresentParts = PresentParts(1 << 4);
    const TEIDS: PresentParts = PresentParts(1 << 5);
    const EXPORTER: PresentParts = PresentParts(1 << 6);
    const TCP: PresentParts = PresentParts(1 << 7);
    const STATS: PresentParts = PresentParts(1 << 8);
    const NAMES: PresentParts = PresentParts(1 << 9);

    /// Returns the parts of a flow.
    pub fn of(flow: &Flow) -> PresentParts {
        PresentParts(
            u32::from(flow.vlans != [0, 0])
                | u32::from(flow.tunnel.is_some()) << 1
                | u32::from(flow.extensions != 0) << 2
                | u32::from(flow.macs.is_some()) << 3
                | u32::from(flow.mpls[0][0] | flow.mpls[1][0] != 0) << 4
                | u32::from(flow.teids != [None; 2]) << 5
                | u32::from(flow.exporter.is_some()) << 6
                | u32::from(flow.tcp.is_some()) << 7
                | u32::from(flow.stats.is_some()) << 8
                | u32::from(flow.names.is_some()) << 9
                | u32::from(flow.quality.0) << QUALITY,
        )
    }

    /// Returns the parts that any of the flows has.
    pub fn any(flows: &[&Flow]) -> PresentParts {
        flows.iter().fold(PresentParts::NOTHING, |has, flow| PresentParts(has.0 | PresentParts::of(flow).0))
    }

    /// Returns the quality bits.
    pub const fn quality(self) -> Quality {
        Quality((self.0 >> QUALITY) as u16)
    }

    /// Returns whether all parts in `needs` are present.
    pub const fn covers(self, needs: PresentParts) -> bool {
        needs.0 & !self.0 == 0
    }

    /// Returns the common parts.
    pub const fn and(self, other: PresentParts) -> PresentParts {
        PresentParts(self.0 & other.0)
    }
}

impl Field {
    /// Returns the parts that a flow must have for this field to be present.
    pub fn needs(&self) -> PresentParts {
        match self.part {
            Part::Tcp | Part::TcpSide => PresentParts::TCP,
            Part::Stats | Part::StatsSide => PresentParts::STATS,
            Part::Names => PresentParts::NAMES,
            Part::Flow | Part::Headers | Part::End | Part::Side | Part::Quality => match self.path {
                "vlan" | "inner_vlan" => PresentParts::TAGS,
                "extension_headers" => PresentParts::EXTENSIONS,
                "*.mac" => PresentParts::MACS,
                "*.mpls_labels" => PresentParts::LABELS,
                "*.teid" => PresentParts::TEIDS,
                path if path.starts_with("tunnel.") => PresentParts::TUNNEL,
                path if path.starts_with("exporter.") => PresentParts::EXPORTER,
                _ => PresentParts::NOTHING,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::json::write_value;
    use crate::fields::{Absence, fields};
    use linerate_meter::{Tunnel, TunnelKind};
    use std::sync::Arc;

    /// Returns flows that each have one optional part.
    fn with_more() -> Vec<Flow> {
        let mut plain = crate::decode::nothing();
        (plain.tcp, plain.stats, plain.names) = (None, None, None);
        let mut all = vec![plain.clone()];
        let mut add = |change: fn(&mut Flow)| {
            let mut flow = plain.clone();
            change(&mut flow);
            all.push(flow);
        };
        add(|flow| flow.vlans = [7, 0]);
        add(|flow| flow.vlans = [7, 8]);
        add(|flow| flow.tunnel = Some(Tunnel { kind: TunnelKind::Gre, id: 5, parent: 6 }));
        add(|flow| flow.extensions = 4);
        add(|flow| flow.macs = Some(Default::default()));
        add(|flow| flow.mpls[1][0] = 9);
        add(|flow| flow.teids[1] = Some(3));
        add(|flow| flow.exporter = Some(Arc::default()));
        add(|flow| flow.names = Some(Arc::default()));
        Quality::NAMES.iter().for_each(|(bit, _)| all.push(Flow { quality: *bit, ..plain.clone() }));
        let full = crate::tests::flow();
        all.push(Flow { tcp: full.tcp.clone(), ..plain.clone() });
        all.push(Flow { stats: full.stats.clone(), ..plain.clone() });
        all.push(full);
        all
    }

    #[test]
    fn fields_of_absent_parts_have_no_values() {
        for flow in with_more() {
            let has = PresentParts::of(&flow);
            for (field, side) in fields().flat_map(|field| [(field, 0), (field, 1)]) {
                let is_there = write_value(&field.get, &flow, side, &mut Vec::new());
                assert!(has.covers(field.needs()) || !is_there, "{} of {flow:?}", field.path);
                // A skipped field would not be written as null.
                assert!(field.absence != Absence::Null || field.needs() == PresentParts::NOTHING, "{}", field.path);
            }
        }
    }

    #[test]
    fn any_is_the_union_of_parts() {
        let all = with_more();
        let has = PresentParts::any(&all.iter().collect::<Vec<_>>());
        assert!(all.iter().all(|flow| has.covers(PresentParts::of(flow))));
        assert!(Quality::NAMES.iter().all(|(bit, _)| has.quality().contains(*bit)));
        assert_eq!(PresentParts::of(&all[0]).quality(), Quality::default());
        assert_eq!(has.and(PresentParts::of(&all[0])), PresentParts::NOTHING);
        assert!(
            !PresentParts::of(&all[0]).covers(PresentParts::TAGS)
                && PresentParts::of(&all[1]).covers(PresentParts::TAGS)
        );
    }
}
