//! Options of `linerate measure`, and the goals that they mean.

use crate::exit::usage;
use crate::privileges::Identity;
use crate::verbs::generate::answer::AnswerArgs;
use crate::verbs::generate::line;
use crate::verbs::show::{MetricsArgs, Told};
use clap::builder::RangedU64ValueParser;
use linerate_generate::rate::Asked;
use linerate_measure::{Goal, goal};
use std::path::PathBuf;

/// Options of `linerate measure`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # the rate without loss and that with 0.5 % of loss, as CSIT has them
  linerate measure --to eth1 --check eth2
  # RFC 2544 as it stands: hours; then a shortened run in both directions
  linerate measure --to eth1 --check eth2 --method rfc2544 --size rfc2544 \\
    -w report.html -w report.json
  linerate measure --to eth1 --check eth2 --method rfc2544 --short --both
  # a look: a tenth of a second a trial
  linerate measure --to eth1 --check eth2 --size 64 --width 5% \\
    --trial 0.1 --sum 0.5
  # how much memory a device has: longest bursts at 1 M frames/s
  linerate measure --to eth1 --check eth2 --method rfc2544 --short \\
    --tests back-to-back --max 1mpps
  # eight hours at one rate
  linerate measure --to eth1 --check eth2 --method soak --rate 500kpps \\
    --size 256 -t 28800 -w night.html
  # through a router
  linerate measure --to eth1 --check eth2 --answer --both \\
    --gateway 10.60.0.1,10.60.1.1 \\
    -k 'ip(src=10.60.0.2,dst=10.60.1.2)/udp'
Goals, several behind commas; one search serves all of them:
  rfc2544        throughput of RFC 2544: no frame lost in 60 s
  rfc2544-short  the same, approached by trials from 1 s on
  tst009         no frame lost in one of two trials of 60 s
  ndr            no frame lost in 11 of 21 trials of 1 s
  pdr            at most 0.5 % lost in those
  own            as ndr, with --loss and --exceed
docs/guide/measure.md says what of which RFC is done, and what is not.")]
pub struct Args {
    /// The port to send to
    #[arg(long, value_name = "PORT")]
    pub to: String,
    /// The port to receive on
    #[arg(long, value_name = "PORT")]
    pub check: String,
    /// Name of the device under test, for reports
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Measure both directions at once: the same frames go back, with their addresses exchanged
    #[arg(long)]
    pub both: bool,
    /// Send this packet: layers as in 'ip(dst=10.0.0.1..10.0.0.9)/udp' (docs/streams.md); several take turns
    /// [default: one UDP flow of 198.18.0.1]
    #[arg(short = 'k', long, value_name = "PACKET")]
    pub packet: Vec<String>,
    /// Send the streams of this TOML file (docs/streams.md), of the sizes that they have there; their rates say how they share a load
    #[arg(long, value_name = "FILE", conflicts_with_all = ["packet", "ipv6", "size", "seed"])]
    pub streams: Option<PathBuf>,
    /// Send UDP over IPv6, between addresses of RFC 5180
    #[arg(long, conflicts_with = "packet")]
    pub ipv6: bool,
    /// Sizes of frames with FCS, measured one after the other: numbers, rfc2544 (the seven of Ethernet), rfc5180 (the same, from 82
    /// on), jumbo (1522 to 9216)
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "64,512,1518", value_parser = Sizes::parse)]
    pub size: Vec<Sizes>,
    /// What is random in packets follows from this
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub(super) method: MethodArgs,
    #[command(flatten)]
    pub(super) goals: GoalArgs,
    /// The greatest rate to offer [default: what the warm-up finds the tester to send, or the line]
    #[arg(long, value_name = "RATE")]
    pub max: Option<Asked>,
    /// The least rate to offer [default: a ten thousandth of the greatest]
    #[arg(long, value_name = "RATE")]
    pub min: Option<Asked>,
    /// The line that percent refer to, as in 10gbps [default: the speed of the link]
    #[arg(long, value_name = "RATE", value_parser = line)]
    pub line: Option<f64>,
    /// Begin with so many seconds at top speed, or at --max, which count for nothing [default: 1, and 0 with --max]
    #[arg(long, value_name = "S")]
    pub warm_up: Option<f64>,
    /// Let the device rest so many seconds between trials [default: 0.5; 5 with rfc2544]
    #[arg(long, value_name = "S")]
    pub settle: Option<f64>,
    /// End after this many seconds, with what is known then; a trial that has begun is finished first
    #[arg(short = 't', long = "duration", alias = "seconds", value_name = "S")]
    pub duration: Option<f64>,
    /// Let an xdp: port that checks take frames away from this host even where it uses the interface itself
    #[arg(long)]
    pub take: bool,
    /// Before each trial send a few frames of each packet back from the port of --check, so that a bridge knows where addresses are
    /// (RFC 2544, 23)
    #[arg(long)]
    pub learn: bool,
    /// Send from so many threads, each with a queue of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    pub threads: usize,
    #[command(flatten)]
    pub(super) answer: AnswerArgs,
    #[command(flatten)]
    pub(super) end: EndArgs,
}

/// Options that say what is measured.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Methods")]
pub(super) struct MethodArgs {
    /// How to measure
    #[arg(long, value_enum, default_value_t = Method::Search)]
    pub method: Method,
    /// With --method rfc2544: which of its tests [default: all but reset]
    #[arg(long, value_enum, value_name = "TESTS", value_delimiter = ',')]
    pub tests: Vec<Test>,
    /// With --method rfc2544: shorter trials and fewer of them; every table says so
    #[arg(long)]
    pub short: bool,
    /// Repeat so often: latency (20 of RFC 2544), bursts (50), recovery and reset (3), trials of mrr (10)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub repeat: Option<u32>,
    /// Loss rates in so many steps from the greatest load down, 10 or more
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=1000))]
    pub steps: Option<u32>,
    /// Bursts of so many seconds at most
    #[arg(long, value_name = "S")]
    pub burst_limit: Option<f64>,
    /// Resets the device, for the test reset: a command of the shell, run once a trial
    #[arg(long, value_name = "COMMAND")]
    pub reset_with: Option<String>,
    /// With --method search: then measure latency at 10, 50 and 90 % of the last goal's result
    #[arg(long)]
    pub latency: bool,
    /// With --method soak: the load
    #[arg(long, value_name = "RATE")]
    pub rate: Option<Asked>,
    /// With --method soak: p99 of the latency may be so many milliseconds
    #[arg(long, value_name = "MS")]
    pub max_latency: Option<f64>,
    /// With --method y1564: the services, a TOML file (docs/guide/measure.md)
    #[arg(long, value_name = "FILE")]
    pub services: Option<PathBuf>,
    /// With --method y1564: the performance test takes so many seconds, none if 0 [default: 900]
    #[arg(long, value_name = "S")]
    pub performance: Option<f64>,
}

/// Options that say what a search looks for.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Goals and trials")]
pub(super) struct GoalArgs {
    /// With --method search: what to look for [default: ndr,pdr]
    #[arg(long, value_name = "GOALS", value_delimiter = ',', value_parser = named)]
    pub goal: Vec<Goal>,
    /// Trials take so many seconds [default: what the goal or the method says]
    #[arg(long, value_name = "S")]
    pub trial: Option<f64>,
    /// So many seconds of trials decide a load [default: what the goal says]
    #[arg(long, value_name = "S")]
    pub sum: Option<f64>,
    /// How far the upper bound may lie above the result
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub width: Option<f64>,
    /// With --goal own: so much may be lost in a good trial; with --method soak: of all
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub loss: Option<f64>,
    /// With --goal own: so much of the time may be of bad trials
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub exceed: Option<f64>,
}

/// Options about limits and reports.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Run and report")]
pub(super) struct EndArgs {
    /// Send into the interface of the default route too
    #[arg(long)]
    pub yes: bool,
    /// Write a report there, kept up to date from trial to trial: .json, .csv, .md or .html; may be given again
    #[arg(short = 'w', long, value_name = "FILE")]
    pub write: Vec<PathBuf>,
    /// Print one JSON document at the end (schema linerate/measure/1)
    #[arg(long)]
    pub json: bool,
    /// Say nothing but the results
    #[arg(short = 'q', long)]
    pub quiet: bool,
    /// Write reports with the rights of this user (default: whoever called sudo, doas or pkexec; of root at interfaces
    /// linerate, or nobody); ports are opened for each trial, by whoever runs this
    #[arg(short = 'Z', long, value_name = "USER")]
    pub user: Option<String>,
    #[command(flatten)]
    metrics: MetricsArgs,
}

impl EndArgs {
    /// Whether nothing is said but the results.
    pub(super) fn is_silent(&self) -> bool {
        self.quiet || self.json
    }

    /// Answers those who collect counters, if that is asked for, in a thread without the rights to open ports.
    pub(super) fn tell_counters(&self, identity: &Identity) -> anyhow::Result<Option<Told>> {
        let tell = || identity.by(|| Ok(self.metrics.tell(self.is_silent())));
        self.metrics.is_given().then(tell).transpose()
    }
}

/// How to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Method {
    /// Search for the rates of goals
    Search,
    /// The tests of RFC 2544, RFC 9004 and RFC 6201
    Rfc2544,
    /// What comes through at the greatest load, ten times
    Mrr,
    /// One load for hours
    Soak,
    /// What was agreed of services is kept (ITU-T Y.1564)
    Y1564,
}

/// A test of RFC 2544.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Test {
    /// 26.1
    Throughput,
    /// 26.2
    Latency,
    /// 26.3
    Loss,
    /// 26.4, as RFC 9004 has it
    BackToBack,
    /// 26.5
    Recovery,
    /// 26.6, as RFC 6201 has it
    Reset,
}

/// Sizes that are named together.
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
                vec![size.ok_or("sizes are 64 to 65535 bytes with FCS, or rfc2544, rfc5180, jumbo")?]
            }
        }))
    }
}

impl Args {
    /// Every size, in order.
    pub fn sizes(&self) -> Vec<u64> {
        self.size.iter().flat_map(|sizes| sizes.0.iter().copied()).collect()
    }

    /// The goals as they are changed by options.
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
        let is_meant = (loss.is_none() || is_soak) && exceed.is_none();
        if !is_meant && !goals.iter().any(|goal| goal.name == "own") {
            return Err(usage("--loss and --exceed are of --goal own: the others have theirs"));
        }
        Ok(goals)
    }
}

fn named(name: &str) -> Result<Goal, String> {
    if name == "own" {
        return Ok(Goal { name: "own", ..Goal::ndr() });
    }
    Goal::named(name).ok_or_else(|| format!("there are {} and own", goal::NAMES.join(", ")))
}

/// `0.5%`, as a part.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    number
        .filter(|number| (0.0..100.0).contains(number))
        .map(|number| number / 100.0)
        .ok_or_else(|| "write a percentage, as in 0.5%".to_owned())
}
