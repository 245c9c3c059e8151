//! Frames through a `memif:` port whose two ends are both ours, in one thread: what sending and receiving one costs together.

use super::Effort;
use super::measure::{Rounds, Row};
use anyhow::Context;
use linerate_backends::REGISTRY;
use linerate_burst::{Block, Desc, Nanos};
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
    cases.map(|(length, sender)| measure(length, sender, effort)).collect()
}

fn measure(length: usize, sender: &str, effort: Effort) -> anyhow::Result<Row> {
    let (mut rx, mut tx, mut now) = join(sender)?;
    let mut block = Block::new(BURST * (length + 64), BURST);
    let frame: Vec<u8> = (0..length).map(|at| at as u8).collect();
    while block.push(&Desc::new(Nanos(1), 0, length as u32), &frame) {}
    let mut copy = Block::new(BURST * (length + 64), BURST);
    let bursts = effort.of(40_000);
    let (mut ours, mut limit) = (Rounds::default(), Rounds::default());
    for _ in 0..effort.rounds {
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
