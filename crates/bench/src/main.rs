//! `linerate-bench`: figures of linerate compared with those of peers and the limits of this machine in the same run.
//!
//! A program of its own (`make bench`): the one that is installed has no benchmarks. Where a benchmark needs `linerate` itself it starts
//! `LINERATE_PROGRAM`, or the program of that name in its own folder.
#![forbid(unsafe_code)]

mod bridged;
mod burst;
mod capture;
mod check;
mod disk;
mod dissect;
mod export;
mod files;
mod flows;
mod folder;
mod generate;
mod inline;
mod measure;
mod memif;
mod merge;
mod pcap;
mod query;
mod receive;
mod render;
mod replay;
mod several;
mod shown;
mod switch;
mod switched;
mod testpmd;
mod traffic;
mod wire;

use self::measure::Row;
use self::shown::print;
use anyhow::{Context, ensure};
use clap::{Parser, ValueEnum};
use linerate_cli::exit::{Exit, told, usage};
use linerate_cli::verbs::receive::device::Which;
use linerate_cli::view::terminal::{self, show, show_line, tell};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Rounds unless asked for otherwise.
const ROUNDS: usize = 9;

/// Measure linerate, its peers and the limits of this machine in the same run
#[derive(Debug, Parser)]
#[command(name = "linerate-bench", version, max_term_width = 80)]
#[command(after_help = "\
Examples:
  # all tables: most of an hour
  linerate-bench
  # one of them; and only whether it works
  linerate-bench render
  linerate-bench --quick capture
  # what a disk takes, and how much memory its stalls want
  linerate-bench disk --folder /data
  # TCP streams, beside the kernel's receiver: two minutes
  linerate-bench receive
  # frames in memory of a GPU, beside those of the host
  linerate-bench receive --device device:0
  # with devices of DPDK, beside its testpmd (make dpdk)
  linerate-bench burst --dpdk
  # frames of 64 bytes alone, a JSON line a row
  linerate-bench burst render --size 64 --json
Sizes count the FCS: 64 means 60 captured bytes. Figures are medians over
rounds, spread is (max - min) / median. The limit is what this machine does in
the same run without our work: a plain read, a plain copy, a bare touch.")]
pub struct Args {
    /// Which tables
    #[arg(value_enum, default_values_t = [Bench::All])]
    benches: Vec<Bench>,
    /// Rounds of each case
    #[arg(long, value_name = "N", default_value_t = ROUNDS)]
    rounds: usize,
    /// Small inputs and one round: shows that the benchmarks work, not how fast anything is
    #[arg(long)]
    quick: bool,
    /// Print JSON lines (schema linerate/bench/1), a row each
    #[arg(long)]
    json: bool,
    /// Of burst, capture, generate, inline, memif, render and wire, cases of this size alone (with FCS: 64, 128, 256, 512, 1024, 1518)
    #[arg(long, value_name = "BYTES")]
    size: Option<usize>,
    /// Of burst, cases with so many ports alone (1, 2, 4, 8)
    #[arg(long, value_name = "N")]
    ports: Option<usize>,
    /// Of burst, how many threads copy (1 or 2)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    copy_threads: u8,
    /// Of burst, without the reader, which takes a processor
    #[arg(long)]
    no_reader: bool,
    /// Of burst, devices of DPDK in place of memory: its testpmd, buffers merged and copied one by one, and our way, CPU time
    /// of one core (needs make dpdk)
    #[arg(long)]
    dpdk: bool,
    /// Of flows and flow-files, cases with so many active flows alone (256, 16384, 65536, 1048576, 10485760)
    #[arg(long, value_name = "N")]
    flows: Option<usize>,
    /// Of flows, cases of this level of detail alone
    #[arg(long, value_enum)]
    level: Option<linerate_cli::verbs::flows::Level>,
    /// Of receive, frames on this device (device:cpu, device:0) beside those of the host, by every way, fed from memory: no root needed
    #[arg(long, value_name = "DEVICE")]
    device: Option<Which>,
    /// Of disk, the folder to write to [default: the one that the program is in]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Be the reader of a measurement
    #[arg(long, hide = true)]
    burst_reader: Option<String>,
    /// On this processor
    #[arg(long, hide = true)]
    burst_cpu: Option<usize>,
    /// Sleeping while there is nothing
    #[arg(long, hide = true)]
    burst_sleep: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Bench {
    /// All of them
    All,
    /// Layers of frames in memory
    Dissect,
    /// Reading capture files from the page cache
    Pcap,
    /// Lanes in memory into one ordered block, and capture files into one
    Merge,
    /// Ports in memory into shared memory, read by another process
    Burst,
    /// Frames in memory into flow records, over active flows, levels, sizes and threads
    Flows,
    /// Capture files into flow records, beside nfpcapd, softflowd and argus
    FlowFiles,
    /// Stored flow records by keys and filters, over threads
    Query,
    /// Flow records on their way out, in each form, to a broker and to a database: records and processor time
    Export,
    /// Time from a port to a reader in another process
    HandOver,
    /// Capturing and counting from a veth pair by every path, beside tcpdump and dumpcap
    Capture,
    /// Frames with trailers in memory, accounted for by stream
    Check,
    /// Frames of streams made in memory
    Render,
    /// Frames through memory shared with a peer, both ends of it ours and in one thread
    Memif,
    /// Frames in memory through rules, over flows
    Switch,
    /// Sending frames of all sizes into a veth pair by every path, beside trafgen and tcpreplay
    Generate,
    /// TCP streams in chunks of 1 to 128 MiB, received by every path, beside the kernel's own receiver
    Receive,
    /// Replaying a recording at ten times its speed: how exact the gaps are, beside tcpreplay
    Replay,
    /// What a disk takes by the writes of a recorder, and how long single ones take: most of a minute, a GiB at a time. Not of
    /// all: it is to be asked for
    Disk,
    /// A capture file written again, metered and counted in one pass, beside a pass for each
    Several,
    /// From one veth pair to another, beside the Linux bridge and a redirect in the kernel
    Wire,
    /// From one port to another while an engine decides about each frame, or nobody does, beside the Linux bridge
    Inline,
}

impl Bench {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

type Measure = fn(Effort) -> anyhow::Result<Vec<Row>>;

#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    quick: bool,
    /// Of cases with sizes and ports, those to measure.
    size: Option<usize>,
    ports: Option<usize>,
    /// Threads that copy.
    copy_threads: u8,
    /// Whether somebody reads what is copied.
    reader: bool,
    /// Whether ports are those of DPDK.
    dpdk: bool,
    /// Of cases with active flows, those to measure.
    flows: Option<usize>,
    /// Of cases with levels of detail, those to measure.
    level: Option<linerate_meter::Level>,
}

impl Effort {
    /// `full`, or a small fraction of it.
    fn of(&self, full: usize) -> usize {
        if self.quick { (full / 100).max(1) } else { full }
    }
}

fn main() -> ExitCode {
    let exit = match Args::try_parse() {
        Ok(args) => run(&args).unwrap_or_else(|error| {
            terminal::fail(told(&error));
            Exit::of(&error)
        }),
        Err(error) => terminal::explain(&error),
    };
    terminal::end(exit).into()
}

/// Path of the measured program: `LINERATE_PROGRAM`, else `linerate` in the folder of this program.
fn linerate() -> anyhow::Result<PathBuf> {
    if let Some(program) = std::env::var_os("LINERATE_PROGRAM") {
        return Ok(program.into());
    }
    let program = std::env::current_exe().context("the path of this program is unknown")?.with_file_name("linerate");
    ensure!(program.exists(), "{}: not found; build it: make build, or set LINERATE_PROGRAM", program.display());
    Ok(program)
}

fn run(args: &Args) -> anyhow::Result<Exit> {
    if let Some(ring) = &args.burst_reader {
        burst::read(ring, args.burst_cpu, args.burst_sleep)?;
        return Ok(Exit::Done);
    }
    args.check()?;
    let effort = Effort {
        rounds: if args.quick { 1 } else { args.rounds },
        quick: args.quick,
        size: args.size,
        ports: args.ports,
        copy_threads: args.copy_threads,
        reader: !args.no_reader,
        dpdk: args.dpdk,
        flows: args.flows,
        level: args.level.map(Into::into),
    };
    let mut rows = Vec::new();
    let tables: &[(Bench, Measure)] = &[
        (Bench::Dissect, dissect::run),
        (Bench::Pcap, pcap::run),
        (Bench::Merge, merge::run),
        (Bench::Burst, burst::run),
        (Bench::Flows, flows::run),
        (Bench::FlowFiles, flows::files),
        (Bench::Query, query::run),
        (Bench::Export, export::run),
        (Bench::HandOver, burst::hand_overs),
        (Bench::Capture, capture::run),
        (Bench::Check, check::run),
        (Bench::Render, render::run),
        (Bench::Memif, memif::run),
        (Bench::Switch, switch::run),
        (Bench::Generate, generate::run),
        (Bench::Replay, replay::run),
        (Bench::Several, several::run),
        (Bench::Wire, wire::run),
        (Bench::Inline, inline::run),
    ];
    for (bench, measure) in tables.iter().copied() {
        if args.wants(bench) {
            args.begin(bench);
            let new = measure(effort)?;
            if args.json {
                for row in &new {
                    show_line(&Line { schema: "linerate/bench/1", row })?;
                }
            }
            rows.extend(new);
        }
    }
    if args.has_own(effort)? && rows.is_empty() {
        return Ok(Exit::Done);
    }
    if rows.is_empty() && (args.size, args.ports, args.flows) != (None, None, None) {
        return Err(usage("no case is of that size, or has so many ports or flows: --help lists those there are"));
    }
    if !args.json {
        print(&rows);
    }
    Ok(Exit::Done)
}

impl Args {
    fn wants(&self, bench: Bench) -> bool {
        self.benches.contains(&bench) || self.benches.contains(&Bench::All)
    }

    /// The tables that have columns of their own; whether one was asked for.
    fn has_own(&self, effort: Effort) -> anyhow::Result<bool> {
        let is_received = self.wants(Bench::Receive);
        if is_received {
            self.begin(Bench::Receive);
            match self.device {
                Some(which) => {
                    let rows = receive::device::run(effort, which)?;
                    self.end(&rows, || receive::device::text(&rows))?;
                }
                None => {
                    let rows = receive::run(effort)?;
                    self.end(&rows, || receive::text(&rows))?;
                }
            }
        }
        let is_disk = self.benches.contains(&Bench::Disk);
        if is_disk {
            let folder = self.folder.as_deref().unwrap_or(Path::new("."));
            self.begin(Bench::Disk);
            let rows = disk::run(effort, folder)?;
            self.end(&rows, || disk::text(&rows, folder))?;
        }
        Ok(is_received || is_disk)
    }

    fn begin(&self, bench: Bench) {
        if !self.json {
            tell(format_args!("measuring: {}\n", bench.name()));
        }
    }

    fn end<R: Serialize>(&self, rows: &[R], text: impl FnOnce() -> String) -> anyhow::Result<()> {
        if !self.json {
            show(text());
            return Ok(());
        }
        for row in rows {
            show_line(&Line { schema: "linerate/bench/1", row })?;
        }
        Ok(())
    }

    /// Refuses what is of none of the tables asked for.
    fn check(&self) -> anyhow::Result<()> {
        if self.rounds == 0 {
            return Err(usage("--rounds 0: at least one round is needed"));
        }
        if self.quick && self.rounds != ROUNDS {
            return Err(usage("--quick runs one round of each case: it takes no --rounds"));
        }
        if self.dpdk && (self.no_reader || self.copy_threads > 1) {
            return Err(usage("--dpdk measures one core without a reader: it takes no --no-reader or --copy-threads"));
        }
        if self.benches == [Bench::Disk] && self.rounds != ROUNDS {
            return Err(usage("--rounds means nothing for disk: each case is one round"));
        }
        if self.folder.is_some() && !self.benches.contains(&Bench::Disk) {
            return Err(usage("--folder means nothing without disk: no other table writes there"));
        }
        let of: [(&str, bool, &[Bench]); 8] = [
            (
                "--size",
                self.size.is_some(),
                &[
                    Bench::Burst,
                    Bench::Capture,
                    Bench::Generate,
                    Bench::Inline,
                    Bench::Memif,
                    Bench::Render,
                    Bench::Wire,
                ],
            ),
            ("--ports", self.ports.is_some(), &[Bench::Burst]),
            ("--copy-threads", self.copy_threads > 1, &[Bench::Burst]),
            ("--no-reader", self.no_reader, &[Bench::Burst]),
            ("--dpdk", self.dpdk, &[Bench::Burst]),
            ("--flows", self.flows.is_some(), &[Bench::Flows, Bench::FlowFiles]),
            ("--device", self.device.is_some(), &[Bench::Receive]),
            ("--level", self.level.is_some(), &[Bench::Flows]),
        ];
        match of.iter().find(|(_, given, benches)| *given && !benches.iter().any(|bench| self.wants(*bench))) {
            None => Ok(()),
            Some((option, _, benches)) => {
                let names: Vec<String> = benches.iter().map(|bench| bench.name()).collect();
                Err(usage(format!("{option} means nothing without one of its tables: {}", names.join(", "))))
            }
        }
    }
}

#[derive(Serialize)]
struct Line<'a, R> {
    schema: &'static str,
    #[serde(flatten)]
    row: &'a R,
}
