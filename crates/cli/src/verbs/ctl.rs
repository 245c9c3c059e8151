//! `linerate ctl`: telling the streams of a running `generate --control` something.

use crate::exit::Exit;
use crate::verbs::generate::control::{Answer, Asked, MOST_ANSWER, MOST_QUESTION};
use crate::verbs::socket::check_length;
use crate::view::rates::grouped;
use crate::view::table::table;
use crate::view::terminal::{show, show_line};
use anyhow::{Context, anyhow};
use std::io::{ErrorKind, Read, Write};
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
STREAMS is a name in which * stands for any characters and ? for one; without it all are told. What was told is done when the
command returns, at one time by all threads: sequence numbers have no gaps, and other streams keep their times. A stream that
is started again begins with its first frame.")]
pub struct Args {
    /// The socket: the PATH of generate --control
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// What to tell
    #[command(subcommand)]
    what: What,
    /// Print the answer as one JSON line (schema linerate/ctl/1)
    #[arg(long, global = true)]
    json: bool,
}

/// What streams are told.
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
}

/// Which streams.
#[derive(Debug, clap::Args)]
pub struct Streams {
    /// Their names; * stands for any characters, ? for one
    #[arg(value_name = "STREAMS", default_value = "*")]
    streams: String,
}

/// Tells, and shows how streams are then.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let (action, rate, streams) = match &args.what {
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
    let mut answer = Vec::new();
    socket.take(MOST_ANSWER).read_to_end(&mut answer).context("no answer came")?;
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
