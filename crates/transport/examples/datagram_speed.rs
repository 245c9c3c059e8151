//! Throughput of sequenced datagrams into frames, compared with the copy only.
//!
//! `cargo run --release -p linerate-receive --example datagram_speed [MIB]`; rates are in GB/s, of the fastest stretch.

use linerate_burst::Nanos;
use linerate_transport::copy::Kernel;
use linerate_transport::datagrams::{Config, Datagrams, Field, Form, Unit, WhenFull};
use linerate_transport::frames;
use linerate_transport::stream_memory::Ends;
use std::time::{Duration, Instant};

/// Bytes of data in a datagram, after the byte offset that gives their position.
const DATA: usize = 8192;
const HEADER: usize = 8;
/// Datagrams per burst, in a cache.
const BURST: usize = 32;
/// Datagrams between two reads of the clock.
const STRETCH: usize = 16 * BURST;
const FRAME: usize = 64 << 20;
const ROUNDS: usize = 4;

#[allow(dead_code)]
fn main() {
    let total = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(512_usize) << 20;
    run(FRAME, total / DATA);
}

/// Receives `datagrams` datagrams into frames of this size, with each kernel.
pub(crate) fn run(size: usize, datagrams: usize) {
    println!("datagrams of {DATA} bytes into frames of {} MiB; GB/s, and share of the plain copy\n", size >> 20);
    println!("{:<10} {:>6} {:>12} {:>12}", "kernel", "copy", "placed", "with crc");
    let mut memory = linerate_burst::resident(size);
    memory.resize(size, 0);
    for kernel in Kernel::all() {
        let [mut bare, mut placed, mut summed] = [0.0f64; 3];
        let (mut plain, mut with) = (Placing::new(size, kernel, false), Placing::new(size, kernel, true));
        for _ in 0..ROUNDS {
            bare = bare.max(copy(&mut memory, kernel));
            placed = placed.max(plain.run(datagrams));
            summed = summed.max(with.run(datagrams));
        }
        let part = |rate: f64| 100.0 * rate / bare;
        println!(
            "{:<10} {bare:>6.1} {placed:>6.1} {:>4.0}% {summed:>6.1} {:>4.0}%",
            kernel.name(),
            part(placed),
            part(summed)
        );
    }
}

/// Returns GB/s of the fastest stretch of the copy only.
fn copy(memory: &mut [u8], kernel: Kernel) -> f64 {
    let from = vec![1; BURST * DATA];
    let time = |to: &mut [u8]| {
        let start = Instant::now();
        kernel.copy_all(to, from.chunks_exact(DATA).cycle().take(to.len() / DATA));
        (to.len() / DATA * DATA) as f64 / start.elapsed().as_nanos() as f64
    };
    memory.chunks_exact_mut(STRETCH * DATA).map(time).fold(0.0, f64::max)
}

/// Datagrams of one sender, in order.
struct Placing {
    receiver: Datagrams,
    ends: Ends,
    burst: Vec<[u8; HEADER + DATA]>,
    offset: u64,
}

impl Placing {
    fn new(size: usize, kernel: Kernel, crc: bool) -> Self {
        let receiver = Datagrams::new(Config {
            frames: frames::Config { size, frames: 4, crc, kernel, ..frames::Config::default() },
            form: Form::Fixed { sequence: Field::big(0, HEADER), unit: Unit::Bytes, batch: None, data: HEADER },
            window: 2,
            reach: 1 << 30,
            timeout: Duration::from_secs(1),
            full: WhenFull::DropNewest,
            streams: 1,
        });
        let ends = Ends { from: ([10, 0, 0, 1], 1).into(), to: ([10, 0, 0, 2], 2).into() };
        Placing { receiver: receiver.expect("a size"), ends, burst: vec![[1; HEADER + DATA]; BURST], offset: 0 }
    }

    /// Returns GB/s of the fastest stretch.
    fn run(&mut self, datagrams: usize) -> f64 {
        let stretches = (0..datagrams.div_ceil(STRETCH)).map(|_| {
            let start = Instant::now();
            for at in 0..STRETCH {
                let datagram = &mut self.burst[at % BURST];
                datagram[..HEADER].copy_from_slice(&self.offset.to_be_bytes());
                self.receiver.receive(&self.ends, &datagram[..], Nanos(self.offset));
                self.offset += DATA as u64;
                while let Some(frame) = self.receiver.full() {
                    self.receiver.return_frame(frame);
                }
            }
            (STRETCH * DATA) as f64 / start.elapsed().as_nanos() as f64
        });
        let best = stretches.fold(0.0, f64::max);
        assert_eq!(self.receiver.counts().missing, 0, "no byte is missing");
        best
    }
}
