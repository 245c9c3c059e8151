//! Capturing from a veth pair at the sender's maximum rate by every receive path of the kernel, compared with tcpdump and dumpcap.
//!
//! Sender and receiver share the processors of this machine, so the CPU time per packet of the receiver is compared too. Packets arrive
//! by the softirq that they raise (the default of NAPI), by a thread of the kernel (threaded NAPI), or by calls of the reader (busy
//! polling).

use super::Effort;
use super::folder::Folder;
use super::harness::{Case, Ours, Prepare, Sample, Side, case};
use super::machine::{accept_live, counting, has_hosts, lab, pin, port_in, task_cpu};
use super::peers::{DUMPCAP, Job, Peer, TCPDUMP};
use super::traffic::{self, ONE};
use anyhow::{Context, anyhow, bail};
use linerate_cli::view::terminal::print_stderr;
use linerate_generate::stream::Mark;
use linerate_lab::TemporaryLab;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Packets of a round; the fast sender sends several times as many.
const FRAMES: usize = 1_000_000;
const FAST: u64 = 8;
/// Maximum bytes of a file.
const KEPT: u64 = 3 << 30;
/// Sizes, with FCS.
const SIZES: [usize; 3] = [64, 512, 1518];
/// Exit status of a receiver that lost packets, which are counted here.
const LOSS: i32 = 3;
/// Time for a receiver to open its port, and to read the last packets.
const SETTLE: Duration = Duration::from_millis(700);
/// Maximum time until a receiver is ready.
const LONGEST_START: Duration = Duration::from_secs(20);
/// The sender that only a program in the driver keeps up with.
const FAST_SENDER: &str = "xdp-live";
/// Queues of an interface with several, as many as processors that send into it.
const QUEUES: usize = 2;
/// Target of discarded packets.
const NOTHING: &str = "/dev/null";

/// Jobs of receivers; those of one job are compared.
const TAKE: u8 = 0;
const KEEP: u8 = 1;
const METER: u8 = 2;
const CHECK: u8 = 3;

/// A receiver of ours.
#[derive(Clone, Copy)]
struct Receiver {
    name: &'static str,
    job: u8,
    /// Arguments of linerate: `{PORT}` and `{FILE}` are replaced.
    port: &'static str,
    arguments: &'static str,
    /// Has a kernel thread receive (`/sys/class/net/.../threaded`).
    is_threaded: bool,
}

/// The file belongs to root, whose folder it is in.
const CAPTURE: &str = "capture {PORT} --format pcap --json --lossless -Z root -w {FILE}";
const COUNT: &str = "count {PORT} --json --interval 0 --lossless";

const fn receiver(name: &'static str, port: &'static str, arguments: &'static str) -> Receiver {
    Receiver { name, job: TAKE, port, arguments, is_threaded: false }
}

const RECEIVERS: [Receiver; 11] = [
    receiver("packet", "packet:IF", CAPTURE),
    Receiver { is_threaded: true, ..receiver("packet, threaded NAPI", "packet:IF", CAPTURE) },
    receiver("packet count", "packet:IF", COUNT),
    receiver("xdp", "xdp:IF", CAPTURE),
    Receiver { is_threaded: true, ..receiver("xdp, threaded NAPI", "xdp:IF", CAPTURE) },
    receiver("xdp count", "xdp:IF", COUNT),
    receiver("xdp by AF_XDP", "xdp:IF?mode=af_xdp", CAPTURE),
    receiver("xdp by AF_XDP, busy polling", "xdp:IF?mode=af_xdp&busy-poll=64", CAPTURE),
    Receiver { job: KEEP, ..receiver("xdp to a file", "xdp:IF", CAPTURE) },
    Receiver { job: METER, ..receiver("xdp to flows", "xdp:IF", "flows {PORT} --write null --json --lossless") },
    Receiver { job: CHECK, ..receiver("xdp checked", "xdp:IF", "check {PORT} --json --interval 0 --lossless") },
];

/// Receivers for an interface with several queues.
const OF_QUEUES: [&str; 4] = ["packet", "xdp", "xdp count", "xdp by AF_XDP"];

pub(super) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    if !has_hosts("capture") {
        return Ok(Vec::new());
    }
    let sizes = if effort.quick && effort.size.is_none() { vec![SIZES[0]] } else { effort.sizes(&SIZES) };
    let has_queues = std::thread::available_parallelism().is_ok_and(|all| all.get() >= QUEUES);
    let mut cases = Vec::new();
    for sender in ["packet", FAST_SENDER] {
        for size in &sizes {
            let queues = if sender == FAST_SENDER && has_queues { vec![1, QUEUES] } else { vec![1] };
            for queues in queues {
                let way = CapturePath { sender, queues, size: *size, frames: effort.of(FRAMES) as u64 };
                cases.push(case(move || way.case()));
            }
        }
    }
    Ok(cases)
}

/// Sender, queues of the interface, and packets.
#[derive(Clone, Copy)]
struct CapturePath {
    sender: &'static str,
    queues: usize,
    size: usize,
    frames: u64,
}

impl CapturePath {
    fn case(mut self) -> anyhow::Result<Case> {
        let lab = Rc::new(lab(&[&format!("tx:eth0,rx:eth0,queues={}", self.queues)])?);
        let is_fast = self.sender == FAST_SENDER;
        if is_fast {
            accept_live(&lab, "rx", "eth0")?;
            self.frames *= FAST;
        }
        let folder = Rc::new(Folder::new("capture")?);
        let mut all = Case::sized(self.size);
        let is_used = |receiver: &Receiver| {
            if self.queues > 1 { OF_QUEUES.contains(&receiver.name) } else { is_fast || receiver.name == "packet" }
        };
        for receiver in RECEIVERS.into_iter().filter(is_used) {
            if receiver.is_threaded {
                if let Err(error) = thread_receives(&lab, true) {
                    print_stderr(format_args!("capture: {}: not measured: {error}\n", receiver.name));
                    continue;
                }
                thread_receives(&lab, false)?;
            }
            let several = if self.queues > 1 { format!(", {} queues", self.queues) } else { String::new() };
            let name = format!("{}{several}, sender {}", receiver.name, self.sender);
            let (lab, folder) = (Rc::clone(&lab), Rc::clone(&folder));
            let round = move || {
                if receiver.is_threaded {
                    thread_receives(&lab, true)?;
                }
                let file = if receiver.job == KEEP { folder.file("taken.pcap") } else { NOTHING.into() };
                let count = if receiver.job == CHECK { checked } else { frames };
                let sample = self.round(&lab, (receiver.command(&lab, &file)?, count), receiver.job, &file);
                if receiver.is_threaded {
                    thread_receives(&lab, false)?;
                }
                sample
            };
            all = all.ours(Ours::new(name, round).job(receiver.job).with(|row| row.cores = 2));
        }
        let peers: [(&Peer, u8); 3] = [(&TCPDUMP, TAKE), (&DUMPCAP, TAKE), (&DUMPCAP, KEEP)];
        let is_compared = |job| is_fast && self.queues == 1 || job == TAKE;
        for (peer, job) in peers.into_iter().filter(|(peer, job)| is_compared(*job) && peer.is_installed()) {
            let (lab, folder) = (Rc::clone(&lab), Rc::clone(&folder));
            let name = if job == KEEP { format!("{} to a file", peer.program) } else { peer.program.to_owned() };
            all.peers.push((
                job,
                Side::new(name, move || {
                    let output: PathBuf = if job == KEEP { folder.file("taken.pcap") } else { NOTHING.into() };
                    let command =
                        peer.command(Some((&lab, "rx")), &Job { output: output.clone(), ..Job::default() })?;
                    self.round(&lab, (command, peer.count), job, &output)
                }),
            ));
        }
        if is_fast {
            all = all.limit("a program that drops", move || {
                let drop = counting(&lab)?;
                let (_, seconds) = self.send(&lab, self.frames, Mark::None)?;
                Ok(Sample::new(drop.frames(), seconds))
            });
        }
        Ok(all)
    }

    /// Starts a receiver, sends, stops the receiver, and counts.
    fn round(
        self,
        lab: &TemporaryLab,
        (mut command, count): (Command, fn(&str) -> Option<u64>),
        job: u8,
        file: &Path,
    ) -> anyhow::Result<Sample> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        wait_until_ready(&child);
        std::thread::sleep(SETTLE);
        let used = || task_cpu(child.id(), "");
        let before = used();
        let mark = if job == CHECK { Mark::Trailer } else { Mark::None };
        let frames = if job == KEEP { self.frames.min(KEPT / self.size as u64) } else { self.frames };
        let sent = self.send(lab, frames, mark);
        std::thread::sleep(SETTLE);
        let cpu = used().saturating_sub(before);
        let text = end(&mut child)?;
        if job == KEEP {
            std::fs::remove_file(file).with_context(|| file.display().to_string())?;
        }
        let (sent, seconds) = sent?;
        let captured = count(&text).with_context(|| format!("no packet count in: {text}"))?;
        let lost = Some(sent.saturating_sub(captured));
        Ok(Sample { cpu: Some(cpu.as_secs_f64()), lost, ..Sample::new(captured, seconds) })
    }

    /// Sends packets, from as many processors as the interface has queues: a veth passes those of each to a queue of its own.
    fn send(self, lab: &TemporaryLab, frames: u64, mark: Mark) -> anyhow::Result<(u64, f64)> {
        let spec = port_in(lab, &format!("{}:IF", self.sender), "tx", "eth0")?;
        let set = traffic::streams(ONE, self.size, frames / self.queues as u64, mark)?;
        if self.queues == 1 {
            return traffic::send(&spec, &set, false);
        }
        let one = |processor: usize| {
            pin(processor);
            traffic::send(&spec, &set, false)
        };
        let sent: anyhow::Result<Vec<(u64, f64)>> = std::thread::scope(|scope| {
            let one = &one;
            let threads: Vec<_> = (0..self.queues).map(|queue| scope.spawn(move || one(queue))).collect();
            threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a sender panicked"))?).collect()
        });
        let sent = sent?;
        Ok((sent.iter().map(|(frames, _)| frames).sum(), sent.iter().map(|(_, span)| *span).fold(0.0, f64::max)))
    }
}

impl Receiver {
    fn command(&self, lab: &TemporaryLab, file: &Path) -> anyhow::Result<Command> {
        let port = port_in(lab, self.port, "rx", "eth0")?.to_string();
        let mut command = Command::new(crate::linerate()?);
        command.args(self.arguments.split(' ').map(|word| match word {
            "{PORT}" => port.as_ref(),
            "{FILE}" => file.as_os_str(),
            word => word.as_ref(),
        }));
        Ok(command)
    }
}

/// Has a kernel thread receive from the interface, or the softirq. These files are visible only in the namespace.
fn thread_receives(lab: &TemporaryLab, is_wanted: bool) -> anyhow::Result<()> {
    let text = format!("echo {} > /sys/class/net/eth0/threaded", u8::from(is_wanted));
    let ended = lab.exec("rx", "sh")?.args(["-c", &text]).output()?;
    if !ended.status.success() {
        bail!("threaded NAPI: {}", String::from_utf8_lossy(&ended.stderr).trim());
    }
    Ok(())
}

/// Waits until a receiver handles SIGINT; linerate also until it has dropped its privileges, with everything open (proc(5), `SigCgt`
/// and `NoNewPrivs`).
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
    let handles_it = u64::from_str_radix(field("SigCgt:"), 16).is_ok_and(|bits| bits & 2 != 0);
    let is_linerate = std::fs::read_link(process + "/exe").is_ok_and(|program| program.ends_with("linerate"));
    let has_ended = matches!(field("State:").chars().next(), None | Some('Z'));
    has_ended || handles_it && (!is_linerate || field("NoNewPrivs:") == "1")
}

/// Stops a receiver, and returns all it printed.
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

/// Packet count of the JSON document at the end of a capture or a count; standard error follows it.
fn frames(text: &str) -> Option<u64> {
    let mut documents = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
    documents.next()?.ok()?["frames"].as_u64()
}

/// Packet count of the summary of a check.
fn checked(text: &str) -> Option<u64> {
    let documents = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
    let summary = documents.map_while(Result::ok).find(|document| document["record"] == "summary")?;
    summary["received"].as_u64()
}
