//! Layers, flow hashes and printed lines of packets in memory: packets per second and core.

use super::Effort;
use super::folder::Folder;
use super::harness::{Case, Ours, Prepare, Sample, case};
use super::traffic::packets;
use linerate_backends::open_rx;
use linerate_burst::{Block, Burst, Desc, Horizon, Nanos};
use linerate_cli::verbs::demo::testbed::recording;
use linerate_generate::stream::Mark;
use linerate_generate::trailer::Key;
use linerate_headers::flow::locate;
use linerate_headers::{Layers, Link, dissect};
use linerate_port::{RxOptions, Spec};
use linerate_print::{Frame, Options, Printer};
use std::hint::black_box;
use std::rc::Rc;

/// Packets of the synthetic case. They stay in the first-level cache, as in a burst just copied.
const FRAMES: usize = 256;
/// Bytes of Ethernet, IPv4 and TCP headers.
const HEADERS: usize = 54;

pub(super) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    Ok(vec![
        case(move || Ok(of("TCP/IPv4", tcp_frames()?, effort.of(40_000), Case::sized(64)))),
        case(move || {
            let workplace = Folder::on_disk("dissect")?;
            let mix = load(&recording(None, workplace.path())?.path.to_string_lossy())?;
            let bytes: usize = mix.burst().descs().iter().map(|desc| desc.captured as usize).sum();
            let bytes = bytes as f64 / mix.len() as f64;
            Ok(of("real mix", mix, effort.of(200), Case { bytes, ..Case::default() }))
        }),
    ])
}

fn of(name: &str, packets: Block, passes: usize, case: Case) -> Case {
    let packets = Rc::new(packets);
    // A side handles all packets of the burst once.
    let side = |passes: usize, mut handle: Box<dyn FnMut(Burst<'_>)>| {
        let packets = Rc::clone(&packets);
        move || {
            Sample::timed(|| {
                (0..passes).for_each(|_| handle(packets.burst()));
                Ok((passes * packets.len()) as u64)
            })
        }
    };
    let mut layers = Layers::new();
    let dissect_all = move |burst: Burst<'_>| {
        let mut depth = 0;
        for (_, frame) in burst.iter() {
            dissect(Link::Ethernet, frame, &mut layers);
            depth += layers.as_slice().len() + usize::from(layers.l4());
        }
        black_box(depth);
    };
    let locate_all = |burst: Burst<'_>| {
        let found = burst.iter().map(|(_, frame)| locate(Link::Ethernet, frame));
        black_box(found.fold(0, |sum, at| sum + u64::from(at.hash) + u64::from(at.l3) + u64::from(at.l4)));
    };
    let (mut printer, mut lines) = (Printer::new(Options::default()), Vec::new());
    let print_all = move |burst: Burst<'_>| {
        for (desc, bytes) in burst.iter() {
            lines.clear();
            printer.line(&Frame { time: desc.time.0, interface: "", link: 1, bytes, wire: desc.wire }, &mut lines);
        }
        black_box(&lines);
    };
    let read_all = |burst: Burst<'_>| {
        let sum = burst.iter().fold(0u64, |sum, (_, frame)| {
            let (words, _) = frame[..frame.len().min(HEADERS)].as_chunks();
            words.iter().fold(sum, |sum, word| sum ^ u64::from_ne_bytes(*word))
        });
        black_box(sum);
    };
    case.ours(Ours::new(name, side(passes, Box::new(dissect_all))))
        .ours(Ours::new(format!("flow hash, {name}"), side(passes, Box::new(locate_all))))
        // Printing is the slow one.
        .ours(Ours::new(format!("print, {name}"), side(passes.div_ceil(8), Box::new(print_all))))
        .limit("read headers", side(passes, Box::new(read_all)))
}

/// TCP segments without payload, a flow each.
fn tcp_frames() -> anyhow::Result<Block> {
    let packet = "ip(src=10.0.0.0..10.0.0.255, dst=10.1.0.1)/tcp(sport=1024..1279, dport=443)";
    let (stream, mut block) = (packets(packet, "64", Mark::None)?, Block::new(1 << 20, FRAMES));
    for number in 0..FRAMES as u64 {
        let frame = stream.frame(number, 0, &Key::default());
        assert!(block.push(&Desc::new(Nanos(number), 0, frame.len() as u32), &frame), "room for the packet");
    }
    Ok(block)
}

/// A whole capture file in one block.
fn load(path: &str) -> anyhow::Result<Block> {
    let size = std::fs::metadata(path)?.len() as usize;
    let mut block = Block::new(size * 2, size / 16 + 1);
    let mut port = open_rx(&Spec::file(path), &RxOptions::default())?;
    loop {
        let head = port.queues[0].fill(Nanos::ZERO)?;
        if head.burst.is_empty() && head.horizon == Horizon::Ended {
            return Ok(block);
        }
        for (desc, frame) in head.burst.iter() {
            anyhow::ensure!(block.push(desc, frame), "{path} has grown");
        }
        let shown = head.burst.len();
        port.queues[0].consume(shown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_loaded_past_parts_without_frames() {
        let block = |kind: u32, body: &[u8]| {
            let length = (12 + body.len() as u32).to_le_bytes();
            [&kind.to_le_bytes()[..], &length, body, &length].concat()
        };
        let section = block(0x0a0d_0d0a, &[&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat());
        let interface = block(1, &[1, 0, 0, 0, 0, 0, 0, 0]);
        let frame = block(6, &[&[0u32, 0, 1, 60, 60].map(u32::to_le_bytes).concat()[..], &[0; 60]].concat());
        // Of an unknown kind, and more than a reader looks through at a time.
        let gap = block(77, &[0; 1 << 19]).repeat(20);
        let path = std::env::temp_dir().join(format!("linerate-gap-{}.pcapng", std::process::id()));
        std::fs::write(&path, [&section[..], &interface, &frame, &gap, &frame].concat()).unwrap();
        let loaded = load(path.to_str().unwrap());
        std::fs::remove_file(path).unwrap();
        assert_eq!(loaded.unwrap().len(), 2);
    }
}
