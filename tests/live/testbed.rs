//! A sender, a receiver, and streams for them.

use linerate_backends::xdp_counter::{CountAction, FrameCounter};
use linerate_backends::{open_rx, open_tx};
use linerate_burst::{Count, Ledger};
use linerate_engine::streams::StreamRun;
use linerate_engine::{Stop, Streams, StreamsReport};
use linerate_generate::Rate;
use linerate_generate::stream::{
    Change, Checksum, ChecksumKind, IndexSelection, Map, Mark, Next, Order, Selector, Shape, Stream, StreamSet, Variant,
};
use linerate_generate::trailer::{self, Key};
use linerate_lab::{Plan, TemporaryLab};
use linerate_port::{RxOptions, Spec, TxOptions, TxPort};
use linerate_tests::support::{may_make_labs, tool};
use std::time::{Duration, Instant};

/// UDP over IPv4: offsets of the headers and the payload.
const IP: usize = 14;
const UDP: usize = 34;
pub(super) const PAYLOAD: usize = 42;

/// Hosts `a` and `b`, joined by `eth0`.
pub(super) struct Stage {
    pub lab: TemporaryLab,
}

impl Stage {
    /// Creates the lab, with a receiver that accepts XDP frames; `None`, with a message, if labs cannot be created.
    pub(super) fn up() -> Option<Self> {
        let stage = Self::plain("a:eth0,b:eth0")?;
        stage.take_packets(true);
        Some(stage)
    }

    /// Creates the lab without changing the receiver.
    pub(super) fn plain(link: &str) -> Option<Self> {
        let plan = Plan::from_links("live", vec![link.parse().unwrap()]).unwrap();
        may_make_labs().then(|| Stage { lab: TemporaryLab::up(&plan).unwrap() })
    }

    /// Makes `b` accept or drop XDP frames, by GRO.
    pub(super) fn take_packets(&self, take: bool) {
        let gro = if take { "on" } else { "off" };
        let run = self.lab.exec("b", "ethtool").unwrap().args(["-K", "eth0", "gro", gro]).status();
        assert!(run.unwrap().success());
    }

    pub(super) fn namespace(&self, host: &str) -> &str {
        self.lab.host(host).unwrap()
    }

    pub(super) fn ip(&self, host: &str, arguments: &[&str]) {
        tool("ip", &[&["-n", self.namespace(host)], arguments].concat());
    }

    /// Counts the frames that arrive at `b`.
    pub(super) fn counting(&self, then: CountAction) -> FrameCounter {
        FrameCounter::attach(Some(self.namespace("b")), "eth0", then).unwrap()
    }

    pub(super) fn sender(&self) -> TxPort {
        let spec = format!("xdp-live:eth0?netns={}", self.namespace("a"));
        open_tx(&Spec::parse(&spec).unwrap(), &TxOptions::default()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Sends streams to their end, or for a duration.
    pub(super) fn send(&self, set: &StreamSet, duration: Option<Duration>) -> StreamsReport {
        self.transmit(set, duration, Stop::new())
    }

    pub(super) fn transmit(&self, set: &StreamSet, duration: Option<Duration>, stop: Stop) -> StreamsReport {
        let streams = Streams::new(set, self.sender()).unwrap();
        assert!(streams.is_live(), "the port does not build packets itself: {:?}", streams.note());
        streams.run(&StreamRun { duration, stop, ..StreamRun::default() })
    }

    /// Sends streams while `b` captures, and returns what `b` captured: bytes and arrival times.
    pub(super) fn send_and_capture(&self, set: &StreamSet) -> Vec<(Vec<u8>, u64)> {
        self.send_and_capture_by("packet", "&lanes=1&ring=64MiB&block=256KiB", set)
    }

    /// The same with a receiver of this backend.
    pub(super) fn send_and_capture_by(&self, scheme: &str, options: &str, set: &StreamSet) -> Vec<(Vec<u8>, u64)> {
        let spec = format!("{scheme}:eth0?netns={}{options}", self.namespace("b"));
        let mut port = open_rx(&Spec::parse(&spec).unwrap(), &RxOptions::default()).unwrap();
        let queue = &mut port.queues[0];
        let mut got = Vec::new();
        let report = std::thread::scope(|scope| {
            let sender = scope.spawn(|| self.send(set, None));
            let mut take = |queue: &mut Box<dyn linerate_port::RxQueue>| {
                let burst = queue.fill(linerate_engine::clock::now()).unwrap().burst;
                got.extend(burst.iter().map(|(desc, bytes)| (bytes.to_vec(), desc.time.0)));
                let frames = burst.len();
                queue.consume(frames);
                frames
            };
            while !sender.is_finished() {
                take(queue);
            }
            let mut quiet = Instant::now();
            while quiet.elapsed() < Duration::from_millis(60) {
                if take(queue) > 0 {
                    quiet = Instant::now();
                }
            }
            sender.join().unwrap()
        });
        assert!(report.failure.is_none(), "{:?}", report.failure);
        let counts = set.streams.iter().map(|stream| stream.count.unwrap());
        assert_exact(&report.ledger, counts.sum());
        let mut ledger = Ledger::new();
        queue.counters(&mut ledger);
        assert_eq!(ledger.total(Count::RingFull), 0, "the capture lost frames");
        got
    }
}

/// Asserts that this number of frames was built, and that the driver accepted each.
pub(super) fn assert_exact(ledger: &Ledger, frames: u64) {
    assert_eq!(ledger.imbalances(), []);
    assert_eq!(ledger.lost(), 0, "{:?}", ledger.losses());
    assert_eq!((ledger.total(Count::SendReceived), ledger.total(Count::Sent)), (frames, frames));
}

/// A UDP frame of `length` bytes over IPv4 with changing addresses and ports, valid checksums, and a trailer if it has
/// room for one.
pub(super) fn variant(length: usize) -> Variant {
    let mut frame: Vec<u8> = (0..length).map(|at| at as u8).collect();
    frame[..IP].copy_from_slice(&[2, 0x4c, 0x52, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0]);
    let total = (length - IP) as u16;
    let header = [&[0x45, 0][..], &total.to_be_bytes(), &[0, 1, 0, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 1, 1]];
    frame[IP..UDP].copy_from_slice(&header.concat());
    let datagram = (length - UDP) as u16;
    let ports = [4000u16, 9, datagram, 0].map(u16::to_be_bytes).concat();
    frame[UDP..PAYLOAD].copy_from_slice(&ports);
    let change = |offset, width: usize, selector, start, step| Change {
        offset,
        width,
        mask: (1 << (8 * width)) - 1,
        selector,
        map: Map::Range { start, step, divide: 1, modulo: 0 },
    };
    let changes = vec![
        change(IP + 4, 2, 0, 0xfff0, 1),
        change(IP + 15, 1, 1, 1, 1),
        change(IP + 16, 4, 2, 0xc612_0101, 7),
        change(UDP, 2, 3, 60_000, -3),
        change(UDP + 2, 2, 4, 1024, 1),
    ];
    let checksum =
        |offset, plus, no_zero, parts| Checksum { offset, kind: ChecksumKind::Internet { plus, no_zero }, parts };
    let header = checksum(IP + 10, 0, false, vec![(IP, UDP)]);
    let udp = checksum(UDP + 6, 17 + datagram, true, vec![(IP + 12, IP + 20), (UDP, length)]);
    let trailer = (length >= PAYLOAD + trailer::LEN).then(|| length - trailer::LEN);
    Variant { frame, changes, fills: Vec::new(), checksums: vec![header, udp], trailer }
}

/// A stream of such frames, with lengths in turn.
pub(super) fn stream(lengths: &[usize], count: u64) -> Stream {
    let pick = |count, pick| Selector { count, pick };
    let in_turn = |count| pick(count, IndexSelection::InTurn { every: 1 });
    Stream {
        name: format!("{lengths:?}"),
        id: 5,
        link: linerate_headers::Link::Ethernet,
        variants: lengths.iter().map(|length| variant(*length)).collect(),
        size: in_turn(lengths.len() as u64),
        selectors: vec![
            in_turn(0),
            in_turn(250),
            in_turn(1000),
            in_turn(500),
            pick(60_000, IndexSelection::Random { seed: 8 }),
        ],
        rate: Rate::Top,
        shape: Shape::Even,
        count: Some(count),
        next: Next::Following,
        span: Default::default(),
        mark: Mark::Trailer,
    }
}

/// A set of only that stream.
pub(super) fn set(lengths: &[usize], count: u64) -> StreamSet {
    single(stream(lengths, count))
}

/// A set of one stream.
pub(super) fn single(stream: Stream) -> StreamSet {
    StreamSet { streams: vec![stream], order: Order::Sequential, rate: None, key: Key::default() }
}

/// Number and time in a frame's trailer; the arrival must be close enough to make the truncated time unambiguous.
pub(super) fn marks(frame: &[u8], arrived: u64) -> (u64, u64) {
    let word = |back: usize| u64::from_be_bytes(*frame[frame.len() - back..].first_chunk().unwrap());
    let age = arrived.wrapping_sub(word(8) >> 24) & ((1 << trailer::TIME_BITS) - 1);
    (word(16) & ((1 << trailer::SEQUENCE_BITS) - 1), arrived - age)
}
