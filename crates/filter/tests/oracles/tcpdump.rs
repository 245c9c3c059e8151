//! Filters select the frames that tcpdump selects.

use crate::captures::{self, Capture, tcpdump};
use crate::filters::{FILTERS, GENERIC, REFUSED};
use linerate_filter::{Filter, FilterError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Ethernet captures with tags, labels, tunnels, fragments and extension headers.
const ETHERNET: &[&str] = &[
    "real-mix.pcap",
    "flowtest/pcap/802.1Q_tunneling.pcap",
    "flowtest/pcap/ICMP_across_dot1q.pcap",
    "ipfixprobe/pcap/vlan.pcap",
    "tcpdump/802.1ad_QinQ.pcap",
    "tcpdump/mpls-ldp-hello.pcap",
    "tcpdump/pppoe.pcap",
    "tcpdump/dccp_partial_csum_v6_simple.pcap",
    "tcpdump/arp-too-long-tha.pcap",
    "tcpdump/ipv6-routing-header.pcap",
    "tcpdump/ip6_frag_asan.pcap",
    "tcpdump/802.1D_spanning_tree.pcap",
];

/// Returns the corpus, if tcpdump is available too; prints a note if not.
fn ready() -> Option<PathBuf> {
    let corpus = captures::corpus()?;
    if std::process::Command::new("tcpdump").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no tcpdump to compare with");
        return None;
    }
    Some(corpus)
}

/// Compares one filter on one file; `all` is the file's contents. Returns the number of frames selected.
fn compare(file: &Path, all: &Capture, text: &str) -> usize {
    let theirs = tcpdump(file, text);
    let filter = match Filter::compile(text, all.link) {
        Ok(filter) => filter,
        Err(FilterError::Refused { message, .. }) => {
            let message_of_tcpdump =
                theirs.err().unwrap_or_else(|| panic!("{}: {text}: only tcpdump accepts it", file.display()));
            assert!(
                message_of_tcpdump.contains(&message),
                "{}: {text}: {message:?} against {message_of_tcpdump:?}",
                file.display()
            );
            return 0;
        }
        Err(error) => panic!("{}: {error}", file.display()),
    };
    let theirs = theirs.unwrap_or_else(|error| panic!("{}: {text}: only tcpdump rejects: {error}", file.display()));
    let mut expected = theirs.frames.iter();
    for (number, frame) in all.frames.iter().enumerate().filter(|(_, (frame, wire))| filter.matches(frame, *wire)) {
        assert_eq!(Some(frame), expected.next(), "{}: {text}: frame {}", file.display(), number + 1);
    }
    assert_eq!(expected.next(), None, "{}: {text}: tcpdump selects more", file.display());
    theirs.frames.len()
}

#[test]
fn every_filter_on_ethernet_captures() {
    let Some(corpus) = ready() else { return };
    let mut selected = BTreeMap::new();
    for name in ETHERNET {
        let file = corpus.join(name);
        let Ok(all) = tcpdump(&file, "") else { panic!("{} cannot be read", file.display()) };
        for text in FILTERS {
            *selected.entry(*text).or_insert(0) += compare(&file, &all, text);
        }
    }
    let idle: Vec<_> = selected.iter().filter(|(_, frames)| **frames == 0).map(|(text, _)| *text).collect();
    assert!(idle.len() < FILTERS.len() / 5, "these select nothing anywhere: {idle:?}");
}

#[test]
fn generic_filters_on_every_link_type() {
    let Some(corpus) = ready() else { return };
    let mut tried: BTreeMap<u16, u32> = BTreeMap::new();
    let mut files: Vec<PathBuf> = ["tcpdump", "ndpi"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(corpus.join(folder)).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pcap" || extension == "cap"))
        .collect();
    files.sort();
    for file in files {
        let Some(header) = std::fs::read(&file).ok().and_then(|bytes| captures::parse(&bytes)) else { continue };
        let seen = tried.entry(header.link).or_insert(0);
        if *seen == 4 {
            continue;
        }
        let Ok(all) = tcpdump(&file, "") else { continue };
        assert_eq!(all.link, header.link, "{}", file.display());
        *seen += 1;
        for text in GENERIC {
            compare(&file, &all, text);
        }
    }
    eprintln!("link types compared: {:?}", tried.keys());
    assert!(tried.len() > 30, "only {} link types", tried.len());
}

#[test]
fn errors_have_tcpdumps_message() {
    let Some(corpus) = ready() else { return };
    let file = corpus.join("ipfixprobe/pcap/vlan.pcap");
    let all = tcpdump(&file, "").expect("it can be read");
    for text in REFUSED {
        assert!(Filter::compile(text, 1).is_err(), "{text}");
        compare(&file, &all, text);
    }
}
