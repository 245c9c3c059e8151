//! Measures the nanoseconds per frame that filters take in this process, on the frames of a pcap file:
//! `cargo run --release -p linerate-filter --example filter_speed -- FILE FILTER...`

use linerate_filter::Filter;
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 15;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = std::fs::read(arguments.next().ok_or("usage: filter_speed FILE FILTER...")?)?;
    let frames = little_endian_frames(&file);
    println!("{} frames; minimum and median of {ROUNDS} rounds", frames.len());
    for text in arguments {
        let filter = Filter::compile(&text, 1)?;
        let mut passed = 0;
        let mut rounds: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let start = Instant::now();
                passed = frames.iter().filter(|(frame, wire)| black_box(&filter).matches(frame, *wire)).count();
                start.elapsed().as_nanos() as f64 / frames.len().max(1) as f64
            })
            .collect();
        rounds.sort_by(f64::total_cmp);
        let insns = filter.program().map_or(0, |program| program.insns().len());
        println!("{:6.1} {:6.1} ns  {passed:8} passed  {insns:3} instructions  {text}", rounds[0], rounds[ROUNDS / 2]);
    }
    Ok(())
}

/// Returns the frames of a little-endian pcap file, up to the first truncated one: captured bytes and length on the
/// wire.
fn little_endian_frames(file: &[u8]) -> Vec<(&[u8], u32)> {
    let mut frames = Vec::new();
    let mut rest = file.get(24..).unwrap_or_default();
    while let Some((head, body)) = rest.split_first_chunk::<16>() {
        let captured = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let wire = u32::from_le_bytes([head[12], head[13], head[14], head[15]]);
        let Some((frame, next)) = body.split_at_checked(captured) else { break };
        frames.push((frame, wire));
        rest = next;
    }
    frames
}
