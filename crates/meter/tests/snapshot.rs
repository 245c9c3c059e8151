//! Snapshots of a running meter have the values of the records that it exports in the end.

use crate::support::Sent;
use linerate_burst::{Burst, Desc, Nanos, TAIL};
use linerate_headers::Link;
use linerate_meter::{ActiveFlow, Config, Flow, Level, Meter};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn take(meter: &mut Meter, one: &Sent, flows: &mut Vec<Flow>) {
    let mut memory = one.frame();
    let desc = [Desc::new(Nanos(one.time), 0, memory.len() as u32)];
    memory.resize(memory.len() + TAIL, 0);
    let burst = Burst::over(&memory, &desc).unwrap();
    meter.take(burst, &[Some(Link::Ethernet)], &mut |flow: &Flow| flows.push(flow.clone()));
}

/// Returns all records with a packet at `since` or later, `most` places at a time.
fn seen(meter: &Meter, since: Nanos, most: usize) -> Vec<ActiveFlow> {
    let (mut glances, mut place) = (Vec::new(), Some(0));
    while let Some(from) = place {
        place = meter.glance(from, most, since, |packets, glance| {
            glances.push(glance());
            assert_eq!(glances.last().map(|glance| glance.packets.iter().sum()), Some(packets));
        });
        assert!(place.is_none_or(|place| place > from), "the next place is later");
    }
    glances.sort_by_key(|glance| (glance.id, glance.first));
    glances
}

proptest! {
    #[test]
    fn recently_active_records_are_returned(
        packets in proptest::collection::vec((0u8..40, 0u8..3, any::<bool>(), any::<bool>(), 0usize..500), 1..300),
        (since, most) in (0u64..40, 1usize..200),
    ) {
        let sent: Vec<Sent> = packets
            .iter()
            .enumerate()
            .map(|(place, (host, kind, is_back, v6, payload))| {
                let one = Sent {
                    source: (*host, 1000 + u16::from(*host)),
                    destination: (99, 53),
                    protocol: [6, 17, 1][usize::from(*kind)],
                    flags: 16,
                    payload: *payload,
                    v6: *v6,
                    ..Sent::udp(100 * SECOND + place as u64 * SECOND / 10)
                };
                if *is_back { one.turned() } else { one }
            })
            .collect();
        let config = Config { max_flows: 500, level: Level::Tcp, ..Config::default() };
        let (mut meter, mut flows) = (Meter::new(&config), Vec::new());
        sent.iter().for_each(|one| take(&mut meter, one, &mut flows));
        let all = seen(&meter, Nanos::ZERO, most);
        prop_assert_eq!(all.len() as u64, meter.open_flows());
        let since = Nanos((100 + since) * SECOND);
        let late: Vec<ActiveFlow> = all.iter().filter(|glance| glance.last >= since).cloned().collect();
        prop_assert_eq!(seen(&meter, since, most), late);
        let before = flows.len();
        meter.finish(meter.latest(), &mut |flow: &Flow| flows.push(flow.clone()));
        let mut ended: Vec<ActiveFlow> = flows[before..].iter().map(ActiveFlow::of).collect();
        ended.sort_by_key(|glance| (glance.id, glance.first));
        prop_assert_eq!(all, ended);
    }
}
