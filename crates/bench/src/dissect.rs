//! Layers, flows and lines of frames in memory: how many frames a core takes apart, finds the flow of, or prints, in a second.

use super::Effort;
use super::folder::Folder;
use super::measure::{Rounds, Row};
use linerate_backends::open_rx;
use linerate_burst::{Block, Burst, Horizon};
use linerate_cli::verbs::demo::stage::recording;
use linerate_port::{RxOptions, Spec};
use linerate_print::{Frame, Options, Printer};
use linerate_wire::flow::locate;
use linerate_wire::{Layers, Link, MacAddr, Pseudo, dissect, ethernet, ipv4, registry, tcp};
use std::hint::black_box;

/// Frames of the synthetic case: they stay in the first-level cache, as in a burst just copied.
const FRAMES: usize = 256;

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let tcp = tcp_frames();
    let sides = measure(tcp.burst(), effort.of(40_000), effort.rounds);
    rows.extend(sides.rows("TCP/IPv4", 60.0).map(|row| row.sized(64)));

    let workplace = Folder::on_disk("dissect")?;
    let mix = load(&recording(None, workplace.path())?.path.to_string_lossy())?;
    let bytes: usize = mix.burst().descs().iter().map(|desc| desc.captured as usize).sum();
    let sides = measure(mix.burst(), effort.of(200), effort.rounds);
    rows.extend(sides.rows("real mix", bytes as f64 / mix.len() as f64));
    Ok(rows)
}

/// Bytes of Ethernet, IPv4 and TCP headers.
const HEADERS: usize = 54;

/// What is measured side by side, in turn.
#[derive(Default)]
struct Sides {
    /// All layers of each frame.
    dissect: Rounds,
    /// Offsets and flow hash of each frame.
    locate: Rounds,
    /// The line of each frame.
    print: Rounds,
    /// A loop that only reads the headers.
    touch: Rounds,
}

impl Sides {
    /// A row for each of ours; frames have `bytes` captured bytes on average.
    fn rows(&self, case: &str, bytes: f64) -> [Row; 3] {
        let (hash, print) = (format!("flow hash, {case}"), format!("print, {case}"));
        [(&self.dissect, case.to_owned()), (&self.locate, hash), (&self.print, print)]
            .map(|(ours, case)| ours.row("dissect", case, bytes).limited("read headers", &self.touch))
    }
}

fn measure(burst: Burst<'_>, passes: usize, rounds: usize) -> Sides {
    let mut sides = Sides::default();
    let mut layers = Layers::new();
    for _ in 0..rounds {
        sides.dissect.time(|| {
            let mut depth = 0;
            for _ in 0..passes {
                for (_, frame) in burst.iter() {
                    dissect(Link::Ethernet, frame, &mut layers);
                    depth += layers.as_slice().len() + usize::from(layers.l4());
                }
            }
            black_box(depth);
            (passes * burst.len()) as u64
        });
        sides.locate.time(|| {
            let mut sum = 0u64;
            for _ in 0..passes {
                for (_, frame) in burst.iter() {
                    let found = locate(Link::Ethernet, frame);
                    sum += u64::from(found.hash) + u64::from(found.l3) + u64::from(found.l4);
                }
            }
            black_box(sum);
            (passes * burst.len()) as u64
        });
        sides.print.time(|| {
            // It is the slow one.
            let passes = passes.div_ceil(8);
            let (mut printer, mut lines) = (Printer::new(Options::default()), Vec::new());
            for _ in 0..passes {
                for (desc, bytes) in burst.iter() {
                    lines.clear();
                    let frame = Frame { time: desc.time.0, interface: "", link: 1, bytes, wire: desc.wire };
                    printer.line(&frame, &mut lines);
                }
            }
            black_box(lines);
            (passes * burst.len()) as u64
        });
        sides.touch.time(|| {
            let mut sum = 0u64;
            for _ in 0..passes {
                for (_, frame) in burst.iter() {
                    let headers = &frame[..frame.len().min(HEADERS)];
                    let (words, _) = headers.as_chunks();
                    sum = words.iter().fold(sum, |sum, word| sum ^ u64::from_ne_bytes(*word));
                }
                black_box(sum);
            }
            (passes * burst.len()) as u64
        });
    }
    sides
}

/// TCP segments without payload, of as many flows as frames.
fn tcp_frames() -> Block {
    let mut block = Block::new(1 << 20, FRAMES);
    for number in 0..FRAMES {
        let (source, destination) = ([10, 0, 0, number as u8].into(), [10, 1, 0, 1].into());
        let mut frame = [0u8; 60];
        let (link, packet) = frame.split_at_mut(ethernet::LEN);
        let macs = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
        let header = ethernet::Header { source: macs.0, destination: macs.1, ether_type: ethernet::IPV4 };
        header.emit(link).expect("there is room for the header");
        let ip = ipv4::Header { source, destination, ..ipv4::Header::new(registry::TCP) };
        ip.emit(tcp::LEN, packet).expect("there is room for the header");
        let segment = &mut packet[ipv4::LEN..ipv4::LEN + tcp::LEN];
        let header = tcp::Header { source_port: 1024 + number as u16, destination_port: 443, ..tcp::Header::default() };
        header.emit(segment).expect("there is room for the header");
        tcp::fill_checksum(segment, &Pseudo::V4 { source, destination }).expect("a whole segment");
        let desc = linerate_burst::Desc::new(linerate_burst::Nanos(number as u64), 0, 60);
        assert!(block.push(&desc, &frame), "the block was made for so many");
    }
    block
}

/// A whole capture file in one block.
fn load(path: &str) -> anyhow::Result<Block> {
    let size = std::fs::metadata(path)?.len() as usize;
    let mut block = Block::new(size * 2, size / 16 + 1);
    let mut port = open_rx(&Spec::file(path), &RxOptions::default())?;
    loop {
        let head = port.queues[0].fill(linerate_burst::Nanos::ZERO)?;
        if head.burst.is_empty() && head.horizon == Horizon::Ended {
            return Ok(block);
        }
        for (desc, frame) in head.burst.iter() {
            anyhow::ensure!(block.push(desc, frame), "{path} is larger than it was");
        }
        let shown = head.burst.len();
        port.queues[0].consume(shown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_loaded_beyond_a_part_without_frames() {
        let block = |kind: u32, body: &[u8]| {
            let length = (12 + body.len() as u32).to_le_bytes();
            [&kind.to_le_bytes()[..], &length, body, &length].concat()
        };
        let section = block(0x0a0d_0d0a, &[&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat());
        let interface = block(1, &[1, 0, 0, 0, 0, 0, 0, 0]);
        let frame = block(6, &[&[0u32, 0, 1, 60, 60].map(u32::to_le_bytes).concat()[..], &[0; 60]].concat());
        // Of a kind that nobody knows: more than a reader looks through at a time.
        let gap = block(77, &[0; 1 << 19]).repeat(20);
        let path = std::env::temp_dir().join(format!("linerate-gap-{}.pcapng", std::process::id()));
        std::fs::write(&path, [&section[..], &interface, &frame, &gap, &frame].concat()).unwrap();
        let loaded = load(path.to_str().unwrap());
        std::fs::remove_file(path).unwrap();
        assert_eq!(loaded.unwrap().len(), 2);
    }
}
