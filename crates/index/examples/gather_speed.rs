//! Measures the cost of indexing per frame: with one flow, a thousand, and as many flows as frames; or for a capture
//! file.
//!
//! `cargo run --release -p linerate-index --example gather_speed [FILE]`

use linerate_burst::{Block, Desc, Interface, LinkType, Nanos, StampSource};
use linerate_index::EntryBuilder;
use linerate_pcap::Reader;
use std::time::Instant;

const FRAMES: usize = 8192;
const ROUNDS: usize = 200;

fn main() {
    let interfaces = [Interface::new("", LinkType::ETHERNET, StampSource::User)];
    for (name, flows) in [("1 flow", 1u64), ("1,000 flows", 1000), ("10,000 flows", 10_000), ("random", u64::MAX)] {
        let mut blocks: Vec<Block> = (0..8).map(|number| block(flows, number)).collect();
        measure(name, &mut blocks, &interfaces);
    }
    for path in std::env::args().skip(1) {
        let mut reader = Reader::open(&path).expect("a capture file");
        let mut blocks = vec![Block::new(1 << 20, FRAMES)];
        while let Ok(count @ 1..) = reader.fill().map(|burst| burst.len()) {
            for (desc, frame) in reader.shown().iter() {
                if !blocks.last_mut().expect("one").push(desc, frame) {
                    blocks.push(Block::new(1 << 20, FRAMES));
                    blocks.last_mut().expect("one").push(desc, frame);
                }
            }
            reader.consume(count);
        }
        let interfaces = reader.interfaces().to_vec();
        measure(&path, &mut blocks, &interfaces);
    }
}

fn measure(name: &str, blocks: &mut [Block], interfaces: &[Interface]) {
    let (mut gather, mut entry) = (EntryBuilder::new(), Vec::new());
    let (mut data, mut index) = (0, 0);
    let mut best = f64::MAX;
    for _ in 0..5 {
        let began = Instant::now();
        let (mut frames, mut part) = (0, 0);
        for round in 0..ROUNDS {
            let block = &blocks[round % blocks.len()];
            gather.add(block.burst(), interfaces);
            frames += block.len();
            part += block.burst().bytes() + 16 * block.len() as u64;
            if part >= 1 << 20 {
                entry.clear();
                gather.entry(0..part, None, 0, &mut entry);
                gather.clear();
                data += part;
                index += entry.len();
                part = 0;
            }
        }
        best = best.min(began.elapsed().as_nanos() as f64 / frames as f64);
    }
    let share = 100.0 * index as f64 / data as f64;
    println!("{name:>12}: {best:5.1} ns per frame, {share:.2} % of the data ({} bytes per entry)", entry.len());
}

/// Returns frames of 64 bytes with FCS, of `flows` flows in turn; `u64::MAX` for a flow per frame.
fn block(flows: u64, number: u64) -> Block {
    let mut block = Block::new(1 << 20, FRAMES);
    for n in 0..FRAMES as u64 {
        let flow = ((number * FRAMES as u64 + n) % flows).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut frame = [0; 60];
        frame[12..26].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame[26..34].copy_from_slice(&flow.to_be_bytes());
        frame[34..38].copy_from_slice(&(flow.rotate_left(17) as u32).to_be_bytes());
        if !block.push(&Desc::new(Nanos(n), 0, 60), &frame) {
            break;
        }
    }
    block
}
