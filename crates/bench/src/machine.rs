//! The machine: CPU time, processors, rights, and hosts of network namespaces.

use anyhow::{Context, ensure};
use linerate_backends::xdp_counter::{CountAction, FrameCounter};
use linerate_burst::{Ledger, Nanos};
use linerate_cli::view::terminal::print_stderr;
use linerate_engine::{Consumer, Receive, Stop, WaitStrategy};
use linerate_lab::{Plan, TemporaryLab};
use linerate_port::{RxPort, Spec};
use linerate_switch::text::{numbered, parse_rule};
use linerate_switch::{Action, Options, Switch};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::thread;
use std::time::{Duration, Instant};

/// Wait for the last packets in flight.
pub(crate) const SETTLED: Duration = Duration::from_millis(200);

/// Name of the thread that forwards packets.
pub(crate) const FORWARDING: &str = "bench-forward";

/// CPU time of this thread.
pub(crate) fn thread_cpu() -> Duration {
    cpu(ClockId::ThreadCPUTime)
}

/// CPU time of this process.
pub(crate) fn process_cpu() -> Duration {
    cpu(ClockId::ProcessCPUTime)
}

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// CPU time of the threads of a process whose name contains this, or of the first thread without a name, from `schedstat`
/// (Documentation/scheduler/sched-stats.rst: nanoseconds on a processor are the first field).
pub(crate) fn task_cpu(pid: u32, name: &str) -> Duration {
    let first = pid.to_string();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let used = |task: std::fs::DirEntry| -> Option<u64> {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).ok();
        let is_meant = if name.is_empty() { task.file_name() == *first } else { read("comm")?.contains(name) };
        read("schedstat")?.split_whitespace().next()?.parse().ok().filter(|_| is_meant)
    };
    Duration::from_nanos(tasks.filter_map(used).sum())
}

/// Two processors that this process may use; the first one twice if it is the only one.
pub(crate) fn two_cpus() -> [usize; 2] {
    let all = sched_getaffinity(None).unwrap_or_default();
    let mut usable = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
    let first = usable.next().unwrap_or(0);
    [first, usable.next().unwrap_or(first)]
}

/// A set of one processor.
pub(crate) fn one_cpu(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}

/// Keeps this thread on a processor. It measures without that too, with more spread.
pub(crate) fn pin(cpu: usize) {
    let _ = sched_setaffinity(None, &one_cpu(cpu));
}

/// Returns true if network namespaces can be made; reports that they cannot.
pub(crate) fn has_hosts(bench: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        print_stderr(format_args!("{bench}: skipped: network namespaces need root\n"));
    }
    is_root
}

/// Hosts joined by these links.
pub(crate) fn lab(links: &[&str]) -> anyhow::Result<TemporaryLab> {
    let links = links.iter().map(|link| link.parse()).collect::<Result<_, _>>()?;
    Ok(TemporaryLab::up(&Plan::from_links("bench", links)?)?)
}

/// The hosts `tx` and `rx`, with the host `mid` and its interfaces `in` and `out` between them.
pub(crate) fn middle() -> anyhow::Result<TemporaryLab> {
    lab(&["tx:eth0,mid:in", "mid:out,rx:eth0"])
}

/// A port in a host; `IF` in its text is the interface.
pub(crate) fn port_in(lab: &TemporaryLab, port: &str, host: &str, interface: &str) -> anyhow::Result<Spec> {
    let joint = if port.contains('?') { '&' } else { '?' };
    let port = port.replace("IF", interface);
    Ok(Spec::parse(&format!("{port}{joint}netns={}", lab.plan().namespace(host)))?)
}

/// Runs a command in a host.
pub(crate) fn shell(lab: &TemporaryLab, host: &str, command: &str) -> anyhow::Result<()> {
    let mut words = command.split(' ');
    let program = words.next().unwrap_or_default();
    let run = lab.exec(host, program)?.args(words).output().with_context(|| program.to_owned())?;
    ensure!(run.status.success(), "{command}: {}", String::from_utf8_lossy(&run.stderr).trim());
    Ok(())
}

/// Has a veth accept live frames, which it otherwise does only if its peer has an XDP program.
pub(crate) fn accept_live(lab: &TemporaryLab, host: &str, interface: &str) -> anyhow::Result<()> {
    shell(lab, host, &format!("ethtool -K {interface} gro on"))
}

/// Counts and drops packets that arrive at the host `rx`.
pub(crate) fn counting(lab: &TemporaryLab) -> anyhow::Result<FrameCounter> {
    Ok(FrameCounter::attach(Some(&lab.plan().namespace("rx")), "eth0", CountAction::Drop)?)
}

/// Waits until this number of packets has arrived, or no more are in flight; returns the packets that arrived.
pub(crate) fn arrived(counting: &FrameCounter, before: u64, frames: u64) -> u64 {
    let began = Instant::now();
    while counting.frames() - before < frames && began.elapsed() < SETTLED {
        thread::sleep(Duration::from_millis(1));
    }
    counting.frames() - before
}

/// Joins the interfaces of `mid` by the Linux bridge.
pub(crate) fn make_bridge(lab: &TemporaryLab) -> anyhow::Result<()> {
    for step in [
        "ip link add br0 type bridge mcast_snooping 0",
        "ip link set in master br0",
        "ip link set out master br0",
        "ip link set br0 arp off addrgenmode none up",
    ] {
        shell(lab, "mid", step)?;
    }
    // Without the module br_netfilter these settings do not exist.
    let _ = shell(lab, "mid", "sysctl -qw net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0");
    Ok(())
}

/// Runs `work` while a consumer handles the packets of these ports in a thread, on a processor if one is given. Returns the ledger and
/// the CPU time of that thread too.
pub(crate) fn during<T>(
    mut ports: Vec<RxPort>,
    consumer: &mut (dyn Consumer + Send),
    (waiting, cpu): (WaitStrategy, Option<usize>),
    work: impl FnOnce(&Stop) -> anyhow::Result<T>,
) -> anyhow::Result<(T, Ledger, Duration)> {
    let stop = Stop::new();
    ports.iter_mut().flat_map(|port| &mut port.queues).for_each(|queue| queue.start());
    thread::scope(|scope| {
        let run = Receive { stop: stop.clone(), waiting, ..Receive::all(ports) };
        let running = thread::Builder::new().name(FORWARDING.into()).spawn_scoped(scope, move || {
            cpu.into_iter().for_each(pin);
            (run.run(&mut [consumer]), thread_cpu())
        })?;
        let result = work(&stop);
        stop.request();
        let (run, used) = running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if let Some(failure) = run.failure {
            return Err(failure.into());
        }
        ensure!(run.ledger.imbalances().is_empty(), "packets are not accounted for: {:?}", run.ledger.imbalances());
        Ok((result?, run.ledger, used))
    })
}

/// A switch of two ports, whose packets leave by the other one after these actions.
pub(crate) fn crossing(first: &[Action]) -> anyhow::Result<Switch> {
    let mut switch = Switch::new(Options::new(2));
    for text in ["in_port=1,actions=output:2", "in_port=2,actions=output:1"] {
        let mut rule = parse_rule(text, &numbered(2)).map_err(anyhow::Error::msg)?;
        rule.actions.splice(0..0, first.iter().cloned());
        switch.add(rule, Nanos(1));
    }
    Ok(switch)
}
