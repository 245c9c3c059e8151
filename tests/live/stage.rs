//! A sender, a receiver, and plans for them.

use linerate_burst::{Count, Ledger};
use linerate_engine::{Progress, Source, Stop, Transmit, TransmitReport};
use linerate_generate::{Pacing, Rate};
use linerate_lab::{Plan as LabPlan, TemporaryLab};
use linerate_port::counting::{Counting, Then};
use linerate_port::live::{Checksum, Field, Gap, Plan, Template, Value};
use linerate_port::{RxOptions, Spec, TxOptions, TxPort, open_rx, open_tx};
use linerate_tests::support::{may_make_labs, tool};
use std::time::{Duration, Instant};

/// UDP over IPv4: where the headers and the payload begin.
const IP: usize = 14;
const UDP: usize = 34;
pub const PAYLOAD: usize = 42;

/// Hosts `a` and `b`, joined by `eth0`.
pub struct Stage {
    pub lab: TemporaryLab,
}

impl Stage {
    /// `None`, said aloud, where labs cannot be made. The receiving end takes XDP frames as packets.
    pub fn up() -> Option<Self> {
        let stage = Self::plain("a:eth0,b:eth0")?;
        stage.take_packets(true);
        Some(stage)
    }

    /// As the lab makes it.
    pub fn plain(link: &str) -> Option<Self> {
        let plan = LabPlan::from_links("live", vec![link.parse().unwrap()]).unwrap();
        may_make_labs().then(|| Stage { lab: TemporaryLab::up(&plan).unwrap() })
    }

    /// Has `b` take XDP frames as packets, or no longer.
    pub fn take_packets(&self, take: bool) {
        let gro = if take { "on" } else { "off" };
        let run = self.lab.exec("b", "ethtool").unwrap().args(["-K", "eth0", "gro", gro]).status();
        assert!(run.unwrap().success());
    }

    pub fn namespace(&self, host: &str) -> &str {
        self.lab.host(host).unwrap()
    }

    pub fn ip(&self, host: &str, arguments: &[&str]) {
        tool("ip", &[&["-n", self.namespace(host)], arguments].concat());
    }

    /// Counts what arrives at `b`.
    pub fn counting(&self, then: Then) -> Counting {
        Counting::attach(Some(self.namespace("b")), "eth0", then).unwrap()
    }

    pub fn sender(&self) -> TxPort {
        let spec = format!("xdp-live:eth0?netns={}", self.namespace("a"));
        open_tx(&Spec::parse(&spec).unwrap(), &TxOptions::default()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs a plan to its end, or as long as it may.
    pub fn send(&self, plan: &Plan, duration: Option<Duration>) -> TransmitReport {
        self.transmit(plan, duration, Stop::new())
    }

    pub fn transmit(&self, plan: &Plan, duration: Option<Duration>, stop: Stop) -> TransmitReport {
        let mut port = self.sender();
        let source = Source::plan(&mut port, plan).unwrap().expect("the port runs plans");
        let pacing = Pacing::Fixed(Rate::Top);
        Transmit { source, port, pacing, duration, stop, progress: Progress::new() }.run()
    }

    /// Runs a plan while `b` captures, and returns what `b` captured: bytes and arrival times.
    pub fn send_and_capture(&self, plan: &Plan) -> Vec<(Vec<u8>, u64)> {
        let spec = format!("packet:eth0?netns={}&lanes=1&ring=64MiB&block=256KiB", self.namespace("b"));
        let mut port = open_rx(&Spec::parse(&spec).unwrap(), &RxOptions::default()).unwrap();
        let queue = &mut port.queues[0];
        let mut got = Vec::new();
        let report = std::thread::scope(|scope| {
            let sender = scope.spawn(|| self.send(plan, None));
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
        assert_exact(&report.ledger, plan.count.unwrap());
        let mut ledger = Ledger::new();
        queue.counters(&mut ledger);
        assert_eq!(ledger.total(Count::RingFull), 0, "the capture lost frames");
        got
    }
}

/// So many frames were made, and the driver took each.
pub fn assert_exact(ledger: &Ledger, frames: u64) {
    assert_eq!(ledger.imbalances(), []);
    assert_eq!(ledger.lost(), 0, "{:?}", ledger.losses());
    assert_eq!((ledger.total(Count::SendReceived), ledger.total(Count::Sent)), (frames, frames));
}

/// A UDP frame of `length` bytes over IPv4 whose addresses and ports step, with its number and time at the start of
/// the payload where it has room for them (16 bytes), and right checksums.
pub fn template(length: usize) -> Template {
    let mut frame: Vec<u8> = (0..length).map(|at| at as u8).collect();
    frame[..IP].copy_from_slice(&[2, 0x4c, 0x52, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0]);
    let total = (length - IP) as u16;
    let header = [&[0x45, 0][..], &total.to_be_bytes(), &[0, 1, 0, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 1, 1]];
    frame[IP..UDP].copy_from_slice(&header.concat());
    let datagram = (length - UDP) as u16;
    let ports = [4000u16, 9, datagram, 0].map(u16::to_be_bytes).concat();
    frame[UDP..PAYLOAD].copy_from_slice(&ports);
    let stepped = |start, step, count| Value::Stepped { start, step, count };
    let mut fields = vec![
        Field { offset: IP + 4, width: 2, value: stepped(0xfff0, 1, 0) },
        Field { offset: IP + 15, width: 1, value: stepped(1, 1, 250) },
        Field { offset: IP + 16, width: 4, value: stepped(0xc612_0101, 7, 1000) },
        Field { offset: UDP, width: 2, value: stepped(60_000, -3, 500) },
    ];
    if length >= PAYLOAD + 16 {
        fields.push(Field { offset: PAYLOAD, width: 8, value: Value::Sequence { start: 0 } });
        fields.push(Field { offset: PAYLOAD + 8, width: 8, value: Value::Time });
    }
    let header = Checksum { offset: IP + 10, parts: vec![(IP, UDP)], plus: 0, no_zero: false };
    let parts = vec![(IP + 12, IP + 20), (UDP, length)];
    let udp = Checksum { offset: UDP + 6, parts, plus: 17 + datagram, no_zero: true };
    Template { frame, fields, checksums: vec![header, udp], gap: Gap::ZERO }
}

/// A plan of such frames.
pub fn plan(lengths: &[usize], count: u64) -> Plan {
    Plan { templates: lengths.iter().map(|length| template(*length)).collect(), count: Some(count) }
}

/// Number and time in a frame's payload.
pub fn marks(frame: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_be_bytes(frame[at..at + 8].try_into().unwrap());
    (word(PAYLOAD), word(PAYLOAD + 8))
}
