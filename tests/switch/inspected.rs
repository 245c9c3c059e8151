//! Frames that rules have inspected, between ports in memory, with an engine in this process: what it says is done, the rest of the
//! actions is done to what comes back, in the order of each flow, and each frame is accounted for.

use linerate::switch::text::{PortNames, parse_rule};
use linerate::switch::{Options, PortNo, RingNo, Switch};
use linerate_backends::{open_rx, open_tx};
use linerate_burst::{Block, Count, Desc, Horizon, Nanos, Stage};
use linerate_engine::switching::{EngineRing, Switching};
use linerate_engine::{Fail, InlinePolicy, Progress, Receive, Received, Release, Sharing, SharingOptions};
use linerate_port::{RxOptions, RxPort, Spec, TxOptions, TxPort};
use linerate_share::{Access, Attach, Decide, Engine, Inject, Verdict};
use linerate_tests::support::wait_until;
use linerate_wire::build::Frame;
use linerate_wire::{MacAddr, ethernet, ipv4, udp};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Their answers are fewer than may be under way, however late the switch looks.
const FRAMES: u32 = 3200;
/// Flows of the frames, by their source port.
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

/// What a host at port 1 sends; `from` is its address.
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
        on_death: Fail::Closed,
        on_overload: Fail::Closed,
        hold: long,
        budget: long,
        release: Release::ByFlow,
        ..InlinePolicy::default()
    }
}

/// A port of the switch, and its far end.
fn port(name: &str) -> ((RxPort, TxPort), (TxPort, RxPort)) {
    let spec = |way: &str| Spec::parse(&format!("mem:{name}-{way}")).unwrap();
    let open = |way: &str| {
        (open_rx(&spec(way), &RxOptions::default()).unwrap(), open_tx(&spec(way), &TxOptions::default()).unwrap())
    };
    let ((to_switch_rx, to_switch), (from_switch, from_switch_tx)) = (open("in"), open("out"));
    ((to_switch_rx, from_switch_tx), (to_switch, from_switch))
}

struct Through {
    run: Received,
    /// What left by each port.
    left: [Vec<Vec<u8>>; 2],
    frames: u64,
}

type Decides = Box<dyn FnOnce(Engine) + Send>;

/// How many frames are sent at a time.
const AT_ONCE: u32 = 64;

/// Frames by port 1 through a switch with these rules, while engines decide, one a ring.
fn through(rules: &[&str], policy: InlinePolicy, engines: Vec<Decides>) -> Through {
    through_after(rules, policy, engines, 0)
}

/// The same, where so many have left by port 2 before more than the first of them are sent.
fn through_after(rules: &[&str], policy: InlinePolicy, engines: Vec<Decides>, first: usize) -> Through {
    let came = AtomicUsize::new(0);
    let came = &came;
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
    let switching = Switching::new(switch, vec![out, other_out], vec![1, 2], true, Progress::new());
    let mut switching = switching.with_engines(rings);
    thread::scope(|scope| {
        for (ring, decide) in engines.into_iter().enumerate() {
            let name = format!("{name}-{ring}");
            scope.spawn(move || {
                let began = Instant::now();
                let engine = loop {
                    match Attach::default().engine(&name) {
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
                    wait_until("the first ones have left", || came.load(Ordering::Relaxed) >= first);
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
            wait_until("all has left its hands", || into.queues[0].flush(Nanos::ZERO).unwrap());
            drop((into, other_into));
        });
        let nobody = AtomicUsize::new(0);
        let left = [scope.spawn(move || receive(&mut back, &nobody)), scope.spawn(move || receive(&mut far, came))];
        let run = running.join().unwrap();
        let left = left.map(|left| left.join().unwrap());
        assert!(run.failure.is_none(), "{:?}", run.failure);
        assert_eq!(run.ledger.imbalances(), [], "{:#?}", run.ledger);
        Through { run, left, frames: FRAMES.into() }
    })
}

fn receive(from: &mut RxPort, came: &AtomicUsize) -> Vec<Vec<u8>> {
    let (mut got, queue) = (Vec::new(), &mut from.queues[0]);
    loop {
        let head = queue.fill(Nanos::ZERO).unwrap();
        let (shown, is_over) = (head.burst.len(), head.horizon == Horizon::Ended);
        got.extend(head.burst.iter().map(|(_, bytes)| bytes.to_vec()));
        queue.consume(shown);
        came.store(got.len(), Ordering::Relaxed);
        if shown == 0 && is_over {
            return got;
        }
    }
}

/// Looks until the ring ends; what is held is said later, the last one first.
fn decide(mut engine: Engine, mut say: impl FnMut(u32, &[u8]) -> Decide) {
    let (mut held, mut looks) = (Vec::new(), 0);
    while engine.ended().is_none() {
        let looked = engine.look(|seen, answers| {
            let own = number(seen.bytes);
            let said = say(own, seen.bytes);
            match said {
                Decide::Later => held.push(seen.ticket),
                Decide::Now(Verdict::Replace) => {
                    let mut other = seen.bytes.to_vec();
                    other[46..51].copy_from_slice(b"other");
                    answers.replace(seen.ticket, &other).unwrap();
                }
                _ if own % 100 == 50 => {
                    let beside = |back| Inject { back, behind: true };
                    answers.inject(seen.ticket, beside(false), &frame(own, 7, 9, b"there")).unwrap();
                    answers.inject(seen.ticket, beside(true), &frame(own, 8, 9, b"back")).unwrap();
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

/// The engine sees what the actions before it made; what it passes, replaces or makes is what those behind it get.
#[test]
fn what_comes_back_has_the_rest_done_to_it() {
    let engine = |engine: Engine| {
        decide(engine, |own, bytes| {
            assert_eq!((bytes[29], bytes[22]), (7, 64), "rewritten in front of it, and not behind it");
            match own % 20 {
                5 => Decide::Now(Verdict::Block),
                7 => Decide::Now(Verdict::Replace),
                11 => Decide::Later,
                _ => Decide::Now(Verdict::Pass),
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
    // Bytes that the engine writes over have the checksum that was there; addresses and TTL are followed.
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

/// With no frame of its own allowed, all of them are counted, and the others are as before.
#[test]
fn frames_of_the_engine_beyond_the_limit_are_counted() {
    let engine = |engine: Engine| decide(engine, |_, _| Decide::Now(Verdict::Pass));
    let policy = InlinePolicy { inject_limit: 0, ..patient() };
    let got = through(&[REWRITES], policy, vec![Box::new(engine)]);
    assert_eq!([got.left[0].len(), got.left[1].len()], [0, FRAMES as usize]);
    let total = |count| got.run.ledger.total(count);
    let made = u64::from(FRAMES / 50);
    let told = (total(Count::SwitchInjected), total(Count::SwitchInjectLimit), got.run.ledger.lost());
    assert_eq!(told, (made, made, made));
}

/// Flows that the engine has decided for good come to it no more, and nothing of them overtakes.
#[test]
fn flows_that_are_decided_go_past_the_engine() {
    let engine = |engine: Engine| {
        decide(engine, |own, _| {
            Decide::Now(match own % FLOWS {
                1 => Verdict::Blacklist,
                2..8 => Verdict::Whitelist,
                _ => Verdict::Pass,
            })
        });
    };
    // Of the first ones four are blocked, and one is made.
    let got = through_after(&[REWRITES], patient(), vec![Box::new(engine)], AT_ONCE as usize - 4 + 1);
    let there: Vec<Vec<u8>> = got.left[1].iter().filter(|bytes| bytes[46..51] == *b"plain").cloned().collect();
    for flow in 0..FLOWS {
        let of_flow: Vec<u32> = there.iter().map(|bytes| number(bytes)).filter(|own| own % FLOWS == flow).collect();
        let all: Vec<u32> = (0..FRAMES).filter(|own| flow != 1 && own % FLOWS == flow).collect();
        assert_eq!(of_flow, all, "flow {flow}");
    }
    assert!(there.iter().all(|bytes| bytes[22] == 9 && bytes[29] == 7), "with all actions done");
    let total = |count| got.run.ledger.total(count);
    let (listed, skipped) = (total(Count::SwitchListed), total(Count::SwitchSkipped));
    // While frames of others are under way in the block, some go by the ring all the same.
    assert_eq!(listed + total(Count::InlineBlocked), u64::from(FRAMES / FLOWS), "{:#?}", got.run.ledger);
    assert!(listed > 0 && skipped > 0, "{listed} and {skipped} went past it");
    assert_eq!(total(Count::VerdictReceived) + listed + skipped, got.frames);
    assert_eq!(got.run.ledger.lost(), 0, "{:#?}", got.run.ledger);
}

/// One engine behind the other, each with actions in front of it.
#[test]
fn two_engines_in_a_row_are_both_asked() {
    let one = |engine: Engine| {
        decide(engine, |own, _| Decide::Now(if own % 10 == 3 { Verdict::Block } else { Verdict::Pass }));
    };
    let other = |engine: Engine| {
        decide(engine, |own, bytes| {
            assert!(own % 10 != 3 && bytes[22] == 9, "what the first one let pass, with its TTL");
            Decide::Now(if own % 10 == 4 { Verdict::Block } else { Verdict::Pass })
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

/// An engine that goes in the middle, with frames undecided: the policy has them, and the account is whole.
#[test]
fn an_engine_that_goes_leaves_no_frame_open() {
    for (on_death, dropped) in [(Fail::Open, false), (Fail::Closed, true)] {
        let engine = |mut engine: Engine| {
            let mut looked = 0;
            while engine.ended().is_none() && looked < 1000 {
                looked += engine.look(|_, _| Decide::Now(Verdict::Pass));
            }
            // The next ones are held, and nothing is said of them.
            engine.look(|_, _| Decide::Later);
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
