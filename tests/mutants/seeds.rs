//! Sources of mutants: files built here, and captures of the corpus if it is installed.

use super::file_blocks::Pieces;
use linerate_tests::support::{files, frames, pcapng, records};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// A capture file.
pub(crate) struct Seed {
    /// Description, or path in the corpus.
    pub name: String,
    from: From,
}

enum From {
    Bytes(Vec<u8>),
    File(PathBuf),
}

impl Seed {
    /// Returns the first records or blocks, at most `most` bytes.
    pub(crate) fn read(&self, most: usize) -> Vec<u8> {
        let mut bytes = match &self.from {
            From::Bytes(bytes) => bytes.clone(),
            From::File(path) => {
                let mut bytes = Vec::new();
                File::open(path).unwrap().take(most as u64 + 1).read_to_end(&mut bytes).unwrap();
                bytes
            }
        };
        if bytes.len() > most {
            let pieces = Pieces::of(&bytes[..most]).all;
            bytes.truncate(pieces.last().map_or(most, |last| last.at + last.length));
        }
        bytes
    }
}

/// Returns the files built here, repeated to make up a third of all, then the corpus.
pub(crate) fn seeds() -> Vec<Seed> {
    let captures = captures();
    let built = built();
    let times = 1 + captures.len() / 2 / built.len();
    let all = built.into_iter().flat_map(|(name, bytes)| {
        (0..times).map(move |_| Seed { name: name.to_owned(), from: From::Bytes(bytes.clone()) })
    });
    let captures = captures.into_iter().map(|path| Seed { name: path.display().to_string(), from: From::File(path) });
    all.chain(captures).collect()
}

/// Returns every capture of the corpus.
pub(crate) fn captures() -> Vec<PathBuf> {
    let is_capture = |path: &PathBuf| {
        path.extension().is_some_and(|ending| ["pcap", "pcapng", "cap", "trace"].iter().any(|known| ending == *known))
    };
    linerate_tests::support::corpus("")
        .map_or_else(Vec::new, |root| files(&root).into_iter().filter(is_capture).collect())
}

/// Builds a conversation in both formats and byte orders, and pcapng files with every block type.
fn built() -> Vec<(&'static str, Vec<u8>)> {
    let sample: Vec<_> = frames::sample().into_iter().step_by(3).collect();
    let little = [records::header(), records::body(&sample)].concat();
    let mut blocks = pcapng::Blocks::new(false);
    blocks.section(&[]);
    blocks.interface(1, 0, &[(2, b"eth0"), (9, &[9])]);
    for record in &sample {
        blocks.frame(0, record.time, &record.bytes, record.wire, &[]);
    }
    vec![
        ("a pcap file", little.clone()),
        ("a big-endian pcap file of microseconds", big(&little)),
        ("a pcapng file", blocks.done()),
        ("a pcapng file with everything", pcapng::everything(false, 1)),
        ("a big-endian pcapng file of many links", pcapng::everything(true, 101)),
    ]
}

/// Converts a little-endian nanosecond pcap file to big-endian microseconds.
fn big(file: &[u8]) -> Vec<u8> {
    let mut turned = file.to_vec();
    let pieces = Pieces::of(file);
    for piece in &pieces.all {
        let words = if piece.at == 0 { 6 } else { 4 };
        turned[piece.at..piece.at + 4 * words].chunks_exact_mut(4).for_each(<[u8]>::reverse);
    }
    turned[4..8].copy_from_slice(&[0, 2, 0, 4]);
    turned[..4].copy_from_slice(&[0xa1, 0xb2, 0xc3, 0xd4]);
    let micros = Pieces { all: Vec::new(), big: true };
    for piece in &pieces.all[1..] {
        let nanos = micros.word(&turned, piece.at + 4).unwrap_or_default();
        micros.put(&mut turned, piece.at + 4, nanos / 1000);
    }
    turned
}
