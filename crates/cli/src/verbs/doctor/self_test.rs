//! `--self-test`: marked frames through a port, and every byte of them compared where they arrive.

use super::port::quoted;
use crate::exit::usage;
use crate::signals::stop_on_signals;
use crate::verbs::generate::guard;
use crate::view::rates::grouped;
use crate::view::terminal::{show, show_as_is, shown};
use linerate_backends::{REGISTRY, open_rx, open_tx};
use linerate_engine::streams::{Run, Streams};
use linerate_engine::{Checker, Checking, Progress, Receive, Selection, Stop, StreamWatch};
use linerate_generate::check::{Check, Options, Summary};
use linerate_generate::file::{self, Setup};
use linerate_generate::trailer::Key;
use linerate_lab::{Plan, TemporaryLab};
use linerate_port::{RxOptions, Spec, TxOptions};
use serde::Serialize;
use std::time::Duration;

/// What is sent: two seconds of it, which no link and no host minds. The addresses are those for tests (RFC 2544).
const STREAM: &str = r#"
[[stream]]
packet = "eth(src=02:00:00:00:00:0a, dst=02:00:00:00:00:0b)/ip(src=198.18.0.1, dst=198.19.0.1..198.19.0.16)/udp(dport=9)/payload(noise)"
size = "random(80..1518)"
rate = "10kpps"
count = 20000
check = "trailer"
"#;
/// The longest frame of it, without FCS.
const LONGEST: usize = 1514;
/// It is over when so long nothing has come any more, and at the latest so long after the last frame was sent.
const SILENCE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(5);

/// Where frames are sent, and where they are to arrive.
pub(super) struct Way {
    to: Spec,
    from: Spec,
    /// Made for the test, and gone with it.
    _lab: Option<TemporaryLab>,
}

impl Way {
    /// Of the ports that were given: none, one that what it sends comes back to, or two that are joined.
    pub(super) fn of(specs: &[Spec], yes: bool) -> anyhow::Result<Way> {
        let (to, from) = match specs {
            [] => return Way::made(),
            [one] => (one, one),
            [one, other] => (one, other),
            _ => return Err(usage("--self-test sends into one port, and receives from that or a second one")),
        };
        for spec in [to, from] {
            let Some(at) = REGISTRY.interface(spec) else {
                return Err(usage(format!("{spec}: --self-test is for interfaces of this machine, such as eth0")));
            };
            // A namespace may have a card of its own; a pair between namespaces ends here.
            let is_inside = at.option("netns").is_some()
                && guard::interface(spec).is_some_and(|found| ["veth", "dummy"].contains(&found.driver.as_str()));
            if !is_inside && !yes {
                return Err(usage(format!(
                    "{spec}: frames would leave this machine, 10,000 a second for 2 s: give --yes if that is meant"
                )));
            }
        }
        guard::check_length(guard::interface(to).as_ref(), LONGEST)?;
        Ok(Way { to: REGISTRY.for_sending(to)?, from: from.clone(), _lab: None })
    }

    /// A pair of interfaces in namespaces of its own.
    fn made() -> anyhow::Result<Way> {
        let lab = TemporaryLab::up(&Plan::from_links("doctor", vec![Plan::parse_link("left:eth0,right:eth0")?])?)?;
        let port = |host: &str| -> anyhow::Result<Spec> {
            Ok(Spec::parse(&format!("packet:eth0?netns={}", lab.host(host)?))?)
        };
        Ok(Way { to: port("left")?, from: port("right")?, _lab: Some(lab) })
    }

    /// Sends, and accounts for what arrives.
    pub(super) fn test(&self) -> anyhow::Result<Tested> {
        let set = file::streams("the self-test", STREAM, &Setup::default())?;
        let stop = Stop::new();
        // The receiving side first: some ports give their sending half to whoever comes second.
        let options = RxOptions { promiscuous: true, lossless: true, ..RxOptions::default() };
        let from = open_rx(&self.from, &options)?;
        let to = open_tx(&self.to, &TxOptions { stamped: true, ..TxOptions::default() })?;
        crate::privileges::keep("its frames are its own");
        stop_on_signals(&stop)?;
        let checking =
            Checking::new(Check::new(Key::default(), Options { streams: 1, verify: true }), Selection::default());
        let checker = Checker::start(checking, Receive::all(vec![from]))?;
        let run =
            Run { duration: None, stop, progress: Progress::new(), watch: StreamWatch::default(), at_once: false };
        let sent = Streams::new(&set, to)?.run(&run);
        let report = checker.finish(Some(sent.sent.frames), SILENCE, PATIENCE, &run.stop);
        let failures = sent.failure.iter().map(ToString::to_string);
        let failures = failures.chain(report.run.failure.iter().map(ToString::to_string)).collect();
        // By the numbers of streams, which begin at 1.
        let mut by_stream = vec![0; set.streams[0].id as usize + 1];
        by_stream[set.streams[0].id as usize] = sent.sent.frames;
        let summary = report.check.report(Some(&by_stream)).summary();
        Ok(Tested::new(self, sent.sent.frames, &summary, failures))
    }
}

/// What came of it.
#[derive(Debug, Serialize)]
pub(super) struct Tested {
    to: String,
    from: String,
    /// Whether every frame came once, with every byte.
    pub good: bool,
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
    /// The command by which the card gives back what it sends.
    #[serde(skip)]
    loopback: String,
}

impl Tested {
    fn new(way: &Way, sent: u64, summary: &Summary, failures: Vec<String>) -> Self {
        let (counts, delay) = (&summary.counts, &summary.delay);
        let wrong = counts.lost + counts.corrupted + counts.duplicated + counts.reordered + summary.damaged;
        Tested {
            to: way.to.to_string(),
            from: way.from.to_string(),
            good: sent > 0 && counts.received == sent && wrong == 0 && failures.is_empty(),
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
            loopback: loopback(&way.to),
        }
    }

    /// Prints it.
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
            show(format_args!("  latency: {least} us at least, {p99} us for 99 in 100, {most} us at most\n"));
        }
        for failure in &self.failures {
            show(format_args!("  {}\n", shown(failure)));
        }
        if self.received == 0 && self.to == self.from {
            show("  nothing came back: name the port at the other end of the cable too, or have the card loop back\n");
            show_as_is(format!("    {}\n", shown(&self.loopback)).as_bytes());
        }
        show(if self.good {
            "  every frame came once, with every byte\n"
        } else {
            "  NOT every frame came once, with every byte\n"
        });
    }
}

/// The command by which the card of a port gives back what it sends; ports may be wrapped.
fn loopback(to: &Spec) -> String {
    let Some(at) = REGISTRY.interface(to) else { return String::new() };
    let netns = at.option("netns").map_or_else(String::new, |netns| format!("ip netns exec {} ", quoted(netns)));
    format!("{netns}ethtool -K {} loopback on", quoted(&at.target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_about_the_innermost_interface() {
        let of = |port: &str| loopback(&Spec::parse(port).unwrap());
        assert_eq!(of("faulty:packet:eth0?netns=lab-a&drop=1%"), "ip netns exec lab-a ethtool -K eth0 loopback on");
        assert_eq!((of("xdp:e;x@0"), of("mem:x")), ("ethtool -K 'e;x' loopback on".into(), String::new()));
    }
}
