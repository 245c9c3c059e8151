//! The verbs: one file each.

pub mod capture;
pub mod count;
pub mod ctl;
mod decide;
pub mod demo;
pub mod doctor;
pub mod find;
pub mod flows;
pub mod frames;
pub mod generate;
mod habits;
pub mod inline;
mod inputs;
pub mod inspect;
mod joined;
pub mod lab;
mod meaning;
pub mod measure;
mod pages;
pub mod ports;
pub mod receive;
mod rings;
pub mod send;
#[cfg(feature = "serve")]
pub mod serve;
mod show;
#[cfg(any(feature = "serve", feature = "tui"))]
#[cfg_attr(not(all(feature = "serve", feature = "tui")), allow(dead_code, reason = "one side asks, one answers"))]
pub mod snapshot;
mod socket;
pub mod streams;
pub mod switch;
#[cfg(feature = "tui")]
pub mod top;
mod units;
pub mod wire;

pub use self::joined::{receive_whole, send_as};
#[cfg(feature = "serve")]
pub(crate) use self::socket::listen_at;

use crate::about;
use crate::exit::{Exit, usage};
use crate::signals::remember_requests;
use crate::view::terminal;
use anyhow::Context;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsStr;

/// Line-rate packet work on an ordinary Linux machine.
#[derive(Debug, Parser)]
#[command(name = "linerate", version, propagate_version = true, max_term_width = 80)]
#[command(
    after_help = "Ports are scheme:target[@queues][?key=value&...]; a bare interface name is packet:NAME, which \
takes nothing away from the host.\nExit status: 0 done, 1 failed, 2 wrong usage, 3 frames were lost although \
--lossless was asked for."
)]
pub struct Program {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
// It is made once.
#[allow(clippy::large_enum_variant)]
pub enum Verb {
    /// Show the main job, on this machine, with no network card: send, capture, merge, compare
    Demo(demo::Args),
    /// List interfaces and which backends work on them
    Ports(ports::Args),
    /// Look for what loses frames on this machine and at a port, and say or do what mends it
    Doctor(doctor::Args),
    /// Make test hosts: network namespaces joined by veth pairs
    Lab(lab::Args),
    /// Send frames: streams of packets that you describe, or a capture file again; answer, and check what comes
    Generate(generate::Args),
    /// Tell a run with --control something: streams of generate another rate, pause, resume, stop, start; a switch other rules
    Ctl(ctl::Args),
    /// Measure what a device between two ports forwards: throughput of RFC 2544, NDR, PDR and their like
    Measure(measure::Args),
    /// Let people and programs drive traffic over HTTP: a page, and the Open Traffic Generator API, which snappi speaks
    #[cfg(feature = "serve")]
    Serve(serve::Args),
    /// Capture from one or many ports into one time-ordered stream, counted or written to a file
    Capture(capture::Args),
    /// Show what is on ports right now: frames, rates, sizes by port and queue, nothing kept
    Count(count::Args),
    /// Record every conversation: who, when, how much, how it ended
    Flows(flows::Args),
    /// Show in the terminal what goes on at ports, or in a run of this program: rates, flows, hosts, drops, readers
    #[cfg(feature = "tui")]
    Top(top::Args),
    /// Rebuild the TCP streams of captured traffic: a file for each, or one conversation to look at
    Streams(streams::Args),
    /// Find frames of recorded captures by time and filter text, reading only where they can be
    #[command(visible_alias = "export")]
    Find(find::Args),
    /// Send a stream of bytes by the kernel's TCP, or datagrams by its UDP: chunks and how long they take, data to verify
    Send(send::Args),
    /// Receive TCP streams in user space: every byte at its place in frames of memory, or in files
    Receive(receive::Args),
    /// Take frames of received streams from another process that shares them: count, verify, or write them
    Frames(frames::Args),
    /// Join two ports as a wire would, which may lose, damage and delay by plan
    Wire(wire::Args),
    /// Join many ports by rules, as Open vSwitch has them, or as a bridge that learns
    Switch(switch::Args),
    /// Join two ports while another process decides about each frame, by a ring that it reads
    Inline(inline::Args),
    /// Decide about the frames of an inline ring by filter text
    Inspect(inspect::Args),
    /// Write a manual page of each verb into a folder
    #[command(hide = true)]
    Man(pages::ManArgs),
    /// Print what a shell needs to complete the words of this program
    #[command(hide = true)]
    Completions(pages::CompletionArgs),
}

/// The program with all verbs and options.
fn command() -> Command {
    Program::command().mut_subcommands(units::accept)
}

/// What the user asks for: options that can be read, and then whether they mean something together. `commit` is for `--version`.
pub fn read(commit: Option<&str>) -> Result<anyhow::Result<Verb>, clap::Error> {
    // It is read once, and stays as long as the program.
    let version: &str = about::version(commit).leak();
    let mut command = command().long_version(version);
    let matches = match command.try_get_matches_from_mut(std::env::args_os()) {
        Ok(matches) => matches,
        Err(error) => {
            let verb = std::env::args_os().nth(1);
            let verb = verb.as_deref().and_then(OsStr::to_str);
            return habits::instead(&error, verb).map_or(Err(error), |instead| Ok(Err(instead)));
        }
    };
    let program = Program::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    let checked = meaning::check(&command, &matches).and_then(|()| check_output(&matches));
    Ok(checked.and_then(|()| listen(&matches)).map(|()| program.verb))
}

/// Refuses to write frames to a terminal, and frames or records to a closed standard output.
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
    let is_binary = ["write", "to"].into_iter().any(is_output) && ["capture", "find", "generate"].contains(&verb);
    if is_binary && terminal::is_output_terminal() {
        return Err(usage(
            "standard output is a terminal; write frames to a file (> FILE) or a program (| tshark -r -)",
        ));
    }
    Ok(())
}

/// Listens where a run is to answer those who collect counters.
#[cfg(feature = "serve")]
fn listen(matches: &ArgMatches) -> anyhow::Result<()> {
    let asked = matches.subcommand().and_then(|(verb, own)| {
        let place = own.try_get_one::<crate::view::metrics::Place>("metrics").ok().flatten()?;
        Some((verb, place.clone()))
    });
    asked.map_or(Ok(()), |(verb, place)| crate::view::metrics::bind(verb, place))
}

#[cfg(not(feature = "serve"))]
fn listen(_: &ArgMatches) -> anyhow::Result<()> {
    Ok(())
}

impl Verb {
    /// Whether it is a run that stops on signals, and has a report then.
    fn is_run(&self) -> bool {
        use Verb::{Completions, Ctl, Doctor, Lab, Man, Ports};
        !matches!(self, Ports(_) | Ctl(_) | Doctor(_) | Lab(_) | Man(_) | Completions(_))
    }
}

/// Does what the verb says.
pub fn run(verb: Verb) -> anyhow::Result<Exit> {
    if verb.is_run() {
        remember_requests()?;
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
        Verb::Ctl(args) => ctl::run(&args),
        Verb::Measure(args) => measure::run(&args),
        #[cfg(feature = "serve")]
        Verb::Serve(args) => serve::run(&args),
        Verb::Capture(args) => capture::run(&args),
        Verb::Count(args) => count::run(&args),
        Verb::Flows(args) => flows::run(&args),
        #[cfg(feature = "tui")]
        Verb::Top(args) => top::run(&args),
        Verb::Streams(args) => streams::run(&args),
        Verb::Find(args) => find::run(&args),
        Verb::Send(args) => send::run(&args),
        Verb::Receive(args) => receive::run(&args),
        Verb::Frames(args) => frames::run(&args),
        Verb::Wire(args) => wire::run(&args),
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

    /// Longer lines of our own would be parted in the middle by terminals of 80 columns.
    #[test]
    fn what_stands_below_the_options_fits_80_columns() {
        for verb in [
            "capture", "count", "find", "frames", "inline", "inspect", "measure", "receive", "send", "streams",
            "switch", "top", "wire",
        ] {
            let program = Program::command();
            let verb = program.find_subcommand(verb).expect("a verb");
            let text = verb.get_after_help().expect("examples").to_string();
            let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
            assert!(long.is_empty(), "{}: {long:#?}", verb.get_name());
        }
    }
}
