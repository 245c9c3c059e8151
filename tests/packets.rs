//! Packets as text: frames of real captures can be expressed and made again, byte for byte, and tshark reads what is
//! made of a text, every checksum right.
//!
//! The corpus is found through `LINERATE_CORPUS`; without it, or without tshark, the tests say that they are skipped.

#[path = "layers/frames.rs"]
mod frames;
/// tshark's fields of packets, one a line.
#[path = "layers/names.rs"]
mod names;
#[path = "layers/tshark.rs"]
mod tshark;

use frames::batches;
use linerate::generate::packet::{Setup, Sizes, express, frames as made};
use linerate_tests::support::{corpus, has_tools};
use tshark::{MOST_BYTES, Tshark, pcap};

/// Frames of the corpus that are expressed in headers, at least, in percent; others are `raw(...)`.
const AT_LEAST: usize = 95;

/// Every so manieth frame of the corpus is expressed.
const STEP: usize = 3;

#[test]
fn frames_of_real_captures_are_expressed_and_made_again() {
    let Some(folder) = corpus(".") else { return };
    let (mut all, mut in_headers) = (0, 0);
    for batch in batches(&folder) {
        let setup = Setup { link: batch.link, sizes: Sizes::Natural(0), ..Setup::default() };
        for frame in batch.frames.iter().step_by(STEP).filter(|frame| frame.bytes.len() < MOST_BYTES / 4) {
            let text = express(batch.link, &frame.bytes);
            all += 1;
            in_headers += usize::from(!text.starts_with("raw("));
            let again = made(&text, &setup);
            let again = again.unwrap_or_else(|wrong| panic!("{} {}: {text}: {wrong}", frame.capture, frame.number));
            assert_eq!(again.variants[0].frame, frame.bytes, "{} {}: {text}", frame.capture, frame.number);
        }
    }
    println!("{in_headers} of {all} frames expressed in headers, all made again");
    assert!(in_headers * 100 >= all * AT_LEAST, "only {in_headers} of {all} frames were expressed in headers");
}
