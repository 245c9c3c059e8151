//! Frames with wrong timestamps, clocks that are set, and their cost.

use crate::support::Sent;
use linerate_burst::{Burst, Desc, Nanos, TAIL};
use linerate_headers::Link;
use linerate_headers::build::Frame;
use linerate_headers::{MacAddr, ethernet, ipv4, registry, udp};
use linerate_meter::{Config, EndReason, Flow, Meter, Quality, Timeouts};

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * SECOND;
const DAY: u64 = 24 * HOUR;
const START: u64 = 1_700_000_000 * SECOND;

struct Run {
    meter: Meter,
    flows: Vec<Flow>,
}

impl Run {
    fn new(config: &Config) -> Run {
        Run { meter: Meter::new(config), flows: Vec::new() }
    }

    fn take(&mut self, frames: &[(u64, Vec<u8>)]) {
        for some in frames.chunks(700) {
            let (mut memory, mut descs) = (Vec::new(), Vec::new());
            for (time, frame) in some {
                descs.push(Desc::new(Nanos(*time), memory.len() as u32, frame.len() as u32));
                memory.extend_from_slice(frame);
            }
            memory.resize(memory.len() + TAIL, 0);
            let burst = Burst::over(&memory, &descs).unwrap();
            self.meter.take(burst, &[Some(Link::Ethernet)], &mut |flow: &Flow| self.flows.push(flow.clone()));
        }
    }

    fn expire(&mut self, now: u64) {
        self.meter.expire(Nanos(now), &mut |flow: &Flow| self.flows.push(flow.clone()));
    }

    fn finish(mut self) -> Vec<Flow> {
        let last = self.meter.latest();
        self.meter.finish(last, &mut |flow: &Flow| self.flows.push(flow.clone()));
        self.flows
    }
}

/// A packet of its own flow.
fn packet(number: u32) -> Vec<u8> {
    let link = ethernet::Header { source: MacAddr([2; 6]), destination: MacAddr([4; 6]), ether_type: 0 };
    let network = ipv4::Header {
        source: (0x0a00_0000 + number).into(),
        destination: 0x0b00_0001.into(),
        ..ipv4::Header::new(registry::UDP)
    };
    let ports = udp::Header { source_port: 1000, destination_port: 53 };
    Frame::new(&[&link, &network, &ports], &[7; 20]).to_vec().unwrap()
}

fn short() -> Config {
    Config { max_flows: 1 << 15, ..Config::default() }.with_timeouts(Nanos(5 * SECOND), Nanos(60 * SECOND))
}

/// Flows of one packet each, a second apart.
fn apart(from: u32, count: u32) -> Vec<(u64, Vec<u8>)> {
    (from..from + count).map(|number| (START + u64::from(number) * SECOND, packet(number))).collect()
}

/// At any position, with any time.
#[test]
fn one_wrong_time_expires_nothing() {
    let expected = {
        let mut run = Run::new(&short());
        run.take(&apart(0, 8000));
        run.flows.len()
    };
    assert!(expected > 5000, "{expected} records before the end");
    for wrong in [0, START - 400 * DAY, START - HOUR, START + 9 * HOUR, START + 400 * DAY, u64::MAX] {
        for place in [0, 1, 1000, 5000] {
            let mut run = Run::new(&short());
            let mut frames = apart(0, 8000);
            frames[place].0 = wrong;
            run.take(&frames);
            let found = run.flows.len();
            // As the first frame it sets the time until more is known.
            let late = if place == 0 { 2100 } else { 1100 };
            assert!(found + late > expected, "{wrong} at {place}: {found} records of {expected}");
            let flows = run.finish();
            assert!(flows.len() == 8000, "{wrong} at {place}: {} flows", flows.len());
        }
    }
}

/// An open flow is not divided by the time of another frame.
#[test]
fn wrong_times_do_not_split_other_flows() {
    for wrong in [0, START - 400 * DAY, START - HOUR, START + HOUR, START + 400 * DAY] {
        let mut frames: Vec<_> = (0..6000).map(|at| (START + at * SECOND / 2, packet(at as u32 % 2))).collect();
        for place in (100..6000).step_by(700) {
            frames[place] = (wrong, packet(7 + place as u32));
        }
        let config = short().with_timeouts(Nanos(5 * SECOND), Timeouts::MOST);
        let mut run = Run::new(&config);
        run.take(&frames);
        let mut flows = run.finish();
        flows.retain(|flow| flow.packets() > 1);
        assert_eq!(flows.len(), 2, "{wrong}: {:?}", flows.iter().map(Flow::packets).collect::<Vec<_>>());
    }
}

/// The clock is ahead by an hour or a year, and is then set; flows expire as before.
#[test]
fn flows_expire_after_a_clock_step() {
    for ahead in [HOUR, 365 * DAY] {
        let mut run = Run::new(&short());
        let wrong: Vec<_> = apart(0, 3000).into_iter().map(|(time, frame)| (time + ahead, frame)).collect();
        run.take(&wrong);
        run.take(
            &apart(10_000, 6000).into_iter().map(|(time, frame)| (time - 10_000 * SECOND, frame)).collect::<Vec<_>>(),
        );
        assert!(run.flows.len() > 3000 + 3000, "{ahead}: {} records", run.flows.len());
        assert_eq!(run.meter.time().jumps(), u64::from(ahead > HOUR));
        assert_eq!(run.finish().len(), 9000);
    }
    // Time only from `expire`.
    let mut run = Run::new(&short());
    run.take(&apart(0, 10));
    run.expire(START + 400 * DAY);
    assert_eq!((run.meter.flows(), run.meter.time().jumps()), (0, 1));
    run.expire(START + 10 * SECOND);
    run.take(&apart(10, 10));
    run.expire(START + 40 * SECOND);
    assert_eq!((run.meter.flows(), run.flows.len()), (0, 20));
}

/// The number of records examined depends on the numbers of frames and flows.
#[test]
fn work_of_time_jumps_is_bounded_by_frames() {
    const FLOWS: u32 = 196 * 1024;
    let config = Config { max_flows: FLOWS as usize, ..Config::default() };
    let mut run = Run::new(&config);
    run.take(&(0..FLOWS).map(|number| (START + u64::from(number), packet(number))).collect::<Vec<_>>());
    assert_eq!(run.meter.flows(), FLOWS.into());
    let one = packet(1);
    for block in 0..100 {
        let time = START + block % 2 * 28 * HOUR;
        run.take(&(0..1024).map(|frame| (time + frame, one.clone())).collect::<Vec<_>>());
    }
    let looked = run.meter.looked_at();
    assert!(run.meter.time().jumps() > 90, "{} jumps", run.meter.time().jumps());
    assert!(looked < 2 * u64::from(FLOWS) + 100 * 1024, "{looked} records examined");
}

/// Flows that stay for twelve hours, and an occasional frame.
#[test]
fn idle_time_is_cheap() {
    const FLOWS: u32 = 300_000;
    let config = Config { max_flows: 1 << 19, ..Config::default() }.with_timeouts(Timeouts::MOST, Timeouts::MOST);
    let mut run = Run::new(&config);
    run.take(&(0..FLOWS).map(|number| (START + u64::from(number), packet(number))).collect::<Vec<_>>());
    let before = run.meter.looked_at();
    for second in 2..1002 {
        run.take(&[(START + second * SECOND, packet(1))]);
        run.expire(START + second * SECOND);
    }
    let looked = run.meter.looked_at() - before;
    assert!(looked < 1000 * 20_000, "{looked} records examined for 1,000 frames");
    // The flows still end.
    (0..200).for_each(|second| run.expire(START + 13 * HOUR + second * SECOND));
    assert_eq!(run.meter.flows(), 0);
}

/// A fragment of one packet, at `offset` times eight bytes.
fn fragment(offset: u16) -> Vec<u8> {
    let link = ethernet::Header { source: MacAddr([2; 6]), destination: MacAddr([4; 6]), ether_type: 0 };
    let network = ipv4::Header {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        identification: 77,
        fragment_offset: offset * 8,
        more_fragments: true,
        protocol: registry::UDP,
        ..ipv4::Header::new(registry::UDP)
    };
    let ports = udp::Header { source_port: 5, destination_port: 6 };
    let first = Frame::new(&[&link, &network, &ports], &[7; 24]).to_vec();
    if offset == 0 { first.unwrap() } else { Frame::new(&[&link, &network], &[7; 32]).to_vec().unwrap() }
}

/// A fragment waits for its first one even after a frame with a wrong time.
#[test]
fn fragments_wait_despite_wrong_frame_times() {
    for wrong in [0, START - HOUR, START + HOUR, START + 400 * DAY] {
        let mut run = Run::new(&short());
        let mut frames = apart(0, 3000);
        frames.iter_mut().enumerate().for_each(|(at, frame)| frame.0 = START + at as u64 * 1_000_000);
        frames[1500] = (frames[1500].0, fragment(4));
        frames[1510].0 = wrong;
        frames[1511] = (wrong, [&packet(9)[..20], &[0x20, 0], &packet(9)[22..]].concat());
        frames[2500] = (frames[2500].0, fragment(0));
        run.take(&frames);
        assert_eq!((run.meter.counts().fragments_joined, run.meter.counts().fragments_no_room), (1, 0), "{wrong}");
    }
}

/// A pause changes no record of fragments, at any position and for any number of frames until packet time follows.
#[test]
fn pause_does_not_separate_fragments() {
    for pause in [0, HOUR, 15 * HOUR, 17 * HOUR, 55 * HOUR, 400 * DAY] {
        for (before, between) in [(1, 2500), (1, 700), (1500, 2500), (3000, 1200)] {
            let mut run = Run::new(&short());
            let mut frames = apart(0, before + between + 2000);
            frames.iter_mut().enumerate().for_each(|(at, frame)| {
                let pause = if at >= before as usize { pause } else { 0 };
                frame.0 = START + pause + at as u64 * 1_000_000;
            });
            let places = [before as usize, before as usize + 1, (before + between) as usize];
            for (place, offset) in places.into_iter().zip([4, 8, 0]) {
                frames[place].1 = fragment(offset);
            }
            run.take(&frames);
            let counts = *run.meter.counts();
            assert_eq!((counts.fragments_joined, counts.fragments_orphaned), (2, 0), "{pause} {before} {between}");
            let flows = run.finish();
            let whole = flows.iter().find(|flow| flow.ends[0].port == 5).unwrap();
            assert_eq!(whole.packets(), 3, "{pause} {before} {between}");
            assert!(!whole.quality.contains(Quality::OUT_OF_TIME), "they were held");
        }
    }
}

/// A fragment with a wrong time does not keep others longer.
#[test]
fn fragments_expire_after_a_future_fragment() {
    let mut run = Run::new(&short());
    let mut frames = apart(0, 12_000);
    frames.iter_mut().enumerate().for_each(|(at, frame)| frame.0 = START + at as u64 * 20_000_000);
    let mut other = fragment(4);
    other[18] ^= 1;
    frames[1200] = (START + 9 * HOUR, other);
    frames[1300].1 = fragment(4);
    run.take(&frames);
    assert_eq!(run.meter.counts().fragments_orphaned, 1, "after half a minute");
    assert!(run.meter.flows() < 6000, "{} flows wait for it", run.meter.flows());
}

/// More fragments without their first ones than the limit.
#[test]
fn held_fragments_are_bounded() {
    let mut frames = Vec::new();
    for offset in 1..=64u16 {
        for identification in 0..2000u16 {
            let mut frame = packet(3);
            frame[18..20].copy_from_slice(&identification.to_be_bytes());
            frame[20..22].copy_from_slice(&offset.to_be_bytes());
            frames.push((START + frames.len() as u64, frame));
        }
    }
    let mut run = Run::new(&short());
    run.take(&frames);
    let counts = *run.meter.counts();
    assert_eq!(counts.fragments_held, 4096);
    assert_eq!(counts.fragments_no_room, 64 * 2000 - 4096);
    let flows = run.finish();
    assert_eq!(flows.iter().map(Flow::packets).sum::<u64>(), 64 * 2000);
}

/// A record of the far future ends as any other.
#[test]
fn end_reasons_follow_from_time() {
    let mut run = Run::new(&short());
    let frames: Vec<_> = (0..20u64)
        .map(|at| {
            let one = Sent::udp(START + at * SECOND);
            (one.time, one.frame())
        })
        .collect();
    run.take(&frames);
    run.expire(START + 30 * SECOND);
    assert_eq!(run.finish().iter().map(|flow| flow.end).collect::<Vec<_>>(), [EndReason::Idle]);
}
