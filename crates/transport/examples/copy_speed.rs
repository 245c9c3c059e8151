//! Throughput of copies into frames: the copy only, then with presence and CRC-32C.
//!
//! `cargo run --release -p linerate-receive --example copy_speed [MIB]`; rates are in GB/s, of the fastest stretch.

use linerate_burst::Nanos;
use linerate_transport::copy::{Crc, Kernel};
use linerate_transport::frames::{Config, Frames};
use linerate_transport::stream_memory::{Ends, Payload, Place, StreamId};
use std::time::Instant;

const ROUNDS: usize = 4;
const FRAME: usize = 64 << 20;
const STREAM: StreamId = StreamId(0);

#[allow(dead_code)]
fn main() {
    run(std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(256_usize) << 20);
}

/// Copies `total` bytes for each length of pieces, with each kernel.
pub(crate) fn run(total: usize) {
    let size = FRAME.min(total / 2).max(STRETCH);
    println!("frames of {} MiB; GB/s, and share of the plain copy\n", size >> 20);
    println!("{:>6}  {:<10} {:>6} {:>12} {:>12} {:>14}", "piece", "kernel", "copy", "placed", "with crc", "crc before");
    let mut memory = linerate_burst::resident(size);
    memory.resize(size, 0);
    for piece in [1448, 7960, 65_483] {
        let pieces = Pieces::new(piece);
        for kernel in Kernel::all() {
            let [mut bare, mut placed, mut summed, mut apart] = [const { Best(0.0) }; 4];
            let (mut plain, mut with) = (Placing::new(size, kernel, false), Placing::new(size, kernel, true));
            for _ in 0..ROUNDS {
                copy(&mut bare, &mut memory, &pieces, kernel);
                plain.run(&mut placed, &pieces, size);
                with.run(&mut summed, &pieces, size);
                sum_apart(&mut apart, &mut memory, &pieces, kernel);
            }
            let [placed, summed, apart] = [placed, summed, apart].map(|best| (best.0, 100.0 * best.0 / bare.0));
            println!(
                "{piece:>6}  {:<10} {:>6.1} {:>6.1} {:>4.0}% {:>6.1} {:>4.0}% {:>8.1} {:>4.0}%",
                kernel.name(),
                bare.0,
                placed.0,
                placed.1,
                summed.0,
                summed.1,
                apart.0,
                apart.1
            );
        }
    }
}

/// Source of copies: like a burst just received, it is in a cache.
struct Pieces {
    bytes: Vec<u8>,
    piece: usize,
}

impl Pieces {
    fn new(piece: usize) -> Self {
        let count = ((1 << 18) / piece).max(1);
        Pieces { bytes: (0..count * piece).map(|at| (at * 31) as u8).collect(), piece }
    }

    fn take(&self, bytes: usize) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.piece).cycle().take(bytes / self.piece)
    }
}

/// GB/s of the fastest stretch: other programs can only slow a stretch down.
#[derive(Default)]
struct Best(f64);

impl Best {
    fn time(&mut self, bytes: usize, work: impl FnOnce()) {
        let start = Instant::now();
        work();
        self.0 = self.0.max(bytes as f64 / start.elapsed().as_nanos() as f64);
    }
}

/// Bytes between two reads of the clock.
const STRETCH: usize = 4 << 20;

/// Measures the copy only.
fn copy(best: &mut Best, memory: &mut [u8], pieces: &Pieces, kernel: Kernel) {
    for to in memory.chunks_mut(STRETCH) {
        best.time(to.len() / pieces.piece * pieces.piece, || {
            kernel.copy_all(to, pieces.take(to.len()));
        });
    }
}

/// Measures the copy, with a CRC-32C of each piece computed before.
fn sum_apart(best: &mut Best, memory: &mut [u8], pieces: &Pieces, kernel: Kernel) {
    let mut crc = Crc::NEW;
    for to in memory.chunks_mut(STRETCH) {
        best.time(to.len() / pieces.piece * pieces.piece, || {
            kernel.copy_all(to, pieces.take(to.len()).inspect(|piece| crc = crc.with(piece)));
        });
    }
    std::hint::black_box(crc);
}

/// Stores a stream in order: frames, presence, and optionally the checksum.
struct Placing {
    frames: Frames,
    offset: u64,
}

impl Placing {
    fn new(size: usize, kernel: Kernel, crc: bool) -> Self {
        let ends = Ends { from: ([10, 0, 0, 1], 1).into(), to: ([10, 0, 0, 2], 2).into() };
        let mut frames = Frames::new(&Config { size, frames: 2, crc, kernel, ..Config::default() }).expect("a size");
        assert!(frames.begin(STREAM, &ends, Nanos(1)));
        Placing { frames, offset: 0 }
    }

    fn run(&mut self, best: &mut Best, pieces: &Pieces, total: usize) {
        for _ in 0..total / STRETCH {
            best.time(STRETCH / pieces.piece * pieces.piece, || {
                for piece in pieces.take(STRETCH) {
                    let now = Nanos(self.offset);
                    self.frames.place(STREAM, self.offset, Payload::Bytes(piece), now);
                    self.offset += piece.len() as u64;
                    self.frames.advance(STREAM, self.offset, now);
                    while let Some(frame) = self.frames.full() {
                        self.frames.return_frame(frame);
                    }
                }
            });
        }
    }
}
