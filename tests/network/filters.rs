//! Filters over live traffic select the same packets as tcpdump over the replayed file.

use linerate_tests::support::filters::{FILTERS, assert_selective, select};
use linerate_tests::support::records::{self, assert_same_frames};
use linerate_tests::support::wire::{Wire, settle};
use linerate_tests::support::{Scratch, corpus, frames, has_tools, may_make_labs};
use rustix::process::Signal;

/// Captures that run at the same time.
const AT_ONCE: usize = 8;

#[test]
fn live_filters_over_the_sample_match_tcpdump() {
    let scratch = Scratch::new();
    let file = scratch.file("sample.pcap");
    records::write(&file, &frames::sample());
    compare(&file);
}

#[test]
fn live_filters_over_real_traffic_match_tcpdump() {
    if let Some(file) = corpus("real-mix.pcap") {
        compare(file.to_str().unwrap());
    }
}

fn compare(file: &str) {
    if !may_make_labs() || !has_tools(&["tcpdump"]) {
        return;
    }
    let (wire, scratch) = (Wire::new(), Scratch::new());
    let mut selected = Vec::new();
    for batch in FILTERS.chunks(AT_ONCE) {
        let outputs: Vec<String> = (0..batch.len()).map(|at| scratch.file(&format!("{at}.pcap"))).collect();
        let captures: Vec<_> =
            batch.iter().zip(&outputs).map(|(filter, output)| wire.capture(output, &[filter])).collect();
        wire.replay(file);
        let wanted: Vec<_> = batch.iter().map(|filter| select(file, filter)).collect();
        outputs.iter().zip(&wanted).for_each(|(output, wanted)| settle(output, wanted));
        captures.iter().for_each(|capture| capture.signal(Signal::INT));
        for (((filter, wanted), output), capture) in batch.iter().zip(wanted).zip(&outputs).zip(captures) {
            let json = capture.end().good().json();
            assert_eq!((json["lost"].as_u64(), json["balanced"].as_bool()), (Some(0), Some(true)), "{filter}: {json}");
            assert_same_frames(filter, &records::read(output), &wanted);
            selected.push((*filter, wanted.len()));
        }
    }
    assert_selective(&selected, records::read(file).len());
}
