//! Every capture of a corpus (`LINERATE_CORPUS`): records and what is not IP are all there is, in bursts of any size.

mod support;

use linerate_burst::Desc;
use linerate_meter::{Config, Level, Tunnels};
use linerate_record::Reader;
use linerate_wire::Link;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{accounted, metered_frames, sorted};

fn captures() -> Vec<PathBuf> {
    let Some(root) = std::env::var_os("LINERATE_CORPUS") else {
        eprintln!("SKIPPED: LINERATE_CORPUS is not set, no capture was metered");
        return Vec::new();
    };
    let (mut files, mut folders) = (Vec::new(), vec![PathBuf::from(root)]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|ending| ["pcap", "pcapng", "cap"].iter().any(|known| ending == *known))
            {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

type Described = (Desc, Vec<u8>);

/// The frames, and what they begin with; `None` for a file that is damaged, or has several kinds of frames.
fn load(path: &Path) -> Option<(Vec<Described>, Option<Link>)> {
    let mut reader = Reader::open(path.to_str()?).ok()?;
    let mut frames = Vec::new();
    loop {
        let shown = reader.fill().ok()?;
        let count = shown.len();
        if count == 0 {
            break;
        }
        frames.extend(shown.iter().map(|(desc, frame)| (Desc { interface: 0, ..*desc }, frame.to_vec())));
        reader.consume(count);
    }
    let mut links = reader.interfaces().iter().map(|interface| Link::from_linktype(interface.link.0));
    let first = links.next()?;
    links.all(|link| link == first).then_some((frames, first))
}

#[test]
fn every_frame_of_every_capture_is_accounted_for() {
    let (mut seen, mut total, mut tunnelled, mut orphans) = (0, 0, 0, 0);
    for path in captures() {
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
fn sums_are_those_of_capinfos() {
    for path in captures().iter().filter(|path| path.ends_with("real-mix.pcap")) {
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
