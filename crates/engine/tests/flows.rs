//! Several workers, several lanes and rounds of any size give the same records as one meter.

use linerate_backends::open_rx;
use linerate_burst::{Block, Burst, Desc, Horizon, Interface, Ledger, LinkType, Nanos, StampSource, TAIL};
use linerate_engine::{MeterConsumer, MeteringReport, Meters, Receive, Selection, WaitStrategy};
use linerate_headers::build::{Frame, Header};
use linerate_headers::{Link, MacAddr, ethernet, ipv4, ipv6, udp, vxlan};
use linerate_meter::{Config, EndReason, Flow, Meter, Records, Timeouts, Tunnels};
use linerate_port::{Feed, Head, PortError, RxOptions, RxPort, RxQueue, Spec};
use proptest::prelude::*;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;

/// A port that returns its frames once, in rounds of bounded size.
struct Prepared {
    block: Block,
    interfaces: Vec<Interface>,
    next: usize,
    shown: usize,
    manner: Manner,
}

/// Timing of the frames.
enum Manner {
    Always,
    /// In each round; before the last quarter, no round ends until the flag is set, for some seconds.
    Busy(Arc<AtomicBool>, Instant),
    /// In every other round; then none until the flag is set, for some seconds.
    Slow(Arc<AtomicBool>, Instant, bool),
}

impl Prepared {
    /// Two interfaces, one of which has an unknown link type; which one, differs by lane.
    fn port(lane: usize, frames: &[(u64, Vec<u8>)], shown: usize) -> RxPort {
        let bytes = frames.iter().map(|(_, frame)| frame.len() + 16).sum();
        let mut block = Block::new(bytes, frames.len().max(1));
        for (index, (time, frame)) in frames.iter().enumerate() {
            let interface = u16::from(is_known(index)) ^ lane as u16 & 1;
            let desc = Desc { interface, ..Desc::new(Nanos(*time), 0, frame.len() as u32) };
            assert!(block.push(&desc, frame));
        }
        let mut links = [LinkType(147), LinkType::ETHERNET];
        links.rotate_left(lane & 1);
        let interfaces = links.map(|link| Interface::new("p", link, StampSource::User)).into();
        let queue = Prepared { block, interfaces, next: 0, shown, manner: Manner::Always };
        queue.into_port()
    }

    fn into_port(self) -> RxPort {
        let queues: Vec<Box<dyn RxQueue>> = vec![Box::new(self)];
        RxPort {
            name: "prepared".into(),
            queues,
            feed: Feed::Stored,
            monitor: None,
            filter: String::new(),
            offset_ns: 0,
            notes: Vec::new(),
        }
    }
}

/// Returns whether the frame of a lane has an Ethernet header.
fn is_known(index: usize) -> bool {
    index % 16 != 3
}

impl RxQueue for Prepared {
    fn fill(&mut self, _now: Nanos) -> Result<Head<'_>, PortError> {
        let is_last = self.next >= self.block.len() / 4 * 3;
        let mut pauses = false;
        match &mut self.manner {
            Manner::Always => {}
            Manner::Busy(seen, limit) => {
                while is_last && !seen.load(Ordering::Relaxed) && Instant::now() < *limit {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Manner::Slow(seen, limit, shown) => {
                *shown = !*shown;
                let is_over = self.next == self.block.len();
                pauses = if is_over { !seen.load(Ordering::Relaxed) && Instant::now() < *limit } else { !*shown };
            }
        }
        let end = if pauses { self.next } else { (self.next + self.shown).min(self.block.len()) };
        let time = |index: usize| self.block.descs()[index].time;
        let horizon = match end {
            // As for a pipe: the newest time so far, even if it is wrong.
            _ if pauses => Horizon::At((0..end.max(1)).map(time).max().unwrap()),
            end if end < self.block.len() => Horizon::At(time(end)),
            _ => Horizon::Ended,
        };
        Ok(Head { burst: self.block.burst().slice(self.next..end), horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        self.next += frames;
    }

    fn detach(&mut self) {}

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self, _: &mut Ledger) {}
}

/// One packet: hosts, ports, bytes after the headers, whether IPv6, whether in a tunnel.
type Sent = ((u8, u8), (u16, u16), usize, bool, bool);

fn frame(((from, to), (source_port, destination_port), payload, v6, tunnel): Sent) -> Vec<u8> {
    let link = ethernet::Header { source: MacAddr([2; 6]), destination: MacAddr([4; 6]), ether_type: 0 };
    let four = |from: u8, to: u8| ipv4::Header {
        source: [10, 0, 0, from].into(),
        destination: [10, 0, 0, to].into(),
        ..ipv4::Header::new(0)
    };
    let address = |host: u8| [0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into()].into();
    let six = ipv6::Header { source: address(from), destination: address(to), ..ipv6::Header::new(0) };
    let options = linerate_headers::options::Options::new(&[1; 40]).unwrap();
    let (outer, inner) = (ipv4::Header { options, ..four(to, from) }, four(from, to));
    let ports = udp::Header { source_port, destination_port };
    let (outer_ports, network) = (udp::Header { source_port: 9, destination_port: vxlan::PORT }, vxlan::Header::new(7));
    let mut headers: Vec<&dyn Header> = vec![&link];
    // Headers exceed the kept part of plain frames.
    for _ in 0..if tunnel { 3 } else { 0 } {
        headers.extend([&outer as &dyn Header, &outer_ports, &network, &link]);
    }
    headers.push(if v6 { &six } else { &inner });
    headers.push(&ports);
    Frame::new(&headers, &vec![7; payload]).to_vec().unwrap()
}

fn config() -> Config {
    let timeouts = Timeouts { idle: Nanos(4 * SECOND), active: Nanos(20 * SECOND) };
    Config { max_flows: 8192, timeouts: [timeouts; 4], ..Config::default() }
}

fn metered(ports: Vec<RxPort>, config: &Config, workers: usize, selection: Selection) -> (Vec<Flow>, MeteringReport) {
    let mut metering = MeterConsumer::new(Meters::new(config, workers), selection, Kept::default());
    let run = Receive { waiting: WaitStrategy::Sleep, ..Receive::all(ports) }.run(&mut [&mut metering]);
    let (metered, kept) = metering.done();
    assert!(run.failure.is_none(), "{:?}", run.failure);
    assert_eq!(run.ledger.imbalances(), []);
    assert_eq!(metered.workers.iter().map(|load| load.frames).sum::<u64>(), metered.counts.frames);
    (sorted(kept.0), metered)
}

/// Keeps all records.
#[derive(Default)]
struct Kept(Vec<Flow>);

impl Records for Kept {
    fn take(&mut self, flow: &Flow) {
        self.0.push(flow.clone());
    }
}

fn sorted(mut flows: Vec<Flow>) -> Vec<Flow> {
    flows.sort_by_cached_key(|flow| (flow.first(), format!("{flow:?}")));
    flows
}

/// Meters all frames at once with one meter; those of the first interface are unknown.
fn expected(frames: &[(u64, Vec<u8>)], known: impl Fn(usize) -> bool, config: &Config) -> Vec<Flow> {
    let (mut memory, mut descs, mut flows) = (Vec::new(), Vec::new(), Vec::new());
    for (index, (time, frame)) in frames.iter().enumerate() {
        let interface = u16::from(known(index));
        descs.push(Desc { interface, ..Desc::new(Nanos(*time), memory.len() as u32, frame.len() as u32) });
        memory.extend_from_slice(frame);
    }
    memory.resize(memory.len() + TAIL, 0);
    let mut meter = Meter::new(config);
    let links = [None, Some(Link::Ethernet)];
    meter.take(Burst::over(&memory, &descs).unwrap(), &links, &mut |flow: &Flow| flows.push(flow.clone()));
    meter.finish(meter.latest(), &mut |flow: &Flow| flows.push(flow.clone()));
    sorted(flows)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn workers_lanes_and_rounds_do_not_change_records(
        sent in prop::collection::vec(
            ((1u8..12, 1u8..12), (1u16..3, 1u16..3), 0usize..1200, any::<bool>(), prop::bool::weighted(0.1)),
            1..2500,
        ),
        gap in prop::sample::select(vec![1_000u64, 3_000_000, 50_000_000]),
        lanes in 1usize..4,
        workers in 1usize..9,
        shown in prop::sample::select(vec![1usize, 7, 300, 5000]),
        tunnels in prop::sample::select(vec![Tunnels::Outer, Tunnels::Inner, Tunnels::Both]),
    ) {
        let config = Config { tunnels, ..config() };
        let frames: Vec<(u64, Vec<u8>)> =
            sent.iter().enumerate().map(|(index, one)| (START + index as u64 * gap, frame(*one))).collect();
        // The packets of a flow are distributed over the lanes at random.
        let of = |lane| -> Vec<(u64, Vec<u8>)> {
            frames.iter().enumerate().filter(|(at, _)| at * 7919 / 13 % lanes == lane).map(|(_, one)| one.clone()).collect()
        };
        let parts: Vec<_> = (0..lanes).map(of).collect();
        let mut seen = vec![0; lanes];
        let known: Vec<bool> = (0..frames.len())
            .map(|at| {
                let index = &mut seen[at * 7919 / 13 % lanes];
                *index += 1;
                is_known(*index - 1)
            })
            .collect();
        let ports = parts.iter().enumerate().map(|(lane, part)| Prepared::port(lane, part, shown)).collect();
        let (flows, report) = metered(ports, &config, workers, Selection::default());
        prop_assert!(flows == expected(&frames, |at| known[at], &config));
        prop_assert_eq!((report.counts.frames, report.workers.len()), (frames.len() as u64, workers));
        let of = |is_known| frames.iter().zip(&known).filter(move |(_, known)| **known == is_known);
        let unknown = (of(false).count() as u64, of(false).map(|((_, frame), _)| frame.len() as u64).sum());
        prop_assert_eq!((report.counts.unknown_link, report.counts.unknown_link_bytes), unknown);
        let in_records: u64 = flows.iter().filter(|flow| tunnels == Tunnels::Inner || flow.tunnel.is_none()).map(Flow::packets).sum();
        prop_assert_eq!((in_records, report.counts.not_ip), (of(true).count() as u64, 0));
        prop_assert_eq!(report.unknown_links, [147]);
    }
}

/// Two flows at different workers: one is idle, and its record is exported while the other continues.
#[test]
fn flow_expires_on_time_on_an_idle_worker() {
    let sent = |host, index: u64| (START + index * SECOND / 100, frame(((host, 1), (5, 6), 9, false, false)));
    for workers in [1, 2, 8] {
        for slow in [false, true] {
            let mut frames: Vec<_> = (2..40).map(|host| sent(host, 0)).collect();
            // A horizon shows that time has passed, or more frames than are read before they count.
            if slow {
                // Enough frames to move the time without a clock.
                frames.extend((0..16).map(|_| sent(100, 6000)));
            } else {
                frames.extend((1..=12_000).map(|index| sent(100, index)));
            }
            let mut queue = prepared(&frames, 38);
            let (seen, limit) = (Arc::new(AtomicBool::new(false)), Instant::now() + Duration::from_secs(20));
            let until = Arc::clone(&seen);
            queue.manner = if slow { Manner::Slow(until, limit, false) } else { Manner::Busy(until, limit) };
            let mut ended = 0;
            let records = move |flow: &Flow| {
                ended += u32::from(flow.packets() == 1 && flow.end == EndReason::Idle);
                seen.fetch_or(ended == 38, Ordering::Relaxed);
            };
            let mut metering = MeterConsumer::new(Meters::new(&config(), workers), Selection::default(), records);
            let receive = Receive { waiting: WaitStrategy::Sleep, ..Receive::all(vec![queue.into_port()]) };
            let report = receive.run(&mut [&mut metering]);
            assert!(report.failure.is_none() && report.quiesced);
            assert!(Instant::now() < limit, "{workers} workers, {slow}: the records were only exported at the end");
        }
    }
}

/// A frame of the far future, before flows that become idle: they still time out while the port is open.
#[test]
fn flow_expires_on_time_despite_wrong_frame_times() {
    let sent = |host, index: u64| (START + index * SECOND / 100, frame(((host, 1), (5, 6), 9, false, false)));
    for workers in [1, 2, 8] {
        for wrong in [START + 400 * 86_400 * SECOND, START + 600 * SECOND, 0] {
            let mut frames = vec![sent(100, 0), (wrong, sent(101, 0).1)];
            frames.extend((2..40).map(|host| sent(host, 0)));
            frames.extend((0..64).map(|_| sent(100, 6000)));
            let mut queue = prepared(&frames, 8);
            let (seen, limit) = (Arc::new(AtomicBool::new(false)), Instant::now() + Duration::from_secs(20));
            queue.manner = Manner::Slow(Arc::clone(&seen), limit, false);
            let mut ended = 0;
            let records = move |flow: &Flow| {
                ended += u32::from(flow.packets() == 1 && flow.first() == Nanos(START));
                seen.fetch_or(ended == 39, Ordering::Relaxed);
            };
            let mut metering = MeterConsumer::new(Meters::new(&config(), workers), Selection::default(), records);
            let receive = Receive { waiting: WaitStrategy::Sleep, ..Receive::all(vec![queue.into_port()]) };
            let report = receive.run(&mut [&mut metering]);
            let metered = metering.done().0;
            assert!(report.failure.is_none() && report.quiesced);
            assert!(Instant::now() < limit, "{workers} workers, {wrong}: the records were only exported at the end");
            assert_eq!((metered.counts.begun, metered.time_jumps), (41, 0));
        }
    }
}

fn prepared(frames: &[(u64, Vec<u8>)], shown: usize) -> Prepared {
    let mut block = Block::new(frames.len() * 128, frames.len());
    for (time, frame) in frames {
        assert!(block.push(&Desc::new(Nanos(*time), 0, frame.len() as u32), frame));
    }
    let interfaces = vec![Interface::new("p", LinkType::ETHERNET, StampSource::User)];
    Prepared { block, interfaces, next: 0, shown, manner: Manner::Always }
}

/// Filter text and limit select the same frames for any number of workers.
#[test]
fn selection_does_not_depend_on_the_number_of_workers() {
    let frames: Vec<_> = (0..3000u64)
        .map(|index| {
            let host = (index % 50) as u8 + 2;
            (START + index * 1000, frame(((host, 1), (1 + index as u16 % 3, 6), 9, index.is_multiple_of(5), false)))
        })
        .collect();
    let selected = |lanes: usize, workers| {
        let part =
            |lane| frames.iter().enumerate().filter(move |(at, _)| at % lanes == lane).map(|(_, one)| one.clone());
        let ports = (0..lanes).map(|lane| prepared(&part(lane).collect::<Vec<_>>(), 100).into_port()).collect();
        let selection = Selection { filter: "udp port 2".into(), frames: Some(700), ..Selection::default() };
        metered(ports, &config(), workers, selection)
    };
    let (expected, report) = selected(1, 1);
    assert_eq!((report.counts.frames, expected.len()), (700, 50));
    for (lanes, workers) in [(1, 2), (1, 8), (3, 1), (3, 4)] {
        let (found, report) = selected(lanes, workers);
        assert_eq!(report.counts.frames, 700);
        assert!(found == expected, "{lanes} lanes, {workers} workers");
    }
}

/// Every capture of a corpus, if available.
#[test]
fn captures_have_the_same_records_for_any_number_of_workers() {
    let Some(root) = std::env::var_os("LINERATE_CORPUS") else {
        eprintln!("SKIPPED: LINERATE_CORPUS is not set, no capture was metered");
        return;
    };
    let (mut captures, mut records) = (0, 0);
    for path in files(Path::new(&root)) {
        let records_of = |workers| {
            let spec = Spec::parse(&format!("pcap:{}", path.display())).ok()?;
            let port = open_rx(&spec, &RxOptions::default()).ok()?;
            let config = Config { max_flows: workers << 15, ..Config::default() };
            let mut metering = MeterConsumer::new(Meters::new(&config, workers), Selection::default(), Kept::default());
            Receive { waiting: WaitStrategy::Sleep, ..Receive::all(vec![port]) }.run(&mut [&mut metering]);
            let (report, Kept(flows)) = metering.done();
            assert_eq!(report.counts.ended_by(EndReason::Evicted), 0, "{}", path.display());
            Some((sorted(flows), report.counts))
        };
        let Some((expected, counts)) = records_of(1) else { continue };
        for workers in [2, 3, 8] {
            let (found, of_all) = records_of(workers).unwrap();
            assert!(found == expected, "{}: {workers} workers", path.display());
            assert_eq!((of_all.frames, of_all.not_ip_bytes), (counts.frames, counts.not_ip_bytes));
            assert_eq!((of_all.malformed, of_all.ended), (counts.malformed, counts.ended));
            assert_eq!(
                (of_all.unknown_link_bytes, of_all.in_no_record()),
                (counts.unknown_link_bytes, counts.in_no_record())
            );
        }
        captures += 1;
        records += expected.len();
    }
    println!("{captures} captures, {records} records");
    assert!(captures > 500, "{captures} captures");
}

fn files(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
            if path.is_dir() {
                folders.push(path);
            } else if ["pcap", "pcapng", "cap"].contains(&ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
