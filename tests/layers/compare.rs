//! One frame's layers, ours and tshark's, side by side.

use crate::layers::names::{Covers, NAMES};
use crate::layers::tshark::Found;
use linerate::wire::{Layer, Layers, Stop};

/// tshark's words for a header that the frame, or the length in front, ends inside.
const SHORT: [&str; 2] = ["_ws.short", "_ws.malformed"];

/// What both say at the first place where they differ.
pub(crate) fn compare(layers: &Layers, theirs: &[Found]) -> Option<(String, String)> {
    let mut found = theirs.iter().peekable();
    for ours in layers.as_slice() {
        match found.next() {
            Some(their) if is_same(ours, their) => {}
            Some(their) => return Some(in_words(ours, their)),
            None => return Some((ours.protocol.name().to_owned(), "end".to_owned())),
        }
    }
    // Of a header that we refuse, tshark may show a part, and nothing behind it.
    let start = layers.as_slice().last().map_or(0, Layer::end) as usize;
    if let Stop::Truncated(protocol) | Stop::Malformed(protocol, _) = layers.stop() {
        found.next_if(|their| their.offset == start && covers(&their.name, protocol.name()).is_some());
    }
    found.next_if(|their| SHORT.contains(&their.name.as_str()));
    found.next().map(|their| (layers.stop().to_string(), their.name.clone()))
}

/// Both lists of layers, with offsets and lengths.
pub(crate) fn describe(layers: &Layers, theirs: &[Found]) -> String {
    let ours =
        layers.as_slice().iter().map(|layer| format!("{}@{}+{}", layer.protocol.name(), layer.offset, layer.length));
    let theirs = theirs.iter().map(|found| format!("{}@{}+{}", found.name, found.offset, found.size));
    let (ours, theirs) = (ours.collect::<Vec<_>>().join(" "), theirs.collect::<Vec<_>>().join(" "));
    format!("{ours} ({}) | {theirs}", layers.stop())
}

/// Whether tshark found just this layer.
fn is_same(ours: &Layer, their: &Found) -> bool {
    let length = usize::from(ours.length);
    let same_size = match covers(&their.name, ours.protocol.name()) {
        Some(Covers::Header) => their.size == length,
        Some(Covers::Message) => their.size >= length,
        None => false,
    };
    same_size && their.offset == ours.offset as usize
}

/// What the item of tshark's protocol covers, if it is the same as ours.
fn covers(theirs: &str, ours: &str) -> Option<Covers> {
    NAMES.iter().find(|row| (row.0, row.1) == (theirs, ours)).map(|(.., covers)| *covers)
}

/// A layer of ours and an item of tshark's, with what differs besides the name.
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
