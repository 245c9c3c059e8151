//! Ports of several lanes: frames leave by the other port, whichever lane they arrived on.

use super::engine::{Scene, number, ring_name};
use super::frame;
use linerate_backends::{REGISTRY, open_rx};
use linerate_burst::{Block, Count, Desc, Horizon, Nanos};
use linerate_engine::{FailMode, Inline, InlinePolicy, Progress, Receive, ReceiveError, Sharing, SharingOptions, Stop};
use linerate_port::{RxOptions, RxPort, Spec, TxOptions, TxPort};
use linerate_share::Access;
use linerate_tests::support::program::{run, start};
use std::thread;
use std::time::{Duration, Instant};

/// Frames per lane.
const FRAMES: u32 = 500;

/// A memory port: a sender, and the receiver of its frames.
pub(super) fn port(queues: &str) -> (TxPort, RxPort) {
    let spec = Spec::parse(&format!("mem:{}{queues}", ring_name())).unwrap();
    (REGISTRY.open_tx(&spec, &TxOptions::default()).unwrap(), open_rx(&spec, &RxOptions::default()).unwrap())
}

/// Joins two ports by the ring of this name; without an engine all frames pass.
pub(super) fn join(to: [TxPort; 2], ring: &str) -> Inline {
    let name = ring.to_owned();
    let ring = linerate_share::Options { slots: 16, slot_bytes: 512 << 10, huge: false, ..Default::default() };
    let access = Access { engine: Some(String::new()), ..Access::default() };
    let options = SharingOptions { name, ring, access, wait_for: 0, patience: None };
    // On a busy machine no frame must count as overload.
    let patience = Duration::from_secs(60);
    let policy = InlinePolicy { on_death: FailMode::Open, hold: patience, budget: patience, ..InlinePolicy::default() };
    Inline::new(["one", "other"], to, Sharing::create(options).unwrap(), policy, Progress::new())
}

/// All frames received until the sender closes, sorted.
fn all_of(mut port: RxPort) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    loop {
        let head = port.queues[0].fill(Nanos::ZERO).unwrap();
        let (shown, is_over) = (head.burst.len(), head.horizon == Horizon::Ended);
        got.extend(head.burst.iter().map(|(_, bytes)| bytes.to_vec()));
        port.queues[0].consume(shown);
        if shown == 0 && is_over {
            got.sort();
            return got;
        }
    }
}

/// Two lanes at one end, three at the other: all frames leave by the other end and are counted there.
#[test]
fn frames_leave_by_the_other_port_from_any_lane() {
    let ([(one, from_one), (other, from_other)], [(to_other, far), (to_one, near)]) =
        ([port("@0-1"), port("@0-2")], [port(""), port("")]);
    let mut inline = join([to_other, to_one], &ring_name());
    let mut wanted = [Vec::new(), Vec::new()];
    for (way, mut port) in [one, other].into_iter().enumerate() {
        for (lane, queue) in port.queues.iter_mut().enumerate() {
            let mut block = Block::new(1 << 20, FRAMES as usize);
            let first = (1000 * way + 100 * lane) as u32 * 1000;
            for bytes in (first..first + FRAMES).map(frame) {
                assert!(block.push(&Desc::new(Nanos(1), 0, bytes.len() as u32), &bytes));
                wanted[way].push(bytes);
            }
            let mut sent = 0;
            while sent < block.len() {
                sent += queue.send(block.burst().slice(sent..block.len())).unwrap();
                queue.flush(Nanos::ZERO).unwrap();
            }
        }
        wanted[way].sort();
    }
    let receive = Receive { ports: vec![from_one, from_other], stop: Stop::new(), ..Receive::all(Vec::new()) };
    let (run, got) = thread::scope(|scope| {
        let receivers = [far, near].map(|port| scope.spawn(|| all_of(port)));
        let run = receive.run(&mut [&mut inline]);
        drop(inline);
        (run, receivers.map(|receiver| receiver.join().unwrap()))
    });
    assert!(run.failure.is_none(), "{:?}", run.failure);
    assert_eq!(run.ledger.imbalances(), [], "{:#?}", run.ledger);
    assert!(got == wanted, "{:?} arrived, {:?} were sent", got.map(|all| all.len()), wanted.map(|all| all.len()));
    assert_eq!(run.ledger.total(Count::InlineNoEngine), u64::from(5 * FRAMES), "{:#?}", run.ledger);
}

#[test]
fn other_than_two_ports_is_an_error() {
    let ([(_, one), (_, two), (_, three)], [(to, _far), (back, _near)]) =
        ([port(""), port(""), port("")], [port(""), port("")]);
    let mut inline = join([to, back], &ring_name());
    let run = Receive::all(vec![one, two, three]).run(&mut [&mut inline]);
    assert!(matches!(run.failure, Some(ReceiveError::Ends { found: 3, .. })), "{:?}", run.failure);
}

/// `inline` with two memif rings at each port.
#[test]
fn two_rings_per_port_are_forwarded() {
    let names = [ring_name(), ring_name()];
    let [one, other] = names.each_ref().map(|name| format!("memif:{name}?role=server&rings-in=2"));
    let inline = start(&["inline", &one, &other, "--share", &ring_name(), "--on-death", "open", "--json"]);
    let what = ["--threads", "2", "--json", "-q", "-c", "10000", "--rate", "50kpps", "-k", "ip/udp(sport=1000..1040)"];
    for way in [0, 1] {
        let (to, from) = (format!("memif:{}?rings-out=2", names[way]), format!("memif:{}", names[1 - way]));
        let sent = run(&[&["generate", "--to", &to, "--check", &from], &what[..]].concat()).good().json();
        let by = ["received", "duplicated", "corrupted"].map(|name| number(&sent["check"], name));
        assert_eq!(by, [10_000, 0, 0], "way {way}: {sent:#}");
    }
    let json = inline.interrupt().good().json();
    for way in [0, 1] {
        assert_eq!(number(&json["directions"][way]["verdicts"], "received"), 10_000, "{json:#}");
        assert_eq!(number(&json["directions"][way], "frames"), 10_000, "{json:#}");
    }
}

/// Applies to either port, and with any policy: forwarding needs both ports.
#[test]
fn removed_port_ends_the_run_with_an_error() {
    for (host, interface) in [("mid", "p0"), ("mid", "p1"), ("a", "eth0")] {
        let Some(scene) = Scene::up() else { return };
        let running = scene.inline(&ring_name(), &["--on-death", "open", "-T", "60"]);
        let started = Instant::now();
        scene.0.ip(host, &["link", "del", interface]);
        let ended = running.end().with_status(1).says("the interface was removed");
        let json = ended.json();
        assert!(started.elapsed() < Duration::from_secs(40), "it still runs without the port");
        let subjects = json["accounts"].as_array().unwrap().iter().filter_map(|account| account["subject"].as_str());
        assert!(!subjects.clone().any(|subject| subject.contains("faulty:")), "{json:#}");
    }
}
