//! The captures of a corpus (`LINERATE_CORPUS`).

use linerate_burst::Desc;
use linerate_headers::Link;
use linerate_pcap::Reader;
use std::path::{Path, PathBuf};

/// Returns the capture files of a folder of the corpus; without a corpus none, which is reported.
pub(crate) fn captures(folder: &str) -> Vec<PathBuf> {
    let Some(root) = std::env::var_os("LINERATE_CORPUS") else {
        eprintln!("SKIPPED: LINERATE_CORPUS is not set, no capture was metered");
        return Vec::new();
    };
    let (mut files, mut folders) = (Vec::new(), vec![Path::new(&root).join(folder)]);
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

pub(crate) type CapturedFrame = (Desc, Vec<u8>);

/// Returns the frames, and their link type; `None` for a file that is damaged, or has several link types.
pub(crate) fn load(path: &Path) -> Option<(Vec<CapturedFrame>, Option<Link>)> {
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
