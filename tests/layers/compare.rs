//! Comparison of one frame's layers with tshark's.

use crate::layers::names::{Covers, NAMES};
use crate::layers::tshark::Found;
use linerate::headers::{Layer, Layers, Stop};

/// tshark's names for a header that is truncated by the frame or by an outer length.
const SHORT: [&str; 2] = ["_ws.short", "_ws.malformed"];

/// Returns both descriptions of the first difference.
pub(crate) fn compare(layers: &Layers, theirs: &[Found]) -> Option<(String, String)> {
    let mut found = theirs.iter().peekable();
    for ours in layers.as_slice() {
        match found.next() {
            Some(their) if is_same(ours, their) => {}
            Some(their) => return Some(in_words(ours, their)),
            None => return Some((ours.protocol.name().to_owned(), "end".to_owned())),
        }
    }
    // tshark may show part of a header that linerate rejects, and nothing after it.
    let start = layers.as_slice().last().map_or(0, Layer::end) as usize;
    if let Stop::Truncated(protocol) | Stop::Malformed(protocol, _) = layers.stop() {
        found.next_if(|their| their.offset == start && covers(&their.name, protocol.name()).is_some());
    }
    found.next_if(|their| SHORT.contains(&their.name.as_str()));
    found.next().map(|their| (layers.stop().to_string(), their.name.clone()))
}

/// Formats both lists of layers, with offsets and lengths.
pub(crate) fn describe(layers: &Layers, theirs: &[Found]) -> String {
    let ours =
        layers.as_slice().iter().map(|layer| format!("{}@{}+{}", layer.protocol.name(), layer.offset, layer.length));
    let theirs = theirs.iter().map(|found| format!("{}@{}+{}", found.name, found.offset, found.size));
    let (ours, theirs) = (ours.collect::<Vec<_>>().join(" "), theirs.collect::<Vec<_>>().join(" "));
    format!("{ours} ({}) | {theirs}", layers.stop())
}

/// Returns whether tshark found the same layer.
fn is_same(ours: &Layer, their: &Found) -> bool {
    let length = usize::from(ours.length);
    let same_size = match covers(&their.name, ours.protocol.name()) {
        Some(Covers::Header) => their.size == length,
        Some(Covers::Message) => their.size >= length,
        None => false,
    };
    same_size && their.offset == ours.offset as usize
}

/// Returns the extent of tshark's item if both names denote the same protocol.
fn covers(theirs: &str, ours: &str) -> Option<Covers> {
    NAMES.iter().find(|row| (row.0, row.1) == (theirs, ours)).map(|(.., covers)| *covers)
}

/// Describes a layer and tshark's item by what differs: name, offset or length.
fn in_words(ours: &Layer, their: &Found) -> (String, String) {
    let name = ours.protocol.name();
    if covers(&their.name, name).is_none() {
        (name.to_owned(), their.name.clone())
    } else if their.offset != ours.offset as usize {
        (format!("{name} at {}", ours.offset), format!("{} at {}", their.name, their.offset))
    } else {
        (format!("{name} of {} bytes", ours.length), format!("{} of {} bytes", their.name, their.size))
    }
}
