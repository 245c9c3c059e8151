//! Devices of DPDK as ports: CPU time per packet on one core, in the way of DPDK programs and in ours.
//!
//! All cases of a size have the same source, devices that make packets from nothing (`net_null`), whose buffers circulate as those of a
//! card's ring. Time is CPU time of the thread, so that other work on the machine counts little.

use super::{Capture, Receive, Selection, Sharing, WaitStrategy, ring};
use crate::Effort;
use crate::harness::{Case, Ours, Prepare, Sample, case};
use crate::machine::two_cpus;
use crate::testpmd::{self, Testpmd};
use anyhow::ensure;
use linerate_backends::REGISTRY;
use linerate_backends::dpdk::{DpdkBaseline, version};
use linerate_cli::exit::usage;
use linerate_cli::view::rates::counted;
use linerate_cli::view::terminal::print_stderr;
use linerate_engine::clock;
use linerate_generate::rate::FCS;
use linerate_port::{RxOptions, RxPort, Spec};
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

const SIZES: [usize; 6] = [64, 128, 256, 512, 1024, 1518];
/// Ports that are merged.
const PORTS: usize = 4;
/// Packets of a round.
const FRAMES: usize = 4_000_000;
/// Memory that packets are copied to, again and again.
const OUTPUT: usize = 16 << 20;

/// Processing of packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DpdkMethod {
    /// Received and freed.
    Freed,
    /// Received, and shown as a burst without a copy.
    Shown,
    /// Merged by time, and each copied from its buffer.
    DpdkBaseline,
    /// The same by three threads: one receives, one merges, one copies into shared memory.
    Steps,
    /// As the program does it for a file: received, merged, each copied to one block.
    Ours,
    /// The same into shared memory, with headers found and a flow hash.
    Shared,
}

/// Sides, each with its ports. The first of each number of ports is the peer of the others.
const SIDES: [(DpdkMethod, &str, usize); 7] = [
    (DpdkMethod::Freed, "mbufs freed", 1),
    (DpdkMethod::Shown, "ours, received", 1),
    (DpdkMethod::Ours, "ours, copied", 1),
    (DpdkMethod::DpdkBaseline, "mbufs merged, copied", PORTS),
    (DpdkMethod::Steps, "mbufs copied by three threads", PORTS),
    (DpdkMethod::Ours, "ours, merged, copied", PORTS),
    (DpdkMethod::Shared, "ours, to shared memory", PORTS),
];

pub(super) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    if effort.ports.is_some_and(|ports| ports != PORTS && ports != 1) {
        return Err(usage("--dpdk measures 1 and 4 ports"));
    }
    print_stderr(format_args!("{}\n", version().map_err(anyhow::Error::msg)?));
    let began = Instant::now();
    drop(REGISTRY.open_rx(&Spec::parse("dpdk:net_null0")?, &RxOptions::default())?);
    print_stderr(format_args!("first DPDK port opened in {:.2} s\n", began.elapsed().as_secs_f64()));
    let sizes = effort.sizes(&SIZES).into_iter();
    let all = sizes.flat_map(|size| [1, PORTS].map(|ports| (size, ports)));
    let wanted = all.filter(|(_, ports)| effort.ports.is_none_or(|wanted| wanted == *ports));
    Ok(wanted.map(|(size, ports)| case(move || Ok(of(size, ports, effort)))).collect())
}

fn of(size: usize, ports: usize, effort: Effort) -> Case {
    let mut all = Case::sized(size);
    for (work, name, _) in SIDES.into_iter().filter(|(.., of)| *of == ports) {
        let steps = Rc::new(Cell::new([0.0; 3]));
        let used = Rc::clone(&steps);
        let round = move || round(work, size, ports, effort.of(FRAMES) as u64, &used);
        if matches!(work, DpdkMethod::Freed | DpdkMethod::DpdkBaseline) {
            all = all.peer(name, round);
            continue;
        }
        // Packets that are only received lie in the driver's buffers.
        let layout = if work == DpdkMethod::Shown { "scattered" } else { "contiguous" };
        let ours = Ours::new(name, round).with(|row| (row.ports, row.layout) = (ports, layout));
        all.ours.push(ours.finish(move |row| {
            row.ns = row.cpu_ns;
            row.remark = counted(ports as u64, "port");
            if work == DpdkMethod::Steps {
                let [receive, merge, copy] = steps.get();
                row.cores = 3;
                row.remark += &format!("; ns of CPU: receive {receive:.1}, merge {merge:.1}, copy {copy:.1}");
            }
        }));
    }
    if ports == 1 && testpmd::is_installed() {
        let span = Duration::from_millis(if effort.quick { 200 } else { 1000 });
        all = all.peer("testpmd rxonly", move || rxonly(size, span));
    }
    all
}

/// CPU seconds of one round.
fn round(work: DpdkMethod, size: usize, ports: usize, count: u64, steps: &Cell<[f64; 3]>) -> anyhow::Result<Sample> {
    let devices: Vec<Spec> = (0..ports)
        .map(|port| Spec::parse(&format!("dpdk:net_null{port},size={}?pool=fifo", size - FCS as usize)))
        .collect::<Result<_, _>>()?;
    let enough = |done: u64| {
        ensure!(done >= count, "{done} of {count} packets were received");
        Ok(done)
    };
    match work {
        DpdkMethod::Freed | DpdkMethod::DpdkBaseline => {
            let mut classic = DpdkBaseline::open(&devices, OUTPUT)?;
            Sample::by_cpu(|| enough(if work == DpdkMethod::Freed { classic.free(count) } else { classic.copy(count) }))
        }
        DpdkMethod::Steps => {
            let mut classic = DpdkBaseline::open(&devices, OUTPUT)?;
            let (done, used) = classic.copy_by_steps(count);
            let used = used.map(|nanos| nanos as f64);
            steps.set(used.map(|nanos| nanos / enough(done).unwrap_or(1).max(1) as f64));
            Ok(Sample::cpu(enough(done)?, Duration::from_nanos(used.iter().sum::<f64>() as u64)))
        }
        DpdkMethod::Shown => {
            let mut port = REGISTRY.open_rx(&devices[0], &RxOptions::default())?;
            Sample::by_cpu(|| enough(drain(&mut port, count)))
        }
        DpdkMethod::Ours | DpdkMethod::Shared => {
            let opened = REGISTRY.open_all(&devices, &RxOptions::default())?;
            let sharing = (work == DpdkMethod::Shared).then(|| ring(0)).transpose()?.map(|(_, sharing)| sharing);
            Sample::by_cpu(|| enough(capture(opened, sharing, count)?))
        }
    }
}

/// Receives packets without reading them.
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

/// Captures this number of packets into blocks, or into a ring without a reader.
fn capture(ports: Vec<RxPort>, sharing: Option<Sharing>, count: u64) -> anyhow::Result<u64> {
    let selection = Selection { frames: Some(count), ..Selection::default() };
    let mut capture = Capture::new(selection, Vec::new()).share(sharing);
    let run = Receive { waiting: WaitStrategy::Spin, ..Receive::all(ports) }.run(&mut [&mut capture]);
    ensure!(run.failure.is_none(), "{}", run.failure.map(|failure| failure.to_string()).unwrap_or_default());
    Ok(capture.done().frames)
}

/// Packets that DPDK's own program receives and frees, by the CPU time of its thread.
fn rxonly(size: usize, span: Duration) -> anyhow::Result<Sample> {
    let device = format!("net_null0,size={}", size - FCS as usize);
    // Its worker does nothing else from its first packet on.
    Testpmd::start(&[device], &["--forward-mode=rxonly"], two_cpus()[0])?.measure(span)
}
