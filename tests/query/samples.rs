//! Flows that share many values, and files of them.

use linerate_burst::Nanos;
use linerate_export::encode::parquet::Writer;
use linerate_meter::{End, Flow};
use linerate_query::{Store, stored};
use linerate_tests::support::Scratch;
use linerate_tests::support::flows::any_flow;
use proptest::collection::vec;
use proptest::prelude::*;
use std::fs::File;
use std::path::Path;

/// Hosts in a few networks.
pub(super) const HOSTS: [&str; 8] =
    ["10.0.0.1", "10.0.0.2", "10.0.1.1", "10.9.0.1", "192.0.2.1", "2001:db8::1", "2001:db8:0:1::2", "2001:db9::1"];

/// Flows of few hosts, ports and protocols, with counters of all magnitudes.
pub(super) fn flows() -> impl Strategy<Value = Vec<Flow>> {
    let narrowed = (any_flow(), 0..8usize, 0..8usize, [0..6u16, 0..6u16], 0..5usize, any::<[u16; 4]>(), any::<u8>());
    vec(narrowed, 0..60).prop_map(|all| {
        all.into_iter()
            .map(|(mut flow, one, other, ports, protocol, sizes, small)| {
                // Both addresses belong to the same IP version.
                let family = |host: usize| if one < 5 { host % 5 } else { 5 + host % 3 };
                flow.ends = [(one, ports[0]), (family(other), ports[1])].map(|(host, port)| End {
                    address: HOSTS[host].parse().unwrap(),
                    port: [80, 443, 53, 1024, 6000, 0][port as usize],
                });
                flow.protocol = [1, 6, 17, 58, 132][protocol];
                if small & 3 != 0 {
                    flow.sides.iter_mut().zip(sizes.as_chunks::<2>().0).for_each(|(side, [packets, bytes])| {
                        (side.packets, side.frame_bytes) = (u64::from(packets % 50), (*bytes).into());
                        let first = 1_700_000_000_000_000_000 + u64::from(*bytes) * 1_000_000_000;
                        let last = first + u64::from(*packets) * 1_000_000;
                        (side.first, side.last) =
                            if side.packets == 0 { (Nanos(0), Nanos(0)) } else { (Nanos(first), Nanos(last)) };
                    });
                }
                flow.sides
                    .iter_mut()
                    .filter(|side| small & 4 != 0 && side.packets > 0)
                    .for_each(|side| side.tcp_flags &= 0x12);
                flow.flows = flow.flows % 3 + 1;
                flow
            })
            .collect()
    })
}

/// Writes flows to a file with row groups of this size and opens it as a store.
pub(super) fn store(scratch: &Scratch, flows: &[Flow], group: usize) -> Store {
    let path = scratch.file("flows.parquet");
    write(Path::new(&path), flows, group);
    Store::new(stored(Path::new(&path)).unwrap(), 0, u64::MAX)
}

pub(super) fn write(path: &Path, flows: &[Flow], group: usize) {
    let mut writer = Writer::new(File::create(path).unwrap()).unwrap();
    let flows: Vec<&Flow> = flows.iter().collect();
    flows.chunks(group).for_each(|group| writer.write(group).unwrap());
    writer.finish().unwrap();
}
