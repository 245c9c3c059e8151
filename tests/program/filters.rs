//! Filters over files select the same packets as tcpdump.

use linerate_tests::support::filters::{FILTERS, assert_selective, select};
use linerate_tests::support::program::run;
use linerate_tests::support::records::{self, Record, assert_same_frames};
use linerate_tests::support::{Scratch, corpus, frames, has_tools};

#[test]
fn filters_over_the_sample_match_tcpdump() {
    let scratch = Scratch::new();
    let file = scratch.file("sample.pcap");
    records::write(&file, &frames::sample());
    compare(&file);
}

#[test]
fn filters_over_real_traffic_match_tcpdump() {
    if let Some(file) = corpus("real-mix.pcap") {
        compare(file.to_str().unwrap());
    }
}

#[test]
fn filters_over_vlan_tags_match_tcpdump() {
    for name in ["ndpi/ultrasurf.pcap", "ndpi/smtp-starttls.pcap", "flowtest/pcap/802.1Q_tunneling.pcap"] {
        if let Some(file) = corpus(name) {
            let filters = ["vlan", "not vlan", "vlan and tcp", "tcp", "vlan and vlan", "vlan and ip"];
            for filter in filters {
                compare_one(file.to_str().unwrap(), filter);
            }
        }
    }
}

fn compare(file: &str) {
    let all = records::read(file).len();
    let selected: Vec<_> = FILTERS.iter().map(|filter| (*filter, compare_one(file, filter).len())).collect();
    assert_selective(&selected, all);
}

fn compare_one(file: &str, filter: &str) -> Vec<Record> {
    if !has_tools(&["tcpdump"]) {
        return Vec::new();
    }
    let scratch = Scratch::new();
    let output = scratch.file("out.pcap");
    // Filter text is one argument or several.
    let words: Vec<&str> = filter.split(' ').collect();
    run(&[&["capture", "-q", "-r", file, "-w", &output], &words[..]].concat()).good();
    let (got, wanted) = (records::read(&output), select(file, filter));
    assert_same_frames(filter, &got, &wanted);
    assert!(got == wanted, "{filter}: times differ");
    got
}
