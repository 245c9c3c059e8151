//! Sends a stream, and accounts for every received frame: `cargo run --example stream -- mem:a mem:a`.
//! Instead of memory it works with `packet:eth1 packet:eth2` and a cable between them.

use linerate::engine::streams::{StreamRun, Streams};
use linerate::engine::{CheckConsumer, CheckThread, Progress, Receive, Selection, Stop, StreamWatch};
use linerate::generate::check::{Check, Options};
use linerate::generate::file;
use linerate::generate::trailer::Key;
use linerate::port::{RxOptions, Spec, TxOptions, open_rx, open_tx};
use std::error::Error;
use std::time::Duration;

const STREAM: &str = r#"
[[stream]]
packet = "ip(src=10.0.0.1..10.0.0.9, dst=10.0.1.1)/udp(dport=53)"
size = "imix"
rate = "20kpps"
count = 5000
check = "trailer"
"#;

/// Returns the number of frames received.
pub(crate) fn run(to: &str, from: &str) -> Result<u64, Box<dyn Error>> {
    let set = file::streams("the example", STREAM, &file::Setup::default())?;
    let from = open_rx(&Spec::parse(from)?, &RxOptions::default())?;
    let to = open_tx(&Spec::parse(to)?, &TxOptions { stamped: true, ..TxOptions::default() })?;
    let checking = CheckConsumer::new(Check::new(Key::default(), Options::default()), Selection::default());
    let checker = CheckThread::start(checking, Receive::all(vec![from]))?;
    let (progress, watch) = (Progress::new(), StreamWatch::default());
    let sent =
        Streams::new(&set, to)?.run(&StreamRun { duration: None, stop: Stop::new(), progress, watch, at_once: false });
    let sent = sent.sent.frames;
    let report = checker.finish(Some(sent), Duration::from_millis(300), Duration::from_secs(5), &Stop::new());
    // Streams are numbered from 1.
    let summary = report.check.report(Some(&[0, sent])).summary();
    println!("{sent} sent, {} received, {} lost", summary.counts.received, summary.counts.lost);
    println!("latency p99: {:?} ns", summary.delay.latency_p99_ns);
    Ok(summary.counts.received)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let to = words.next().unwrap_or_else(|| "mem:a".to_owned());
    run(&to, &words.next().unwrap_or_else(|| to.clone())).map(|_| ())
}
