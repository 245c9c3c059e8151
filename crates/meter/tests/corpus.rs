//! Every capture of a corpus (`LINERATE_CORPUS`): records and frames without IP add up to all frames, in bursts of any
//! size.

use crate::support::captures::{captures, load};
use crate::support::{accounted, metered_frames, sorted};
use linerate_meter::{Config, Level, Tunnels};
use std::process::Command;

#[test]
fn every_frame_of_every_capture_is_accounted_for() {
    let (mut seen, mut total, mut tunnelled, mut orphans) = (0, 0, 0, 0);
    for path in captures("") {
        let Some((frames, Some(link))) = load(&path) else { continue };
        let config = Config { max_flows: 1 << 14, level: Level::Tcp, ..Config::default() };
        let (flows, counts) = metered_frames(&frames, link, &config, &[32]);
        accounted(&flows, &counts, &frames, &config);
        let (again, _) = metered_frames(&frames, link, &config, &[1, 77, 3, 500]);
        for (again, flow) in sorted(again).iter().zip(&sorted(flows.clone())) {
            assert_eq!(again, flow, "{}", path.display());
        }
        let inner = Config { tunnels: Tunnels::Inner, checksums: true, vlans: true, ..config };
        let (inside, counts) = metered_frames(&frames, link, &inner, &[64]);
        accounted(&inside, &counts, &frames, &inner);
        seen += 1;
        total += frames.len();
        tunnelled += flows.iter().filter(|flow| flow.tunnel.is_some()).count();
        orphans += counts.fragments_orphaned;
    }
    println!("{seen} captures, {total} frames, {tunnelled} flows in tunnels, {orphans} orphaned fragments");
    assert!(seen > 500 || std::env::var_os("LINERATE_CORPUS").is_none(), "{seen} captures");
}

/// The sums that `accounted` compares with are those of `capinfos`.
#[test]
fn sums_match_capinfos() {
    for path in captures("").iter().filter(|path| path.ends_with("real-mix.pcap")) {
        let Ok(output) = Command::new("capinfos").args(["-T", "-r", "-M", "-c", "-d"]).arg(path).output() else {
            eprintln!("SKIPPED: capinfos is not installed");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers: Vec<u64> = text.trim().split('\t').skip(1).filter_map(|word| word.parse().ok()).collect();
        let (frames, link) = load(path).unwrap();
        let (_, counts) = metered_frames(&frames, link.unwrap(), &Config::default(), &[32]);
        assert_eq!(numbers, [counts.frames, counts.bytes]);
    }
}
