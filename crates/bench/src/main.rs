//! `linerate-bench`: figures of linerate compared with those of peers and the limits of this machine in the same run.
//!
//! A program of its own (`make bench`): an installed `linerate` has no benchmarks. Benchmarks that need `linerate` itself start
//! `LINERATE_PROGRAM`, or the program of that name in their own folder.
//!
//! A table is a row of [`TABLES`]: its name, what it measures, and the cases that it prepares. A case has sides of ours, peers and a
//! limit, which [`harness`] measures in turn; [`peers`] has a row for each program that is compared.
#![forbid(unsafe_code)]

mod burst;
mod capture;
mod check;
mod disk;
mod dissect;
mod export;
mod flows;
mod folder;
mod generate;
mod harness;
mod inline;
mod machine;
mod memif;
mod merge;
mod pcap;
mod peers;
mod query;
mod receive;
mod render;
mod replay;
mod single_pass;
mod switch;
mod switch_memif;
mod switch_veth;
mod testpmd;
mod text;
mod traffic;
mod wire;

use self::Measure::{Cases, Own};
use self::harness::{Group, KEPT, Prepare};
use anyhow::{Context, ensure};
use clap::Parser;
use clap::builder::{PossibleValue, PossibleValuesParser};
use linerate_cli::exit::{Exit, error_text, usage};
use linerate_cli::verbs::receive::device::DeviceChoice;
use linerate_cli::view::terminal::{self, print_stderr, show, show_line};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Rounds by default.
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
  # write rate and stalls of a disk, and the memory to bridge them
  linerate-bench disk --folder /data
  # TCP streams, compared with the kernel's receiver: two minutes
  linerate-bench receive
  # packets in memory of a GPU, compared with those of the host
  linerate-bench receive --device device:0
  # with devices of DPDK, compared with its testpmd (make dpdk)
  linerate-bench burst --dpdk
  # only packets of 64 bytes, a JSON line per row
  linerate-bench burst render --size 64 --json
Sizes count the FCS: 64 means 60 captured bytes. Figures are medians over
rounds, spread is (max - min) / median. The limit is the rate of this machine
in the same run without our work: a plain read, a plain copy, a bare touch.")]
pub struct Args {
    /// Tables to measure
    #[arg(value_name = "TABLE", default_value = "all", value_parser = names())]
    tables: Vec<String>,
    /// Rounds of each case
    #[arg(long, value_name = "N", default_value_t = ROUNDS)]
    rounds: usize,
    /// Small inputs and one round, to test that the benchmarks work
    #[arg(long)]
    quick: bool,
    /// Print JSON lines (schema linerate/bench/1), one per row
    #[arg(long)]
    json: bool,
    /// Only cases of this packet size, with FCS (64, 128, 256, 512, 1024, 1518)
    #[arg(long, value_name = "BYTES")]
    size: Option<usize>,
    /// burst: only cases with N ports (1, 2, 4, 8)
    #[arg(long, value_name = "N")]
    ports: Option<usize>,
    /// burst: number of threads that copy (1 or 2)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    copy_threads: u8,
    /// burst: no reader, which takes a processor
    #[arg(long)]
    no_reader: bool,
    /// burst: devices of DPDK instead of memory; CPU time of one core (needs make dpdk)
    #[arg(long)]
    dpdk: bool,
    /// flows, flow-files: only cases with N active flows (256, 16384, 65536, 1048576, 10485760)
    #[arg(long, value_name = "N")]
    flows: Option<usize>,
    /// flows: only cases of this level of detail
    #[arg(long, value_enum)]
    level: Option<linerate_cli::verbs::flows::Level>,
    /// receive: frames on this device (device:cpu, device:0), fed from memory; needs no root
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceChoice>,
    /// disk: folder to write to [default: the current one]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Be the reader of a measurement
    #[arg(long, hide = true)]
    burst_reader: Option<String>,
    /// Processor of that reader
    #[arg(long, hide = true)]
    burst_cpu: Option<usize>,
    /// Sleep while the ring is empty
    #[arg(long, hide = true)]
    burst_sleep: bool,
}

/// Prepares the cases of a table, or measures a table with columns of its own.
enum Measure {
    Cases(fn(Effort) -> anyhow::Result<Vec<Prepare>>),
    Own(fn(&Args, Effort) -> anyhow::Result<OwnTable>),
}

/// JSON rows and text of a table with columns of its own.
type OwnTable = (Vec<Value>, String);

/// A table: its name, the object that it measures, the unit of its rates or `delays`, its most rounds, and the options that select its
/// cases.
struct Table {
    name: &'static str,
    about: &'static str,
    unit: &'static str,
    rounds: usize,
    options: &'static [&'static str],
    measure: Measure,
}

const fn table(
    (name, about): (&'static str, &'static str),
    unit: &'static str,
    rounds: usize,
    options: &'static [&'static str],
    measure: Measure,
) -> Table {
    Table { name, about, unit, rounds, options, measure }
}

const ALL: usize = usize::MAX;
const SIZE: &[&str] = &["--size"];
const OF_BURST: &[&str] = &["--size", "--ports", "--copy-threads", "--no-reader", "--dpdk"];

#[rustfmt::skip]
const TABLES: [Table; 21] = [
    table(("dissect", "Layers, flow hashes and lines of packets in memory"), "packets", ALL, &[], Cases(dissect::cases)),
    table(("pcap", "Capture files read from the page cache"), "packets", ALL, &[], Cases(pcap::cases)),
    table(("merge", "Lanes in memory merged into one block, capture files into one"), "packets", ALL, &[], Cases(merge::cases)),
    table(("burst", "Ports in memory shared with another process"), "packets", ALL, OF_BURST, Cases(burst::cases)),
    table(("flows", "Packets in memory into flow records"), "packets", ALL, &["--flows", "--level"], Cases(flows::cases)),
    table(("flow-files", "Capture files into flow records"), "packets", 3, &["--flows"], Cases(flows::files::cases)),
    table(("query", "Stored flow records by keys and filters"), "records", ALL, &[], Cases(query::cases)),
    table(("export", "Flow records by format and destination"), "records", ALL, &[], Cases(export::cases)),
    table(("hand-over", "Delay from a port to a reader in another process"), "delays", 5, &[], Cases(burst::hand_overs)),
    table(("capture", "Packets captured from a veth pair by every path"), "packets", 5, SIZE, Cases(capture::cases)),
    table(("check", "Packets with trailers in memory, accounted for by stream"), "packets", ALL, &[], Cases(check::cases)),
    table(("render", "Packets of streams made in memory"), "packets", ALL, SIZE, Cases(render::cases)),
    table(("memif", "Packets through memory shared with a peer"), "packets", ALL, SIZE, Cases(memif::cases)),
    table(("switch", "Packets in memory, and between ports, through rules"), "packets", ALL, &[], Cases(switch::cases)),
    table(("generate", "Packets sent into a veth pair by every path"), "packets", 5, SIZE, Cases(generate::cases)),
    table(("replay", "Gap errors of a recording at ten times its speed"), "delays", 3, &[], Cases(replay::cases)),
    table(("several", "A file written, metered and counted in one pass"), "packets", ALL, &[], Cases(single_pass::cases)),
    table(("wire", "Packets from one veth pair to another"), "packets", 5, SIZE, Cases(wire::cases)),
    table(("inline", "Packets between ports with an engine that decides"), "packets", 3, SIZE, Cases(inline::cases)),
    table(("receive", "TCP streams in chunks of 1 to 128 MiB by every path"), "chunks", 5, &["--device"], Own(receive::own)),
    table(("disk", "Write rate and stalls of a disk; 1 GiB at a time"), "writes", 1, &["--folder"], Own(disk::own)),
];

fn names() -> PossibleValuesParser {
    let all = PossibleValue::new("all").help("All tables except disk");
    let tables = TABLES.iter().map(|table| PossibleValue::new(table.name).help(table.about));
    PossibleValuesParser::new(std::iter::once(all).chain(tables))
}

/// Size of a measurement, and the cases that were selected.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    quick: bool,
    size: Option<usize>,
    ports: Option<usize>,
    copy_threads: u8,
    /// A reader reads copied packets.
    reader: bool,
    dpdk: bool,
    flows: Option<usize>,
    level: Option<linerate_meter::Level>,
}

impl Effort {
    /// `full`, or a small fraction of it.
    fn of(&self, full: usize) -> usize {
        if self.quick { (full / 100).max(1) } else { full }
    }

    /// Those of these sizes that were selected.
    fn sizes(&self, all: &[usize]) -> Vec<usize> {
        all.iter().copied().filter(|size| self.size.is_none_or(|wanted| wanted == *size)).collect()
    }
}

fn main() -> ExitCode {
    let exit = match Args::try_parse() {
        Ok(args) => run(&args).unwrap_or_else(|error| {
            terminal::fail(error_text(&error));
            Exit::of(&error)
        }),
        Err(error) => terminal::explain(&error),
    };
    terminal::end(exit).into()
}

/// Path of the measured program: `LINERATE_PROGRAM`, otherwise `linerate` in the folder of this program.
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
    let mut is_empty = true;
    for table in TABLES.iter().filter(|table| args.wants(table)) {
        if !args.json {
            print_stderr(format_args!("measuring: {}\n", table.name));
        }
        let rounds = if args.quick { 1 } else { args.rounds.min(table.rounds) };
        let effort = args.effort(rounds);
        match table.measure {
            Cases(cases) => {
                let prepared = cases(effort)?;
                let mut groups = Vec::new();
                for prepare in prepared {
                    let group =
                        prepare().with_context(|| format!("bench {}", table.name))?.measure(table.name, rounds)?;
                    is_empty &= group.rows.is_empty();
                    if args.json {
                        group.rows.iter().try_for_each(line)?;
                    }
                    groups.push(group);
                }
                args.show(&groups, table);
            }
            Own(measure) => {
                let (rows, text) = measure(args, effort)?;
                is_empty = false;
                if args.json {
                    rows.iter().try_for_each(line)?;
                } else {
                    show(text);
                }
            }
        }
    }
    if is_empty && (args.size, args.ports, args.flows) != (None, None, None) {
        return Err(usage("no case has this size, or this number of ports or flows; --help lists them"));
    }
    Ok(Exit::Done)
}

/// Prints a row as a JSON line.
fn line(row: &impl Serialize) -> anyhow::Result<()> {
    let mut row = serde_json::to_value(row)?;
    if let Some(fields) = row.as_object_mut() {
        let is_empty = |value: &Value| value.is_null() || *value == json!([]) || *value == json!("");
        fields.retain(|key, value| KEPT.contains(&key.as_str()) || !is_empty(value));
        fields.insert("schema".into(), json!("linerate/bench/1"));
    }
    show_line(&row)?;
    Ok(())
}

impl Args {
    fn wants(&self, table: &Table) -> bool {
        let is_named = |name: &str| self.tables.iter().any(|wanted| wanted == name);
        is_named(table.name) || is_named("all") && table.name != "disk"
    }

    fn effort(&self, rounds: usize) -> Effort {
        Effort {
            rounds,
            quick: self.quick,
            size: self.size,
            ports: self.ports,
            copy_threads: self.copy_threads,
            reader: !self.no_reader,
            dpdk: self.dpdk,
            flows: self.flows,
            level: self.level.map(Into::into),
        }
    }

    fn show(&self, groups: &[Group], table: &Table) {
        let text = text::text(table.name, table.about, table.unit, groups);
        if !self.json && !text.is_empty() {
            show(format_args!("{text}\n"));
        }
    }

    /// Refuses options of other tables.
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
        if self.tables == ["disk"] && self.rounds != ROUNDS {
            return Err(usage("--rounds has no effect on disk: each case is one round"));
        }
        let given = [
            ("--size", self.size.is_some()),
            ("--ports", self.ports.is_some()),
            ("--copy-threads", self.copy_threads > 1),
            ("--no-reader", self.no_reader),
            ("--dpdk", self.dpdk),
            ("--flows", self.flows.is_some()),
            ("--device", self.device.is_some()),
            ("--level", self.level.is_some()),
            ("--folder", self.folder.is_some()),
        ];
        for (option, _) in given.iter().filter(|(_, is_given)| *is_given) {
            let tables: Vec<&Table> = TABLES.iter().filter(|table| table.options.contains(option)).collect();
            if !tables.iter().any(|table| self.wants(table)) {
                let names: Vec<&str> = tables.iter().map(|table| table.name).collect();
                return Err(usage(format!("{option} needs one of its tables: {}", names.join(", "))));
            }
        }
        Ok(())
    }
}
