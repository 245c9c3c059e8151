//! Several consumers of the same frames: each gives the same result as in a run of its own, with its own selection, and
//! none affects another.

use linerate_burst::block::View;
use linerate_burst::{
    Block, Burst, Count, Desc, Horizon, Interface, Kind, Ledger, LinkType, Nanos, Sink, SinkError, Stage,
};
use linerate_burst::{StampSource, ledger::Account};
use linerate_engine::{
    Capture, Consumer, CountConsumer, FrameOrder, MeterConsumer, Meters, Receive, ReceiveError, Round, RunEnd,
    RunReport,
};
use linerate_engine::{Selection, Slice};
use linerate_headers::build::{Frame, Header};
use linerate_headers::{MacAddr, ethernet, ipv4, udp};
use linerate_meter::{Config, Flow, Records};
use linerate_port::{Feed, FrameTally, Head, PortError, RxPort, RxQueue};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

const FRAMES: usize = 6000;
/// Number of frames that a port returns at a time.
const SHOWN: usize = 700;

/// A port that returns its part of the frames once.
struct Part {
    name: String,
    block: Block,
    interfaces: [Interface; 1],
    next: usize,
}

impl Part {
    fn port(number: usize, of: usize) -> RxPort {
        let mut block = Block::new(FRAMES * 128, FRAMES);
        for index in (number..FRAMES).step_by(of) {
            let frame = frame(index);
            assert!(block.push(&Desc::new(Nanos(1 << 60 | (index * 1000) as u64), 0, frame.len() as u32), &frame));
        }
        let name = format!("part{number}");
        let interfaces = [Interface::new(name.clone(), LinkType::ETHERNET, StampSource::User)];
        let queues: Vec<Box<dyn RxQueue>> = vec![Box::new(Part { name: name.clone(), block, interfaces, next: 0 })];
        RxPort {
            name,
            queues,
            feed: Feed::Stored,
            monitor: None,
            filter: String::new(),
            offset_ns: 0,
            notes: Vec::new(),
        }
    }
}

impl RxQueue for Part {
    fn fill(&mut self, _: Nanos) -> Result<Head<'_>, PortError> {
        let end = (self.next + SHOWN).min(self.block.len());
        let horizon = self.block.descs().get(end).map_or(Horizon::Ended, |desc| Horizon::At(desc.time));
        Ok(Head { burst: self.block.burst().slice(self.next..end), horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        self.next += frames;
    }

    fn detach(&mut self) {}

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self, ledger: &mut Ledger) {
        let account = ledger.account(Stage::Receive, &self.name);
        account.add(Count::Received, self.next as u64).add(Count::Delivered, self.next as u64);
    }
}

/// One of fifty flows; every tenth frame is not IP.
fn frame(index: usize) -> Vec<u8> {
    let link = ethernet::Header { source: MacAddr([2; 6]), destination: MacAddr([4; 6]), ether_type: 0 };
    let host = (index * 7 % 50) as u8;
    let network =
        ipv4::Header { source: [10, 0, 0, host].into(), destination: [10, 0, 1, 1].into(), ..ipv4::Header::new(0) };
    let ports = udp::Header { source_port: 1000 + u16::from(host % 3), destination_port: 53 };
    let headers: [&dyn Header; 3] = [&link, &network, &ports];
    let mut frame = Frame::new(&headers, &vec![index as u8; index % 40]).to_vec().unwrap();
    if index.is_multiple_of(10) {
        frame[12] = 0x88;
        frame[13] = 0xb5;
    }
    frame
}

/// Keeps the bytes of all records.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Sink for Kept {
    fn accept(&mut self, view: View<'_>) -> Result<(), SinkError> {
        self.0.lock().unwrap().extend_from_slice(view.records(0..view.burst().len()));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(&mut self, _: &Ledger) -> Result<(), SinkError> {
        Ok(())
    }

    fn counters(&self, _: &mut Ledger) {}
}

/// Keeps all records.
#[derive(Default)]
struct Flows(Vec<Flow>);

impl Records for Flows {
    fn take(&mut self, flow: &Flow) {
        self.0.push(flow.clone());
    }
}

fn run(ports: usize, consumers: &mut [&mut dyn Consumer]) -> RunReport {
    Receive::all((0..ports).map(|number| Part::port(number, ports)).collect()).run(consumers)
}

fn capture() -> (Capture, Kept) {
    let kept = Kept::default();
    let selection = Selection { filter: "udp port 1001".into(), slice: Some(Slice::Bytes(48)), ..Selection::default() };
    (Capture::new(selection, vec![Box::new(kept.clone())]), kept)
}

fn metering(workers: usize) -> MeterConsumer<Flows> {
    let config = Config { max_flows: 4096, ..Config::default() };
    MeterConsumer::new(Meters::new(&config, workers), Selection::default(), Flows::default())
}

fn counting() -> CountConsumer {
    CountConsumer::new(Selection { filter: "not udp".into(), ..Selection::default() }, true)
}

fn flows(metering: MeterConsumer<Flows>) -> Vec<String> {
    let mut flows: Vec<String> = metering.done().1.0.iter().map(|flow| format!("{flow:?}")).collect();
    flows.sort();
    flows
}

fn counted(counting: CountConsumer) -> String {
    let all = counting.done().all;
    format!("{:?} {:?} {}", all.traffic, all.mix, all.received)
}

#[test]
fn consumers_give_the_same_results_together_and_separately() {
    for ports in [1, 3] {
        let (mut capture_alone, kept_alone) = capture();
        run(ports, &mut [&mut capture_alone]);
        let (mut counting_alone, mut metering_alone) = (counting(), metering(1));
        run(ports, &mut [&mut counting_alone]);
        run(ports, &mut [&mut metering_alone]);
        let expected = (counted(counting_alone), flows(metering_alone));
        for workers in [1, 3] {
            let ((mut capture, kept), mut counting, mut metering) = (capture(), counting(), metering(workers));
            let report = run(ports, &mut [&mut capture, &mut metering, &mut counting]);
            assert!(report.failure.is_none() && report.quiesced, "{report:?}");
            assert_eq!(report.ledger.imbalances(), []);
            let of = |stage: Stage| report.ledger.accounts().iter().filter(move |account| account.stage == stage);
            let branches: Vec<&str> = of(Stage::Select).map(|account| account.branch.as_str()).collect();
            assert_eq!(branches, ["capture", "flows", "count"]);
            let delivered: Vec<u64> = of(Stage::Select).map(|account| account.sum(Kind::Delivered)).collect();
            assert_eq!(of(Stage::Meter).map(Account::unaccounted).collect::<Vec<_>>(), [0]);
            assert_eq!((delivered[1], delivered[2]), (FRAMES as u64, FRAMES as u64 / 10));
            assert_eq!((capture.done().frames, delivered[0]), (delivered[0], delivered[0]));
            assert!(delivered[0] > 1000);
            assert!(*kept.0.lock().unwrap() == *kept_alone.0.lock().unwrap(), "{ports} ports: other records");
            assert_eq!((counted(counting), flows(metering)), expected, "{ports} ports, {workers} workers");
        }
    }
}

/// Panics in its third round.
struct Mortal(u32);

impl Consumer for Mortal {
    fn name(&self) -> &'static str {
        "mortal"
    }

    fn order(&self) -> FrameOrder {
        FrameOrder::Any
    }

    fn take(&mut self, _: &mut Round<'_>) -> Result<(), ReceiveError> {
        self.0 += 1;
        assert!(self.0 < 3, "the consumer has a bug");
        Ok(())
    }

    fn finish(&mut self, end: &mut RunEnd<'_>) {
        assert!(end.died.is_some() && self.0 == 3, "rounds were delivered after its panic");
        end.ledger.account(Stage::Select, "").add(Count::SelectReceived, 7).add(Count::SelectDelivered, 7);
    }
}

#[test]
fn panicked_consumer_ends_the_run_without_loss_for_others() {
    let ((mut capture, kept), mut mortal) = (capture(), Mortal(0));
    let report = run(2, &mut [&mut mortal, &mut capture]);
    let failure = report.failure.unwrap().to_string();
    assert!(failure.contains("the consumer has a bug"), "{failure}");
    assert_eq!(report.ledger.imbalances(), []);
    assert_eq!(report.ledger.total(Count::SelectDied), FRAMES as u64 - 7);
    let (mut sole, expected) = self::capture();
    run(2, &mut [&mut sole]);
    assert!(*kept.0.lock().unwrap() == *expected.0.lock().unwrap() && capture.done().frames == sole.done().frames);
}

/// Leaves half of its frames for later.
struct Hesitant(u64);

impl Consumer for Hesitant {
    fn name(&self) -> &'static str {
        "hesitant"
    }

    fn order(&self) -> FrameOrder {
        FrameOrder::Any
    }

    fn is_sole(&self) -> bool {
        true
    }

    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        for lane in 0..round.bursts.len() {
            let left = round.bursts[lane].len() / 2;
            self.0 += (round.bursts[lane].len() - left) as u64;
            round.leave(lane, left);
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut RunEnd<'_>) {}
}

#[test]
fn partial_consumer_must_be_the_only_one() {
    let mut hesitant = Hesitant(0);
    assert!(run(2, &mut [&mut hesitant]).failure.is_none());
    assert_eq!(hesitant.0, FRAMES as u64);
    let (mut capture, _) = capture();
    let report = run(2, &mut [&mut capture, &mut hesitant]);
    assert!(report.failure.unwrap().to_string().contains("hesitant"), "{:?}", report.ledger);
    assert_eq!((capture.done().frames, hesitant.0), (0, FRAMES as u64));
}

/// A port that has applied "ip", and returns nine of every ten frames.
fn filtering_port() -> RxPort {
    let mut block = Block::new(FRAMES * 128, FRAMES);
    for (index, frame) in (0..FRAMES).map(|index| (index, frame(index))).filter(|(index, _)| index % 10 != 0) {
        assert!(block.push(&Desc::new(Nanos(1 << 60 | (index * 1000) as u64), 0, frame.len() as u32), &frame));
    }
    let port = Part::port(0, 1);
    let interfaces = [Interface::new("part0", LinkType::ETHERNET, StampSource::User)];
    let queue = Part { name: "part0".into(), block, interfaces, next: 0 };
    RxPort { queues: vec![Box::new(queue)], filter: "ip".into(), ..port }
}

#[test]
fn port_filter_does_not_replace_another_filter() {
    let texts = ["udp port 1001", "ip", "", "arp", "ip and not udp port 1001"];
    let select = |text: &str| Selection { filter: text.into(), ..Selection::default() };
    let mut counting = texts.map(|text| CountConsumer::new(select(text), false));
    let mut consumers: Vec<&mut dyn Consumer> = counting.iter_mut().map(|one| one as &mut dyn Consumer).collect();
    assert!(Receive::all(vec![filtering_port()]).run(&mut consumers).failure.is_none());
    let ip = (0..FRAMES).filter(|index| index % 10 != 0);
    let of_port = ip.clone().filter(|index| index * 7 % 50 % 3 == 1).count() as u64;
    let ip = ip.count() as u64;
    assert_eq!(counting.map(|one| one.done().all.traffic.frames), [of_port, ip, ip, 0, ip - of_port]);
    let (capture, kept) = capture();
    let (mut one, mut other) = (capture, CountConsumer::new(select("ip"), false));
    Receive::all(vec![filtering_port()]).run(&mut [&mut one, &mut other]);
    assert_eq!((one.done().frames, other.done().all.traffic.frames), (of_port, ip));
    let (mut sole, expected) = self::capture();
    run(1, &mut [&mut sole]);
    assert_eq!(*kept.0.lock().unwrap(), *expected.0.lock().unwrap());
}

/// Returns no frame, and has counted some.
struct Tallying(FrameTally);

impl RxQueue for Tallying {
    fn fill(&mut self, _: Nanos) -> Result<Head<'_>, PortError> {
        Ok(Head { burst: Burst::EMPTY, horizon: Horizon::Ended, interfaces: &[] })
    }

    fn consume(&mut self, _: usize) {}

    fn detach(&mut self) {}

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self, _: &mut Ledger) {}

    fn tallied(&self) -> Option<&FrameTally> {
        Some(&self.0)
    }
}

#[test]
fn counting_port_is_rejected_by_consumers_of_frames() {
    let port = || {
        let tallied = FrameTally { frames: 7, bytes: 420, ..FrameTally::default() };
        RxPort::new("tallying", vec![Box::new(Tallying(tallied))], Feed::Stored)
    };
    let mut all = CountConsumer::new(Selection::default(), false);
    assert!(Receive::all(vec![port()]).run(&mut [&mut all]).failure.is_none());
    assert_eq!(all.done().all.traffic.frames, 7);
    let udp = || CountConsumer::new(Selection { filter: "udp".into(), ..Selection::default() }, false);
    let (mut filters, mut looks, mut all, mut captures) = (
        udp(),
        CountConsumer::new(Selection::default(), true),
        CountConsumer::new(Selection::default(), false),
        capture().0,
    );
    let runs: [&mut [&mut dyn Consumer]; 3] = [&mut [&mut filters], &mut [&mut looks], &mut [&mut all, &mut captures]];
    for consumers in runs {
        let failure = Receive::all(vec![port()]).run(consumers).failure.expect("it would see nothing");
        assert!(failure.to_string().contains("tallying: opened to count frames in the kernel"), "{failure}");
    }
}
