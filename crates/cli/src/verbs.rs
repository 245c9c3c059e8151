//! The verbs, one file each.

pub mod bridge;
pub mod capture;
mod capture_files;
pub mod check;
pub mod count;
pub mod ctl;
mod decide;
pub mod demo;
pub mod doctor;
pub mod find;
pub mod flows;
pub mod frames;
pub mod generate;
pub mod inline;
mod inputs;
pub mod inspect;
pub mod lab;
pub mod measure;
mod option_rules;
mod pages;
mod port_pair;
pub mod ports;
mod print_options;
pub mod receive;
mod report_options;
mod rings;
pub mod send;
#[cfg(feature = "serve")]
pub mod serve;
mod short_help;
#[cfg(any(feature = "serve", feature = "tui"))]
#[cfg_attr(not(all(feature = "serve", feature = "tui")), allow(dead_code, reason = "one side asks, one answers"))]
pub mod snapshot;
mod socket;
pub mod streams;
pub mod switch;
mod tcpdump_compat;
#[cfg(feature = "tui")]
pub mod top;
mod units;
mod usage_errors;

pub use self::port_pair::{receive_whole, send_as};
#[cfg(feature = "serve")]
pub(crate) use self::socket::listen_at;

use crate::about;
use crate::exit::{Exit, usage};
use crate::signals::record_requests;
use crate::view::terminal;
use anyhow::Context;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsStr;

/// Capture, generate, record and analyse packets at line rate on stock Linux.
#[derive(Debug, Parser)]
#[command(name = "linerate", version, propagate_version = true, max_term_width = 80)]
#[command(after_help = "A port is an interface (eth0) or scheme:target[@queues][?key=value&...], such as xdp:eth0.\n\
Exit status: 0 ok, 1 failed, 2 wrong usage, 3 packets lost with --lossless.")]
pub struct Program {
    /// Command to run.
    #[command(subcommand)]
    pub verb: Verb,
}

/// Commands of the program.
#[derive(Debug, Subcommand)]
// Only one value exists.
#[allow(clippy::large_enum_variant)]
pub enum Verb {
    /// Capture packets from one or many ports, in order of time, to files, memory or the terminal
    #[command(mut_args(capture::arranged))]
    Capture(capture::Args),
    /// Print packets of interfaces or capture files, one line each, like tcpdump -n
    #[command(mut_args(capture::listed(capture::PRINT)), after_help = capture::PRINT_HELP)]
    Print(capture::Args),
    /// Count packets: rates, sizes, protocols per port and queue
    Count(count::Args),
    /// Find packets in recorded captures by time and filter, with an index
    #[command(visible_alias = "export")]
    Find(find::Args),
    /// Convert a capture file: format, compression, filter, slice, deduplicate
    #[command(mut_args(capture::listed(capture::CONVERT)), after_help = capture::CONVERT_HELP)]
    Convert(capture::Args),
    /// Merge capture files by time
    #[command(mut_args(capture::listed(capture::CONVERT)), after_help = capture::MERGE_HELP)]
    Merge(capture::Args),
    /// Record a flow of each conversation: addresses, times, packets, bytes, how it ended
    Flows(flows::Args),
    /// Query stored flow records: filter, group, sort, convert
    #[cfg(feature = "parquet")]
    Query(flows::query::Args),
    /// Collect flow records of other exporters: IPFIX, NetFlow v9
    Collect(flows::collect::Args),
    /// Show rates, flows, hosts and drops in the terminal, live
    #[cfg(feature = "tui")]
    Top(top::Args),
    /// Reassemble TCP streams of captured packets into files, or follow one
    Streams(streams::Args),
    /// Generate packets: streams that you describe, at a rate, with checks of what arrives
    Generate(generate::Args),
    /// Replay a capture file, at its own pace or faster, as it is or rewritten
    Replay(generate::replay::Args),
    /// Check packets that generate sends: loss, order, damage, latency
    Check(check::Args),
    /// Measure a device under test: RFC 2544 throughput, NDR, PDR, latency
    Measure(measure::Args),
    /// Control a running generate or switch: rates, pause, resume, rules
    Ctl(ctl::Args),
    /// Serve a web page and the Open Traffic Generator API, for browsers and snappi
    #[cfg(feature = "serve")]
    Serve(serve::Args),
    /// Send a byte stream by the kernel's TCP, or datagrams by UDP
    Send(send::Args),
    /// Receive TCP and UDP streams in user space, into memory or files
    Receive(receive::Args),
    /// Read the memory of received streams from another process
    Frames(frames::Args),
    /// Bridge two ports, with loss, damage and delay if wanted
    Bridge(bridge::Args),
    /// Switch between many ports by Open vSwitch rules, or as a learning bridge
    Switch(switch::Args),
    /// Forward between two ports while another process decides on each packet
    Inline(inline::Args),
    /// Decide on the packets of an inline ring by a filter
    Inspect(inspect::Args),
    /// List interfaces and the backends that work on them
    Ports(ports::Args),
    /// Find the causes of packet loss on this host and fix them (--fix)
    Doctor(doctor::Args),
    /// Create test hosts: network namespaces linked by veth pairs
    Lab(lab::Args),
    /// Demonstrate send, capture, merge and compare on this machine, without a network card
    Demo(demo::Args),
    /// Write a manual page of each command into a directory
    Man(pages::ManArgs),
    /// Print the completion script of a shell
    Completions(pages::CompletionArgs),
}

/// Returns the parser of all verbs and options.
fn command() -> Command {
    short_help::shorten(Program::command().mut_subcommands(units::accept))
}

/// Reads the command line, and checks that its options have an effect together. `commit` is printed by `--version`.
pub fn read(commit: Option<&str>) -> Result<anyhow::Result<Verb>, clap::Error> {
    // Leaked once per process: clap needs a static text.
    let version: &str = about::version(commit).leak();
    let mut command = command().long_version(version);
    let matches = match command.try_get_matches_from_mut(std::env::args_os()) {
        Ok(matches) => matches,
        Err(error) => {
            let verb = std::env::args_os().nth(1);
            let verb = verb.as_deref().and_then(OsStr::to_str);
            return usage_errors::instead(&error, verb).map_or(Err(error), |instead| Ok(Err(instead)));
        }
    };
    let program = Program::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    let checked = option_rules::check(&command, &matches).and_then(|()| check_output(&matches));
    Ok(checked.and_then(|()| listen(&matches)).map(|()| program.verb))
}

/// Refuses to write packets to a terminal, and packets or records to a closed standard output.
fn check_output(matches: &ArgMatches) -> anyhow::Result<()> {
    let Some((verb, own)) = matches.subcommand() else { return Ok(()) };
    let is_output = |option: &str| {
        let mut values = own.try_get_raw(option).ok().flatten().into_iter().flatten();
        values.any(|value| value == "-" || value.as_encoded_bytes().ends_with(b"pcap:-"))
    };
    if !["write", "to", "flows"].into_iter().any(is_output) {
        return Ok(());
    }
    terminal::check_output().context("standard output")?;
    let is_binary = ["write", "to"].into_iter().any(is_output)
        && ["capture", "convert", "find", "generate", "merge", "replay"].contains(&verb);
    if is_binary && terminal::is_output_terminal() {
        return Err(usage(
            "standard output is a terminal; write packets to a file (> FILE) or a program (| tshark -r -)",
        ));
    }
    Ok(())
}

/// Binds the address of `--metrics`.
#[cfg(feature = "serve")]
fn listen(matches: &ArgMatches) -> anyhow::Result<()> {
    let given = matches.subcommand().and_then(|(verb, own)| {
        let place = own.try_get_one::<crate::view::metrics::MetricsAddress>("metrics").ok().flatten()?;
        Some((verb, place.clone()))
    });
    given.map_or(Ok(()), |(verb, place)| crate::view::metrics::bind(verb, place))
}

#[cfg(not(feature = "serve"))]
fn listen(_: &ArgMatches) -> anyhow::Result<()> {
    Ok(())
}

impl Verb {
    /// Returns whether the verb stops on signals and then prints a report.
    fn is_run(&self) -> bool {
        use Verb::{Completions, Ctl, Doctor, Lab, Man, Ports};
        !matches!(self, Ports(_) | Ctl(_) | Doctor(_) | Lab(_) | Man(_) | Completions(_))
    }
}

/// Runs the verb.
pub fn run(verb: Verb) -> anyhow::Result<Exit> {
    if verb.is_run() {
        record_requests()?;
    }
    let result = dispatch(verb);
    #[cfg(feature = "serve")]
    crate::view::metrics::unbind();
    result
}

fn dispatch(verb: Verb) -> anyhow::Result<Exit> {
    match verb {
        Verb::Demo(args) => demo::run(&args),
        Verb::Ports(args) => ports::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Lab(args) => lab::run(&args),
        Verb::Generate(args) => generate::run(&args),
        Verb::Replay(args) => generate::replay::run(&args),
        Verb::Ctl(args) => ctl::run(&args),
        Verb::Measure(args) => measure::run(&args),
        #[cfg(feature = "serve")]
        Verb::Serve(args) => serve::run(&args),
        Verb::Capture(args) => capture::run(args),
        Verb::Print(args) => capture::run(args.of_files(true)?),
        Verb::Convert(args) | Verb::Merge(args) => capture::run(args.of_files(false)?),
        Verb::Count(args) => count::run(&args),
        Verb::Check(args) => check::run(&args),
        Verb::Flows(args) => flows::run(&args),
        #[cfg(feature = "parquet")]
        Verb::Query(args) => flows::query::run(&args),
        Verb::Collect(args) => flows::collect::run(&args),
        #[cfg(feature = "tui")]
        Verb::Top(args) => top::run(&args),
        Verb::Streams(args) => streams::run(&args),
        Verb::Find(args) => find::run(args),
        Verb::Send(args) => send::run(&args),
        Verb::Receive(args) => receive::run(&args),
        Verb::Frames(args) => frames::run(&args),
        Verb::Bridge(args) => bridge::run(&args),
        Verb::Switch(args) => switch::run(&args),
        Verb::Inline(args) => inline::run(&args),
        Verb::Inspect(args) => inspect::run(&args),
        Verb::Man(args) => pages::man(&args),
        Verb::Completions(args) => Ok(pages::completions(&args)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_of_options_fit_80_columns() {
        for verb in Program::command().get_subcommands() {
            let headings = verb.get_arguments().filter_map(|option| option.get_help_heading());
            // With a colon.
            let long: Vec<&str> = headings.filter(|heading| heading.chars().count() > 79).collect();
            assert!(long.is_empty(), "{}: {long:?}", verb.get_name());
        }
    }

    /// Longer lines would be wrapped in the middle of an example.
    #[test]
    fn examples_fit_80_columns() {
        for verb in [
            "bridge", "capture", "check", "collect", "count", "find", "frames", "inline", "inspect", "measure",
            "receive", "replay", "send", "streams", "switch", "top",
        ] {
            let program = Program::command();
            let verb = program.find_subcommand(verb).expect("a verb");
            let text = verb.get_after_help().expect("examples").to_string();
            let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
            assert!(long.is_empty(), "{}: {long:#?}", verb.get_name());
        }
    }
}
