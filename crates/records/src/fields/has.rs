//! Optional parts of a record, with which encoders skip absent fields without evaluating them.

use super::{Field, Part};
use linerate_meter::{Flow, Quality};

/// Optional parts of a record, one bit each; the quality bits are above them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Has(u32);

/// The first bit of quality.
const QUALITY: u32 = 16;

impl Has {
    /// No parts.
    pub const NOTHING: Has = Has(0);
    const TAGS: Has = Has(1);
    const TUNNEL: Has = Has(1 << 1);
    const EXTENSIONS: Has = Has(1 << 2);
    const MACS: Has = Has(1 << 3);
    const LABELS: Has = Has(1 << 4);
    const TEIDS: Has = Has(1 << 5);
    const EXPORTER: Has = Has(1 << 6);
    const TCP: Has = Has(1 << 7);
    const STATS: Has = Has(1 << 8);
    const NAMES: Has = Has(1 << 9);

    /// Returns the parts of a flow.
    pub fn of(flow: &Flow) -> Has {
        Has(u32::from(flow.vlans[0] != 0)
            | u32::from(flow.tunnel.is_some()) << 1
            | u32::from(flow.extensions != 0) << 2
            | u32::from(flow.macs.is_some()) << 3
            | u32::from(flow.mpls[0][0] | flow.mpls[1][0] != 0) << 4
            | u32::from(flow.teids != [None; 2]) << 5
            | u32::from(flow.exporter.is_some()) << 6
            | u32::from(flow.tcp.is_some()) << 7
            | u32::from(flow.stats.is_some()) << 8
            | u32::from(flow.names.is_some()) << 9
            | u32::from(flow.quality.0) << QUALITY)
    }

    /// Returns the parts that any of the flows has.
    pub fn any(flows: &[&Flow]) -> Has {
        flows.iter().fold(Has::NOTHING, |has, flow| Has(has.0 | Has::of(flow).0))
    }

    /// Returns the quality bits.
    pub const fn quality(self) -> Quality {
        Quality((self.0 >> QUALITY) as u16)
    }

    /// Returns whether all parts in `needs` are present.
    pub const fn covers(self, needs: Has) -> bool {
        needs.0 & !self.0 == 0
    }

    /// Returns the common parts.
    pub const fn and(self, other: Has) -> Has {
        Has(self.0 & other.0)
    }
}

impl Field {
    /// Returns the parts that a flow must have for this field to be present.
    pub fn needs(&self) -> Has {
        match self.part {
            Part::Tcp | Part::TcpSide => Has::TCP,
            Part::Stats | Part::StatsSide => Has::STATS,
            Part::Names => Has::NAMES,
            Part::Flow | Part::Headers | Part::End | Part::Side | Part::Quality => match self.path {
                "vlan" | "inner_vlan" => Has::TAGS,
                "extension_headers" => Has::EXTENSIONS,
                "*.mac" => Has::MACS,
                "*.mpls_labels" => Has::LABELS,
                "*.teid" => Has::TEIDS,
                path if path.starts_with("tunnel.") => Has::TUNNEL,
                path if path.starts_with("exporter.") => Has::EXPORTER,
                _ => Has::NOTHING,
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
        let mut plain = crate::back::nothing();
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
            let has = Has::of(&flow);
            for (field, side) in fields().flat_map(|field| [(field, 0), (field, 1)]) {
                let is_there = write_value(&field.get, &flow, side, &mut Vec::new());
                assert!(has.covers(field.needs()) || !is_there, "{} of {flow:?}", field.path);
                // A skipped field would not be written as null.
                assert!(field.absence != Absence::Null || field.needs() == Has::NOTHING, "{}", field.path);
            }
        }
    }

    #[test]
    fn any_is_the_union_of_parts() {
        let all = with_more();
        let has = Has::any(&all.iter().collect::<Vec<_>>());
        assert!(all.iter().all(|flow| has.covers(Has::of(flow))));
        assert!(Quality::NAMES.iter().all(|(bit, _)| has.quality().contains(*bit)));
        assert_eq!(Has::of(&all[0]).quality(), Quality::default());
        assert_eq!(has.and(Has::of(&all[0])), Has::NOTHING);
        assert!(!Has::of(&all[0]).covers(Has::TAGS) && Has::of(&all[1]).covers(Has::TAGS));
    }
}
