//! Measures the dissection rate of frames on one core, without other work.
//!
//! `cargo run --release -p linerate-wire --example dissect_speed [CAPTURE.pcap]`
//!
//! Frames are contiguous, each after a 16-byte record, as in a block. Each figure is the median of the rounds, with the
//! fastest and the slowest.

use linerate_headers::{Layers, Link, MacAddr, dissect, ethernet, ipv4, registry, tcp, vlan};
use std::hint::black_box;
use std::time::Instant;

const RECORD: usize = 16;
const ROUNDS: usize = 15;
const FRAMES_PER_ROUND: usize = 4_000_000;

/// Contiguous frames, and the offset of each.
#[derive(Default)]
struct Frames {
    bytes: Vec<u8>,
    places: Vec<(u32, u32)>,
}

impl Frames {
    fn push(&mut self, frame: &[u8]) {
        self.bytes.extend([0; RECORD]);
        self.places.push((self.bytes.len() as u32, frame.len() as u32));
        self.bytes.extend(frame);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    measure("tcp 64 bytes, in cache (256 frames)", &tcp_frames(256, false)?);
    measure("tcp 64 bytes, from memory (1 M frames)", &tcp_frames(1_000_000, false)?);
    measure("tcp 64 bytes, one tag (1 M frames)", &tcp_frames(1_000_000, true)?);
    match std::env::args().nth(1) {
        Some(path) => measure(&path, &capture(&std::fs::read(&path)?)),
        None => println!("name an Ethernet capture in pcap format to measure real frames"),
    }
    Ok(())
}

fn measure(name: &str, frames: &Frames) {
    if frames.places.is_empty() {
        println!("{name}: no frames");
        return;
    }
    let passes = FRAMES_PER_ROUND.div_ceil(frames.places.len());
    let mut rates: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..passes {
                black_box(pass(black_box(frames)));
            }
            (passes * frames.places.len()) as f64 / start.elapsed().as_secs_f64() / 1e6
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    let (median, slowest, fastest) = (rates[ROUNDS / 2], rates[0], rates[ROUNDS - 1]);
    let count = frames.places.len();
    println!("{name}: {count} frames, {median:.1} M packets/s (min {slowest:.1}, max {fastest:.1})");
}

/// Dissects every frame and reads the fields of a descriptor.
fn pass(frames: &Frames) -> u64 {
    let mut layers = Layers::new();
    let mut sum = 0;
    for &(offset, length) in &frames.places {
        let frame = &frames.bytes[offset as usize..(offset + length) as usize];
        dissect(Link::Ethernet, frame, &mut layers);
        sum += u64::from(layers.l3()) + u64::from(layers.l4());
    }
    sum
}

fn tcp_frames(count: u32, tagged: bool) -> Result<Frames, linerate_headers::EmitError> {
    let mut frames = Frames::default();
    for index in 0..count {
        let mut frame = [0; 60];
        let ether_type = if tagged { vlan::CUSTOMER } else { ethernet::IPV4 };
        let mut at = ethernet::Header { destination: MacAddr::BROADCAST, source: MacAddr([2; 6]), ether_type }
            .emit(&mut frame)?;
        if tagged {
            let tag = vlan::Header { id: 1, priority: 0, drop_eligible: false, ether_type: ethernet::IPV4 };
            at += tag.emit(&mut frame[at..])?;
        }
        let ip = ipv4::Header { source: (0x0a00_0000 + index).into(), ..ipv4::Header::new(registry::TCP) };
        at += ip.emit(60 - at - ipv4::LEN, &mut frame[at..])?;
        tcp::Header { sequence: index, ..tcp::Header::default() }.emit(&mut frame[at..])?;
        frames.push(&frame);
    }
    Ok(frames)
}

/// Returns the frames of a pcap file in the byte order of this machine.
fn capture(file: &[u8]) -> Frames {
    let mut frames = Frames::default();
    let mut rest = file.get(24..).unwrap_or_default();
    while let Some((record, behind)) = rest.split_first_chunk::<RECORD>() {
        let length = u32::from_ne_bytes([record[8], record[9], record[10], record[11]]) as usize;
        let Some((frame, behind)) = behind.split_at_checked(length) else { break };
        frames.push(frame);
        rest = behind;
    }
    frames
}
