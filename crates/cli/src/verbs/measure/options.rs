//! Options of `linerate measure`, and their search goals.

use crate::exit::usage;
use crate::privileges::Identity;
use crate::verbs::generate::answer::AnswerArgs;
use crate::verbs::generate::line;
use crate::verbs::inputs::UserArgs;
use crate::verbs::report_options::{MetricsArgs, MetricsServer};
use clap::builder::RangedU64ValueParser;
use linerate_generate::rate::RequestedRate;
use linerate_measure::{Goal, goal};
use std::path::PathBuf;

/// Options of `linerate measure`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # the rate without loss (NDR) and with 0.5 % of loss (PDR), as in CSIT
  linerate measure --to eth1 --check eth2
  # RFC 2544 in full (takes hours); and shortened, in both directions
  linerate measure --to eth1 --check eth2 --method rfc2544 --size rfc2544 \\
    -w report.html -w report.json
  linerate measure --to eth1 --check eth2 --method rfc2544 --short --both
  # a quick estimate with trials of 0.1 s
  linerate measure --to eth1 --check eth2 --size 64 --width 5% \\
    --trial 0.1 --sum 0.5
  # the buffer size of a device, by the longest bursts at 1 M packets/s
  linerate measure --to eth1 --check eth2 --method rfc2544 --short \\
    --tests back-to-back --max 1mpps
  # eight hours at one rate
  linerate measure --to eth1 --check eth2 --method soak --rate 500kpps \\
    --size 256 -T 28800 -w night.html
  # through a router
  linerate measure --to eth1 --check eth2 --answer --both \\
    --gateway 10.60.0.1,10.60.1.1 \\
    -k 'ip(src=10.60.0.2,dst=10.60.1.2)/udp'
Values of --goal, separated by commas; one search serves all of them:
  rfc2544        throughput of RFC 2544: no loss in 60 s
  rfc2544-short  the same, with shorter trials (from 1 s) during the search
  tst009         no loss in one of two trials of 60 s
  ndr            no loss in 11 of 21 trials of 1 s
  pdr            at most 0.5 % loss in 11 of 21 trials of 1 s
  own            as ndr, with --loss and --exceed
docs/guide/measure.md lists the supported parts of each RFC.")]
pub struct Args {
    /// Port to send to
    #[arg(long, value_name = "PORT")]
    pub to: String,
    /// Port to receive on
    #[arg(long, value_name = "PORT")]
    pub check: String,
    /// Name of the device under test, for reports
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Measure both directions at once; the reverse direction has source and destination swapped
    #[arg(long)]
    pub both: bool,
    /// Packet to send, such as 'ip(dst=10.0.0.1..10.0.0.9)/udp' (docs/streams.md); repeatable, sent in turn
    /// [default: one UDP flow from 198.18.0.1 to 198.19.0.1]
    #[arg(short = 'k', long, value_name = "PACKET")]
    pub packet: Vec<String>,
    /// TOML file of streams to send (docs/streams.md), with their sizes; the load is shared by the ratio of their rates
    #[arg(long, value_name = "FILE", conflicts_with_all = ["packet", "ipv6", "size", "seed"])]
    pub streams: Option<PathBuf>,
    /// Send UDP over IPv6, with addresses of RFC 5180
    #[arg(long, conflicts_with = "packet")]
    pub ipv6: bool,
    /// Frame sizes with FCS, measured in turn: bytes, rfc2544 (7 sizes from 64 to 1518), rfc5180 (7 sizes from 82), or
    /// jumbo (5 sizes from 1522 to 9216)
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "64,512,1518", value_parser = Sizes::parse)]
    pub size: Vec<Sizes>,
    /// Seed of all random choices in packets
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub(super) method: MethodArgs,
    #[command(flatten)]
    pub(super) goals: GoalArgs,
    /// Maximum rate to offer [default: what the tester can send (see --warm-up), at most the line rate]
    #[arg(long, value_name = "RATE")]
    pub max: Option<RequestedRate>,
    /// Minimum rate to offer [default: 1/10000 of the maximum]
    #[arg(long, value_name = "RATE")]
    pub min: Option<RequestedRate>,
    /// Line rate that percentages refer to, such as 10gbps [default: the link speed]
    #[arg(long, value_name = "RATE", value_parser = line)]
    pub line: Option<f64>,
    /// Duration of the warm-up in seconds, at the maximum rate or --max; not in the results [default: 1; 0 with --max]
    #[arg(long, value_name = "S")]
    pub warm_up: Option<f64>,
    /// Pause between trials in seconds [default: 0.5; 5 with rfc2544]
    #[arg(long, value_name = "S")]
    pub settle: Option<f64>,
    /// Stop after S seconds with the results so far; a running trial is finished first
    #[arg(help_heading = "Run and report", short = 'T', long = "duration", value_name = "S")]
    pub duration: Option<f64>,
    /// Send nothing: print the estimated duration of each test
    #[arg(help_heading = "Run and report", long)]
    pub dry_run: bool,
    /// With --check xdp:PORT: divert packets from this host even if it uses the interface
    #[arg(help_heading = "Run and report", long)]
    pub take: bool,
    /// Before each trial send a few packets from the --check port, so that a bridge learns the addresses (RFC 2544, 23)
    #[arg(help_heading = "Run and report", long)]
    pub learn: bool,
    /// Number of sending threads, with one TX queue each
    #[arg(help_heading = "Run and report", long, value_name = "N", default_value_t = 1, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    pub threads: usize,
    #[command(flatten)]
    pub(super) answer: AnswerArgs,
    #[command(flatten)]
    pub(super) end: EndArgs,
}

/// Options for methods and tests.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Methods")]
pub(super) struct MethodArgs {
    /// Method of measurement
    #[arg(long, value_enum, default_value_t = Method::Search)]
    pub method: Method,
    /// With --method rfc2544: tests to run [default: all except reset]
    #[arg(long, value_enum, value_name = "TESTS", value_delimiter = ',')]
    pub tests: Vec<Test>,
    /// With --method rfc2544: fewer and shorter trials; marked in the report
    #[arg(long)]
    pub short: bool,
    /// Repetitions [default: latency 20, back-to-back 50, recovery 3, reset 1, mrr 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub repeat: Option<u32>,
    /// Number of load steps of the frame loss rate test, from the maximum down [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=1000))]
    pub steps: Option<u32>,
    /// Maximum length of bursts in seconds [default: 2]
    #[arg(long, value_name = "S")]
    pub burst_limit: Option<f64>,
    /// Shell command that resets the device, for the test reset; run once per trial
    #[arg(long, value_name = "COMMAND")]
    pub reset_with: Option<String>,
    /// With --method search: also measure latency at 0.1, 10, 50 and 90 % of the result of the last goal
    #[arg(long)]
    pub latency: bool,
    /// With --method soak: load
    #[arg(long, value_name = "RATE")]
    pub rate: Option<RequestedRate>,
    /// With --method soak: maximum p99 latency in milliseconds
    #[arg(long, value_name = "MS")]
    pub max_latency: Option<f64>,
    /// With --method y1564: TOML file of services (docs/guide/measure.md)
    #[arg(long, value_name = "FILE")]
    pub services: Option<PathBuf>,
    /// With --method y1564: duration of the performance test in seconds, 0 to skip it [default: 900]
    #[arg(long, value_name = "S")]
    pub performance: Option<f64>,
}

/// Options for search goals and trials.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Goals and trials")]
pub(super) struct GoalArgs {
    /// With --method search: goals of the search [default: ndr,pdr]
    #[arg(long, value_name = "GOALS", value_delimiter = ',', value_parser = named)]
    pub goal: Vec<Goal>,
    /// Duration of a trial in seconds [default: by goal or method]
    #[arg(long, value_name = "S")]
    pub trial: Option<f64>,
    /// Total duration of the trials per load in seconds [default: by goal]
    #[arg(long, value_name = "S")]
    pub sum: Option<f64>,
    /// Precision of the result [default: by goal]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub width: Option<f64>,
    /// Maximum loss: with --goal own of a trial, with --method soak of the run
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub loss: Option<f64>,
    /// With --goal own: maximum part of the trial time at a load that exceeds --loss
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub exceed: Option<f64>,
}

/// Options about limits and reports.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Run and report")]
pub(super) struct EndArgs {
    /// Send even if the interface carries the default route
    #[arg(long)]
    pub yes: bool,
    /// Write a report, updated after each trial: .json, .csv, .md or .html; repeatable
    #[arg(short = 'w', long, value_name = "FILE")]
    pub write: Vec<PathBuf>,
    /// Print one JSON document at the end (schema linerate/measure/1)
    #[arg(long)]
    pub json: bool,
    /// Print errors and the results only
    #[arg(short = 'q', long)]
    pub quiet: bool,
    #[command(flatten)]
    pub user: UserArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

impl EndArgs {
    /// Returns whether to print results only.
    pub(super) fn is_silent(&self) -> bool {
        self.quiet || self.json
    }

    /// Serves metrics, if requested, in a thread without the rights to open ports.
    pub(super) fn serve_metrics(&self, identity: &Identity) -> anyhow::Result<Option<MetricsServer>> {
        let serve = || identity.by(|| Ok(self.metrics.serve(self.is_silent())));
        self.metrics.is_given().then(serve).transpose()
    }
}

/// Method of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Method {
    /// Search for the rates of goals, such as NDR and PDR
    Search,
    /// Tests of RFC 2544, RFC 9004 and RFC 6201
    Rfc2544,
    /// Maximum receive rate: forwarded rate at the maximum load
    Mrr,
    /// Soak test: one load for a long time
    Soak,
    /// Service activation test of ITU-T Y.1564
    Y1564,
}

/// Test of RFC 2544.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Test {
    /// Throughput (26.1)
    Throughput,
    /// Latency at the throughput (26.2)
    Latency,
    /// Frame loss rate (26.3)
    Loss,
    /// Longest burst without loss (26.4, updated by RFC 9004)
    BackToBack,
    /// Recovery from overload (26.5)
    Recovery,
    /// Recovery from a reset (26.6, updated by RFC 6201)
    Reset,
}

/// Frame sizes of one word of `--size`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(Vec<u64>);

impl Sizes {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(Sizes(match text {
            "rfc2544" => vec![64, 128, 256, 512, 1024, 1280, 1518],
            "rfc5180" => vec![82, 128, 256, 512, 1024, 1280, 1518],
            "jumbo" => vec![1522, 2048, 4096, 8192, 9216],
            _ => {
                let size = text.parse().ok().filter(|size| (64..=65_535).contains(size));
                vec![size.ok_or("expected 64 to 65535 bytes (with FCS), rfc2544, rfc5180 or jumbo")?]
            }
        }))
    }
}

impl Args {
    /// Returns all sizes, in order.
    pub fn sizes(&self) -> Vec<u64> {
        self.size.iter().flat_map(|sizes| sizes.0.iter().copied()).collect()
    }

    /// Returns the goals, adjusted by the options.
    pub fn goals(&self) -> anyhow::Result<Vec<Goal>> {
        let GoalArgs { goal, trial, sum, width, loss, exceed } = &self.goals;
        let mut goals = match (self.method.method, self.method.short) {
            (Method::Rfc2544, false) => vec![Goal::rfc2544()],
            (Method::Rfc2544, true) => vec![Goal::rfc2544_short()],
            _ if goal.is_empty() => vec![Goal::ndr(), Goal::pdr()],
            _ => goal.clone(),
        };
        for goal in &mut goals {
            if let Some(trial) = *trial {
                let is_one = goal.duration_sum <= goal.final_duration;
                goal.final_duration = trial;
                goal.duration_sum = if is_one { trial } else { goal.duration_sum.max(trial) };
                goal.initial_duration = goal.initial_duration.min(trial);
            }
            goal.duration_sum = sum.unwrap_or(goal.duration_sum);
            goal.width = width.unwrap_or(goal.width);
            if goal.name == "own" {
                goal.loss_ratio = loss.unwrap_or(goal.loss_ratio);
                goal.exceed_ratio = exceed.unwrap_or(goal.exceed_ratio);
            }
            goal.check().map_err(usage)?;
        }
        let is_soak = self.method.method == Method::Soak;
        let is_allowed = (loss.is_none() || is_soak) && exceed.is_none();
        if !is_allowed && !goals.iter().any(|goal| goal.name == "own") {
            return Err(usage("--loss and --exceed need --goal own: the other goals have fixed values"));
        }
        Ok(goals)
    }
}

fn named(name: &str) -> Result<Goal, String> {
    if name == "own" {
        return Ok(Goal { name: "own", ..Goal::ndr() });
    }
    Goal::named(name).ok_or_else(|| format!("expected one of {}, own", goal::NAMES.join(", ")))
}

/// Parses a percentage such as `0.5%` as a fraction.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    number
        .filter(|number| (0.0..100.0).contains(number))
        .map(|number| number / 100.0)
        .ok_or_else(|| "expected a percentage below 100%, such as 0.5%".to_owned())
}
