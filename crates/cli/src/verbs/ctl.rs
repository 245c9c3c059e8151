//! `linerate ctl`: controls a run with `--control`: the streams of `generate`, the rules of `switch`.

use crate::exit::{Exit, usage};
use crate::signals::read_text;
use crate::verbs::generate::control::{ControlReply, ControlRequest, MOST_ANSWER, MOST_QUESTION};
use crate::verbs::socket::check_length;
use crate::verbs::switch::control;
use crate::view::rates::grouped;
use crate::view::table::table;
use crate::view::terminal::{show, show_line};
use anyhow::{Context, anyhow};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Timeout for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Options of `linerate ctl`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # in one terminal
  sudo linerate generate --to eth1 --streams mix.toml -T 600 \\
    --control /run/mix
  # in another one
  sudo linerate ctl /run/mix status
  sudo linerate ctl /run/mix rate 50kpps 'video*'
  sudo linerate ctl /run/mix rate x2
  sudo linerate ctl /run/mix pause voip
  sudo linerate ctl /run/mix resume voip
  sudo linerate ctl /run/mix stop && sudo linerate ctl /run/mix start
  # rules of linerate switch eth1 eth2 --control /run/sw
  sudo linerate ctl /run/sw add-flow 'udp,tp_dst=53,actions=drop'
  sudo linerate ctl /run/sw dump-flows udp

The command returns once it has been applied, by all threads at the same time:
sequence numbers have no gaps, and other streams keep their schedule. Changes
of rules are applied all at once, without losing a packet.")]
pub struct Args {
    /// Socket path, as given to generate --control or switch --control
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Command
    #[command(subcommand)]
    what: ControlCommand,
    /// Print the answer as one JSON line (schema linerate/ctl/1); streams only
    #[arg(long, global = true)]
    json: bool,
}

/// Command to streams, or to a switch.
#[derive(Debug, clap::Subcommand)]
pub enum ControlCommand {
    /// Streams: show state, rate and counters
    Status(Streams),
    /// Streams: set the rate: 250kpps, 10gbps, max (all streams only), or a factor such as x2 or x0.5
    Rate {
        /// Rate of each stream; without a pattern, packets of --packet share it
        #[arg(value_name = "RATE")]
        rate: String,
        /// Selected streams
        #[command(flatten)]
        streams: Streams,
    },
    /// Streams: pause
    Pause(Streams),
    /// Streams: resume paused ones
    Resume(Streams),
    /// Streams: stop
    Stop(Streams),
    /// Streams: restart stopped or finished ones with the first packet
    Start(Streams),
    /// Switch: add rules, as in ovs-ofctl add-flow; a rule with the same priority and matches is replaced
    AddFlow {
        /// Rules to add
        #[arg(value_name = "RULE", required = true)]
        rules: Vec<String>,
    },
    /// Switch: add the rules of a file, one per line
    AddFlows {
        /// File of rules
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Switch: replace all rules with those of a file; unchanged rules keep their counters
    ReplaceFlows {
        /// File of rules
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Switch: delete the selected rules, or all
    DelFlows(Matches),
    /// Switch: show the selected rules, or all, with counters
    DumpFlows(Matches),
    /// Switch: show port counters
    DumpPorts,
    /// Switch: show the MAC table
    Fdb,
    /// Switch: flush the MAC table
    FdbFlush,
}

/// Selection of rules.
#[derive(Debug, clap::Args)]
pub struct Matches {
    /// Matches of the rules to select, such as udp,tp_dst=53; also priority=9, cookie=1
    #[arg(value_name = "MATCHES", default_value = "")]
    matches: String,
}

/// Selection of streams.
#[derive(Debug, clap::Args)]
pub struct Streams {
    /// Names of streams: * matches any characters, ? a single one
    #[arg(value_name = "PATTERN", default_value = "*")]
    streams: String,
}

/// Runs `linerate ctl`.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let read = |command: &str, file: &PathBuf| {
        let rules = read_text(file).with_context(|| file.display().to_string());
        Ok::<_, anyhow::Error>(format!("{command}\n{}", rules?))
    };
    let (action, rate, streams) = match &args.what {
        ControlCommand::AddFlow { rules } => return switch(args, &format!("add-flow\n{}", rules.join("\n"))),
        ControlCommand::AddFlows { file } => return switch(args, &read("add-flows", file)?),
        ControlCommand::ReplaceFlows { file } => return switch(args, &read("replace-flows", file)?),
        ControlCommand::DelFlows(Matches { matches }) => return switch(args, &format!("del-flows {matches}")),
        ControlCommand::DumpFlows(Matches { matches }) => return switch(args, &format!("dump-flows {matches}")),
        ControlCommand::DumpPorts => return switch(args, "dump-ports"),
        ControlCommand::Fdb => return switch(args, "fdb"),
        ControlCommand::FdbFlush => return switch(args, "fdb-flush"),
        ControlCommand::Status(streams) => ("status", None, streams),
        ControlCommand::Rate { rate, streams } => ("rate", Some(rate.clone()), streams),
        ControlCommand::Pause(streams) => ("pause", None, streams),
        ControlCommand::Resume(streams) => ("resume", None, streams),
        ControlCommand::Stop(streams) => ("stop", None, streams),
        ControlCommand::Start(streams) => ("start", None, streams),
    };
    let asked = ControlRequest { action: action.to_owned(), streams: streams.streams.clone(), rate };
    let answer = ask(args, &asked).with_context(|| args.path.display().to_string())?;
    if let Some(error) = &answer.error {
        return Err(anyhow!("{error}"));
    }
    if args.json {
        show_line(&answer)?;
    } else {
        show(text(&answer));
    }
    Ok(Exit::Done)
}

/// Sends a request to a switch, which answers in text.
fn switch(args: &Args, request: &str) -> anyhow::Result<Exit> {
    if args.json {
        return Err(usage("--json works with streams only; a switch prints its rules as text"));
    }
    control::ask(&args.path, request)
}

fn ask(args: &Args, asked: &ControlRequest) -> anyhow::Result<ControlReply> {
    check_length(&args.path)?;
    let mut socket = UnixStream::connect(&args.path).map_err(|error| {
        let why = match error.kind() {
            ErrorKind::PermissionDenied => "only root and the user who started the run can control it",
            _ => "no run listens on this socket; start one with linerate generate ... --control PATH",
        };
        anyhow::Error::new(error).context(why)
    })?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(asked)?;
    anyhow::ensure!(line.len() < MOST_QUESTION, "the request is too long");
    line.push(b'\n');
    socket.write_all(&line)?;
    socket.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    socket.take(MOST_ANSWER).read_to_end(&mut answer).context("no answer")?;
    if answer.starts_with(b"error: ") {
        return Err(anyhow!(
            "this is a switch; use add-flow, del-flows, replace-flows, dump-flows, dump-ports, fdb or fdb-flush"
        ));
    }
    serde_json::from_slice(&answer).context("invalid answer; is this a socket of linerate?")
}

fn text(answer: &ControlReply) -> String {
    let is_checked = answer.streams.iter().any(|stream| stream.received.is_some());
    let heads = ["stream", "state", "rate", "sent", "received", "lost"];
    let mut rows = table(if is_checked { &heads } else { &heads[..4] }, 2).with_single_key();
    for stream in &answer.streams {
        let mut cells = vec![stream.name.clone(), stream.state.clone(), stream.rate.clone(), grouped(stream.sent)];
        if is_checked {
            cells.extend([stream.received, stream.lost].map(|count| count.map_or_else(String::new, grouped)));
        }
        rows.add_row(cells);
    }
    format!("{rows}\n")
}
