//! `dpdk:`: the suite over DPDK rings, and tests specific to DPDK devices.

use crate::conformance::backends::{Can, Folder, Harness, receive, transmit, unique};
use crate::conformance::checks::run;
use crate::conformance::errors::assert_refused;
use crate::conformance::faulty::run_faulty;
use crate::conformance::frames::{assert_all_arrived, frame, frames};
use crate::conformance::wire::{PATIENCE, PAUSE, Receiver, Wire, block_of, send_all};
use linerate_burst::{Count, Flags, Horizon, Ledger, StampSource};
use linerate_engine::clock::now;
use linerate_port::{RxOptions, RxPort};
use linerate_tests::support::dpdk::plugin;
use linerate_tests::support::records;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::Instant;

/// Loopback device.
struct Loop {
    name: String,
    queues: usize,
    /// Last opened port.
    text: Mutex<String>,
}

impl Loop {
    fn new(queues: usize) -> Option<Self> {
        plugin()?;
        Some(Loop { name: format!("dpdk of {queues} queues"), queues, text: Mutex::default() })
    }

    /// Returns a new, unused port.
    fn port(&self) -> String {
        let text = format!("dpdk:net_ring{}@0-{}?mtu=65535", unique(), self.queues - 1);
        self.text.lock().unwrap().clone_from(&text);
        text
    }
}

impl Harness for Loop {
    fn name(&self) -> &str {
        &self.name
    }

    fn can(&self) -> Can {
        Can {
            senders: self.queues,
            keeps_times: false,
            ordered_lanes: true,
            longest: 65_549,
            cuts: Some(0),
            idle_horizon: true,
            live: true,
            reopens: true,
            back_pressure: true,
            restores_vlan: false,
        }
    }

    fn open(&self, options: &RxOptions) -> Wire {
        let text = self.port();
        Wire::live(transmit(&text, self.queues), receive(&text, options))
    }

    fn reopen(&self, _wire: &Wire) -> RxPort {
        receive(&self.text.lock().unwrap(), &RxOptions::default())
    }
}

#[test]
fn dpdk_with_one_queue() {
    if let Some(harness) = Loop::new(1) {
        run(&harness);
    }
}

#[test]
fn dpdk_with_four_queues() {
    if let Some(harness) = Loop::new(4) {
        run(&harness);
    }
}

#[test]
fn faulty_dpdk() {
    run_faulty(|| Loop::new(1));
}

/// Frames longer than a buffer are stored in several.
#[test]
fn frames_in_several_buffers_are_flagged_and_counted() {
    let Some(harness) = Loop::new(1) else { return };
    let sent = [frames(0, 40, &[60, 2048, 2049, 9014])];
    let outcome = harness.open(&RxOptions::default()).exchange(&sent);
    assert_all_arrived("dpdk", &sent, &outcome.got);
    for got in &outcome.got {
        assert_eq!(got.desc.flags.contains(Flags::JOINED), got.bytes.len() > 2048, "{:?}", got.desc);
    }
    assert_eq!(outcome.ledger.total(Count::Joined), 20);
}

/// A detach ends although the device always has more frames.
#[test]
fn device_with_endless_frames_is_detached() {
    if plugin().is_none() {
        return;
    }
    let mut rx = receive(&format!("dpdk:net_null{},size=100", unique()), &RxOptions::default());
    let queue = rx.queues[0].as_mut();
    let shown = queue.fill(now()).unwrap().burst.len();
    assert!(shown >= 32, "{shown}");
    queue.consume(shown);
    queue.detach();
    let mut after = 0;
    while queue.fill(now()).unwrap().horizon != Horizon::Ended {
        let burst = queue.fill(now()).unwrap().burst;
        assert!(burst.descs().iter().all(|desc| (desc.captured, desc.wire) == (100, 100)));
        let shown = burst.len();
        queue.consume(shown);
        after += shown;
        assert!(after < 10_000, "the queue does not end");
    }
    let mut ledger = Ledger::new();
    queue.counters(&mut ledger);
    assert_eq!((ledger.imbalances(), ledger.total(Count::Delivered)), (vec![], (shown + after) as u64));
}

#[test]
fn frames_above_the_mtu_are_counted_as_lost() {
    if plugin().is_none() {
        return;
    }
    let mut tx = transmit(&format!("dpdk:net_null{}?mtu=2000", unique()), 1);
    send_all(tx.queues[0].as_mut(), &frames(0, 90, &[60, 2022, 2023]));
    let mut ledger = Ledger::new();
    tx.queues[0].counters(&mut ledger);
    assert_eq!((ledger.imbalances(), ledger.losses()), (vec![], vec![(Count::TooLong, 30)]));
    assert_eq!(tx.queues[0].sent().bytes, 30 * (60 + 2022));
    tx.monitor.unwrap().counters(&mut ledger);
    assert_eq!(ledger.total(Count::NicSent), 60, "{ledger:#?}");
}

/// Comparison with DPDK's own pcap writer and reader: equal bytes, and times to its resolution of a microsecond.
#[test]
fn pcap_device_writes_and_reads_the_same_frames() {
    if plugin().is_none() {
        return;
    }
    let folder = Folder::new();
    let file = folder.path("out.pcap");
    let sent = frames(0, 1000, &[14, 60, 61, 64, 127, 128, 129, 1514]);
    let mut tx = transmit(&format!("dpdk:net_pcap{},tx_pcap={file}", unique()), 1);
    send_all(tx.queues[0].as_mut(), &sent);
    drop(tx);
    let written = records::read(&file);
    assert!(written.len() == sent.len());
    assert!(written.iter().zip(&sent).all(|(written, sent)| written.bytes == sent.bytes));
    let rx = receive(&format!("dpdk:net_pcap{},rx_pcap={file}", unique()), &RxOptions::default());
    let mut receiver = Receiver::new(rx.queues);
    receiver.run_until(|receiver| receiver.arrived() == sent.len());
    let outcome = receiver.finish(Ledger::new());
    assert_eq!((outcome.ledger.imbalances(), outcome.ledger.lost()), (vec![], 0));
    assert_eq!((outcome.got.len(), outcome.interfaces[0].stamp), (sent.len(), StampSource::File));
    for (got, written) in outcome.got.iter().zip(&written) {
        assert_eq!((got.desc.time.0, &got.bytes), (written.time / 1000 * 1000, &written.bytes));
    }
    let stamped = receive(&format!("dpdk:net_pcap{},rx_pcap={file}?stamp=poll", unique()), &RxOptions::default());
    assert_eq!(Receiver::new(stamped.queues).finish(Ledger::new()).interfaces[0].stamp, StampSource::User);
}

#[test]
fn device_opens_once_with_queues_for_both_directions() {
    if plugin().is_none() {
        return;
    }
    let name = format!("dpdk:net_ring{}", unique());
    let rx = receive(&name, &RxOptions::default());
    assert_refused(&name, false, &[&name, "already open for receiving"]);
    assert_refused(&format!("{name}@0-1"), true, &["one send queue", "@0-1"]);
    assert_refused(&format!("{name}?mtu=9000"), true, &["another mtu="]);
    assert_refused(&format!("{name},nodeaction=x"), true, &["already open as net_ring"]);
    let mut tx = transmit(&name, 1);
    assert_refused(&name, true, &["already open for sending"]);
    drop(rx);
    // Frames without a receiver wait for the next one.
    send_all(tx.queues[0].as_mut(), &[frame(0, 7, 60)]);
    let mut rx = receive(&name, &RxOptions::default());
    let deadline = Instant::now() + PATIENCE;
    while rx.queues[0].fill(now()).unwrap().burst.is_empty() {
        assert!(Instant::now() < deadline, "no frame arrives");
        sleep(PAUSE);
    }
    assert_eq!(rx.queues[0].fill(now()).unwrap().burst.frame(0), frame(0, 7, 60).bytes);
    drop((rx, tx));
    drop(receive(&format!("{name}@0-1?mtu=9000"), &RxOptions::default()));
}

/// A full queue accepts a part. The buffers of the rest are reused: later frames need three each.
#[test]
fn rejected_buffers_are_reused() {
    let Some(harness) = Loop::new(1) else { return };
    let text = harness.port();
    let (mut tx, rx) = (transmit(&text, 1), receive(&text, &RxOptions::default()));
    let mut receiver = Receiver::new(rx.queues);
    for length in [60, 5000] {
        let sent = frames(0, 2000, &[length]);
        let (block, before) = (block_of(&sent), receiver.arrived());
        let taken = tx.queues[0].send(block.burst()).unwrap();
        assert!(taken > 1000 && taken < 2000, "{taken} of {length} bytes");
        for _ in 0..2000 {
            assert_eq!(tx.queues[0].send(block.burst().slice(taken..2000)).unwrap(), 0);
        }
        receiver.run_until(|receiver| receiver.arrived() == before + taken);
        assert!(receiver.got()[before..].iter().zip(&sent).all(|(got, sent)| got.bytes == sent.bytes));
    }
}

#[test]
fn invalid_ports_are_reported() {
    if plugin().is_none() {
        return;
    }
    for (text, parts) in [
        ("dpdk:net_nothing0", &["dpdk:net_nothing0", "DPDK cannot find or open this device"][..]),
        ("dpdk:0000:00:1e.7", &["dpdk:0000:00:1e.7", "DPDK cannot find or open this device"]),
        ("dpdk:net_pcap99,rx_pcap=/nowhere.pcap", &["net_pcap99", "nowhere.pcap"]),
        ("dpdk:net_null98@1-2", &["queues start at 0", "@0-2"]),
        ("dpdk:net_null98@0-64", &["at most 64"]),
        ("dpdk:net_pcap97,iface=lo@0-3", &["at most"]),
        ("dpdk:net_null98?mtu=9", &["mtu=9", "68 to 65535"]),
        ("dpdk:net_null98?queue=1", &["queue=1", "64 to"]),
        ("dpdk:net_null98?memory=1", &["memory=1", "64MiB"]),
        ("dpdk:net_null98?memory=1GiB", &["memory= of the first port", "1024"]),
        ("dpdk:net_null98?stamp=now", &["stamp=now", "poll"]),
        ("dpdk:net_null98?pool=new", &["pool=new", "lifo"]),
        ("dpdk:net_null98?stamp=driver", &["net_null", "no time stamps", "stamp="]),
        ("dpdk:net_null98?speed=1", &["speed", "mtu, queue"]),
    ] {
        assert_refused(text, false, parts);
    }
}
