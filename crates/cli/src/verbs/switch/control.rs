//! Looking at a switch at work, and changing it: a socket, a request a connection.
//!
//! A request is lines of text up to the end of what is written: a command, then rules, one a line. The answer begins with `ok` or
//! `error`. A request is done between two bursts and as a whole: no frame meets half of its rules, and none is lost over it.

use super::report::ports_table;
use super::{Names, line_of};
use crate::exit::Exit;
use crate::verbs::socket::{check_length, listen_at};
use crate::view::rates::counted;
use crate::view::terminal::{fail, show};
use anyhow::Context;
use linerate_burst::Nanos;
use linerate_engine::Stop;
use linerate_engine::switching::{AtWork, Tasks};
use linerate_share::SocketFile;
use linerate_switch::text::{Asked, parse_asked, parse_rule, show_rule};
use linerate_switch::{Installed, Rule, is_within};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest request: some 300,000 rules.
const MOST_BYTES: usize = 32 << 20;

/// How long somebody may take to say what he wants, and the switch to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often the thread looks whether the run is over.
const LOOK: Duration = Duration::from_millis(20);

/// The socket.
pub(super) struct Control {
    listener: UnixListener,
    file: SocketFile,
}

/// The thread that answers; it ends with the run.
pub(super) struct Serving {
    thread: Option<JoinHandle<()>>,
    _file: SocketFile,
}

/// What is asked.
enum Request {
    Add(Vec<Rule>),
    Replace(Vec<Rule>),
    Delete(Asked),
    Dump(Asked),
    Ports,
    Stations,
    FlushStations,
}

/// What came of it.
enum Done {
    Said(String),
    /// These rules are asked for, as they were then.
    Rules(Vec<Installed>, Nanos),
}

impl Control {
    /// Listens there; who may write the socket may ask: its owner.
    pub(super) fn listen(path: &str) -> anyhow::Result<Self> {
        let (listener, file) = listen_at("--control", Path::new(path), None)?;
        Ok(Control { listener, file })
    }

    /// The folder that the socket is in, which is removed from there in the end.
    pub(super) fn folder(&self) -> Option<OwnedFd> {
        self.file.folder().try_clone().ok()
    }

    /// Answers until the run is to end.
    pub(super) fn serve(self, tasks: Tasks, names: Names, stop: Stop) -> Serving {
        let Control { listener, file } = self;
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
        Serving { thread: Some(thread), _file: file }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn answer(mut stream: UnixStream, tasks: &Tasks, names: &Names, stop: &Stop) -> std::io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let said = match Request::parse(&request(&stream, stop)?, names) {
        Err(error) => format!("error: {error}\n"),
        Ok(request) => match done(request, tasks) {
            Some(Done::Said(text)) => format!("ok\n{text}"),
            // Lines of many rules take a while: the switch goes on meanwhile.
            Some(Done::Rules(rules, now)) => {
                let lines = rules.iter().map(|rule| format!(" {}\n", show_rule(rule, now, &names.rings)));
                format!("ok\n{}", lines.collect::<String>())
            }
            None => "error: the switch has not answered; it may have ended\n".to_owned(),
        },
    };
    stream.write_all(said.as_bytes())
}

/// What somebody writes up to its end, within [`PATIENCE`] as a whole: who takes longer keeps others waiting, and the end of the run.
fn request(mut stream: &UnixStream, stop: &Stop) -> std::io::Result<String> {
    stream.set_read_timeout(Some(LOOK))?;
    let (began, mut bytes, mut part) = (Instant::now(), Vec::new(), vec![0; 1 << 16]);
    while bytes.len() < MOST_BYTES && began.elapsed() < PATIENCE && !stop.is_requested() {
        match stream.read(&mut part) {
            Ok(0) => return String::from_utf8(bytes).map_err(|_| ErrorKind::InvalidData.into()),
            Ok(read) => bytes.extend_from_slice(&part[..read]),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    let reason = if bytes.len() < MOST_BYTES { "it was not said in time" } else { "it is too long" };
    stream.write_all(format!("error: {reason}\n").as_bytes())?;
    Err(ErrorKind::TimedOut.into())
}

/// Has the switch do it; none if it says nothing.
fn done(request: Request, tasks: &Tasks) -> Option<Done> {
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
            // The rules of a file stand in the lines behind the command, which are counted from 1.
            let at = |number: usize| if command == "add-flow" { String::new() } else { format!("line {number}: ") };
            given
                .enumerate()
                .filter_map(|(number, line)| Some((number, line_of(line)?)))
                .map(|(number, line)| parse_rule(line, names).map_err(|error| format!("{}{line}: {error}", at(number))))
                .collect()
        };
        let asked = || parse_asked(rest, names);
        match command {
            "add-flow" | "add-flows" => {
                let rules = rules()?;
                if rules.is_empty() { Err("add-flow wants a rule".to_owned()) } else { Ok(Request::Add(rules)) }
            }
            "replace-flows" => Ok(Request::Replace(rules()?)),
            "del-flows" => Ok(Request::Delete(asked()?)),
            "dump-flows" => Ok(Request::Dump(asked()?)),
            "dump-ports" => Ok(Request::Ports),
            "fdb" => Ok(Request::Stations),
            "fdb-flush" => Ok(Request::FlushStations),
            _ => Err(format!("{command:?} is no command: {COMMANDS}")),
        }
    }

    /// Does it, between two bursts.
    fn perform(self, at: &mut AtWork<'_>) -> Done {
        let now = at.now;
        Done::Said(match self {
            Request::Add(rules) => {
                at.switch.add_all(rules, now);
                String::new()
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
                return Done::Rules(rules.cloned().collect(), now);
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

/// As `ovs-appctl fdb/show` has it.
fn stations(at: &AtWork<'_>) -> String {
    let mut text = " port  VLAN  MAC                Age\n".to_owned();
    for station in at.switch.stations(at.now) {
        let mac: Vec<_> = station.mac.to_be_bytes()[2..].iter().map(|byte| format!("{byte:02x}")).collect();
        let age = at.now.0.saturating_sub(station.seen.0) / 1_000_000_000;
        text += &format!("{:5}  {:4}  {}  {age:3}\n", station.port, station.vlan, mac.join(":"));
    }
    text
}

fn is_asked(rule: &Installed, asked: &Asked) -> bool {
    let fits = |said: Option<u64>, has: u64| said.is_none_or(|said| said == has);
    is_within(rule, &asked.matches)
        && fits(asked.priority.map(u64::from), rule.rule.priority.into())
        && fits(asked.cookie, rule.rule.cookie)
}

const COMMANDS: &str =
    "add-flow RULE.., del-flows [MATCHES], replace-flows FILE, dump-flows [MATCHES], dump-ports, fdb, fdb-flush";

/// Asks a switch that listens there, and shows what it says.
pub(crate) fn ask(path: &Path, request: &str) -> anyhow::Result<Exit> {
    check_length(path)?;
    let asked = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(2 * PATIENCE))?;
        stream.write_all(request.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    };
    let place = path.display();
    let said = asked().with_context(|| format!("{place}: is there a linerate switch with --control {place}?"))?;
    if let Some(text) = said.strip_prefix("ok\n") {
        show(text);
        return Ok(Exit::Done);
    }
    let reason = match said.strip_prefix("error: ") {
        Some(reason) => reason.trim_end(),
        None if said.is_empty() => "no answer came: it may have ended",
        None => "no switch listens here: streams are told status, rate, pause, resume, stop, start",
    };
    fail(format!("{place}: {reason}"));
    Ok(Exit::Failed)
}
