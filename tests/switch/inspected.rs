//! Frames inspected by rules, between ports in memory, with an engine in this process: verdicts are applied, remaining
//! actions apply to returned frames, flows stay in order, and every frame is accounted for.

use linerate::switch::text::{PortNames, parse_rule};
use linerate::switch::{Options, PortNo, RingNo, Switch};
use linerate_backends::{open_rx, open_tx};
use linerate_burst::{Block, Count, Desc, Horizon, Nanos, Stage};
use linerate_engine::switching::{EngineRing, SwitchConsumer};
use linerate_engine::{FailMode, InlinePolicy, Progress, Receive, ReleaseOrder, RunReport, Sharing, SharingOptions};
use linerate_headers::build::Frame;
use linerate_headers::{MacAddr, ethernet, ipv4, udp};
use linerate_port::{RxOptions, RxPort, Spec, TxOptions, TxPort};
use linerate_share::{Access, AttachOptions, Engine, Inject, Verdict, VerdictReply};
use linerate_tests::support::wait_until;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Number of frames: below the limit of outstanding verdicts, however late the switch polls.
const FRAMES: u32 = 3200;
/// Number of flows, which differ in their source port.
const FLOWS: u32 = 16;

/// Two ports and the ring `ids`.
struct Names;

impl PortNames for Names {
    fn number(&self, text: &str) -> Option<PortNo> {
        text.parse().ok().filter(|port| (1..=2).contains(port))
    }

    fn ring(&self, name: &str) -> Option<RingNo> {
        ["ids", "other"].iter().position(|ring| *ring == name).map(|ring| ring as RingNo)
    }
}

/// Builds a frame of a host at port 1 with source address 10.0.0.`from`.
fn frame(number: u32, from: u8, ttl: u8, mark: &[u8]) -> Vec<u8> {
    let link = ethernet::Header { source: MacAddr([2; 6]), destination: MacAddr([4; 6]), ether_type: 0 };
    let (source, destination) = (Ipv4Addr::new(10, 0, 0, from), Ipv4Addr::new(10, 0, 0, 99));
    let ip = ipv4::Header { source, destination, ttl, ..ipv4::Header::new(0) };
    let ports = udp::Header { source_port: (1000 + number % FLOWS) as u16, destination_port: 53 };
    Frame::new(&[&link, &ip, &ports], &[&number.to_be_bytes(), mark].concat()).to_vec().unwrap()
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[42..46].try_into().unwrap())
}

fn patient() -> InlinePolicy {
    let long = Duration::from_secs(20);
    InlinePolicy {
        on_death: FailMode::Closed,
        on_overload: FailMode::Closed,
        hold: long,
        budget: long,
        release: ReleaseOrder::ByFlow,
        ..InlinePolicy::default()
    }
}

/// Opens a port of the switch and its far end.
fn port(name: &str) -> ((RxPort, TxPort), (TxPort, RxPort)) {
    let spec = |way: &str| Spec::parse(&format!("mem:{name}-{way}")).unwrap();
    let open = |way: &str| {
        (open_rx(&spec(way), &RxOptions::default()).unwrap(), open_tx(&spec(way), &TxOptions::default()).unwrap())
    };
    let ((to_switch_rx, to_switch), (from_switch, from_switch_tx)) = (open("in"), open("out"));
    ((to_switch_rx, from_switch_tx), (to_switch, from_switch))
}

struct Through {
    run: RunReport,
    /// Frames sent by each port.
    left: [Vec<Vec<u8>>; 2],
    frames: u64,
}

type Decides = Box<dyn FnOnce(Engine) + Send>;

/// Number of frames sent at a time.
const AT_ONCE: u32 = 64;

/// Sends frames through port 1 of a switch with these rules and with one engine per ring.
fn through(rules: &[&str], policy: InlinePolicy, engines: Vec<Decides>) -> Through {
    through_after(rules, policy, engines, 0)
}

/// Does the same, but waits after the first batch until `first` frames have left port 2.
fn through_after(rules: &[&str], policy: InlinePolicy, engines: Vec<Decides>, first: usize) -> Through {
    let arrived = AtomicUsize::new(0);
    let arrived = &arrived;
    static MADE: AtomicU32 = AtomicU32::new(0);
    let name = format!("inspected-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    let mut switch = Switch::new(Options::new(2));
    rules.iter().for_each(|rule| switch.add(parse_rule(rule, &Names).unwrap(), Nanos(1)));
    let ((from, out), (mut into, mut back)) = port(&format!("{name}-1"));
    let ((other_from, other_out), (other_into, mut far)) = port(&format!("{name}-2"));
    let rings: Vec<EngineRing> = (0..engines.len())
        .map(|ring| {
            let options = SharingOptions {
                name: format!("{name}-{ring}"),
                ring: linerate_share::Options { slots: 16, slot_bytes: 512 << 10, huge: false, ..Default::default() },
                access: Access { engine: Some(String::new()), ..Access::default() },
                wait_for: 1,
                patience: None,
            };
            EngineRing { name: format!("ring {ring}"), sharing: Sharing::create(options).unwrap(), policy }
        })
        .collect();
    let switching = SwitchConsumer::new(switch, vec![out, other_out], vec![1, 2], true, Progress::new());
    let mut switching = switching.with_engines(rings);
    thread::scope(|scope| {
        for (ring, decide) in engines.into_iter().enumerate() {
            let name = format!("{name}-{ring}");
            scope.spawn(move || {
                let began = Instant::now();
                let engine = loop {
                    match AttachOptions::default().engine(&name) {
                        Ok(engine) => break engine,
                        Err(error) => assert!(began.elapsed() < Duration::from_secs(20), "{error}"),
                    }
                    thread::sleep(Duration::from_millis(1));
                };
                decide(engine);
            });
        }
        let running = scope.spawn(move || {
            let run = Receive { ports: vec![from, other_from], ..Receive::all(Vec::new()) }.run(&mut [&mut switching]);
            drop(switching);
            run
        });
        scope.spawn(move || {
            let mut block = Block::new(1 << 20, AT_ONCE as usize);
            for begin in (0..FRAMES).step_by(AT_ONCE as usize) {
                block.clear();
                if begin > 0 {
                    wait_until("the first frames have left", || arrived.load(Ordering::Relaxed) >= first);
                }
                for number in begin..FRAMES.min(begin + AT_ONCE) {
                    let bytes = frame(number, 1, 64, b"plain");
                    assert!(block.push(&Desc::new(Nanos(number.into()), 0, bytes.len() as u32), &bytes));
                }
                let mut sent = 0;
                while sent < block.len() {
                    sent += into.queues[0].send(block.burst().slice(sent..block.len())).unwrap();
                    into.queues[0].flush(Nanos::ZERO).unwrap();
                }
            }
            wait_until("all frames are flushed", || into.queues[0].flush(Nanos::ZERO).unwrap());
            drop((into, other_into));
        });
        let unused = AtomicUsize::new(0);
        let left = [scope.spawn(move || receive(&mut back, &unused)), scope.spawn(move || receive(&mut far, arrived))];
        let run = running.join().unwrap();
        let left = left.map(|left| left.join().unwrap());
        assert!(run.failure.is_none(), "{:?}", run.failure);
        assert_eq!(run.ledger.imbalances(), [], "{:#?}", run.ledger);
        Through { run, left, frames: FRAMES.into() }
    })
}

fn receive(from: &mut RxPort, arrived: &AtomicUsize) -> Vec<Vec<u8>> {
    let (mut got, queue) = (Vec::new(), &mut from.queues[0]);
    loop {
        let head = queue.fill(Nanos::ZERO).unwrap();
        let (shown, is_over) = (head.burst.len(), head.horizon == Horizon::Ended);
        got.extend(head.burst.iter().map(|(_, bytes)| bytes.to_vec()));
        queue.consume(shown);
        arrived.store(got.len(), Ordering::Relaxed);
        if shown == 0 && is_over {
            return got;
        }
    }
}

/// Polls until the ring ends; verdicts of held frames follow later, in reverse order.
fn decide(mut engine: Engine, mut say: impl FnMut(u32, &[u8]) -> VerdictReply) {
    let (mut held, mut looks) = (Vec::new(), 0);
    while engine.ended().is_none() {
        let looked = engine.look(|seen, answers| {
            let own = number(seen.bytes);
            let said = say(own, seen.bytes);
            match said {
                VerdictReply::Later => held.push(seen.ticket),
                VerdictReply::Now(Verdict::Replace) => {
                    let mut other = seen.bytes.to_vec();
                    other[46..51].copy_from_slice(b"other");
                    answers.replace(seen.ticket, &other).unwrap();
                }
                _ if own % 100 == 50 => {
                    let injection = |back| Inject { back, behind: true };
                    answers.inject(seen.ticket, injection(false), &frame(own, 7, 9, b"there")).unwrap();
                    answers.inject(seen.ticket, injection(true), &frame(own, 8, 9, b"back")).unwrap();
                }
                _ => {}
            }
            said
        });
        looks += 1;
        if looks % 5 == 0 || looked == 0 {
            held.drain(..).rev().for_each(|ticket| engine.decide(ticket, Verdict::Pass));
        }
        if looked == 0 {
            thread::sleep(Duration::from_micros(50));
        }
    }
}

const REWRITES: &str = "udp,in_port=1,actions=mod_nw_src:10.0.0.7,inspect:ids,mod_nw_ttl:9,output:2";

/// The engine sees frames after the actions before it; later actions apply to what it passes, replaces or injects.
#[test]
fn remaining_actions_apply_to_returned_frames() {
    let engine = |engine: Engine| {
        decide(engine, |own, bytes| {
            assert_eq!((bytes[29], bytes[22]), (7, 64), "only actions before the engine were applied");
            match own % 20 {
                5 => VerdictReply::Now(Verdict::Block),
                7 => VerdictReply::Now(Verdict::Replace),
                11 => VerdictReply::Later,
                _ => VerdictReply::Now(Verdict::Pass),
            }
        });
    };
    let got = through(&[REWRITES], patient(), vec![Box::new(engine)]);
    let [back, there] = &got.left;
    let mut expected = Vec::new();
    for own in 0..FRAMES {
        match own % 20 {
            5 => {}
            7 => expected.push(frame(own, 7, 9, b"other")),
            _ => expected.push(frame(own, 7, 9, b"plain")),
        }
        expected.extend((own % 100 == 50).then(|| frame(own, 7, 9, b"there")));
    }
    // A replaced payload keeps the old checksum, which address changes then update: compare without it.
    let without_sum = |frames: &[Vec<u8>]| {
        let mut frames = frames.to_vec();
        frames.iter_mut().for_each(|bytes| bytes[40..42].fill(0));
        frames
    };
    let (there, expected) = (without_sum(there), without_sum(&expected));
    for flow in 0..FLOWS {
        let of = |frames: &[Vec<u8>]| -> Vec<Vec<u8>> {
            frames.iter().filter(|bytes| number(bytes) % FLOWS == flow).cloned().collect()
        };
        assert_eq!(of(&there), of(&expected), "flow {flow}");
    }
    assert_eq!(there.len(), expected.len());
    let made: Vec<_> = (0..FRAMES).filter(|own| own % 100 == 50).map(|own| frame(own, 8, 9, b"back")).collect();
    let mut back = back.clone();
    back.sort_by_key(|bytes| number(bytes));
    assert_eq!(back, made);
    let total = |count| got.run.ledger.total(count);
    let (asked, blocked) = (total(Count::SwitchInspected), total(Count::InlineBlocked));
    assert_eq!((asked, total(Count::VerdictReceived), blocked), (got.frames, got.frames, got.frames / 20));
    assert_eq!((total(Count::SwitchInjected), total(Count::InlineReplaced)), (u64::from(FRAMES / 50), got.frames / 20));
    assert_eq!(got.run.ledger.lost(), 0, "{:#?}", got.run.ledger);
}

/// With an injection limit of 0, every injected frame is counted as dropped, and the others are unaffected.
#[test]
fn injected_frames_above_the_limit_are_counted() {
    let engine = |engine: Engine| decide(engine, |_, _| VerdictReply::Now(Verdict::Pass));
    let policy = InlinePolicy { inject_limit: 0, ..patient() };
    let got = through(&[REWRITES], policy, vec![Box::new(engine)]);
    assert_eq!([got.left[0].len(), got.left[1].len()], [0, FRAMES as usize]);
    let total = |count| got.run.ledger.total(count);
    let made = u64::from(FRAMES / 50);
    let counts = (total(Count::SwitchInjected), total(Count::SwitchInjectLimit), got.run.ledger.lost());
    assert_eq!(counts, (made, made, made));
}

/// Flows with a final verdict bypass the engine without reordering.
#[test]
fn flows_with_a_final_verdict_bypass_the_engine() {
    let engine = |engine: Engine| {
        decide(engine, |own, _| {
            VerdictReply::Now(match own % FLOWS {
                1 => Verdict::Blacklist,
                2..8 => Verdict::Whitelist,
                _ => Verdict::Pass,
            })
        });
    };
    // Of the first batch, four frames are blocked and one is injected.
    let got = through_after(&[REWRITES], patient(), vec![Box::new(engine)], AT_ONCE as usize - 4 + 1);
    let there: Vec<Vec<u8>> = got.left[1].iter().filter(|bytes| bytes[46..51] == *b"plain").cloned().collect();
    for flow in 0..FLOWS {
        let of_flow: Vec<u32> = there.iter().map(|bytes| number(bytes)).filter(|own| own % FLOWS == flow).collect();
        let all: Vec<u32> = (0..FRAMES).filter(|own| flow != 1 && own % FLOWS == flow).collect();
        assert_eq!(of_flow, all, "flow {flow}");
    }
    assert!(there.iter().all(|bytes| bytes[22] == 9 && bytes[29] == 7), "all actions were applied");
    let total = |count| got.run.ledger.total(count);
    let (listed, skipped) = (total(Count::SwitchListed), total(Count::SwitchSkipped));
    // While the block holds frames of other flows, some listed flows still pass through the ring.
    assert_eq!(listed + total(Count::InlineBlocked), u64::from(FRAMES / FLOWS), "{:#?}", got.run.ledger);
    assert!(listed > 0 && skipped > 0, "{listed} listed, {skipped} skipped");
    assert_eq!(total(Count::VerdictReceived) + listed + skipped, got.frames);
    assert_eq!(got.run.ledger.lost(), 0, "{:#?}", got.run.ledger);
}

/// Two engines in sequence; the second one has an action before it.
#[test]
fn two_engines_in_sequence_both_inspect() {
    let one = |engine: Engine| {
        decide(engine, |own, _| VerdictReply::Now(if own % 10 == 3 { Verdict::Block } else { Verdict::Pass }));
    };
    let other = |engine: Engine| {
        decide(engine, |own, bytes| {
            assert!(own % 10 != 3 && bytes[22] == 9, "frames passed by the first engine, with the new TTL");
            VerdictReply::Now(if own % 10 == 4 { Verdict::Block } else { Verdict::Pass })
        });
    };
    let rule = "udp,in_port=1,actions=inspect:ids,mod_nw_ttl:9,inspect:other,output:2";
    let got = through(&[rule], patient(), vec![Box::new(one), Box::new(other)]);
    let there: Vec<u32> =
        got.left[1].iter().filter(|bytes| bytes[46..51] == *b"plain").map(|bytes| number(bytes)).collect();
    let expected: Vec<u32> = (0..FRAMES).filter(|own| ![3, 4].contains(&(own % 10))).collect();
    let mut sorted = there.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
    for flow in 0..FLOWS {
        assert!(there.iter().filter(|own| **own % FLOWS == flow).is_sorted(), "flow {flow}");
    }
    let twice = parse_rule("ip,actions=inspect:ids,inspect:ids,2", &Names).unwrap_err();
    assert!(twice.contains("duplicate inspect"), "{twice}");
}

/// An engine exits with undecided frames: the policy applies to them, and the accounting balances.
#[test]
fn exiting_engine_leaves_no_frame_undecided() {
    for (on_death, dropped) in [(FailMode::Open, false), (FailMode::Closed, true)] {
        let engine = |mut engine: Engine| {
            let mut looked = 0;
            while engine.ended().is_none() && looked < 1000 {
                looked += engine.look(|_, _| VerdictReply::Now(Verdict::Pass));
            }
            // The engine holds the next frames and returns no verdict.
            engine.look(|_, _| VerdictReply::Later);
        };
        let got = through(&[REWRITES], InlinePolicy { on_death, ..patient() }, vec![Box::new(engine)]);
        let total = |count| got.run.ledger.total(count);
        let (passed, left) = (total(Count::InlinePassed), got.left[1].len() as u64);
        assert!(passed >= 1000, "{:#?}", got.run.ledger);
        assert_eq!(left, if dropped { passed } else { got.frames }, "{:#?}", got.run.ledger);
        assert_eq!(total(Count::InlineNoEngine), got.frames - passed);
        assert_eq!(total(Count::InlineUndecided) + total(Count::SwitchDied), 0);
        assert_eq!(got.run.ledger.sum(Stage::Send, linerate_burst::Kind::Delivered), left);
        for flow in 0..FLOWS {
            let of_flow = got.left[1].iter().map(|bytes| number(bytes)).filter(|own| own % FLOWS == flow);
            assert!(of_flow.is_sorted(), "flow {flow}");
        }
    }
}
