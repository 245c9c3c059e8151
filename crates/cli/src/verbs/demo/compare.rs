//! Compares captured packets with sent ones, one by one.

use super::testbed::PARTS;
use crate::view::rates::counted;
use anyhow::Context;
use linerate_burst::{Desc, Interface, Nanos};
use linerate_generate::Split;
use linerate_pcap::Reader;
use std::fs::File;
use std::path::Path;

/// Maximum number of differences described; others are only counted.
const DESCRIBED: usize = 5;

/// Packets of a recording, by the part that sends them.
pub(super) struct Expected {
    parts: [Vec<Vec<u8>>; PARTS],
    span: (Nanos, Nanos),
}

/// Result of the comparison.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// Captured packets that match sent ones.
    pub captured: u64,
    /// Those in the expected order, byte for byte.
    pub equal: u64,
    /// Packets that no sender sent, such as those of the hosts' kernels.
    pub foreign: u64,
    /// Packets with a time stamp before that of a previous packet, except those that the merge counted as late.
    pub out_of_order: u64,
    /// Differences as text.
    pub differences: Vec<String>,
}

impl Expected {
    /// Reads a recording.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let mut expected = Expected { parts: Default::default(), span: (Nanos::MAX, Nanos::ZERO) };
        each_frame(path, |desc, frame, _| {
            let part = (0..PARTS).find(|part| Split { index: *part as u32, of: PARTS as u32 }.holds(frame));
            if let Some(part) = part.filter(|_| !desc.is_truncated()) {
                expected.parts[part].push(frame.to_vec());
            }
            expected.span = (expected.span.0.min(desc.time), expected.span.1.max(desc.time));
        })?;
        Ok(expected)
    }

    /// Returns the number of packets.
    pub(super) fn frames(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }

    /// Returns the duration of the recording.
    pub(super) fn seconds(&self) -> f64 {
        self.span.1.since(self.span.0).as_secs_f64()
    }
}

/// Compares a file with `loops` passes over the recording; part i was captured by the interface called
/// `interfaces[i]`. The merge counted `late` packets, as on a machine slower than its lag.
pub(super) fn compare(
    path: &Path,
    expected: &Expected,
    loops: u64,
    interfaces: &[String],
    late: u64,
) -> anyhow::Result<Comparison> {
    let mut compared = Comparison::default();
    let mut next = [0u64; PARTS];
    let mut newest = Nanos::ZERO;
    each_frame(path, |desc, frame, interface| {
        compared.out_of_order += u64::from(desc.time < newest);
        newest = newest.max(desc.time);
        let Some(part) = interfaces.iter().position(|name| *name == interface.name) else {
            compared.differ(format!("a packet from interface {:?}, to which none was sent", interface.name));
            return;
        };
        compared.take(&expected.parts[part], &mut next[part], frame, &interface.name);
    })?;
    for (part, sent) in expected.parts.iter().enumerate() {
        let all = sent.len() as u64 * loops;
        if next[part] != all {
            compared.differ(format!("{} of {all} packets sent to {} were captured", next[part], interfaces[part]));
        }
    }
    compared.out_of_order = compared.out_of_order.saturating_sub(late);
    if compared.out_of_order > 0 {
        compared.differ(format!("{} out of order and not counted as late", counted(compared.out_of_order, "packet")));
    }
    Ok(compared)
}

impl Comparison {
    /// Compares a captured packet of a part with number `next` of the sent ones.
    fn take(&mut self, sent: &[Vec<u8>], next: &mut u64, frame: &[u8], interface: &str) {
        let at = |number: u64| sent.get((number % sent.len().max(1) as u64) as usize).map(Vec::as_slice);
        if at(*next) == Some(frame) {
            self.captured += 1;
            self.equal += 1;
            *next += 1;
        } else if let Some(ahead) = (1..=sent.len() as u64).find(|ahead| at(*next + ahead) == Some(frame)) {
            self.differ(format!("{} missing on {interface} before packet {}", counted(ahead, "packet"), *next));
            self.captured += 1;
            self.equal += 1;
            *next += ahead + 1;
        } else {
            self.foreign += 1;
            self.differ(format!("a packet of {} bytes on {interface} that was not sent", frame.len()));
        }
    }

    fn differ(&mut self, difference: String) {
        if self.differences.len() < DESCRIBED {
            self.differences.push(difference);
        }
    }
}

/// Calls `each` with every packet of a file and the interface that captured it.
fn each_frame(path: &Path, mut each: impl FnMut(&Desc, &[u8], &Interface)) -> anyhow::Result<()> {
    let name = path.to_string_lossy();
    let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    let mut reader = Reader::new(Box::new(file), name)?;
    loop {
        reader.fill()?;
        let burst = reader.shown();
        for (desc, frame) in burst.iter() {
            each(desc, frame, &reader.interfaces()[usize::from(desc.interface)]);
        }
        let count = burst.len();
        if count == 0 {
            return Ok(());
        }
        reader.consume(count);
    }
}
