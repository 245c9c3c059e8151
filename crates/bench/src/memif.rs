//! Frames through `memif:` ports, beside DPDK's testpmd in the same run: with both ends in one thread what sending and receiving a frame
//! costs together; and what is received of a testpmd that sends, by us and by another testpmd.

use super::Effort;
use super::folder::Folder;
use super::measure::{Rounds, Row};
use super::testpmd::{Testpmd, two_cpus};
use anyhow::Context;
use linerate_backends::REGISTRY;
use linerate_burst::{Block, Desc, Nanos};
use linerate_cli::view::terminal::tell;
use linerate_port::{RxOptions, RxPort, Spec, TxOptions, TxPort};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;

/// Frames handed over at a time, and received at a time.
const BURST: usize = 256;
/// Captured bytes of frames.
const LENGTHS: [usize; 2] = [60, 1514];

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let lengths = LENGTHS.iter().filter(|length| effort.size.is_none_or(|size| size == **length + 4));
    let cases = lengths.flat_map(|length| ["client", "server"].map(|sender| (*length, sender)));
    let mut rows: Vec<Row> = cases.map(|(length, sender)| measure(length, sender, effort)).collect::<Result<_, _>>()?;
    for length in LENGTHS.iter().filter(|length| effort.size.is_none_or(|size| size == **length + 4)) {
        rows.extend(from_testpmd(*length, effort)?);
    }
    Ok(rows)
}

/// How long testpmd works in a round.
fn span(effort: Effort) -> Duration {
    Duration::from_millis(if effort.quick { 100 } else { 1000 })
}

/// Both ends in one thread of testpmd, which sends what it has received for ever: frames, and what the thread has used.
fn testpmd_alone(length: usize, effort: Effort) -> anyhow::Result<Option<(u64, Duration)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let folder = Folder::new("memif")?;
    let devices = ["server", "client"].iter().enumerate().map(|(number, role)| device(&folder, number, role, ""));
    let size = format!("--txpkts={length}");
    let does = ["--forward-mode=io", "--tx-first", &size];
    let Some(testpmd) = Testpmd::start(&devices.collect::<Vec<_>>(), &does, two_cpus()[0])? else { return Ok(None) };
    testpmd.work(span(effort))?;
    let used = testpmd.used();
    Ok(Some((testpmd.end()?, used)))
}

fn device(folder: &Folder, number: usize, role: &str, more: &str) -> String {
    let socket = folder.file("m.sock");
    format!("net_memif{number},role={role},id=0,socket={},socket-abstract=no{more}", socket.display())
}

/// What comes of a testpmd that sends as fast as it can, in the time that its thread works: to us, and to another one.
fn from_testpmd(length: usize, effort: Effort) -> anyhow::Result<Option<Row>> {
    if !rustix::process::geteuid().is_root() {
        tell("bench memif: no testpmd beside it: that needs root\n");
        return Ok(None);
    }
    let (size, [cpu, other]) = (format!("--txpkts={length}"), two_cpus());
    let send =
        |folder: &Folder| Testpmd::start(&[device(folder, 0, "client", "")], &["--forward-mode=txonly", &size], other);
    let (mut ours, mut peer) = (Rounds::default(), Rounds::default());
    for _ in 0..effort.rounds.min(5) {
        let folder = Folder::new("memif")?;
        let spec = Spec::parse(&format!("memif:{}?role=server", folder.file("m.sock").display()))?;
        let mut rx = REGISTRY.open_rx(&spec, &RxOptions::default())?;
        let Some(sender) = send(&folder)? else {
            tell("bench memif: no testpmd beside it: apt-get install dpdk\n");
            return Ok(None);
        };
        let (frames, used) = receive(&mut rx, &sender, span(effort))?;
        ours.add(frames, used.as_secs_f64());
        // First it, then our end: one that is left while frames flow may die.
        drop((sender, rx, folder));
        let folder = Folder::new("memif")?;
        let does = ["--forward-mode=rxonly"];
        let receiver = Testpmd::start(&[device(&folder, 0, "server", "")], &does, cpu)?.context("testpmd")?;
        receiver.work(Duration::from_millis(1))?;
        let sender = send(&folder)?.context("testpmd")?;
        sender.work(span(effort))?;
        let used = sender.used();
        let frames = receiver.end()?;
        drop(sender);
        peer.add(frames, used.as_secs_f64());
    }
    let row = ours.row("memif", "from testpmd txonly", length as f64).sized(length + 4);
    Ok(Some(row.beside("testpmd rxonly", &peer)))
}

/// Frames that come while the sender works so long, and how long that was.
fn receive(rx: &mut RxPort, sender: &Testpmd, span: Duration) -> anyhow::Result<(u64, Duration)> {
    let (mut frames, mut rounds, began) = (0, 0u32, std::time::Instant::now());
    loop {
        let head = rx.queues[0].fill(linerate_engine::clock::now())?;
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
                return Ok((frames, used));
            }
            anyhow::ensure!(began.elapsed() < Duration::from_secs(30), "{frames} frames came of testpmd in 30 s");
        }
    }
}

fn measure(length: usize, sender: &str, effort: Effort) -> anyhow::Result<Row> {
    let (mut rx, mut tx, mut now) = join(sender)?;
    let mut block = Block::new(BURST * (length + 64), BURST);
    let frame: Vec<u8> = (0..length).map(|at| at as u8).collect();
    while block.push(&Desc::new(Nanos(1), 0, length as u32), &frame) {}
    let mut copy = Block::new(BURST * (length + 64), BURST);
    let bursts = effort.of(40_000);
    let (mut ours, mut limit, mut peer) = (Rounds::default(), Rounds::default(), Rounds::default());
    for _ in 0..effort.rounds {
        if let Some((frames, used)) = testpmd_alone(length, effort)? {
            peer.add(frames, used.as_secs_f64());
        }
        // By the time of this thread: what others do on the machine does not count.
        let began = cpu_time();
        let mut received = 0;
        for _ in 0..bursts {
            let sent = tx.queues[0].send(block.burst())?;
            anyhow::ensure!(sent == BURST, "a ring took {sent} of {BURST} frames");
            let mut left = BURST;
            while left > 0 {
                now = now.after(Duration::from_micros(10));
                let head = rx.queues[0].fill(now)?;
                let shown = head.burst.len();
                anyhow::ensure!((1..=left).contains(&shown), "{shown} of {left} frames came");
                black_box(head.burst.frame(shown - 1)[0]);
                rx.queues[0].consume(shown);
                left -= shown;
            }
            received += BURST;
        }
        anyhow::ensure!(received == bursts * BURST, "{received} of {} frames came", bursts * BURST);
        ours.add(received as u64, (cpu_time() - began).as_secs_f64());
        let began = cpu_time();
        for _ in 0..bursts {
            copy.clear();
            for (desc, frame) in block.burst().iter() {
                black_box(copy.push(desc, frame));
            }
        }
        limit.add(received as u64, (cpu_time() - began).as_secs_f64());
    }
    let ns = 1e3 / ours.median();
    let row = ours.row("memif", format!("a {sender} sends"), length as f64).limited("copy", &limit).sized(length + 4);
    let row = if peer.len() > 0 { row.beside("testpmd, both ends", &peer) } else { row };
    Ok(Row { ns: Some(ns), remark: format!("{ns:.1} ns a frame, both ends"), ..row })
}

/// Both ends, joined, and what time it is there.
fn join(sender: &str) -> anyhow::Result<(RxPort, TxPort, Nanos)> {
    let receiver = if sender == "client" { "server" } else { "client" };
    let name = format!("memif:linerate-bench-{}-{sender}", std::process::id());
    let receive = || REGISTRY.open_rx(&Spec::parse(&format!("{name}?role={receiver}"))?, &RxOptions::default());
    let send = || REGISTRY.open_tx(&Spec::parse(&format!("{name}?role={sender}"))?, &TxOptions::default());
    // The server first: a client that finds nobody waits a while.
    let (mut rx, mut tx) = if sender == "client" {
        let rx = receive()?;
        (rx, send()?)
    } else {
        let tx = send()?;
        (receive()?, tx)
    };
    let mut now = Nanos(1);
    let mut probe = Block::new(64, 1);
    anyhow::ensure!(probe.push(&Desc::new(Nanos(1), 0, 14), &[0; 14]), "no room");
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
    None.context("the two ends of a memif port did not find each other")
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
