//! Packets through `memif:` ports, compared with DPDK's testpmd: CPU time of sending and receiving with both ends in one thread, and
//! packets received from a testpmd that sends, by us and by another testpmd.

use super::Effort;
use super::folder::Folder;
use super::harness::{Case, Ours, Prepare, Sample, case};
use super::machine::two_cpus;
use super::testpmd::{self, Testpmd};
use anyhow::{Context, ensure};
use linerate_backends::REGISTRY;
use linerate_burst::{Block, Desc, Nanos};
use linerate_cli::view::terminal::print_stderr;
use linerate_engine::clock;
use linerate_port::{RxOptions, RxPort, Spec, TxOptions, TxPort};
use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Packets sent at a time, and received at a time.
const BURST: usize = 256;
const SIZES: [usize; 2] = [64, 1518];

pub(super) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        print_stderr("dpdk-testpmd: not measured: needs root\n");
    }
    let has_peer = is_root && testpmd::is_installed();
    let span = Duration::from_millis(if effort.quick { 100 } else { 1000 });
    let sizes = effort.sizes(&SIZES);
    let both = sizes.iter().flat_map(|size| ["client", "server"].map(|sender| (*size, sender)));
    let both = both.map(|(size, sender)| case(move || of(size, sender, effort, has_peer.then_some(span))));
    let from = sizes.iter().copied().filter(|_| has_peer).map(|size| {
        let ours = Ours::new("from testpmd txonly", move || received(size, span));
        case(move || Ok(Case::sized(size).ours(ours).peer("testpmd rxonly", move || rxonly(size, span))))
    });
    Ok(both.chain(from.collect::<Vec<_>>()).collect())
}

fn of(size: usize, sender: &'static str, effort: Effort, peer: Option<Duration>) -> anyhow::Result<Case> {
    let (mut rx, mut tx, mut now) = join(sender)?;
    let length = size - 4;
    let mut block = Block::new(BURST * (length + 64), BURST);
    let frame: Vec<u8> = (0..length).map(|at| at as u8).collect();
    while block.push(&Desc::new(Nanos(1), 0, length as u32), &frame) {}
    let (block, mut copy) = (Rc::new(block), Block::new(BURST * (length + 64), BURST));
    let (bursts, source) = (effort.of(40_000), Rc::clone(&block));
    let ours = move || {
        Sample::by_cpu(|| {
            for _ in 0..bursts {
                let sent = tx.queues[0].send(source.burst())?;
                ensure!(sent == BURST, "a ring accepted {sent} of {BURST} packets");
                let mut left = BURST;
                while left > 0 {
                    now = now.after(Duration::from_micros(10));
                    let head = rx.queues[0].fill(now)?;
                    let shown = head.burst.len();
                    ensure!((1..=left).contains(&shown), "{shown} of {left} packets arrived");
                    black_box(head.burst.frame(shown - 1)[0]);
                    rx.queues[0].consume(shown);
                    left -= shown;
                }
            }
            Ok((bursts * BURST) as u64)
        })
    };
    let plain = move || {
        Sample::by_cpu(|| {
            for _ in 0..bursts {
                copy.clear();
                block.burst().iter().for_each(|(desc, frame)| _ = black_box(copy.push(desc, frame)));
            }
            Ok((bursts * BURST) as u64)
        })
    };
    let ours = Ours::new(format!("a {sender} sends"), ours).finish(|row| row.ns = row.cpu_ns);
    let case = Case::sized(size).ours(ours).limit("copy", plain);
    Ok(match peer {
        Some(span) => case.peer("testpmd, both ends", move || both_ends(length, span)),
        None => case,
    })
}

/// Both ends in one thread of testpmd, which sends the packets that it receives again and again.
fn both_ends(length: usize, span: Duration) -> anyhow::Result<Sample> {
    let folder = Folder::new("memif")?;
    let devices = [device(&folder, 0, "server"), device(&folder, 1, "client")];
    let size = format!("--txpkts={length}");
    Testpmd::start(&devices, &["--forward-mode=io", "--tx-first", &size], two_cpus()[0])?.measure(span)
}

fn device(folder: &Folder, number: usize, role: &str) -> String {
    let socket = folder.file("m.sock");
    format!("net_memif{number},role={role},id=0,socket={},socket-abstract=no", socket.display())
}

/// A testpmd that sends as fast as it can.
fn txonly(folder: &Folder, size: usize) -> anyhow::Result<Testpmd> {
    let size = format!("--txpkts={}", size - 4);
    Testpmd::start(&[device(folder, 0, "client")], &["--forward-mode=txonly", &size], two_cpus()[1])
}

/// Packets that another testpmd receives, in the CPU time of the sender.
fn rxonly(size: usize, span: Duration) -> anyhow::Result<Sample> {
    let folder = Folder::new("memif")?;
    let receiver = Testpmd::start(&[device(&folder, 0, "server")], &["--forward-mode=rxonly"], two_cpus()[0])?;
    receiver.work(Duration::from_millis(1))?;
    let sender = txonly(&folder, size)?;
    sender.work(span)?;
    let used = sender.used();
    Ok(Sample::new(receiver.end()?, used.as_secs_f64()))
}

/// Packets that we receive, in the CPU time of the sender.
fn received(size: usize, span: Duration) -> anyhow::Result<Sample> {
    let folder = Folder::new("memif")?;
    let spec = Spec::parse(&format!("memif:{}?role=server", folder.file("m.sock").display()))?;
    let mut rx = REGISTRY.open_rx(&spec, &RxOptions::default())?;
    // Dropped before our end: testpmd may crash if its peer leaves while packets flow.
    let sender = txonly(&folder, size)?;
    let (mut frames, mut rounds, began) = (0, 0u32, Instant::now());
    let used = loop {
        let head = rx.queues[0].fill(clock::now())?;
        let shown = head.burst.len();
        if shown > 0 {
            black_box(head.burst.frame(shown - 1)[0]);
        }
        rx.queues[0].consume(shown);
        frames += shown as u64;
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(4096) {
            let used = sender.used();
            if used >= span && frames > 0 {
                break used;
            }
            ensure!(began.elapsed() < Duration::from_secs(30), "{frames} packets from testpmd in 30 s");
        }
    };
    drop(sender);
    Ok(Sample::new(frames, used.as_secs_f64()))
}

/// Opens and connects both ends; returns their time too.
fn join(sender: &str) -> anyhow::Result<(RxPort, TxPort, Nanos)> {
    let receiver = if sender == "client" { "server" } else { "client" };
    let name = format!("memif:linerate-bench-{}-{sender}", std::process::id());
    let receive = || REGISTRY.open_rx(&Spec::parse(&format!("{name}?role={receiver}"))?, &RxOptions::default());
    let send = || REGISTRY.open_tx(&Spec::parse(&format!("{name}?role={sender}"))?, &TxOptions::default());
    // The server first: a client without a server waits before it tries again.
    let (mut rx, mut tx) = if sender == "client" {
        let rx = receive()?;
        (rx, send()?)
    } else {
        let tx = send()?;
        (receive()?, tx)
    };
    let mut now = Nanos(1);
    let mut probe = Block::new(64, 1);
    ensure!(probe.push(&Desc::new(Nanos(1), 0, 14), &[0; 14]), "no room");
    for _ in 0..1000 {
        now = now.after(Duration::from_millis(1));
        let shown = rx.queues[0].fill(now)?.burst.len();
        rx.queues[0].consume(shown);
        tx.queues[0].flush(now)?;
        if shown > 0 {
            return Ok((rx, tx, now));
        }
        if tx.queues[0].sent().frames == 0 {
            tx.queues[0].send(probe.burst())?;
        }
    }
    None.context("the two ends of a memif port did not connect")
}
