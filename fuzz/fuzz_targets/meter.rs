//! Any frame is metered without a panic at every level, complete and truncated, in any order of times; each is in one
//! outermost record or counted separately; and the division into bursts changes nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_burst::{Block, Desc, Nanos};
use linerate_headers::Link;
use linerate_meter::{Config, Flow, Level, Meter, Protocols, Timeouts, Tunnels};

fuzz_target!(|frame: &[u8]| {
    let Some((&choice, _)) = frame.split_last() else { return };
    let tunnels = [Tunnels::Outer, Tunnels::Inner, Tunnels::Both][usize::from(choice % 3)];
    let level = [Level::Counters, Level::Tcp, Level::Stats][usize::from(choice / 3 % 3)];
    let timeouts = Timeouts { idle: Nanos(3_000_000_000), active: Nanos(9_000_000_000) };
    let config = Config {
        max_flows: 4,
        level,
        tunnels,
        macs: choice & 64 != 0,
        vlans: choice & 128 != 0,
        checksums: choice & 32 != 0,
        names: if choice & 16 != 0 { Protocols::ALL } else { Protocols::NONE },
        packets: choice.into(),
        ..Config::default().with_timeouts(timeouts.idle, timeouts.active)
    };
    let together = metered(frame, &config, usize::MAX);
    assert_eq!(together, metered(frame, &config, 1));
});

/// Returns the records of the frame, reversed, changed and truncated, in bursts of this size.
fn metered(frame: &[u8], config: &Config, burst: usize) -> Vec<Flow> {
    let mut block = Block::new(1 << 16, 64);
    let mut time = 1_700_000_000_000_000_000u64;
    for (number, byte) in frame.iter().take(24).enumerate() {
        let mut changed = frame.to_vec();
        if number % 3 != 0 {
            let place = usize::from(*byte) % changed.len();
            changed[place] ^= 1 << (number % 8);
        }
        if number % 5 == 4 && changed.len() >= 34 {
            // The reverse direction, if this is plain IPv4.
            (26..30).for_each(|place| changed.swap(place, place + 4));
        }
        let captured = if number % 7 == 6 { changed.len().div_ceil(2) } else { changed.len() };
        time = time.wrapping_add_signed(i64::from(*byte as i8) * 40_000_000);
        let desc = Desc { wire: changed.len() as u32, ..Desc::new(Nanos(time), 0, captured as u32) };
        block.push(&desc, &changed[..captured]);
    }
    let (mut meter, mut flows) = (Meter::new(config), Vec::new());
    let mut take = |flow: &Flow| flows.push(flow.clone());
    let mut next = 0;
    while next < block.len() {
        let end = block.len().min(next.saturating_add(burst));
        meter.take(block.burst().slice(next..end), &[Some(Link::Ethernet)], &mut take);
        next = end;
    }
    let latest = meter.latest();
    meter.finish(latest, &mut take);
    let counts = *meter.counts();
    if config.tunnels == Tunnels::Outer {
        let packets: u64 = flows.iter().map(Flow::packets).sum();
        assert_eq!(packets + counts.in_no_record().0, counts.frames);
    }
    flows
}
