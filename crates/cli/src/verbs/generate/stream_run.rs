//! `linerate generate` of streams: opens the ports, sends, answers and checks.

use super::control::ControlListener;
use super::hosts::{self, Hosts};
use super::screen::SentHistory;
use super::stream_options::StreamContext;
use super::{AnswerArgs, Args, answer, has_no_reader, preflight, report};
use crate::exit::{Exit, usage};
use crate::signals::{opening, stop_on_signals, waiting};
use crate::verbs::inputs::{check_take, is_file, notes_of};
use crate::view::live::answer as answer_requests;
use crate::view::terminal::{print_stderr, show, shown};
use linerate_backends::{REGISTRY, open_rx};
use linerate_burst::LinkType;
use linerate_engine::check::{CheckConsumer, CheckThread};
use linerate_engine::streams::{Control, StreamRun};
use linerate_engine::{CheckWatch, InterfaceResponder, Progress, StreamWatch, Streams};
use linerate_engine::{Receive, Selection};
use linerate_generate::stream::StreamSet;
use linerate_generate::{Check, SenderPart, Timeline, describe};
use linerate_headers::Link;
use linerate_port::{PortError, RxOptions, RxPort, Spec, TxOptions, TxPort};
use std::net::IpAddr;
use std::time::Duration;

/// Minimum number of restarts that the check has memory for: a restarted stream has a new number.
const STARTS: usize = 1024;
/// A check ends after this time without a frame (RFC 2544, section 23).
const SILENCE: Duration = Duration::from_secs(2);
/// A check ends this long after the last frame was sent at the latest.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends the streams.
pub fn run(args: &Args, spec: &Spec, duration: Option<Duration>) -> anyhow::Result<Exit> {
    let found = preflight::interface(spec);
    let around = StreamContext {
        rate: args.out.rate,
        line: args.out.line,
        found: found.as_ref(),
        is_timed: duration.is_some(),
        is_dry: args.dry_run.is_some(),
        is_checked: args.check.is_some(),
    };
    let mut set = args.what.set(&around)?;
    set.check().map_err(usage)?;
    let lengths = || set.streams.iter().flat_map(|stream| &stream.variants).map(|variant| variant.frame.len());
    let runts = lengths().min().and_then(|shortest| preflight::note_runts(set.streams[0].link, shortest));
    for note in runts.iter().filter(|_| !args.end.show.quiet) {
        print_stderr(format_args!("{note}\n"));
    }
    let longest = lengths().max();
    if let Some(frames) = args.dry_run {
        return waiting(|| dry_run(&set, frames));
    }
    preflight::check_length(found.as_ref(), longest.unwrap_or_default())?;
    let check_from = args.check.as_deref().map(Spec::parse).transpose().map_err(usage)?;
    check_take(args.take, &check_from)?;
    let identity = args.end.identity(check_from.iter().chain([spec]))?;
    args.answer.check(spec, check_from.as_ref())?;
    let AnswerPorts { answering, answering_check, first } = route(&args.answer, spec, check_from.as_ref(), &mut set)?;
    let receiving = check_from.map(|spec| open_check(&spec, args.take)).transpose()?;
    for note in receiving.iter().flat_map(notes_of).filter(|_| !args.end.show.quiet) {
        print_stderr(format_args!("{}\n", shown(&note)));
    }
    // To measure latencies through memory, frames need the time of sending, not the due time.
    let link = LinkType(set.streams[0].link.linktype());
    let options = TxOptions { queues: args.threads, stamped: args.check.is_some(), owner: identity.owner(), link };
    let at_once = !REGISTRY.leaves_when_sent(spec, &options);
    check_control(args, spec, at_once)?;
    let is_table = !at_once && args.end.wants_table();
    let control = (args.control.is_some() || is_table).then(|| Control::new(&set));
    let open = || -> anyhow::Result<Streams> {
        let port = open_tx(spec, &options).map_err(|error| identity.explain(error))?;
        note_threads(args, &port);
        ready(args, &set, port, control.as_ref())
    };
    let socket = args.control.as_deref().map(|path| ControlListener::new(path, identity.owner())).transpose()?;
    let early = (!is_file(spec)).then(&open).transpose()?;
    let assumed = identity.assume()?;
    let streams = early.map_or_else(&open, Ok)?;
    if let Some(note) = streams.note().filter(|_| !args.end.show.quiet) {
        print_stderr(format_args!("{}\n", shown(note)));
    }
    let session = args.end.confine(assumed, [spec], args.control.as_deref())?;
    let stop = stop_on_signals(&session)?;

    let answering = answering.map(InterfaceResponder::start).transpose()?;
    let more = if control.is_some() { STARTS.max(set.streams.len() * 3) } else { 0 };
    let start_check = |port| {
        let checking = CheckConsumer::new(Check::of(&set, more), Selection::default()).answer(answering_check);
        CheckThread::start(checking, Receive::all(vec![port]))
    };
    let checker = receiving.map(start_check).transpose()?;
    let run = StreamRun { duration, stop, progress: Progress::new(), watch: StreamWatch::default(), at_once };
    let names = super::names::Names::of(&set, control.clone());
    let watching = SentHistory::new(&run, &names, checker.as_ref().map(|checker| checker.watch().clone()));
    let check_watch = checker.as_ref().map(|checker| checker.watch().clone());
    let live = streams.is_live();
    let controlled = control.as_ref().filter(|_| is_table);
    let table = show_table(controlled, &run, check_watch.as_ref(), &spec.to_string());
    let has_table = table.is_some();
    let show = &args.end.show;
    let news = if has_table { show.below_table() } else { show.news(args.end.json) };
    let lines = watching.start(args.end.interval()?.filter(|_| !has_table), args.end.json);
    let answers = answer_requests(&run.progress, "sent", move || watching.so_far())?;
    let serving = socket.zip(control).map(|(socket, control)| socket.answer(control, run.watch.clone(), check_watch));
    let serving = serving.transpose()?;
    let mut sent = streams.run(&run);
    sent.failure.take_if(|failure| has_no_reader(spec, failure));
    drop(serving);
    let received = checker.map(|checker| checker.finish(Some(sent.sent.frames), SILENCE, PATIENCE, &run.stop));
    drop((table, lines, answers, news));
    let answers = answer::finish(answering);
    received.iter().for_each(|report| answer::report_failure(&report.answers));
    report::Outcome { spec, set: &set, names: &names, sent, received, answers, live, at_once, first }.print(args)
}

/// Shows the table of streams at a terminal, until the result is dropped.
#[cfg(feature = "tui")]
fn show_table(
    control: Option<&Control>,
    run: &StreamRun,
    check: Option<&CheckWatch>,
    port: &str,
) -> Option<super::table::TableThread> {
    control.and_then(|control| super::table::show(control, run, check, port))
}

#[cfg(not(feature = "tui"))]
fn show_table(_: Option<&Control>, _: &StreamRun, _: Option<&CheckWatch>, _: &str) -> Option<()> {
    None
}

/// Ports that answer, and the destination of the first frames.
#[derive(Default)]
pub struct AnswerPorts {
    /// Answers on the interface of `--to`.
    pub answering: Option<InterfaceResponder>,
    /// Answers on the interface of `--check`.
    pub answering_check: Option<InterfaceResponder>,
    /// Destination of the first frames.
    pub first: Option<IpAddr>,
}

/// Opens the ports to answer and resolve, resolves the next hop, and sets it as the destination of the frames.
pub fn route(
    answer: &AnswerArgs,
    spec: &Spec,
    check: Option<&Spec>,
    set: &mut StreamSet,
) -> anyhow::Result<AnswerPorts> {
    let is_ethernet = set.streams[0].link == Link::Ethernet;
    let receiver = check.and_then(preflight::interface).and_then(|found| found.address.parse().ok());
    let hosts = if is_ethernet { Hosts::of(set, receiver) } else { Hosts::default() };
    let first = hosts.destinations.first().copied();
    if !answer.is_wanted() {
        return Ok(AnswerPorts { first, ..AnswerPorts::default() });
    }
    if !is_ethernet {
        return Err(usage("--answer, --answer-for, --gateway and --resolve need Ethernet frames"));
    }
    if hosts.is_part {
        print_stderr(
            "--answer: only addresses in the first frames of each stream are answered; add others with --answer-for\n",
        );
    }
    let mut answering = answer.open(spec, &hosts.senders)?;
    let (Some(sender), Some(destination)) = (hosts.senders.first(), first) else {
        return Err(usage("--answer, --answer-for, --gateway and --resolve need IP packets"));
    };
    if answer.resolves_destination() && hosts.destinations.len() > 1 {
        return Err(usage(format!(
            "--resolve needs a single destination address, not {} or more; use --gateway",
            hosts.destinations.len()
        )));
    }
    let answering_check = check.map_or(Ok(None), |check| answer.open_check(spec, check, &hosts.receivers))?;
    if let Some(mac) = answer.next_hop(answering.as_mut(), *sender, destination)? {
        hosts::send_to(set, mac)?;
    }
    Ok(AnswerPorts { answering, answering_check, first })
}

/// Opens a port to send to; opening a pipe waits for its reader.
pub fn open_tx(spec: &Spec, options: &TxOptions) -> Result<TxPort, PortError> {
    let open = || REGISTRY.open_tx(spec, options);
    REGISTRY.file(spec).map_or_else(open, |path| opening(&path, open))
}

/// Prints a note if a port has fewer queues than `--threads`.
fn note_threads(args: &Args, port: &TxPort) {
    if port.queues.len() < args.threads && !args.end.show.quiet {
        let name = shown(&port.name);
        print_stderr(format_args!(
            "{name}: uses {} of {} threads, one per TX queue\n",
            port.queues.len(),
            args.threads
        ));
    }
}

/// Refuses `--control` where frames do not wait for their due time.
fn check_control(args: &Args, spec: &Spec, at_once: bool) -> anyhow::Result<()> {
    match args.control {
        Some(_) if at_once => Err(usage(format!("--control has no effect with {spec}: it is written at full speed"))),
        _ => Ok(()),
    }
}

fn ready(args: &Args, set: &StreamSet, port: TxPort, control: Option<&Control>) -> anyhow::Result<Streams> {
    Ok(match (args.keep, control) {
        (Some(frames), Some(control)) => Streams::controlled_kept(set, port, frames, control)?,
        (Some(frames), None) => Streams::kept(set, port, frames)?,
        (None, Some(control)) if args.control.is_some() => Streams::controlled_each(set, port, control)?,
        (None, Some(control)) => Streams::controlled(set, port, control)?,
        (None, None) => Streams::new(set, port)?,
    })
}

/// Opens a port to check.
pub fn open_check(spec: &Spec, take: bool) -> anyhow::Result<RxPort> {
    Ok(open_rx(spec, &RxOptions { promiscuous: true, lossless: true, take, ..RxOptions::default() })?)
}

/// Prints the first frames of the run, layer by layer, with the fields that vary.
fn dry_run(set: &StreamSet, frames: u64) -> anyhow::Result<Exit> {
    let mut timeline = Timeline::new(set, SenderPart::WHOLE)?;
    let mut slots = Vec::new();
    for _ in 0..frames {
        slots.clear();
        timeline.take(u64::MAX, 1, &mut slots);
        let Some(slot) = slots.first().map(|run| run.first) else { break };
        let stream = &set.streams[slot.stream as usize];
        let frame = describe(stream, slot.number, slot.due, &set.key);
        if !show(format_args!("due at {:.6} ms\n{frame}", slot.due as f64 / 1e6)) {
            break;
        }
    }
    Ok(Exit::Done)
}
