//! `linerate inspect`: an engine that decides about the frames of an inline ring by filter text.

use super::inputs::span;
use super::show::MetricsArgs;
use crate::exit::{Exit, usage};
use crate::privileges::Identity;
use crate::signals::stop_on_signals;
use crate::view::rates::{counted, grouped};
use crate::view::terminal::{fail, show, show_document, shown, tell};
use anyhow::anyhow;
use linerate_burst::text::quoted;
use linerate_burst::{Count, LinkType, Stage};
use linerate_engine::Stop;
use linerate_engine::metrics::source;
use linerate_filter::Filter;
use linerate_port::Spec;
use linerate_share::{Attach, Decide, End, Engine, Error, Seen, Verdict};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Options of `linerate inspect`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # every frame that linerate inline shares as ids passes, but DNS
  linerate inspect shm:ids --drop 'udp port 53'
  # connections to port 23 are cut off: of their later frames nobody is asked
  linerate inspect shm:ids --blacklist 'tcp port 23'
  # for linerate inline --engine ids; every frame passes
  linerate inspect shm:ids --name ids
While no engine is there, linerate inline does as its --on-death says.")]
pub struct Args {
    /// The ring, as linerate inline shares it
    #[arg(value_name = "shm:NAME")]
    ring: String,
    /// Block frames that match this filter (as of tcpdump); all others pass
    #[arg(long, value_name = "TEXT")]
    drop: Option<String>,
    /// Block frames that match this filter, and all later frames of their flows, which do not come here any more
    #[arg(long, value_name = "TEXT")]
    blacklist: Option<String>,
    /// The name of this engine, where linerate inline was started with --engine NAME
    #[arg(long, value_name = "NAME", default_value = "linerate")]
    name: String,
    /// Stop after this many seconds
    #[arg(short = 't', long, alias = "seconds", value_name = "S")]
    duration: Option<f64>,
    /// Never sleep while waiting for frames: least delay, a whole core
    #[arg(long)]
    spin: bool,
    /// Attach even if neither root nor you share the ring
    #[arg(long)]
    trust: bool,
    /// Print one JSON document at the end (schema linerate/inspect/1)
    #[arg(long)]
    json: bool,
    /// Say nothing but errors
    #[arg(short = 'q', long, conflicts_with = "json")]
    quiet: bool,
    /// Go on as this user once attached (default: whoever called sudo, doas or pkexec)
    #[arg(short = 'Z', long, value_name = "USER")]
    user: Option<String>,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// The longest wait for frames, so that stop requests and time limits are seen.
const NAP: Duration = Duration::from_millis(10);
/// How long to look again before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// Filter text for frames of the links that two joined ports can have.
struct Rules {
    ethernet: Option<Filter>,
    raw: Option<Filter>,
}

/// What is looked for, in this order.
struct Asked {
    blacklist: Rules,
    drop: Rules,
}

/// What goes into the ledger of those who collect counters, as the run has counted it so far.
const TOLD: [(Stage, Count); 6] = [
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
    /// Frames that were looked at, and what was said of them.
    looked: u64,
    passed: u64,
    blocked: u64,
    /// Frames that nobody waited for any more.
    settled: u64,
    /// Frames that were not shown, because this engine was too slow.
    skipped: u64,
    seconds: f64,
    /// Why no more came.
    end: &'static str,
}

/// Decides.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let spec = Spec::parse(&args.ring).map_err(usage)?;
    if spec.scheme != "shm" || spec.queues.is_some() || !spec.options.is_empty() {
        return Err(usage(format!("{}: an engine reads a ring, as in shm:ids", args.ring)));
    }
    let asked =
        Asked { blacklist: Rules::compile(args.blacklist.as_deref())?, drop: Rules::compile(args.drop.as_deref())? };
    let duration = args.duration.map(|s| span("--duration", s)).transpose()?;
    let identity = Identity::choose(args.user.as_deref(), false)?;
    let attach = Attach { name: args.name.clone(), trust: args.trust, ..Attach::default() };
    let engine = attach.engine(&spec.target).map_err(|error| match error {
        Error::Absent { address } => {
            anyhow!("nobody shares {address}: `linerate inline PORT PORT --share {}` would; a name is of one network namespace, a path of all", quoted(&address))
        }
        error => error.into(),
    })?;
    let notes = identity.assume()?.confine(&[]);
    let stop = Stop::new();
    stop_on_signals(&stop)?;
    if !args.quiet && !args.json {
        let said = |what: &str, text: &Option<String>| text.as_deref().map(|text| format!("{what}: {text}"));
        let what = [said("blacklisted", &args.blacklist), said("blocked", &args.drop)];
        let what: Vec<String> = what.into_iter().flatten().collect();
        let what = if what.is_empty() { "every frame passes".into() } else { what.join("; ") };
        tell(format_args!("{}\n", shown(&format!("deciding on {spec}: {what}"))));
        notes.iter().for_each(|note| tell(format_args!("  {}\n", shown(note))));
    }
    let said = args.decide(engine, &asked, duration, &stop);
    args.conclude(&said)
}

impl Args {
    fn decide(&self, mut engine: Engine, asked: &Asked, duration: Option<Duration>, stop: &Stop) -> InspectJson {
        let begun = Instant::now();
        let (mut passed, mut blocked) = (0, 0);
        let mut quiet_since = begun;
        let (so_far, ring) = (Arc::new([const { AtomicU64::new(0) }; TOLD.len()]), self.ring.clone());
        let told = Arc::clone(&so_far);
        let _source = source(move |ledger| {
            for ((stage, count), so_far) in TOLD.iter().zip(&*told) {
                ledger.account(*stage, &ring).add(*count, so_far.load(Ordering::Relaxed));
            }
        });
        let _told = self.metrics.tell(self.quiet || self.json);
        while engine.ended().is_none() && !stop.is_requested() && duration.is_none_or(|limit| begun.elapsed() < limit) {
            let looked = engine.look(|seen, _| {
                let verdict = asked.verdict(seen);
                *if verdict == Verdict::Pass { &mut passed } else { &mut blocked } += 1;
                Decide::Now(verdict)
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
                // An interrupted wait is as good as a finished one.
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

    fn conclude(&self, said: &InspectJson) -> anyhow::Result<Exit> {
        if self.json {
            show_document(said)?;
        } else if !self.quiet {
            let InspectJson { looked, passed, blocked, settled, skipped, .. } = said;
            let looked = counted(*looked, "frame");
            let [passed, blocked, settled, skipped] =
                [passed, blocked, settled, skipped].map(|frames| grouped(*frames));
            show(format!(
                "{looked} looked at: {passed} passed, {blocked} blocked, {settled} settled before\n  \
                 {skipped} not shown, because this engine was too slow\n"
            ));
        }
        let reason = match said.end {
            "died" => "whoever shared it died",
            "evicted" => "whoever shares it put this engine out, and says why: a defect of one of the two",
            "broken" => "whoever shares it broke the format",
            _ => return Ok(Exit::Done),
        };
        fail(format!("{}: {reason}", self.ring));
        Ok(Exit::Failed)
    }
}

impl Asked {
    fn verdict(&self, seen: &Seen<'_>) -> Verdict {
        match () {
            () if self.blacklist.select(seen) => Verdict::Blacklist,
            () if self.drop.select(seen) => Verdict::Block,
            () => Verdict::Pass,
        }
    }
}

impl Rules {
    /// Mistakes are found before anything is opened; a text may mean nothing for packets without a link header.
    fn compile(text: Option<&str>) -> anyhow::Result<Rules> {
        let Some(text) = text else { return Ok(Rules { ethernet: None, raw: None }) };
        let ethernet = Filter::compile(text, LinkType::ETHERNET.0).map_err(usage)?;
        Ok(Rules { ethernet: Some(ethernet), raw: Filter::compile(text, LinkType::RAW.0).ok() })
    }

    fn select(&self, seen: &Seen<'_>) -> bool {
        let filter = match seen.interface.link {
            LinkType::ETHERNET => &self.ethernet,
            _ => &self.raw,
        };
        filter.as_ref().is_some_and(|filter| filter.matches(seen.bytes, seen.desc.wire))
    }
}
