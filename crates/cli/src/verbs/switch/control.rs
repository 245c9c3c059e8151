//! Socket of a running switch: one request per connection.
//!
//! A request is text until the client shuts down its side: a line with the command, then one rule per line. The answer
//! starts with `ok` or `error`. A request is applied as a whole, between two bursts, and without losing a frame.

use super::report::ports_table;
use super::{Names, line_of};
use crate::exit::Exit;
use crate::verbs::socket::{check_length, listen_at};
use crate::view::rates::counted;
use crate::view::terminal::{fail, show};
use anyhow::Context;
use linerate_burst::Nanos;
use linerate_engine::Stop;
use linerate_engine::switching::{RunningSwitch, Tasks};
use linerate_share::SocketFile;
use linerate_switch::text::{RuleSelection, parse_rule, parse_selection, show_match, show_rule};
use linerate_switch::{InstalledRule, Rule, is_within};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum size of a request in bytes: some 300,000 rules.
const MOST_BYTES: usize = 32 << 20;

/// Timeout for a client to send its request, and for the switch to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Interval at which connections and the end of the run are polled.
const LOOK: Duration = Duration::from_millis(20);

/// Listening control socket.
pub(super) struct SwitchControlListener {
    listener: UnixListener,
    file: SocketFile,
}

/// Thread that answers requests until the end of the run.
pub(super) struct SwitchControlServer {
    thread: Option<JoinHandle<()>>,
    _file: SocketFile,
}

enum Request {
    Add(Vec<Rule>),
    Replace(Vec<Rule>),
    Delete(RuleSelection),
    Dump(RuleSelection),
    Ports,
    Stations,
    FlushStations,
}

/// Result of a request.
enum RequestResult {
    Text(String),
    /// Selected rules, as of this time.
    Rules(Vec<InstalledRule>, Nanos),
}

impl SwitchControlListener {
    /// Listens at `path`; only the owner can connect.
    pub(super) fn listen(path: &str) -> anyhow::Result<Self> {
        let (listener, file) = listen_at("--control", Path::new(path), None)?;
        Ok(SwitchControlListener { listener, file })
    }

    /// Returns the directory of the socket, from which it is removed at the end.
    pub(super) fn folder(&self) -> Option<OwnedFd> {
        self.file.folder().try_clone().ok()
    }

    /// Answers requests until `stop` is requested.
    pub(super) fn serve(self, tasks: Tasks, names: Names, stop: Stop) -> SwitchControlServer {
        let SwitchControlListener { listener, file } = self;
        let thread = std::thread::spawn(move || {
            while !stop.is_requested() {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let _ = answer(stream, &tasks, &names, &stop);
                    }
                    Err(_) => std::thread::sleep(LOOK),
                }
            }
        });
        SwitchControlServer { thread: Some(thread), _file: file }
    }
}

impl Drop for SwitchControlServer {
    fn drop(&mut self) {
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn answer(mut stream: UnixStream, tasks: &Tasks, names: &Names, stop: &Stop) -> std::io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let text = match Request::parse(&request(&stream, stop)?, names) {
        Err(error) => format!("error: {error}\n"),
        Ok(request) => match done(request, tasks) {
            Some(RequestResult::Text(text)) => format!("ok\n{text}"),
            // Formatting many rules takes time, during which the switch keeps running.
            Some(RequestResult::Rules(rules, now)) => {
                let lines = rules.iter().map(|rule| format!(" {}\n", show_rule(rule, now, &names.rings)));
                format!("ok\n{}", lines.collect::<String>())
            }
            None => "error: no answer from the switch; it may have exited\n".to_owned(),
        },
    };
    stream.write_all(text.as_bytes())
}

/// Reads a request within [`PATIENCE`] in total: a slow client blocks other clients, and the end of the run.
fn request(mut stream: &UnixStream, stop: &Stop) -> std::io::Result<String> {
    stream.set_read_timeout(Some(LOOK))?;
    let (started, mut bytes, mut part) = (Instant::now(), Vec::new(), vec![0; 1 << 16]);
    while bytes.len() < MOST_BYTES && started.elapsed() < PATIENCE && !stop.is_requested() {
        match stream.read(&mut part) {
            Ok(0) => return String::from_utf8(bytes).map_err(|_| ErrorKind::InvalidData.into()),
            Ok(read) => bytes.extend_from_slice(&part[..read]),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    let reason = if bytes.len() < MOST_BYTES { "request timed out" } else { "request too long" };
    stream.write_all(format!("error: {reason}\n").as_bytes())?;
    Err(ErrorKind::TimedOut.into())
}

/// Has the switch perform the request; returns `None` if it does not answer.
fn done(request: Request, tasks: &Tasks) -> Option<RequestResult> {
    let (sender, receiver) = sync_channel(1);
    tasks.push(Box::new(move |at_work| {
        let _ = sender.send(request.perform(at_work));
    }));
    receiver.recv_timeout(PATIENCE).ok()
}

impl Request {
    fn parse(text: &str, names: &Names) -> Result<Self, String> {
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default().trim();
        let (command, rest) = first.split_once(' ').unwrap_or((first, ""));
        let rules = || -> Result<Vec<Rule>, String> {
            let given = std::iter::once(rest).chain(lines.clone());
            // The rules of a file follow the line of the command and are numbered from 1.
            let at = |number: usize| if command == "add-flow" { String::new() } else { format!("line {number}: ") };
            given
                .enumerate()
                .filter_map(|(number, line)| Some((number, line_of(line)?)))
                .map(|(number, line)| parse_rule(line, names).map_err(|error| format!("{}{line}: {error}", at(number))))
                .collect()
        };
        let asked = || parse_selection(rest, names);
        match command {
            "add-flow" | "add-flows" => {
                let rules = rules()?;
                if rules.is_empty() { Err("add-flow needs a rule".to_owned()) } else { Ok(Request::Add(rules)) }
            }
            "replace-flows" => Ok(Request::Replace(rules()?)),
            "del-flows" => Ok(Request::Delete(asked()?)),
            "dump-flows" => Ok(Request::Dump(asked()?)),
            "dump-ports" => Ok(Request::Ports),
            "fdb" => Ok(Request::Stations),
            "fdb-flush" => Ok(Request::FlushStations),
            _ => Err(format!("unknown command {command:?}; expected {COMMANDS}")),
        }
    }

    /// Performs the request, between two bursts.
    fn perform(self, at: &mut RunningSwitch<'_>) -> RequestResult {
        let now = at.now;
        RequestResult::Text(match self {
            Request::Add(rules) => {
                // With many rules the search would hold up the switch.
                let is_searched = rules.len() * at.switch.count() <= MOST_COMPARED;
                let overlaps = rules.iter().filter(|_| is_searched).filter_map(|rule| at.switch.ambiguous(rule));
                let notes = overlaps.map(|other| {
                    let other = show_match(&other.rule.matches);
                    format!("note: overlaps {other} with the same priority; the older rule is applied first\n")
                });
                let notes: String = notes.collect();
                at.switch.add_all(rules, now);
                notes
            }
            Request::Replace(rules) => {
                at.switch.replace_all(rules, now);
                String::new()
            }
            Request::Delete(asked) => {
                let removed = at.switch.remove_if(|rule| is_asked(rule, &asked));
                format!("{} removed\n", counted(removed as u64, "rule"))
            }
            Request::Dump(asked) => {
                let rules = at.switch.rules().into_iter().filter(|rule| is_asked(rule, &asked));
                return RequestResult::Rules(rules.cloned().collect(), now);
            }
            Request::Ports => ports_table(&at.ports),
            Request::Stations => stations(at),
            Request::FlushStations => {
                at.switch.flush_stations();
                String::new()
            }
        })
    }
}

/// Returns the MAC table in the format of `ovs-appctl fdb/show`.
fn stations(at: &RunningSwitch<'_>) -> String {
    let mut text = " port  VLAN  MAC                Age\n".to_owned();
    for station in at.switch.stations(at.now) {
        let mac: Vec<_> = station.mac.to_be_bytes()[2..].iter().map(|byte| format!("{byte:02x}")).collect();
        let age = at.now.0.saturating_sub(station.seen.0) / 1_000_000_000;
        text += &format!("{:5}  {:4}  {}  {age:3}\n", station.port, station.vlan, mac.join(":"));
    }
    text
}

fn is_asked(rule: &InstalledRule, asked: &RuleSelection) -> bool {
    let fits = |wanted: Option<u64>, has: u64| wanted.is_none_or(|wanted| wanted == has);
    is_within(rule, &asked.matches)
        && fits(asked.priority.map(u64::from), rule.rule.priority.into())
        && fits(asked.cookie, rule.rule.cookie)
}

/// Maximum number of comparisons of added rules with known ones.
const MOST_COMPARED: usize = 1000;

const COMMANDS: &str =
    "add-flow RULE.., del-flows [MATCHES], replace-flows FILE, dump-flows [MATCHES], dump-ports, fdb, fdb-flush";

/// Sends a request to the switch at `path`, and prints the answer.
pub(crate) fn ask(path: &Path, request: &str) -> anyhow::Result<Exit> {
    check_length(path)?;
    let exchange = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(2 * PATIENCE))?;
        stream.write_all(request.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let place = path.display();
    let answer = exchange().with_context(|| format!("{place}: no linerate switch with --control {place}"))?;
    if let Some(text) = answer.strip_prefix("ok\n") {
        show(text);
        return Ok(Exit::Done);
    }
    let reason = match answer.strip_prefix("error: ") {
        Some(reason) => reason.trim_end(),
        None if answer.is_empty() => "no answer; the switch may have exited",
        None => "these are streams; use status, rate, pause, resume, stop or start",
    };
    fail(format!("{place}: {reason}"));
    Ok(Exit::Failed)
}
