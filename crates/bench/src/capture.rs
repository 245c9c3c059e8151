//! Capturing from a veth pair at the sender's top speed, beside tcpdump and dumpcap, by every way the kernel hands frames over.
//!
//! Sender and receiver share the cores of this machine, so besides the rate the processor time that the
//! receiver takes for a frame is compared. The way in is one of: the softirq that the frames raise (NAPI as it is), a thread of
//! the kernel (threaded NAPI, which PF_RING's TNAPI was first to do), or calls of the reader (busy polling).

mod receivers;

use self::receivers::{Job, RECEIVERS, Receiver};
use super::Effort;
use super::folder::Folder;
use super::measure::{Rounds, Row};
use super::traffic;
use anyhow::{Context, anyhow, bail};
use linerate_backends::counting::{Counting, Then};
use linerate_cli::view::terminal::tell;
use linerate_generate::stream::Mark;
use linerate_lab::{Plan, TemporaryLab};
use linerate_port::Spec;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Frames a round sends; the fast sender sends several times as many.
const FRAMES: usize = 1_000_000;
const FAST: u64 = 8;
/// The most bytes of a file.
const KEPT: u64 = 3 << 30;
/// Sizes, with FCS.
const SIZES: [usize; 3] = [64, 512, 1518];
/// With this status a receiver says that frames were lost, which is counted here.
const LOSS: i32 = 3;
/// How long a receiver gets to open its port, and to take what is left.
const SETTLE: Duration = Duration::from_millis(700);
/// How long it may take to start.
const LONGEST_START: Duration = Duration::from_secs(20);
/// The sender that only a program in the driver keeps up with.
const FAST_SENDER: &str = "xdp-live";
/// Queues of an interface that has several, as many as processors that send into it.
const QUEUES: usize = 2;

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    if !rustix::process::geteuid().is_root() {
        tell("bench capture: SKIPPED: test hosts need root\n");
        return Ok(Vec::new());
    }
    let peers: Vec<Receiver> = receivers::PEERS
        .into_iter()
        .filter(|peer| {
            let is_here = Command::new(peer.name).arg("--version").output().is_ok();
            if !is_here && peer.job == Job::Take {
                let package = if peer.name == "dumpcap" { "wireshark-common" } else { peer.name };
                let how = format!("not installed (apt install {package})");
                tell(format_args!("bench capture: no comparison with {}: {how}\n", peer.name));
            }
            is_here
        })
        .collect();
    let mut rows = Vec::new();
    for sender in ["packet", FAST_SENDER] {
        let sizes = if effort.quick && effort.size.is_none() { &SIZES[..1] } else { &SIZES };
        for size in sizes.iter().copied().filter(|size| effort.size.is_none_or(|only| only == *size)) {
            rows.extend(measure(effort, (sender, 1), size, &peers)?);
            if sender == FAST_SENDER && std::thread::available_parallelism().is_ok_and(|all| all.get() >= QUEUES) {
                rows.extend(measure(effort, (sender, QUEUES), size, &peers)?);
            }
        }
    }
    Ok(rows)
}

fn measure(
    effort: Effort,
    (sender, queues): (&str, usize),
    size: usize,
    peers: &[Receiver],
) -> anyhow::Result<Vec<Row>> {
    let link = format!("tx:eth0,rx:eth0,queues={queues}").parse()?;
    let lab = TemporaryLab::up(&Plan::from_links("bench", vec![link])?)?;
    let is_fast = sender == FAST_SENDER;
    if is_fast {
        // Else the veth would take live frames only where an XDP program receives.
        lab.exec("rx", "ethtool")?.args(["-K", "eth0", "gro", "on"]).status().context("ethtool")?;
    }
    let frames = effort.of(FRAMES) as u64 * if is_fast { FAST } else { 1 };
    let folder = Folder::new("capture")?;
    let file = folder.file("taken.pcap");
    let mut ours: Vec<(Receiver, Side)> = Vec::new();
    let is_one = |receiver: &Receiver| {
        if queues > 1 { receiver.is_of_queues() } else { is_fast || receiver.is_plain() }
    };
    for receiver in RECEIVERS.into_iter().filter(is_one) {
        match receiver.handing.prepare(&lab, true) {
            Ok(()) => ours.push((receiver, Side::default())),
            Err(error) => tell(format_args!("bench capture: {}: not measured: {error}\n", receiver.name)),
        }
        receiver.handing.prepare(&lab, false)?;
    }
    let theirs = peers.iter().filter(|peer| is_fast && queues == 1 || peer.job == Job::Take);
    let mut theirs: Vec<(Receiver, Side)> = theirs.map(|peer| (*peer, Side::default())).collect();
    let mut limit = Rounds::default();
    for _ in 0..effort.rounds.min(5) {
        for (receiver, side) in ours.iter_mut().chain(&mut theirs) {
            receiver.handing.prepare(&lab, true)?;
            let frames = if receiver.job == Job::Keep { frames.min(KEPT / size as u64) } else { frames };
            side.round(&lab, (sender, queues), (frames, size), receiver, &file)?;
            receiver.handing.prepare(&lab, false)?;
        }
        if is_fast {
            let drop = Counting::attach(Some(&lab.plan().namespace("rx")), "eth0", Then::Drop).context("a program")?;
            let (_, seconds) = send(&lab, (sender, queues), (frames, size), Mark::None)?;
            limit.add(drop.frames(), seconds);
        }
    }
    let row = |(receiver, side): &(Receiver, Side)| {
        let several = if queues > 1 { format!(", {queues} queues") } else { String::new() };
        let case = format!("{}{several}, sender {sender}", receiver.name);
        let mut row = side.rounds.row("capture", case, (size - 4) as f64).sized(size);
        row.cores = 2;
        row.remark = side.remark();
        // Where nobody else does the job, what taking frames costs others stands beside it.
        let has_peers = theirs.iter().any(|(peer, _)| peer.job == receiver.job);
        let job = if has_peers { receiver.job } else { Job::Take };
        let theirs: Vec<_> = theirs.iter().filter(|(peer, _)| peer.job == job).collect();
        if let Some((peer, side)) = theirs.first() {
            row = row.beside(peer.name, &side.rounds);
        }
        if is_fast {
            row = row.limited("drop", &limit);
        }
        for (at, (peer, side)) in theirs.iter().enumerate() {
            let rate = if at == 0 { String::new() } else { format!(" {:.2} M/s,", side.rounds.median()) };
            row.remark += &format!("; {}{rate} {}", peer.name, side.remark());
        }
        row
    };
    Ok(ours.iter().map(row).collect())
}

/// The rounds of one receiver.
#[derive(Default)]
struct Side {
    rounds: Rounds,
    lost: u64,
    captured: u64,
    cpu: Duration,
}

impl Side {
    fn remark(&self) -> String {
        let cpu = self.cpu.as_nanos() as f64 / self.captured.max(1) as f64;
        format!("lost {}, {cpu:.0} ns CPU a frame", self.lost)
    }

    /// Starts a receiver, sends, ends the receiver, and counts.
    fn round(
        &mut self,
        lab: &TemporaryLab,
        sender: (&str, usize),
        (frames, size): (u64, usize),
        receiver: &Receiver,
        file: &Path,
    ) -> anyhow::Result<()> {
        let child = (receiver.start)(lab, file)?.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("cannot start {}", receiver.name))?;
        wait_until_ready(&child);
        std::thread::sleep(SETTLE);
        let before = cpu_time(&child);
        let mark = if receiver.job == Job::Check { Mark::Trailer } else { Mark::None };
        let sent = send(lab, sender, (frames, size), mark);
        std::thread::sleep(SETTLE);
        let cpu = cpu_time(&child).saturating_sub(before);
        let text = end(&mut child)?;
        if receiver.job == Job::Keep {
            std::fs::remove_file(file).with_context(|| file.display().to_string())?;
        }
        let (sent, seconds) = sent?;
        let captured =
            (receiver.count)(&text).with_context(|| format!("a receiver did not say what it captured: {text}"))?;
        self.rounds.add(captured, seconds);
        self.lost += sent.saturating_sub(captured);
        self.captured += captured;
        self.cpu += cpu;
        Ok(())
    }
}

/// Sends frames, from as many processors as the interface has queues: a veth hands what one of them sends to a queue of its own.
fn send(
    lab: &TemporaryLab,
    (scheme, queues): (&str, usize),
    (frames, size): (u64, usize),
    mark: Mark,
) -> anyhow::Result<(u64, f64)> {
    let spec = Spec::parse(&format!("{scheme}:eth0?netns={}", lab.plan().namespace("tx")))?;
    let set = traffic::streams(traffic::ONE, size, frames / queues as u64, mark)?;
    if queues == 1 {
        let (frames, span) = traffic::send(&spec, &set, false)?;
        return Ok((frames, span.as_secs_f64()));
    }
    let one = |processor: usize| {
        let mut own = CpuSet::new();
        own.set(processor);
        sched_setaffinity(None, &own)?;
        traffic::send(&spec, &set, false)
    };
    let sent: anyhow::Result<Vec<(u64, Duration)>> = std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..queues).map(|queue| scope.spawn(move || one(queue))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a sender has died"))?).collect()
    });
    let sent = sent?;
    let longest = sent.iter().map(|(_, span)| *span).max().unwrap_or_default();
    Ok((sent.iter().map(|(frames, _)| frames).sum(), longest.as_secs_f64()))
}

/// Until a receiver can be asked to end, of which each takes SIGINT for that, and linerate once it is confined, with everything
/// open (proc(5), `SigCgt` and `NoNewPrivs`); one that never can be fails there.
fn wait_until_ready(child: &Child) {
    let began = Instant::now();
    while began.elapsed() < LONGEST_START && !is_ready(child) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_ready(child: &Child) -> bool {
    let process = format!("/proc/{}", child.id());
    let status = std::fs::read_to_string(format!("{process}/status")).unwrap_or_default();
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim);
    let takes_it = u64::from_str_radix(field("SigCgt:"), 16).is_ok_and(|bits| bits & 2 != 0);
    let is_linerate = std::fs::read_link(process + "/exe").is_ok_and(|program| program.ends_with("linerate"));
    let has_ended = matches!(field("State:").chars().next(), None | Some('Z'));
    has_ended || takes_it && (!is_linerate || field("NoNewPrivs:") == "1")
}

/// Processor time that the first thread of a running process has used, from `/proc/PID/schedstat`
/// (Documentation/scheduler/sched-stats.rst: nanoseconds on a processor come first).
fn cpu_time(child: &Child) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{}/schedstat", child.id())).unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|number| number.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

/// Asks a receiver to end, and returns all it printed.
fn end(child: &mut Child) -> anyhow::Result<String> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("the receiver has no process id")?;
    kill_process(pid, Signal::INT).context("the receiver has ended early")?;
    let mut text = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut text)?;
    }
    if let Some(mut err) = child.stderr.take() {
        err.read_to_string(&mut text)?;
    }
    let status = child.wait()?;
    if !status.success() && status.code() != Some(LOSS) {
        bail!("a receiver failed ({status}): {text}");
    }
    Ok(text)
}
