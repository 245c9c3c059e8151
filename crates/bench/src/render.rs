//! Packets of streams made in memory per second and core, compared with a plain copy of as many bytes.

use super::Effort;
use super::harness::{Case, Ours, Prepare, Sample, case};
use super::traffic::{packets, set};
use linerate_burst::Nanos;
use linerate_generate::stream::{Mark, Stream};
use linerate_generate::{SenderPart, Traffic};
use std::hint::black_box;

/// The smallest packets, with FCS. Only these have very many streams, which take much memory.
const SMALLEST: usize = 64;
/// Bytes made of each case in a round, and the most packets.
const BYTES: usize = 256 << 20;
const FRAMES: usize = 4 << 20;
/// Packets of a burst.
const BURST: usize = 256;
/// Packets of a stream that is prebuilt.
const KEPT: u64 = 1024;
/// Sizes of a mix, and the mean captured bytes of a packet.
const IMIX: (&str, f64) = ("imix", (60 * 7 + 590 * 4 + 1514) as f64 / 12.0);

const FOUR: &str = "ip(src=10.0.0.0..10.0.255.255, dst=random(10.200.0.0..10.200.255.255))/udp(sport=0..65535, dport=random(0..65535))";
const FOUR_RANDOM: &str = "ip(src=random(10.0.0.0..10.0.255.255), dst=random(10.200.0.0..10.200.255.255))/udp(sport=random(0..65535), dport=random(0..65535))";

/// Cases: packet, mark, and number of streams that are sent in turn.
const CASES: [(&str, &str, Mark, usize); 9] = [
    ("template", "ip/udp", Mark::None, 1),
    ("cached", FOUR, Mark::None, 1),
    ("one field", "ip(src=10.0.0.0..10.0.255.255)/udp", Mark::None, 1),
    ("four fields", FOUR, Mark::None, 1),
    ("four random fields", FOUR_RANDOM, Mark::None, 1),
    ("four fields, trailer", FOUR, Mark::Trailer, 1),
    ("noise payload", "ip/udp/payload(noise)", Mark::None, 1),
    ("1,000 streams in turn", FOUR, Mark::None, 1_000),
    ("100,000 streams in turn", FOUR, Mark::None, 100_000),
];

pub(super) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    let mut cases = Vec::new();
    for size in effort.sizes(&[SMALLEST, 512, 1518]) {
        let wanted = CASES.into_iter().filter(move |(.., streams)| size == SMALLEST || *streams < 100_000);
        cases.extend(wanted.map(|(name, packet, mark, streams)| {
            case(move || {
                let streams = if streams > 1_000 { effort.of(streams) } else { streams };
                Ok(of(
                    effort,
                    name,
                    traffic(packet, &size.to_string(), mark, streams, name == "cached")?,
                    Case::sized(size),
                ))
            })
        }));
    }
    if effort.size.is_none() {
        cases.push(case(move || {
            let mix = traffic(FOUR, IMIX.0, Mark::None, 1, false)?;
            Ok(of(effort, "four fields, 7:4:1", mix, Case { bytes: IMIX.1, ..Case::default() }))
        }));
    }
    Ok(cases)
}

fn traffic(packet: &str, sizes: &str, mark: Mark, streams: usize, keep: bool) -> anyhow::Result<Traffic> {
    let one = packets(packet, sizes, mark)?;
    let set = set((0..streams as u32).map(|id| Stream { id, ..one.clone() }).collect());
    Ok(if keep { Traffic::kept(&set, SenderPart::WHOLE, KEPT)? } else { Traffic::new(&set, SenderPart::WHOLE)? })
}

fn of(effort: Effort, name: &str, mut traffic: Traffic, case: Case) -> Case {
    let frames = effort.of((BYTES / case.bytes as usize).min(FRAMES));
    let source = vec![7; BURST * (case.bytes as usize).next_multiple_of(64)];
    let mut target = vec![0; source.len()];
    case.ours(Ours::new(name, move || Sample::timed(|| Ok(make(&mut traffic, frames))))).limit(
        "memory copy",
        move || {
            Sample::timed(|| {
                for _ in 0..frames.div_ceil(BURST) {
                    target.copy_from_slice(black_box(&source));
                    black_box(&mut target);
                }
                Ok((frames.div_ceil(BURST) * BURST) as u64)
            })
        },
    )
}

/// Takes packets as a sender that is never full.
fn make(traffic: &mut Traffic, frames: usize) -> u64 {
    let mut made = 0;
    while made < frames {
        let burst = traffic.offer(0, Nanos(made as u64)).expect("packets lie in their memory");
        let shown = black_box(burst).len();
        traffic.consume(shown);
        made += shown;
    }
    made as u64
}
