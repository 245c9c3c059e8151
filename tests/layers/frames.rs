//! Frames of the corpus, grouped by link type, as tshark reads one large capture fastest.

use crate::layers::tshark::MOST_BYTES;
use linerate::headers::Link;
use linerate::pcap::Reader;
use linerate_tests::support::files;
use std::collections::BTreeMap;
use std::path::Path;

/// Frames per capture: enough to hide the start of tshark, few enough to distribute the work.
const MOST_FRAMES: usize = 20_000;

/// One frame of the corpus.
pub(crate) struct Frame {
    /// Path of its capture in the corpus.
    pub capture: String,
    /// Frame number in the capture, from 1.
    pub number: usize,
    /// Captured bytes.
    pub bytes: Vec<u8>,
    /// Length on the wire.
    pub wire: u32,
}

/// Frames of one link type.
pub(crate) struct Batch {
    /// LINKTYPE number.
    pub linktype: u16,
    /// The same as `Link`.
    pub link: Link,
    pub frames: Vec<Frame>,
}

/// Returns all frames of the corpus with a known link type.
pub(crate) fn batches(corpus: &Path) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    let mut open: BTreeMap<u16, usize> = BTreeMap::new();
    for path in files(corpus) {
        let name = path.strip_prefix(corpus).expect("a path in the corpus").to_string_lossy().into_owned();
        for_each_frame(&path, |number, linktype, wire, bytes| {
            let Some(link) = Link::from_linktype(linktype) else { return };
            let at =
                *open.get(&linktype).filter(|at| batches[**at].frames.len() < MOST_FRAMES).unwrap_or(&batches.len());
            if at == batches.len() {
                batches.push(Batch { linktype, link, frames: Vec::new() });
                open.insert(linktype, at);
            }
            batches[at].frames.push(Frame { capture: name.clone(), number, bytes: bytes.to_vec(), wire });
        });
    }
    batches
}

/// Calls `take` with number, link type, wire length and bytes of each readable frame.
fn for_each_frame(path: &Path, mut take: impl FnMut(usize, u16, u32, &[u8])) {
    let Ok(mut reader) = Reader::open(&path.to_string_lossy()) else { return };
    let mut number = 0;
    while let Ok(shown) = reader.fill().map(|burst| burst.len()) {
        if shown == 0 {
            return;
        }
        for (desc, bytes) in reader.shown().iter() {
            number += 1;
            if bytes.len() <= MOST_BYTES {
                let linktype = reader.interfaces()[usize::from(desc.interface)].link.0;
                take(number, linktype, desc.wire, bytes);
            }
        }
        reader.consume(shown);
    }
}
