//! From one veth pair to another, at top speed: how many frames arrive, and what a frame costs this process, beside the Linux
//! bridge. The limit is an XDP program that redirects, and no process at all.

use super::Effort;
use super::measure::{Rounds, Row};
use super::traffic::{self, ONE};
use anyhow::{Context, ensure};
use linerate_backends::counting::{Counting, Then};
use linerate_backends::redirecting::Redirecting;
use linerate_backends::xdp_live::send_unchanged;
use linerate_backends::{open_rx, open_tx};
use linerate_cli::view::terminal::tell;
use linerate_engine::{Forward, Progress, Receive, Stop};
use linerate_generate::stream::Mark;
use linerate_lab::{Plan, TemporaryLab};
use linerate_port::{RxOptions, Spec, TxOptions};
use rustix::time::{ClockId, clock_gettime};
use std::thread;
use std::time::{Duration, Instant};

const FRAMES: usize = 3_000_000;
const SIZES: [usize; 2] = [64, 1518];
/// How long frames may be on their way when nothing more is sent.
const SETTLED: Duration = Duration::from_millis(200);

/// What is between the two pairs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Between {
    Redirect,
    Bridge,
    /// A wire of these ports.
    Wire(&'static str),
}

struct Way {
    name: &'static str,
    between: Between,
    rounds: Rounds,
    sent: u64,
    arrived: u64,
    /// Of the thread that forwards.
    busy: Duration,
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    if !rustix::process::geteuid().is_root() {
        tell("bench wire: SKIPPED: test hosts need root\n");
        return Ok(Vec::new());
    }
    let mut rows = Vec::new();
    for size in SIZES.into_iter().filter(|size| effort.size.is_none_or(|only| only == *size)) {
        let way =
            |name, between| Way { name, between, rounds: Rounds::default(), sent: 0, arrived: 0, busy: Duration::ZERO };
        let mut limit = way("redirect", Between::Redirect);
        let mut bridge = way("Linux bridge", Between::Bridge);
        let mut ways = [
            way("xdp, from where frames lie", Between::Wire("xdp:IF?mode=ring")),
            way("xdp, copied by AF_XDP", Between::Wire("xdp:IF?mode=native")),
            way("packet", Between::Wire("packet:IF")),
        ];
        for _ in 0..effort.rounds.min(5) {
            for way in [&mut limit, &mut bridge].into_iter().chain(&mut ways) {
                way.round(effort.of(FRAMES) as u32, size).with_context(|| format!("bench wire: {}", way.name))?;
            }
        }
        rows.extend(
            ways.iter().map(|way| way.row(size).beside(bridge.name, &bridge.rounds).limited("redirect", &limit.rounds)),
        );
    }
    Ok(rows)
}

impl Way {
    fn round(&mut self, frames: u32, size: usize) -> anyhow::Result<()> {
        let links = ["tx:eth0,mid:in", "mid:out,rx:eth0"].map(str::parse);
        let lab = TemporaryLab::up(&Plan::from_links("bench", links.into_iter().collect::<Result<_, _>>()?)?)?;
        let name = |host: &str| lab.plan().namespace(host);
        let counting = Counting::attach(Some(&name("rx")), "eth0", Then::Drop)?;
        let set = traffic::streams(ONE, size, 1, Mark::None)?;
        let frame = set.streams[0].frame(0, 0, &set.key);
        let sender = Spec::parse(&format!("xdp-live:eth0?netns={}", name("tx")))?;
        let send = || send_unchanged(&sender, &frame, frames);
        let (span, busy) = match self.between {
            Between::Redirect => {
                let _redirecting = Redirecting::attach(Some(&name("mid")), "in", "out")?;
                (send()?, Duration::ZERO)
            }
            Between::Bridge => {
                make_bridge(&lab)?;
                // The sender's frames become packets there.
                shell(&lab, "ethtool -K in gro on")?;
                (send()?, Duration::ZERO)
            }
            Between::Wire(port) => {
                let spec = |interface| {
                    let port = port.replace("IF", interface);
                    let joint = if port.contains('?') { '&' } else { '?' };
                    Spec::parse(&format!("{port}{joint}netns={}", name("mid")))
                };
                let options = RxOptions { promiscuous: true, lanes: 1, ..RxOptions::default() };
                // As the wire does, which goes both ways: both ends receive. A veth takes frames of XDP only where one listens.
                let (mut from, _back) = (open_rx(&spec("in")?, &options)?, open_rx(&spec("out")?, &options)?);
                if !port.starts_with("xdp") {
                    shell(&lab, "ethtool -K in gro on")?;
                }
                let mut forward =
                    Forward::new(&mut from, open_tx(&spec("out")?, &TxOptions::default())?, Progress::new());
                let stop = Stop::new();
                thread::scope(|scope| {
                    let run = Receive { stop: stop.clone(), ..Receive::all(vec![from]) };
                    let forwarding = scope.spawn(|| {
                        let run = run.run(&mut [&mut forward]);
                        (run.failure.map(|failure| failure.to_string()), thread_time())
                    });
                    let span = send();
                    thread::sleep(SETTLED);
                    stop.request();
                    let (failure, busy) = forwarding.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                    ensure!(failure.is_none(), "{}", failure.unwrap_or_default());
                    anyhow::Ok((span?, busy))
                })?
            }
        };
        let settled = Instant::now();
        let mut arrived = counting.frames();
        while settled.elapsed() < SETTLED && arrived < u64::from(frames) {
            thread::sleep(Duration::from_millis(1));
            arrived = counting.frames();
        }
        self.rounds.add(arrived, span.as_secs_f64());
        self.sent += u64::from(frames);
        self.arrived += arrived;
        self.busy += busy;
        Ok(())
    }

    fn row(&self, size: usize) -> Row {
        let mut row = self.rounds.row("wire", self.name, (size - 4) as f64).sized(size);
        let frames = self.arrived.max(1) as f64;
        row.ns = Some(self.busy.as_nanos() as f64 / frames);
        row.remark = format!(
            "{:.0} ns of CPU a frame; {:.0} % of what was sent arrived",
            self.busy.as_nanos() as f64 / frames,
            100.0 * frames / self.sent.max(1) as f64
        );
        row
    }
}

/// What this thread has used of a processor.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

pub(super) fn make_bridge(lab: &TemporaryLab) -> anyhow::Result<()> {
    for step in [
        "ip link add br0 type bridge mcast_snooping 0",
        "ip link set in master br0",
        "ip link set out master br0",
        "ip link set br0 arp off addrgenmode none up",
    ] {
        shell(lab, step)?;
    }
    // Its packets would pass the rules of iptables, where the kernel has them for bridges.
    let _ = shell(lab, "sysctl -qw net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0");
    Ok(())
}

/// Runs a command in the host in the middle.
pub(super) fn shell(lab: &TemporaryLab, command: &str) -> anyhow::Result<()> {
    let mut words = command.split(' ');
    let run = lab.exec("mid", words.next().unwrap_or_default())?.args(words).output()?;
    ensure!(run.status.success(), "{command}: {}", String::from_utf8_lossy(&run.stderr).trim());
    Ok(())
}
