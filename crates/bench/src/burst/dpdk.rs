//! Devices of DPDK as ports: what a frame costs one core, in the way of programs over DPDK and in ours.
//!
//! All cases of a size have the same source, devices that make frames from nothing (`net_null`), whose buffers go round as behind
//! the ring of a card. Time is that of the thread, so that other work on the machine counts little.

use super::{Capture, Receive, Selection, Sharing, Waiting, ring};
use crate::Effort;
use crate::measure::{Rounds, Row};
use crate::testpmd::{Testpmd, two_cpus};
use anyhow::ensure;
use linerate_backends::REGISTRY;
use linerate_backends::dpdk::{Classic, version};
use linerate_cli::exit::usage;
use linerate_cli::view::terminal::tell;
use linerate_engine::clock;
use linerate_generate::rate::FCS;
use linerate_port::{RxOptions, RxPort, Spec};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

const SIZES: [usize; 6] = [64, 128, 256, 512, 1024, 1518];
/// Ports that are merged.
const PORTS: usize = 4;
/// Frames of a round.
const FRAMES: usize = 4_000_000;
/// Memory that frames are copied to, again and again.
const OUTPUT: usize = 16 << 20;

/// What is done with frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Received and freed.
    Freed,
    /// Received, and shown as a burst where they lie.
    Shown,
    /// Merged by time, and each copied from its buffer.
    Classic,
    /// The same in steps: one thread receives, one merges, one copies into shared memory.
    Steps,
    /// As the program does it for a file: received, merged, each copied to one block.
    Ours,
    /// The same into shared memory, with headers found and a flow hash.
    Shared,
}

impl Way {
    const ALL: [(Way, &'static str, usize); 7] = [
        (Way::Freed, "mbufs freed", 1),
        (Way::Shown, "ours, received", 1),
        (Way::Ours, "ours, copied", 1),
        (Way::Classic, "mbufs merged, copied", PORTS),
        (Way::Steps, "mbufs copied by three threads", PORTS),
        (Way::Ours, "ours, merged, copied", PORTS),
        (Way::Shared, "ours, to shared memory", PORTS),
    ];
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    if effort.ports.is_some_and(|ports| ports != PORTS && ports != 1) {
        return Err(usage("--dpdk measures 1 and 4 ports"));
    }
    tell(format_args!("{}\n", version().map_err(anyhow::Error::msg)?));
    let began = Instant::now();
    drop(REGISTRY.open_rx(&Spec::parse("dpdk:net_null0")?, &RxOptions::default())?);
    tell(format_args!("the first port of DPDK was open after {:.2} s\n", began.elapsed().as_secs_f64()));
    let nodes = nodes();
    if nodes.len() < 2 {
        tell("this machine has one NUMA node: nothing is measured from another\n");
    }
    let mut rows = Vec::new();
    for size in SIZES.into_iter().filter(|size| effort.size.is_none_or(|wanted| wanted == *size)) {
        if effort.ports.is_none_or(|ports| ports == 1) {
            rows.extend(testpmd(size, effort)?);
        }
        let (mut classic, mut freed) = (None, None);
        for (way, name, ports) in Way::ALL {
            if effort.ports.is_some_and(|wanted| wanted != ports) {
                continue;
            }
            let (rounds, steps) = measure(way, size, ports, effort, nodes.first(), nodes.first())?;
            let row = row(name, size, ports, &rounds, steps);
            rows.push(match (&freed, &classic) {
                (Some(peer), _) if ports == 1 => row.beside("mbufs freed", peer),
                (_, Some(peer)) if ports > 1 => row.beside("merged, copied", peer),
                _ => row,
            });
            if ports > 1 && nodes.len() > 1 {
                let (far, steps) = measure(way, size, ports, effort, nodes.first(), nodes.get(1))?;
                rows.push(self::row(&format!("{name}, from another node"), size, ports, &far, steps));
            }
            match way {
                Way::Classic => classic = Some(rounds),
                Way::Freed => freed = Some(rounds),
                _ => {}
            }
        }
    }
    Ok(rows)
}

/// With nanoseconds a frame of each of three threads, where there were three.
fn row(name: &str, size: usize, ports: usize, rounds: &Rounds, steps: Option<[f64; 3]>) -> Row {
    let mut row = rounds.row("burst", name, (size - FCS as usize) as f64).sized(size);
    (row.ports, row.ns) = (ports, Some(1e3 / row.mpps));
    // What is only received lies in the driver's buffers.
    row.layout = if name.contains("copied") || name.contains("shared") { "contiguous" } else { "scattered" };
    row.remark = format!("{} port{}, {:.1} ns of CPU", ports, if ports == 1 { "" } else { "s" }, 1e3 / row.mpps);
    if let Some([receive, merge, copy]) = steps {
        row.cores = 3;
        row.remark += &format!(": receive {receive:.1}, merge {merge:.1}, copy {copy:.1}");
    }
    row
}

/// Rounds of one way, with memory taken on one processor set and used from another; and of three threads, what each used a frame.
fn measure(
    way: Way,
    size: usize,
    ports: usize,
    effort: Effort,
    near: Option<&CpuSet>,
    here: Option<&CpuSet>,
) -> anyhow::Result<(Rounds, Option<[f64; 3]>)> {
    let all = sched_getaffinity(None).unwrap_or_default();
    let stay = |set: Option<&CpuSet>| set.map_or(Ok(()), |set| sched_setaffinity(None, set));
    let count = effort.of(FRAMES) as u64;
    let devices: Vec<Spec> = (0..ports)
        .map(|port| Spec::parse(&format!("dpdk:net_null{port},size={}?pool=fifo", size - FCS as usize)))
        .collect::<Result<_, _>>()?;
    let (mut rounds, mut steps) = (Rounds::default(), None);
    for _ in 0..effort.rounds {
        stay(near)?;
        let seconds = match way {
            Way::Freed | Way::Classic => {
                let mut classic = Classic::open(&devices, OUTPUT)?;
                stay(here)?;
                timed(|| if way == Way::Freed { classic.free(count) } else { classic.copy(count) }, count)?
            }
            Way::Steps => {
                let mut classic = Classic::open(&devices, OUTPUT)?;
                stay(here)?;
                let (done, used) = classic.copy_by_steps(count);
                ensure!(done >= count, "{done} of {count} frames came");
                let used = used.map(|nanos| nanos as f64 / done as f64);
                let before = *steps.get_or_insert([0.0; 3]);
                steps = Some([0, 1, 2].map(|step| before[step] + used[step] / effort.rounds as f64));
                used.iter().sum::<f64>() * count as f64 / 1e9
            }
            Way::Shown => {
                let mut port = REGISTRY.open_rx(&devices[0], &RxOptions::default())?;
                stay(here)?;
                timed(|| drain(&mut port, count), count)?
            }
            Way::Ours | Way::Shared => {
                let opened = REGISTRY.open_all(&devices, &RxOptions::default())?;
                stay(here)?;
                let sharing = (way == Way::Shared).then(|| ring(0)).transpose()?.map(|(_, sharing)| sharing);
                timed(|| capture(opened, sharing, count).unwrap_or_default(), count)?
            }
        };
        rounds.add(count, seconds);
    }
    sched_setaffinity(None, &all)?;
    Ok((rounds, steps))
}

/// CPU seconds of this thread for so many frames.
fn timed(work: impl FnOnce() -> u64, count: u64) -> anyhow::Result<f64> {
    let began = cpu_time();
    let done = work();
    let took = (cpu_time() - began).as_secs_f64();
    ensure!(done >= count, "{done} of {count} frames came");
    Ok(took * count as f64 / done as f64)
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Shows frames and takes them, looking at none.
fn drain(port: &mut RxPort, count: u64) -> u64 {
    let mut done = 0;
    while done < count {
        let Ok(head) = port.queues[0].fill(clock::now()) else { break };
        let shown = head.burst.len();
        port.queues[0].consume(shown);
        done += shown as u64;
    }
    done
}

/// Captures so many frames into blocks, or a ring, that nobody reads.
fn capture(ports: Vec<RxPort>, sharing: Option<Sharing>, count: u64) -> anyhow::Result<u64> {
    let selection = Selection { frames: Some(count), ..Selection::default() };
    let mut capture = Capture::new(selection, Vec::new()).share(sharing);
    let run = Receive { waiting: Waiting::Spin, ..Receive::all(ports) }.run(&mut [&mut capture]);
    ensure!(run.failure.is_none(), "{}", run.failure.map(|failure| failure.to_string()).unwrap_or_default());
    Ok(capture.done().frames)
}

/// The processors of each NUMA node that this process may run on.
fn nodes() -> Vec<CpuSet> {
    let all = sched_getaffinity(None).unwrap_or_default();
    let has = |node: usize, cpu: usize| {
        std::path::Path::new(&format!("/sys/devices/system/node/node{node}/cpu{cpu}")).exists()
    };
    let set = |node: usize| {
        let mut set = CpuSet::new();
        (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu) && has(node, *cpu)).for_each(|cpu| set.set(cpu));
        set
    };
    (0..64).map(set).filter(|set| set.count() > 0).collect()
}

/// DPDK's own program, receiving and freeing, where it is installed.
fn testpmd(size: usize, effort: Effort) -> anyhow::Result<Option<Row>> {
    let span = Duration::from_millis(if effort.quick { 200 } else { 1000 });
    let mut rounds = Rounds::default();
    for _ in 0..effort.rounds.min(3) {
        let Some((frames, used)) = rxonly(size, span)? else {
            tell("testpmd is not installed: apt-get install dpdk\n");
            return Ok(None);
        };
        rounds.add(frames, used.as_secs_f64());
    }
    Ok(Some(row("testpmd rxonly", size, 1, &rounds, None)))
}

/// Frames, and CPU time of the thread that receives them.
fn rxonly(size: usize, span: Duration) -> anyhow::Result<Option<(u64, Duration)>> {
    let device = format!("net_null0,size={}", size - FCS as usize);
    let Some(testpmd) = Testpmd::start(&[device], &["--forward-mode=rxonly"], two_cpus()[0])? else { return Ok(None) };
    // From its first frame on it does nothing else.
    testpmd.work(span)?;
    let used = testpmd.used();
    Ok(Some((testpmd.end()?, used)))
}
