//! Every frame of the corpus dissected by us and by tshark: the same headers at the same places, with the
//! same lengths.
//!
//! - `frames`: the frames of the corpus, one capture file a link type;
//! - `tshark`: what tshark finds in them;
//! - `names`: which of its protocols are which of ours;
//! - `differences`: where we differ, and why.
//!
//! The corpus is found through `LINERATE_CORPUS`; without it, or without tshark, the test says that it is skipped.

#[path = "layers/differences.rs"]
mod differences;
#[path = "layers/frames.rs"]
mod frames;
#[path = "layers/names.rs"]
mod names;
#[path = "layers/tshark.rs"]
mod tshark;

use differences::ROWS;
use frames::{Batch, Frame, batches, pcap};
use linerate::wire::{Layer, Layers, Stop, dissect};
use linerate_tests::support::{corpus, has_tools};
use names::{Covers, NAMES};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tshark::{Found, Tshark};

/// tshark processes at a time.
const PROCESSES: usize = 2;

/// tshark's words for a header that the frame, or the length in front, ends inside.
const SHORT: [&str; 2] = ["_ws.short", "_ws.malformed"];

#[test]
fn every_frame_has_the_layers_that_tshark_finds() {
    let Some(folder) = corpus(".") else { return };
    if !has_tools(&["tshark"]) {
        return;
    }
    let batches = batches(&folder);
    let found: Mutex<BTreeMap<Difference, Vec<String>>> = Mutex::default();
    let (next, frames) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let tshark = Tshark::new();
    std::thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(batch) = batches.get(number) else { return };
                    let differences = compare_all(batch, tshark.dissect(&format!("{number}.pcap"), &pcap(batch)));
                    frames.fetch_add(batch.frames.len(), Ordering::Relaxed);
                    let mut found = found.lock().unwrap();
                    for (difference, place) in differences {
                        found.entry(difference).or_default().push(place);
                    }
                }
            });
        }
    });
    let frames = frames.into_inner();
    assert!(frames > 80_000, "only {frames} frames were compared");
    judge(&found.into_inner().unwrap());
}

/// The first place where a frame's layers differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Difference {
    capture: String,
    ours: String,
    theirs: String,
}

/// Fails for differences without a row and for rows without a difference.
fn judge(found: &BTreeMap<Difference, Vec<String>>) {
    let mut met = vec![false; ROWS.len()];
    let mut unexplained = String::new();
    for (difference, places) in found {
        let row = ROWS.iter().position(|row| {
            difference.capture.starts_with(row.captures)
                && difference.ours == row.ours
                && difference.theirs == row.theirs
        });
        match row {
            Some(row) => met[row] = true,
            None => {
                let Difference { capture, ours, theirs } = difference;
                let (first, count) = (&places[0], places.len());
                unexplained += &format!("{capture}: ours {ours}, tshark's {theirs}: {count} frames, first {first}\n");
            }
        }
    }
    let idle: Vec<_> = ROWS.iter().zip(&met).filter(|(_, met)| !**met).map(|(row, _)| row.why).collect();
    assert!(unexplained.is_empty(), "differences without a row:\n{unexplained}");
    assert!(idle.is_empty(), "rows without a difference: {idle:#?}");
}

/// The differences of a batch, each with the frame's number and both lists.
fn compare_all(batch: &Batch, theirs: Vec<Vec<Found>>) -> Vec<(Difference, String)> {
    assert_eq!(theirs.len(), batch.frames.len(), "tshark saw another number of frames of link type {}", batch.linktype);
    let mut layers = Layers::new();
    let mut differences = Vec::new();
    for (frame, theirs) in batch.frames.iter().zip(&theirs) {
        dissect(batch.link, &frame.bytes, &mut layers);
        if let Some((ours, their)) = compare(&layers, theirs) {
            let difference = Difference { capture: frame.capture.clone(), ours, theirs: their };
            differences.push((difference, describe(frame, &layers, theirs)));
        }
    }
    differences
}

/// What both say at the first place where they differ.
fn compare(layers: &Layers, theirs: &[Found]) -> Option<(String, String)> {
    let mut found = theirs.iter().peekable();
    for ours in layers.as_slice() {
        match found.next() {
            Some(their) if is_same(ours, their) => {}
            Some(their) => return Some((our_words(ours, their), their_words(their, ours))),
            None => return Some((ours.protocol.name().to_owned(), "end".to_owned())),
        }
    }
    // Of a header that we refuse, tshark may show a part, and nothing behind it.
    let refused = match layers.stop() {
        Stop::Truncated(protocol) | Stop::Malformed(protocol, _) => Some(protocol.name()),
        _ => None,
    };
    let start = layers.as_slice().last().map_or(0, Layer::end) as usize;
    found
        .next_if(|their| our_name(&their.name).is_some_and(|(name, _)| Some(name) == refused) && their.offset == start);
    found.next_if(|their| SHORT.contains(&their.name.as_str()));
    found.next().map(|their| (layers.stop().to_string(), their.name.clone()))
}

/// Whether tshark found just this layer.
fn is_same(ours: &Layer, their: &Found) -> bool {
    our_name(&their.name).is_some_and(|(name, covers)| {
        let length = usize::from(ours.length);
        let same_size = if covers == Covers::Header { their.size == length } else { their.size >= length };
        name == ours.protocol.name() && their.offset == ours.offset as usize && same_size
    })
}

fn our_name(theirs: &str) -> Option<(&'static str, Covers)> {
    NAMES.iter().find(|(name, ..)| *name == theirs).map(|(_, ours, covers)| (*ours, *covers))
}

/// A layer of ours, with what else than the name differs.
fn our_words(ours: &Layer, their: &Found) -> String {
    let name = ours.protocol.name();
    match our_name(&their.name) {
        Some((same, _)) if same != name => name.to_owned(),
        None => name.to_owned(),
        _ if their.offset != ours.offset as usize => format!("{name} at {}", ours.offset),
        _ => format!("{name} of {} bytes", ours.length),
    }
}

fn their_words(their: &Found, ours: &Layer) -> String {
    match our_name(&their.name) {
        Some((same, _)) if same != ours.protocol.name() => their.name.clone(),
        None => their.name.clone(),
        _ if their.offset != ours.offset as usize => format!("{} at {}", their.name, their.offset),
        _ => format!("{} of {} bytes", their.name, their.size),
    }
}

fn describe(frame: &Frame, layers: &Layers, theirs: &[Found]) -> String {
    let ours =
        layers.as_slice().iter().map(|layer| format!("{}@{}+{}", layer.protocol.name(), layer.offset, layer.length));
    let theirs = theirs.iter().map(|found| format!("{}@{}+{}", found.name, found.offset, found.size));
    let (ours, theirs) = (ours.collect::<Vec<_>>().join(" "), theirs.collect::<Vec<_>>().join(" "));
    format!("number {}: {ours} ({}) | {theirs}", frame.number, layers.stop())
}
