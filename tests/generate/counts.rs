//! Exact packet counts, sent at the requested rate.

use crate::generate::testbed::{SCHEMES, Stage, number};
use linerate_backends::xdp_counter::{CountAction, FrameCounter};
use linerate_backends::{open_rx, open_tx};
use linerate_burst::Horizon;
use linerate_engine::clock::now;
use linerate_engine::streams::{StreamRun, Streams};
use linerate_generate::file;
use linerate_port::{RxOptions, Spec, TxOptions};
use linerate_tests::support::judge;
use linerate_tests::support::program::run;

/// Number of tries: other work may disturb the machine.
const TRIES: usize = 6;

/// Returns true if sending this many frames took the nominal time within 5 %.
fn is_in_time(frames: u64, rate: f64, seconds: f64) -> bool {
    let wanted = (frames - 1) as f64 / rate;
    (seconds - wanted).abs() < 0.05 * wanted
}

#[test]
fn counts_and_gaps_are_exact_by_receive_timestamps() {
    let Some(stage) = Stage::up() else { return };
    for scheme in SCHEMES {
        for (rate, frames) in [(10.0, 5), (1e3, 300), (1e5, 30_000)] {
            let (to, check) = (stage.port(scheme, "a"), stage.checking("b"));
            let (rate_asked, count) = (format!("{rate}pps"), frames.to_string());
            let what = ["generate", "--json", "--to", &to, "--check", &check, "-k", "udp", "-c", &count, "--lossless"];
            let what = [&what[..], &["--rate", &rate_asked]].concat();
            let once = || {
                let json = run(&what).good().json();
                let received = (number(&json, "frames"), number(&json["check"], "received"));
                assert_eq!(received, (frames, frames), "{scheme} {rate}: {json}");
                json["check"]["seconds"].as_f64().unwrap()
            };
            let seconds: Vec<f64> = (0..TRIES).map(|_| once()).take_while(|s| !is_in_time(frames, rate, *s)).collect();
            judge(seconds.len() < TRIES, &format!("{scheme}: {frames} frames at {rate}/s took {seconds:?} s"));
        }
    }
}

#[test]
fn one_million_packets_per_second_arrive_completely() {
    let Some(stage) = Stage::up() else { return };
    let counting = FrameCounter::attach(Some(&stage.0.namespace("b")), "eth0", CountAction::Drop).unwrap();
    let to = stage.port("xdp-live", "a");
    let mut seconds = Vec::new();
    for tries in 1..=TRIES as u64 {
        let what = ["generate", "--json", "--to", &to, "-k", "udp(sport=1024..65535)", "-c", "500000", "--stamp"];
        let json = run(&[&what[..], &["--rate", "1mpps"]].concat()).good().json();
        assert_eq!((number(&json, "frames"), counting.frames()), (500_000, tries * 500_000), "{json}");
        seconds.push(json["seconds"].as_f64().unwrap());
        if is_in_time(500_000, 1e6, seconds[seconds.len() - 1]) {
            return;
        }
    }
    judge(false, &format!("500,000 frames at 1,000,000/s took {seconds:?} s"));
}

/// Packets sent in memory are stamped with their due time, so machine load has no effect.
#[test]
fn one_million_packets_per_second_in_memory_are_on_time() {
    let text = "[[stream]]\npacket = \"udp(sport=1024..65535)\"\nrate = \"1mpps\"\ncount = 300000\n";
    let set = file::streams("memory", text, &file::Setup::default()).unwrap();
    let spec = Spec::parse("mem:counts").unwrap();
    let mut port = open_rx(&spec, &RxOptions::default()).unwrap();
    let streams = Streams::new(&set, open_tx(&spec, &TxOptions::default()).unwrap()).unwrap();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| streams.run(&StreamRun::default()));
        let mut times: Vec<u64> = Vec::new();
        loop {
            let head = port.queues[0].fill(now()).unwrap();
            times.extend(head.burst.descs().iter().map(|desc| desc.time.0));
            let (frames, ended) = (head.burst.len(), head.horizon == Horizon::Ended);
            port.queues[0].consume(frames);
            if ended && frames == 0 {
                break;
            }
            std::thread::yield_now();
        }
        let report = sender.join().unwrap();
        assert!(report.failure.is_none() && report.per_stream == [300_000], "{report:?}");
        assert_eq!(times.len(), 300_000);
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 1000), "a gap that is not 1 us");
    });
}
