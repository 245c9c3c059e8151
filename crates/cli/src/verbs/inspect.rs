//! `linerate inspect`: an engine that decides on the packets of an inline ring by filters.

use super::inputs::{UserArgs, span};
use super::report_options::MetricsArgs;
use crate::exit::{Exit, usage};
use crate::signals::stop_on_signals;
use crate::view::rates::{counted, grouped};
use crate::view::terminal::{fail, print_stderr, show, show_document, shown};
use anyhow::anyhow;
use linerate_burst::text::quoted;
use linerate_burst::{Count, LinkType, Stage};
use linerate_engine::Stop;
use linerate_engine::metrics::source;
use linerate_filter::Filter;
use linerate_port::Spec;
use linerate_share::{AttachOptions, End, Engine, Error, UndecidedFrame, Verdict, VerdictReply};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Options of `linerate inspect`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # block DNS in the ring ids of linerate inline; other packets pass
  linerate inspect shm:ids --drop 'udp port 53'
  # block connections to port 23 without inspecting their later packets
  linerate inspect shm:ids --blacklist 'tcp port 23'
  # for linerate inline --engine ids; all packets pass
  linerate inspect shm:ids --name ids
While no engine is attached, --on-death of linerate inline applies.")]
pub struct Args {
    /// Ring of linerate inline --share
    #[arg(value_name = "shm:NAME")]
    ring: String,
    /// Block packets that match this filter (pcap-filter syntax); all others pass
    #[arg(long, value_name = "TEXT")]
    drop: Option<String>,
    /// Block packets that match this filter and all later packets of their flows, without inspecting these
    #[arg(long, value_name = "TEXT")]
    blacklist: Option<String>,
    /// Name of this engine, for linerate inline --engine NAME
    #[arg(long, value_name = "NAME", default_value = "linerate")]
    name: String,
    /// Stop after S seconds
    #[arg(short = 'T', long, value_name = "S")]
    duration: Option<f64>,
    /// Busy-poll for packets: lowest latency, one full core
    #[arg(long)]
    spin: bool,
    /// Accept a ring shared by a user other than root and you
    #[arg(long)]
    trust: bool,
    /// Print one JSON document at the end (schema linerate/inspect/1)
    #[arg(long)]
    json: bool,
    /// Print errors only
    #[arg(short = 'q', long, conflicts_with = "json")]
    quiet: bool,
    #[command(flatten)]
    user: UserArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// Maximum wait for packets, after which stop requests and time limits are checked.
const NAP: Duration = Duration::from_millis(10);
/// Busy-polling time before sleeping.
const SPIN: Duration = Duration::from_micros(50);

/// A filter, compiled for the link types of inline ports.
struct Rules {
    ethernet: Option<Filter>,
    raw: Option<Filter>,
}

/// Filters, in the order in which they apply.
struct Filters {
    blacklist: Rules,
    drop: Rules,
}

/// Counters of the run for metrics.
const METRICS: [(Stage, Count); 6] = [
    (Stage::Receive, Count::Received),
    (Stage::Receive, Count::Delivered),
    (Stage::Receive, Count::Skipped),
    (Stage::Verdict, Count::VerdictReceived),
    (Stage::Verdict, Count::InlinePassed),
    (Stage::Verdict, Count::InlineBlocked),
];

/// `linerate/inspect/1`.
#[derive(Default, Serialize)]
struct InspectJson {
    schema: &'static str,
    ring: String,
    /// Packets inspected, and their verdicts.
    looked: u64,
    passed: u64,
    blocked: u64,
    /// Packets already decided, by timeout or flow.
    settled: u64,
    /// Packets not inspected because this engine was too slow.
    skipped: u64,
    seconds: f64,
    /// Reason for the end.
    end: &'static str,
}

/// Runs the engine.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let spec = Spec::parse(&args.ring).map_err(usage)?;
    if spec.scheme != "shm" || spec.queues.is_some() || !spec.options.is_empty() {
        return Err(usage(format!("{}: not a ring; expected shm:NAME, such as shm:ids", args.ring)));
    }
    let asked =
        Filters { blacklist: Rules::compile(args.blacklist.as_deref())?, drop: Rules::compile(args.drop.as_deref())? };
    let duration = args.duration.map(|s| span("--duration", s)).transpose()?;
    let identity = args.user.identity(false)?;
    let attach = AttachOptions { name: args.name.clone(), trust: args.trust, ..AttachOptions::default() };
    let engine = attach.engine(&spec.target).map_err(|error| match error {
        Error::Absent { address } => {
            anyhow!("{address}: not shared; start linerate inline PORT PORT --share {} (a name is valid in one network namespace, a path in all)", quoted(&address))
        }
        error => error.into(),
    })?;
    let session = identity.assume()?.confine(&[]);
    let stop = stop_on_signals(&session)?;
    if !args.quiet && !args.json {
        let filter = |what: &str, text: &Option<String>| text.as_deref().map(|text| format!("{what}: {text}"));
        let what = [filter("blacklist", &args.blacklist), filter("drop", &args.drop)];
        let what: Vec<String> = what.into_iter().flatten().collect();
        let what = if what.is_empty() { "all packets pass".into() } else { what.join("; ") };
        print_stderr(format_args!("{}\n", shown(&format!("inspecting {spec}: {what}"))));
        session.notes().iter().for_each(|note| print_stderr(format_args!("  {}\n", shown(note))));
    }
    let report = args.decide(engine, &asked, duration, &stop);
    args.conclude(&report)
}

impl Args {
    fn decide(&self, mut engine: Engine, asked: &Filters, duration: Option<Duration>, stop: &Stop) -> InspectJson {
        let begun = Instant::now();
        let (mut passed, mut blocked) = (0, 0);
        let mut quiet_since = begun;
        let (so_far, ring) = (Arc::new([const { AtomicU64::new(0) }; METRICS.len()]), self.ring.clone());
        let counts = Arc::clone(&so_far);
        let _source = source(move |ledger| {
            for ((stage, count), so_far) in METRICS.iter().zip(&*counts) {
                ledger.account(*stage, &ring).add(*count, so_far.load(Ordering::Relaxed));
            }
        });
        let _metrics = self.metrics.serve(self.quiet || self.json);
        while engine.ended().is_none() && !stop.is_requested() && duration.is_none_or(|limit| begun.elapsed() < limit) {
            let looked = engine.look(|seen, _| {
                let verdict = asked.verdict(seen);
                *if verdict == Verdict::Pass { &mut passed } else { &mut blocked } += 1;
                VerdictReply::Now(verdict)
            });
            let (all, skipped) = (engine.looked(), engine.skipped());
            for (so_far, now) in so_far.iter().zip([all + skipped, all, skipped, passed + blocked, passed, blocked]) {
                so_far.store(now, Ordering::Relaxed);
            }
            if looked > 0 {
                quiet_since = Instant::now();
            } else if self.spin || quiet_since.elapsed() < SPIN {
                std::hint::spin_loop();
            } else {
                let mut waits = [PollFd::from_borrowed_fd(engine.wake(), PollFlags::IN)];
                // An interrupted wait counts as finished.
                let _ = poll(&mut waits, Some(&Timespec { tv_sec: 0, tv_nsec: NAP.subsec_nanos().into() }));
            }
        }
        InspectJson {
            schema: "linerate/inspect/1",
            ring: self.ring.clone(),
            looked: engine.looked(),
            passed,
            blocked,
            settled: engine.settled(),
            skipped: engine.skipped(),
            seconds: begun.elapsed().as_secs_f64(),
            end: match engine.ended() {
                None => "stopped",
                Some(End::InOrder | End::Detached) => "ended",
                Some(End::Died) => "died",
                Some(End::Evicted) => "evicted",
                Some(End::Broken(_)) => "broken",
            },
        }
    }

    fn conclude(&self, report: &InspectJson) -> anyhow::Result<Exit> {
        if self.json {
            show_document(report)?;
        } else if !self.quiet {
            let InspectJson { looked, passed, blocked, settled, skipped, .. } = report;
            let looked = counted(*looked, "packet");
            let [passed, blocked, settled, skipped] =
                [passed, blocked, settled, skipped].map(|frames| grouped(*frames));
            show(format!(
                "{looked} inspected: {passed} passed, {blocked} blocked, {settled} already decided\n  \
                 {skipped} skipped because this engine was too slow\n"
            ));
        }
        let reason = match report.end {
            "died" => "linerate inline died",
            "evicted" => "this engine was evicted for a protocol error; see the messages of linerate inline",
            "broken" => "invalid data in the ring",
            _ => return Ok(Exit::Done),
        };
        fail(format!("{}: {reason}", self.ring));
        Ok(Exit::Failed)
    }
}

impl Filters {
    fn verdict(&self, seen: &UndecidedFrame<'_>) -> Verdict {
        match () {
            () if self.blacklist.select(seen) => Verdict::Blacklist,
            () if self.drop.select(seen) => Verdict::Block,
            () => Verdict::Pass,
        }
    }
}

impl Rules {
    /// Reports errors before anything is opened. A filter may be invalid for packets without a link header.
    fn compile(text: Option<&str>) -> anyhow::Result<Rules> {
        let Some(text) = text else { return Ok(Rules { ethernet: None, raw: None }) };
        let ethernet = Filter::compile(text, LinkType::ETHERNET.0).map_err(usage)?;
        Ok(Rules { ethernet: Some(ethernet), raw: Filter::compile(text, LinkType::RAW.0).ok() })
    }

    fn select(&self, seen: &UndecidedFrame<'_>) -> bool {
        let filter = match seen.interface.link {
            LinkType::ETHERNET => &self.ethernet,
            _ => &self.raw,
        };
        filter.as_ref().is_some_and(|filter| filter.matches(seen.bytes, seen.desc.wire))
    }
}
