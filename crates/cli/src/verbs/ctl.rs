//! `linerate ctl`: telling a run with `--control` something: streams of `generate`, the rules of a `switch`.

use crate::exit::{Exit, usage};
use crate::signals::read_text;
use crate::verbs::generate::control::{Answer, Asked, MOST_ANSWER, MOST_QUESTION};
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

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Options of `linerate ctl`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # where frames are sent
  sudo linerate generate --to eth1 --streams mix.toml -t 600 \\
    --control /run/mix
  # meanwhile, elsewhere
  sudo linerate ctl /run/mix status
  sudo linerate ctl /run/mix rate 50kpps 'video*'
  sudo linerate ctl /run/mix rate x2
  sudo linerate ctl /run/mix pause voip
  sudo linerate ctl /run/mix resume voip
  sudo linerate ctl /run/mix stop && sudo linerate ctl /run/mix start
  # rules of linerate switch eth1 eth2 --control /run/sw
  sudo linerate ctl /run/sw add-flow 'udp,tp_dst=53,actions=drop'
  sudo linerate ctl /run/sw dump-flows udp

STREAMS is a name in which * stands for any characters and ? for one;
without it all are told. What was told is done when the command returns, at
one time by all threads: sequence numbers have no gaps, and other streams keep
their times. A stream that is started again begins with its first frame.
Rules change between two bursts, all of a command at once; no frame is lost.")]
pub struct Args {
    /// The socket: the PATH of generate --control, or switch --control
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// What to tell
    #[command(subcommand)]
    what: What,
    /// Print the answer as one JSON line (schema linerate/ctl/1)
    #[arg(long, global = true)]
    json: bool,
}

/// What streams, or a switch, are told.
#[derive(Debug, clap::Subcommand)]
pub enum What {
    /// Show how streams are
    Status(Streams),
    /// Send at another rate: 250kpps, 10gbps, top; or x2, x0.5 of what it is. All told together share a rate as they did
    Rate {
        /// The rate
        #[arg(value_name = "RATE")]
        rate: String,
        /// Who
        #[command(flatten)]
        streams: Streams,
    },
    /// Send nothing until resumed
    Pause(Streams),
    /// Go on, if paused
    Resume(Streams),
    /// Send nothing until started
    Stop(Streams),
    /// Begin anew with the first frame, if stopped or at the end
    Start(Streams),
    /// A switch: add rules, as ovs-ofctl add-flow has them; each takes the place of one of its priority about the same frames
    AddFlow {
        /// The rules
        #[arg(value_name = "RULE", required = true)]
        rules: Vec<String>,
    },
    /// A switch: add the rules of a file, one a line
    AddFlows {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// A switch: have the rules of a file and no others; those that were there keep their counters
    ReplaceFlows {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// A switch: remove the rules about such frames, or all
    DelFlows(Matches),
    /// A switch: show the rules about such frames, or all, with what was counted
    DumpFlows(Matches),
    /// A switch: show what went through its ports
    DumpPorts,
    /// A switch: show behind which port each MAC is
    Fdb,
    /// A switch: forget where MACs are
    FdbFlush,
}

/// Which rules.
#[derive(Debug, clap::Args)]
pub struct Matches {
    /// As a rule says it: udp,tp_dst=53, or priority=9, cookie=1
    #[arg(value_name = "MATCHES", default_value = "")]
    matches: String,
}

/// Which streams.
#[derive(Debug, clap::Args)]
pub struct Streams {
    /// Their names; * stands for any characters, ? for one
    #[arg(value_name = "STREAMS", default_value = "*")]
    streams: String,
}

/// Tells, and shows what is said.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let read = |command: &str, file: &PathBuf| {
        let rules = read_text(file).with_context(|| file.display().to_string());
        Ok::<_, anyhow::Error>(format!("{command}\n{}", rules?))
    };
    let (action, rate, streams) = match &args.what {
        What::AddFlow { rules } => return switch(args, &format!("add-flow\n{}", rules.join("\n"))),
        What::AddFlows { file } => return switch(args, &read("add-flows", file)?),
        What::ReplaceFlows { file } => return switch(args, &read("replace-flows", file)?),
        What::DelFlows(Matches { matches }) => return switch(args, &format!("del-flows {matches}")),
        What::DumpFlows(Matches { matches }) => return switch(args, &format!("dump-flows {matches}")),
        What::DumpPorts => return switch(args, "dump-ports"),
        What::Fdb => return switch(args, "fdb"),
        What::FdbFlush => return switch(args, "fdb-flush"),
        What::Status(streams) => ("status", None, streams),
        What::Rate { rate, streams } => ("rate", Some(rate.clone()), streams),
        What::Pause(streams) => ("pause", None, streams),
        What::Resume(streams) => ("resume", None, streams),
        What::Stop(streams) => ("stop", None, streams),
        What::Start(streams) => ("start", None, streams),
    };
    let asked = Asked { action: action.to_owned(), streams: streams.streams.clone(), rate };
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

/// A switch answers in its own text.
fn switch(args: &Args, request: &str) -> anyhow::Result<Exit> {
    if args.json {
        return Err(usage("--json is of streams: a switch has rules in the text that people can diff"));
    }
    control::ask(&args.path, request)
}

fn ask(args: &Args, asked: &Asked) -> anyhow::Result<Answer> {
    check_length(&args.path)?;
    let mut socket = UnixStream::connect(&args.path).map_err(|error| {
        let why = match error.kind() {
            ErrorKind::PermissionDenied => "whoever started the run may tell it something, and root",
            _ => "nobody listens here: start it with linerate generate ... --control PATH",
        };
        anyhow::Error::new(error).context(why)
    })?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(asked)?;
    anyhow::ensure!(line.len() < MOST_QUESTION, "that is too long");
    line.push(b'\n');
    socket.write_all(&line)?;
    socket.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    socket.take(MOST_ANSWER).read_to_end(&mut answer).context("no answer came")?;
    if answer.starts_with(b"error: ") {
        return Err(anyhow!("a switch listens here: it is told add-flow, del-flows, replace-flows, dump-flows, ..."));
    }
    serde_json::from_slice(&answer).context("the answer is none of linerate's")
}

fn text(answer: &Answer) -> String {
    let is_checked = answer.streams.iter().any(|stream| stream.received.is_some());
    let heads = ["stream", "state", "rate", "sent", "received", "lost"];
    let mut rows = table(if is_checked { &heads } else { &heads[..4] }, 2).known_by_first();
    for stream in &answer.streams {
        let mut cells = vec![stream.name.clone(), stream.state.clone(), stream.rate.clone(), grouped(stream.sent)];
        if is_checked {
            cells.extend([stream.received, stream.lost].map(|count| count.map_or_else(String::new, grouped)));
        }
        rows.add_row(cells);
    }
    format!("{rows}\n")
}
