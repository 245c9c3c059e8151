//! The frames of the corpus, in captures of one link type each, as tshark reads them fastest.

use crate::layers::tshark::MOST_BYTES;
use linerate::record::Reader;
use linerate::wire::Link;
use linerate_tests::support::files;
use std::collections::BTreeMap;
use std::path::Path;

/// Frames in one capture: enough that starting tshark does not count, few enough to share the work out.
const MOST_FRAMES: usize = 20_000;

/// One frame of the corpus.
pub(crate) struct Frame {
    /// The capture it is from, by its path in the corpus.
    pub capture: String,
    /// Its number in there, from 1.
    pub number: usize,
    /// Its bytes, as far as captured.
    pub bytes: Vec<u8>,
    /// Bytes it had on the wire.
    pub wire: u32,
}

/// Frames of one link type.
pub(crate) struct Batch {
    /// The number of the link type.
    pub linktype: u16,
    /// What that is to us.
    pub link: Link,
    /// The frames.
    pub frames: Vec<Frame>,
}

/// Every frame of the corpus whose link type is known.
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

/// Hands over number, link type, wire length and bytes of each frame that can be read.
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
