//! Tester with two ports connected by memory.

use super::{DrainingFlows, Tester};
use crate::native_api::stream_spec::{StreamSpec, read_all};
use crate::port::OpenPort;
use linerate_backends::{open_rx, open_tx};
use linerate_burst::LinkType;
use linerate_otg::control::Traffic;
use linerate_otg::metrics::{FlowMetrics, Transmit};
use linerate_port::{RxOptions, Spec, TxOptions};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);

/// Ports p1 and p2; each receives what the other sends.
fn tester(name: &str) -> Tester {
    let open = |own: &str, tx: &str, rx: &str| {
        let spec = |way: &str| Spec::parse(&format!("mem:{name}-{way}")).unwrap();
        let options = TxOptions { queues: 1, stamped: true, owner: None, link: LinkType::ETHERNET };
        OpenPort {
            name: own.to_owned(),
            spec: own.to_owned(),
            tx: open_tx(&spec(tx), &options).unwrap(),
            rx: open_rx(&spec(rx), &RxOptions::default()).unwrap(),
            answers: Err("no interface".to_owned()),
            line: None,
            longest: 9000,
            is_up: Box::new(|| true),
        }
    };
    Tester::new(vec![open("p1", "there", "back"), open("p2", "back", "there")], 7).unwrap()
}

fn streams(all: &[Value]) -> Vec<StreamSpec> {
    read_all(&json!({"streams": all})).unwrap()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn transmit(tester: &mut Tester, state: Traffic, flows: &[usize]) -> Option<DrainingFlows> {
    tester.transmit(state, flows).unwrap_or_else(|faults| panic!("{:?}", faults.lines()))
}

#[test]
fn losses_of_a_stream_do_not_block_while_others_are_sent() {
    let mut tester = tester("settle");
    let stream =
        |name: &str, rx: &str| json!({"name": name, "tx": "p1", "rx": [rx], "packet": "ip/udp", "rate": "2kpps"});
    // Frames sent by p1 never arrive at p1.
    tester.set(streams(&[stream("lost", "p1"), stream("other", "p2"), stream("whole", "p2")])).unwrap();
    transmit(&mut tester, Traffic::Start, &[0, 1, 2]);
    wait_until("all are sent", || (0..3).all(|at| tester.figures(at).tx.frames > 100));
    let mut draining = transmit(&mut tester, Traffic::Stop, &[0]).unwrap();
    let now = Instant::now();
    assert!(!draining.look(&tester, now), "frames may be in flight");
    // The time is fixed: only other frames change.
    let (later, before) = (now + Duration::from_millis(200), tester.figures(1).rx.frames);
    wait_until("the stream has settled", || draining.look(&tester, later));
    wait_until("other streams continue", || tester.figures(1).rx.frames > before + 100);
    let mut draining = transmit(&mut tester, Traffic::Stop, &[2]).unwrap();
    wait_until("all frames have arrived", || draining.look(&tester, now));
    let FlowMetrics { tx, distinct, .. } = tester.figures(2);
    assert_eq!(tx.frames, distinct);
    tester.stop();
}

#[test]
fn streams_restart_beyond_the_table_size_without_loss() {
    let mut tester = tester("numbers").with_room(3, 30);
    let brief =
        |name: &str| json!({"name": name, "tx": "p1", "rx": ["p2"], "packet": "ip/udp", "rate": "10kpps", "count": 10});
    let forever = json!({"name": "forever", "tx": "p1", "rx": ["p2"], "packet": "ip/udp", "rate": "1kpps"});
    tester.set(streams(&[brief("brief"), forever, brief("gone")])).unwrap();
    transmit(&mut tester, Traffic::Start, &[1]);
    let has_arrived = |tester: &Tester| {
        let figures = tester.figures(0);
        figures.transmit == Transmit::Stopped && figures.distinct == 10 && figures.missing == 0
    };
    for round in 0..10 {
        transmit(&mut tester, Traffic::Start, &[0, 2]);
        wait_until(&format!("round {round} has arrived"), || has_arrived(&tester));
        wait_until("the other stream ends too", || !tester.is_active(2));
        // A stream with the same name gets a new account, and so does a stopped one.
        tester.amend(streams(&[brief("gone")]), &[]).unwrap();
    }
    let lost = tester.figures(1);
    assert_eq!(lost.missing, 0, "{lost:?}");
    // All ids except for one start are used.
    for _ in 0..4 {
        transmit(&mut tester, Traffic::Start, &[0, 2]);
        wait_until("they have ended", || !tester.is_active(0) && !tester.is_active(2));
    }
    let refused = tester.transmit(Traffic::Start, &[0, 2]).unwrap_err().lines();
    assert!(refused[0].contains("stop all of them once"), "{refused:?}");
    transmit(&mut tester, Traffic::Stop, &[1]);
    transmit(&mut tester, Traffic::Start, &[0, 2]);
    wait_until("frames arrive again", || has_arrived(&tester));
}

#[test]
fn devices_need_a_port_for_replies() {
    let mut tester = tester("devices");
    let device = json!({"name": "d", "ethernets": [{"name": "e", "mac": "02:00:00:00:00:01", "connection": {"port_name": "b"},
        "ipv4_addresses": [{"name": "a", "address": "10.0.0.1", "gateway": "10.0.0.2"}]}]});
    let ports = json!([{"name": "a", "location": "p1"}, {"name": "b", "location": "p2"}]);
    let text = json!({"ports": ports, "devices": [device]}).to_string();
    let refused = tester.configure(&text).unwrap_err().lines();
    assert_eq!(refused, ["devices: not possible at b: no interface"]);
    assert_eq!(tester.text(), "{}", "nothing changed");
    tester.stop();
}
