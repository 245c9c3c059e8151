//! `shm:`: the suite over a ring whose writer is created by the test, and tests specific to rings.

use crate::conformance::backends::{Can, Harness, receive, unique};
use crate::conformance::checks::run;
use crate::conformance::errors::assert_refused;
use crate::conformance::faulty::run_faulty;
use crate::conformance::frames::{assert_all_arrived, frames};
use crate::conformance::wire::{Wire, block_of, send_all};
use linerate_burst::{
    Burst, CommitState, Count, Desc, Horizon, Interface, Ledger, LinkType, MAX_FRAME, Nanos, Stage, StampSource,
};
use linerate_engine::clock::now;
use linerate_port::{PortError, RxOptions, RxPort, Sent, TxPort, TxQueue};
use linerate_share::{Acceptor, Access, Options, Writer};
use linerate_tests::support::wait_until;
use std::sync::{Arc, Mutex};
use std::thread;

/// Writer with its acceptor.
struct Server {
    writer: Option<Writer>,
    acceptor: Acceptor,
    newest: Nanos,
}

impl Server {
    fn step(&mut self) {
        let Some(writer) = &mut self.writer else { return };
        self.acceptor.step(now()).into_iter().for_each(|client| writer.admit(client));
        writer.tick(now());
    }

    /// Copies a frame to the open block; returns false if no block is free.
    fn take(&mut self, desc: &Desc, frame: &[u8]) -> bool {
        let desc = Desc { interface: 0, ..*desc };
        loop {
            match self.writer.as_mut().and_then(Writer::block).map(|block| block.push(&desc, frame)) {
                Some(true) => break self.newest = self.newest.max(desc.time),
                Some(false) => self.commit(),
                None => return false,
            }
            self.writer.as_mut().into_iter().for_each(Writer::close_block);
        }
        true
    }

    fn commit(&mut self) {
        let state = CommitState { last_time: self.newest, horizon: self.newest, ..CommitState::default() };
        if let Some(writer) = &mut self.writer {
            writer.commit(&state);
        }
    }
}

/// Sending end of a ring.
struct ShmTx {
    name: String,
    server: Arc<Mutex<Server>>,
    sent: Sent,
    full: u64,
}

impl TxQueue for ShmTx {
    fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
        let mut server = self.server.lock().unwrap();
        server.step();
        let taken = burst.iter().take_while(|(desc, frame)| server.take(desc, frame)).count();
        server.commit();
        self.full += u64::from(taken < burst.len());
        self.sent.add(burst.slice(0..taken));
        Ok(taken)
    }

    fn flush(&mut self, _now: Nanos) -> Result<bool, PortError> {
        self.server.lock().unwrap().step();
        Ok(true)
    }

    fn sent(&self) -> Sent {
        self.sent
    }

    fn counters(&self, ledger: &mut Ledger) {
        let account = ledger.account(Stage::Send, &self.name);
        account.add(Count::SendReceived, self.sent.frames).add(Count::Sent, self.sent.frames);
        account.add(Count::SendFull, self.full);
    }
}

impl Drop for ShmTx {
    fn drop(&mut self) {
        if let Some(writer) = self.server.lock().unwrap().writer.take() {
            writer.finish();
        }
    }
}

/// New ring for each wire.
pub(super) struct ShmWire {
    name: String,
    options: &'static str,
    slots: u32,
    /// Last opened server.
    server: Mutex<Option<(String, Arc<Mutex<Server>>)>>,
}

impl ShmWire {
    /// Creates a wire whose writer waits for the reader.
    pub(super) fn lossless() -> Self {
        Self::new("?mode=lossless", 4)
    }

    /// Creates a wire whose writer does not wait, with room for all frames of a check.
    pub(super) fn lossy() -> Self {
        Self::new("?slots=16", 32)
    }

    fn new(options: &'static str, slots: u32) -> Self {
        ShmWire { name: format!("shm{options}"), options, slots, server: Mutex::new(None) }
    }

    fn attach(&self, name: &str, server: &Mutex<Server>, options: &RxOptions) -> RxPort {
        let text = format!("shm:{name}{}", self.options);
        thread::scope(|scope| {
            let reader = scope.spawn(|| receive(&text, options));
            while !reader.is_finished() {
                server.lock().unwrap().step();
            }
            server.lock().unwrap().step();
            reader.join().unwrap()
        })
    }
}

impl Harness for ShmWire {
    fn name(&self) -> &str {
        &self.name
    }

    fn can(&self) -> Can {
        Can {
            senders: 1,
            keeps_times: true,
            ordered_lanes: true,
            longest: MAX_FRAME,
            cuts: None,
            idle_horizon: false,
            live: true,
            reopens: true,
            back_pressure: self.options.contains("lossless"),
            restores_vlan: false,
        }
    }

    fn open(&self, options: &RxOptions) -> Wire {
        let name = format!("conformance-{}-{}", std::process::id(), unique());
        let small = Options { slots: self.slots, slot_bytes: 512 << 10, ..Options::default() };
        let (mut writer, acceptor) =
            Writer::create(&name, Access { lossless: true, ..Access::default() }, &small, now()).unwrap();
        writer.set_interfaces(&[Interface::new("eth0", LinkType::ETHERNET, StampSource::User)]).unwrap();
        let server = Arc::new(Mutex::new(Server { writer: Some(writer), acceptor, newest: Nanos::ZERO }));
        let rx = self.attach(&name, &server, options);
        let tx = ShmTx { name: format!("shm:{name}"), server: server.clone(), sent: Sent::default(), full: 0 };
        *self.server.lock().unwrap() = Some((name.clone(), server));
        let tx = TxPort { name, queues: vec![Box::new(tx)], monitor: None };
        Wire::live(tx, rx).with_window(1024)
    }

    fn reopen(&self, _wire: &Wire) -> RxPort {
        let (name, server) = self.server.lock().unwrap().clone().expect("a wire was opened");
        self.attach(&name, &server, &RxOptions::default())
    }
}

#[test]
fn lossless_shm() {
    run(&ShmWire::lossless());
}

#[test]
fn lossy_shm() {
    run(&ShmWire::lossy());
}

#[test]
fn faulty_shm() {
    run_faulty(|| Some(ShmWire::lossless()));
}

#[test]
fn invalid_ports_are_reported() {
    for (text, parts) in [
        ("shm:absent-ring", &["absent-ring", "no such ring", "--share"][..]),
        ("shm:/nowhere/ring", &["/nowhere/ring", "no such ring"]),
        ("shm:x?mode=fast", &["mode=fast", "lossless or lossy"]),
        ("shm:x?slots=few", &["slots=few", "expected a number"]),
        ("shm:x?speed=1", &["speed", "mode, slots"]),
        ("shm:x@0-1", &["one queue"]),
        (&format!("shm:{}", "x".repeat(200)), &["1 to 90 bytes"]),
    ] {
        assert_refused(text, false, parts);
    }
    for (text, parts) in [
        ("shm:x@0-1", &["shm:x", "one queue"][..]),
        ("shm:x?mode=lossless", &["mode", "memory, wait, lossless"]),
        ("shm:x?memory=1KiB", &["shm:x", "blocks"]),
        ("shm:x?wait=some", &["wait=some", "expected a number"]),
        ("shm:x?lossless=maybe", &["lossless=maybe", "yes or no"]),
        ("shm:x?timeout=-1", &["timeout=-1", "number of seconds"]),
    ] {
        assert_refused(text, true, parts);
    }
}

/// A lossy port that does not read is skipped; its counters then come from the writer.
#[test]
fn skipped_frames_are_counted_as_lost() {
    let harness = ShmWire::new("?slots=2", 8);
    let mut wire = harness.open(&RxOptions::default());
    let sent = frames(0, 30_000, &[60, 333]);
    wire.send(0, &sent);
    let mut got = Vec::new();
    wire.close_sender();
    let mut queue = wire.queues().remove(0);
    loop {
        let head = queue.fill(now()).unwrap();
        if head.burst.is_empty() && head.horizon == Horizon::Ended {
            break;
        }
        let shown = head.burst.len();
        got.extend(head.burst.iter().map(|(_, frame)| frame.to_vec()));
        queue.consume(shown);
    }
    let mut ledger = Ledger::new();
    queue.counters(&mut ledger);
    let skipped = ledger.total(Count::Skipped);
    assert!(skipped > 10_000 && got.len() > 1000, "{ledger:#?}");
    assert_eq!(skipped as usize + got.len(), sent.len());
    assert_eq!((ledger.imbalances(), ledger.losses()), (vec![], vec![(Count::Skipped, skipped)]));
    assert!(got.iter().zip(&sent).all(|(got, sent)| *got == sent.bytes));
}

#[test]
fn dead_writer_is_reported_after_its_last_frame() {
    let harness = ShmWire::lossless();
    let mut wire = harness.open(&RxOptions::default());
    let sent = frames(0, 100, &[60]);
    wire.send(0, &sent);
    let (_, server) = harness.server.lock().unwrap().clone().unwrap();
    drop(server.lock().unwrap().writer.take());
    let mut queue = wire.queues().remove(0);
    assert_eq!(queue.fill(now()).unwrap().burst.len(), 100);
    queue.consume(100);
    let mut failure = None;
    wait_until("the end of the writer is noticed", || {
        failure = queue.fill(now()).err();
        failure.is_some()
    });
    let Some(PortError::Broken { reason, .. }) = failure else { panic!("{failure:?}") };
    assert!(reason.contains("died"), "{reason}");
    assert_eq!(queue.fill(now()).unwrap().horizon, Horizon::Ended);
}

/// A port with `lossless` set makes the writer wait.
#[test]
fn lossless_port_attaches_lossless() {
    let harness = ShmWire::new("", 4);
    let mut wire = harness.open(&RxOptions { lossless: true, ..RxOptions::default() });
    let block = block_of(&frames(0, 5000, &[1514]));
    let taken = wire.tx.as_mut().unwrap().queues[0].send(block.burst()).unwrap();
    assert!(taken < 5000, "the writer does not wait");
    let harness = ShmWire::new("?mode=lossy", 4);
    let mut wire = harness.open(&RxOptions { lossless: true, ..RxOptions::default() });
    send_all(wire.tx.as_mut().unwrap().queues[0].as_mut(), &frames(0, 5000, &[1514]));
    let outcome = ShmWire::lossless().open(&RxOptions::default()).exchange(&[frames(0, 10, &[60])]);
    assert_all_arrived("shm", &[frames(0, 10, &[60])], &outcome.got);
}
