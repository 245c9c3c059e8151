//! Files and their indexes: validity, and changes during a search.

use crate::layout::{DESCRIBED, header};
use crate::parts::{IndexFault, choose};
use crate::{EntryBuilder, Search};
use linerate_burst::{Block, Nanos};
use std::fs::File;
use std::sync::Arc;

#[test]
fn index_of_another_file_is_not_used() {
    let file = Arc::new(File::open("/proc/self/exe").unwrap());
    let mut gather = EntryBuilder::new();
    gather.frames = 1;
    let with = |mark: Option<[u8; 8]>, flags: u32, end: u64| {
        let mut index = header().to_vec();
        gather.entry(1000..end, mark, flags, &mut index);
        choose(&index[..], &file, |_| Ok(false))
    };
    let mut there = [0; 8];
    std::os::unix::fs::FileExt::read_exact_at(&*file, &mut there, 1000).unwrap();
    let length = file.metadata().unwrap().len();
    assert_eq!(with(Some(there), 0, 9000).unwrap().ranges, [0..1000, 9000..length]);
    // Parts with interfaces are read, and so are those that cannot be checked.
    assert_eq!(with(Some(there), DESCRIBED, 9000).unwrap().ranges, Vec::from_iter(Some(0..length)));
    assert_eq!(with(None, 0, 9000).unwrap().ranges, Vec::from_iter(Some(0..length)));
    let mut other = there;
    other[3] ^= 1;
    assert!(matches!(with(Some(other), 0, 9000), Err(IndexFault::Changed(1000))));
    // A part that is not completely in the file is read as far as it is there.
    assert_eq!(with(Some(there), 0, length + 1).unwrap().ranges, Vec::from_iter(Some(0..length)));
    assert!(matches!(choose(&b"lr-index"[..], &file, |_| Ok(false)), Err(IndexFault::Damaged)));
}

/// Valid entries before one of another file: the first skipped part is verified, wherever it is, and the one read after
/// it.
#[test]
fn index_is_verified_at_skipped_parts() {
    let file = Arc::new(File::open("/proc/self/exe").unwrap());
    let mut gather = EntryBuilder::new();
    gather.frames = 1;
    let at = |place: u64| {
        let mut mark = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&*file, &mut mark, place).unwrap();
        mark
    };
    let wrong = |place: u64| at(place).map(|byte| !byte);
    let with = |wrong_one: u64, left_out: &[u64]| {
        let mut index = header().to_vec();
        for n in 0..20 {
            let place = n * 1000;
            let mark = if n == wrong_one { wrong(place) } else { at(place) };
            gather.entry(place..place + 1000, Some(mark), 0, &mut index);
        }
        choose(&index[..], &file, |entry| Ok(!left_out.contains(&(entry.part.start / 1000)))).map(|parts| parts.entries)
    };
    assert_eq!(with(99, &[5, 6, 7, 8, 9]).unwrap(), 20);
    assert!(matches!(with(5, &[5]), Err(IndexFault::Changed(5000))));
    assert!(matches!(with(10, &[5, 6, 7, 8, 9]), Err(IndexFault::Changed(10_000))));
    assert_eq!(with(2, &[5, 6]).unwrap(), 20);
}

/// Empty entries are limited like others.
#[test]
fn empty_entries_are_limited() {
    let file = Arc::new(File::open("/proc/self/exe").unwrap());
    let (gather, mut index) = (EntryBuilder::new(), header().to_vec());
    (0..100).for_each(|_| gather.entry(0..0, None, 0, &mut index));
    assert!(matches!(choose(&index[..], &file, |_| Ok(false)), Err(IndexFault::Changed(0))));
}

/// A recorder completes its file, or another file takes its place, between two accesses.
#[test]
fn renamed_file_is_found_and_no_other_is_read() {
    let folder = std::env::temp_dir().join(format!("linerate-index-{}-renamed", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (part, complete) = (path("a.pcap.part"), path("a.pcap"));
    let mut bytes = [0xa1b2_3c4du32, 0x0004_0002, 0, 0, 65_535, 1].map(u32::to_le_bytes).concat();
    bytes.extend([1, 0, 60, 60].map(u32::to_le_bytes).concat());
    bytes.extend([0; 60]);
    let frames = |between: &dyn Fn()| {
        std::fs::write(&part, &bytes).unwrap();
        let mut search = Search::new("", Nanos::ZERO..=Nanos::MAX);
        search.add(&part);
        between();
        // Seen again under its new name.
        search.add(&complete);
        while search.fill(&mut Block::new(1 << 20, 10), u64::MAX).unwrap() {}
        (search.totals().frames, search.notes().iter().filter(|note| note.what.is_failure()).count())
    };
    assert_eq!(frames(&|| std::fs::rename(&part, &complete).unwrap()), (1, 0));
    std::fs::remove_file(&complete).unwrap();
    let replace = || {
        std::fs::rename(&part, path("away")).unwrap();
        std::fs::write(&part, &bytes).unwrap();
    };
    assert_eq!(frames(&replace), (0, 1));
    // It is complete before it is added.
    std::fs::rename(path("away"), &complete).unwrap();
    std::fs::remove_file(&part).unwrap();
    let mut search = Search::new("", Nanos::ZERO..=Nanos::MAX);
    search.add(&part);
    assert!(search.fill(&mut Block::new(1 << 20, 10), u64::MAX).unwrap() && search.totals().frames == 1);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Files that are rotated away, and paths that are not files.
#[test]
fn unsearchable_files_are_noted() {
    let mut search = Search::new("", Nanos::ZERO..=Nanos::MAX);
    search.add("/nowhere/gone.pcap");
    search.add("/proc");
    search.add("/dev/null");
    let notes: Vec<bool> = search.notes().iter().map(|note| note.what.is_failure()).collect();
    assert_eq!(notes, [false, true, true]);
    assert!(!search.fill(&mut Block::new(1 << 20, 10), u64::MAX).unwrap());
    assert_eq!(search.totals().files, 0);
}
