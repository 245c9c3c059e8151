//! `--self-test`: sends test packets through a port and compares every byte where they arrive.

use super::port::quoted;
use crate::exit::usage;
use crate::privileges::Session;
use crate::signals::stop_on_signals;
use crate::verbs::generate::preflight;
use crate::view::rates::grouped;
use crate::view::terminal::{show, show_as_is, shown};
use linerate_backends::{REGISTRY, open_rx, open_tx};
use linerate_engine::streams::{StreamRun, Streams};
use linerate_engine::{CheckConsumer, CheckThread, Progress, Receive, Selection, StreamWatch};
use linerate_generate::check::{Check, CheckSummary, Options};
use linerate_generate::file::{self, Setup};
use linerate_generate::trailer::Key;
use linerate_lab::{Plan, TemporaryLab};
use linerate_port::{RxOptions, Spec, TxOptions};
use serde::Serialize;
use std::time::Duration;

/// Stream of the test: two seconds at a rate that any link and host can take. Addresses are those of RFC 2544.
const STREAM: &str = r#"
[[stream]]
packet = "eth(src=02:00:00:00:00:0a, dst=02:00:00:00:00:0b)/ip(src=198.18.0.1, dst=198.19.0.1..198.19.0.16)/udp(dport=9)/payload(noise)"
size = "random(80..1518)"
rate = "10kpps"
count = 20000
check = "trailer"
"#;
/// Its longest frame, without FCS.
const LONGEST: usize = 1514;
/// The test ends when no frame was received for this long ...
const SILENCE: Duration = Duration::from_millis(500);
/// ... and at the latest this long after the last frame was sent.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sending and receiving port of the test.
pub(super) struct TestPath {
    to: Spec,
    from: Spec,
    /// Temporary lab, removed on drop.
    _lab: Option<TemporaryLab>,
}

impl TestPath {
    /// Takes the given ports: none (temporary pair), one with a loopback, or two that are connected.
    pub(super) fn of(specs: &[Spec], yes: bool) -> anyhow::Result<TestPath> {
        let (to, from) = match specs {
            [] => return TestPath::made(),
            [one] => (one, one),
            [one, other] => (one, other),
            _ => return Err(usage("--self-test takes at most two ports: one port sends, that or the other receives")),
        };
        for spec in [to, from] {
            let Some(at) = REGISTRY.interface(spec) else {
                return Err(usage(format!("{spec}: --self-test needs interfaces of this host, such as eth0")));
            };
            // A namespace may contain a card; a veth pair stays on this host.
            let is_inside = at.option("netns").is_some()
                && preflight::interface(spec).is_some_and(|found| ["veth", "dummy"].contains(&found.driver.as_str()));
            if !is_inside && !yes {
                return Err(usage(format!(
                    "{spec}: 10,000 packets per second would leave this host for 2 s; confirm with --yes"
                )));
            }
        }
        preflight::check_length(preflight::interface(to).as_ref(), LONGEST)?;
        Ok(TestPath { to: REGISTRY.for_sending(to)?, from: from.clone(), _lab: None })
    }

    /// Creates a veth pair in temporary namespaces.
    fn made() -> anyhow::Result<TestPath> {
        let lab = TemporaryLab::up(&Plan::from_links("doctor", vec![Plan::parse_link("left:eth0,right:eth0")?])?)?;
        let port = |host: &str| -> anyhow::Result<Spec> {
            Ok(Spec::parse(&format!("packet:eth0?netns={}", lab.host(host)?))?)
        };
        Ok(TestPath { to: port("left")?, from: port("right")?, _lab: Some(lab) })
    }

    /// Sends, and checks what arrives.
    pub(super) fn test(&self) -> anyhow::Result<SelfTestResult> {
        let set = file::streams("the self-test", STREAM, &Setup::default())?;
        // The receiving side first: on some ports the second open gets the sending half.
        let options = RxOptions { promiscuous: true, lossless: true, ..RxOptions::default() };
        let from = open_rx(&self.from, &options)?;
        let to = open_tx(&self.to, &TxOptions { stamped: true, ..TxOptions::default() })?;
        let stop = stop_on_signals(&Session::keeping("it handles only its own packets"))?;
        let checking =
            CheckConsumer::new(Check::new(Key::default(), Options { streams: 1, verify: true }), Selection::default());
        let checker = CheckThread::start(checking, Receive::all(vec![from]))?;
        let run = StreamRun {
            duration: None,
            stop,
            progress: Progress::new(),
            watch: StreamWatch::default(),
            at_once: false,
        };
        let sent = Streams::new(&set, to)?.run(&run);
        let report = checker.finish(Some(sent.sent.frames), SILENCE, PATIENCE, &run.stop);
        let failures = sent.failure.iter().map(ToString::to_string);
        let failures = failures.chain(report.run.failure.iter().map(ToString::to_string)).collect();
        // Indexed by stream number, starting at 1.
        let mut by_stream = vec![0; set.streams[0].id as usize + 1];
        by_stream[set.streams[0].id as usize] = sent.sent.frames;
        let summary = report.check.report(Some(&by_stream)).summary();
        Ok(SelfTestResult::new(self, sent.sent.frames, &summary, failures))
    }
}

/// Result of the self-test.
#[derive(Debug, Serialize)]
pub(super) struct SelfTestResult {
    to: String,
    from: String,
    /// True if every packet arrived once, unchanged.
    pub ok: bool,
    sent: u64,
    received: u64,
    lost: u64,
    corrupted: u64,
    damaged: u64,
    duplicated: u64,
    reordered: u64,
    latency_min_ns: Option<i64>,
    latency_p99_ns: Option<i64>,
    latency_max_ns: Option<i64>,
    failures: Vec<String>,
    /// Command that turns on the loopback of the card.
    #[serde(skip)]
    loopback: String,
}

impl SelfTestResult {
    fn new(path: &TestPath, sent: u64, summary: &CheckSummary, failures: Vec<String>) -> Self {
        let (counts, delay) = (&summary.counts, &summary.delay);
        let wrong = counts.lost + counts.corrupted + counts.duplicated + counts.reordered + summary.damaged;
        SelfTestResult {
            to: path.to.to_string(),
            from: path.from.to_string(),
            ok: sent > 0 && counts.received == sent && wrong == 0 && failures.is_empty(),
            sent,
            received: counts.received,
            lost: sent.saturating_sub(counts.received),
            corrupted: counts.corrupted,
            damaged: summary.damaged,
            duplicated: counts.duplicated,
            reordered: counts.reordered,
            latency_min_ns: delay.latency_min_ns,
            latency_p99_ns: delay.latency_p99_ns,
            latency_max_ns: delay.latency_max_ns,
            failures,
            loopback: loopback(&path.to),
        }
    }

    /// Prints the result.
    pub(super) fn print(&self) {
        show(format_args!("\nself-test: {} to {}\n", shown(&self.to), shown(&self.from)));
        show(format_args!(
            "  {} sent, {} received, {} lost, {} corrupted, {} duplicated, {} reordered\n",
            grouped(self.sent),
            grouped(self.received),
            grouped(self.lost),
            grouped(self.corrupted + self.damaged),
            grouped(self.duplicated),
            grouped(self.reordered)
        ));
        let us = |ns: Option<i64>| ns.map_or("?".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e3));
        if self.received > 0 {
            let (least, p99, most) = (us(self.latency_min_ns), us(self.latency_p99_ns), us(self.latency_max_ns));
            show(format_args!("  latency: min {least} us, p99 {p99} us, max {most} us\n"));
        }
        for failure in &self.failures {
            show(format_args!("  {}\n", shown(failure)));
        }
        if self.received == 0 && self.to == self.from {
            show("  nothing received: name the port at the other end of the cable too, or turn on loopback:\n");
            show_as_is(format!("    {}\n", shown(&self.loopback)).as_bytes());
        }
        show(if self.ok {
            "  passed: every packet arrived once, unchanged\n"
        } else {
            "  FAILED: not every packet arrived once, unchanged\n"
        });
    }
}

/// Returns the command that turns on the loopback of the card of a port, which may be wrapped.
fn loopback(to: &Spec) -> String {
    let Some(at) = REGISTRY.interface(to) else { return String::new() };
    let netns = at.option("netns").map_or_else(String::new, |netns| format!("ip netns exec {} ", quoted(netns)));
    format!("{netns}ethtool -K {} loopback on", quoted(&at.target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_names_the_innermost_interface() {
        let of = |port: &str| loopback(&Spec::parse(port).unwrap());
        assert_eq!(of("faulty:packet:eth0?netns=lab-a&drop=1%"), "ip netns exec lab-a ethtool -K eth0 loopback on");
        assert_eq!((of("xdp:e;x@0"), of("mem:x")), ("ethtool -K 'e;x' loopback on".into(), String::new()));
    }
}
