//! Every frame of the corpus dissected by linerate and by tshark: the same headers at the same offsets with the same
//! lengths.
//!
//! - `frames`: frames of the corpus, grouped by link type;
//! - `tshark`: headers that tshark finds;
//! - `names`: protocol names of tshark and of linerate;
//! - `compare`: comparison of one frame's layers;
//! - `differences`: known differences and their reasons.
//!
//! `LINERATE_CORPUS` is the corpus; without it, or without tshark, the test is skipped with a note.

pub(crate) mod compare;
mod differences;
pub(crate) mod frames;
pub(crate) mod names;
pub(crate) mod tshark;

use compare::{compare, describe};
use differences::{ROWS, Row};
use frames::{Batch, batches};
use linerate::headers::{Layers, dissect};
use linerate_tests::support::{corpus, has_tools};
use names::NAMES;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tshark::{Found, LAYERS, Tshark, parse, pcap};

/// Parallel tshark processes.
const PROCESSES: usize = 2;

/// Minimum number of frames compared.
const AT_LEAST: usize = 80_000;

/// Protocols that the corpus lacks; `built.rs` compares them.
const ABSENT: [&str; 6] = ["hip", "pseudowire", "shim6", "sll2", "teredo", "udp_lite"];

#[test]
fn every_frame_has_the_layers_that_tshark_finds() {
    let Some(folder) = corpus(".") else { return };
    if !has_tools(&["tshark"]) {
        return;
    }
    let batches = batches(&folder);
    let (tally, next) = (Mutex::new(Tally::default()), AtomicUsize::new(0));
    let tshark = Tshark::new();
    std::thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(batch) = batches.get(number) else { return };
                    let frames = batch.frames.iter().map(|frame| (frame.wire, &frame.bytes[..]));
                    let pdml = tshark.run(&format!("{number}.pcap"), &pcap(batch.linktype, frames), &LAYERS);
                    tally.lock().unwrap().compare(batch, &parse(&pdml));
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap();
    assert!(tally.frames > AT_LEAST, "only {} frames were compared", tally.frames);
    let absent = NAMES.iter().map(|(_, ours, _)| *ours).filter(|name| !tally.layers.contains_key(name));
    assert_eq!(absent.collect::<BTreeSet<_>>(), BTreeSet::from(ABSENT), "protocols that were not compared");
    judge(&tally.differences);
}

/// Result of the comparison.
#[derive(Default)]
struct Tally {
    frames: usize,
    /// Number of matching layers per protocol.
    layers: BTreeMap<&'static str, usize>,
    /// Differences, with a description of each frame.
    differences: BTreeMap<Difference, Vec<String>>,
}

/// First difference between a frame's layers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Difference {
    capture: String,
    ours: String,
    theirs: String,
}

impl Tally {
    fn compare(&mut self, batch: &Batch, theirs: &[Vec<Found>]) {
        assert_eq!(theirs.len(), batch.frames.len(), "frames of link type {} that tshark saw", batch.linktype);
        let mut layers = Layers::new();
        for (frame, theirs) in batch.frames.iter().zip(theirs) {
            dissect(batch.link, &frame.bytes, &mut layers);
            self.frames += 1;
            match compare(&layers, theirs) {
                None => layers
                    .as_slice()
                    .iter()
                    .for_each(|layer| *self.layers.entry(layer.protocol.name()).or_default() += 1),
                Some((ours, their)) => {
                    let difference = Difference { capture: frame.capture.clone(), ours, theirs: their };
                    let description = format!("number {}: {}", frame.number, describe(&layers, theirs));
                    self.differences.entry(difference).or_default().push(description);
                }
            }
        }
    }
}

/// Fails for differences without a row and for rows without a difference.
fn judge(found: &BTreeMap<Difference, Vec<String>>) {
    let mut met = vec![false; ROWS.len()];
    let mut unexplained = String::new();
    for (Difference { capture, ours, theirs }, frames) in found {
        let explains = |row: &Row| capture.starts_with(row.captures) && ours == row.ours && theirs == row.theirs;
        match ROWS.iter().position(explains) {
            Some(row) => met[row] = true,
            None => {
                let (first, count) = (&frames[0], frames.len());
                unexplained += &format!("{capture}: ours {ours}, tshark's {theirs}: {count} frames, {first}\n");
            }
        }
    }
    let unused: Vec<_> = ROWS.iter().zip(&met).filter(|(_, met)| !**met).map(|(row, _)| row.why).collect();
    assert!(unexplained.is_empty(), "differences without a row:\n{unexplained}");
    assert!(unused.is_empty(), "rows without a difference: {unused:#?}");
}
