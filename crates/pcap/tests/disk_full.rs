//! A file system that is actually full: a tiny tmpfs in its own mount namespace.

use crate::common;
use linerate_burst::{Block, Count, Desc, Interface, Ledger, LinkType, Nanos, Sink, StampSource};
use linerate_pcap::{Format, Output, Writer};
use std::process::Command;

const FOLDER: &str = "LINERATE_TINY_FOLDER";

#[test]
fn a_full_file_system_leaves_a_clean_file() {
    let folder = std::env::temp_dir().join(format!("linerate-tiny-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mount =
        r#"mount -t tmpfs -o size=300k none "$1" || exit 77; exec "$2" --ignored --exact disk_full::in_a_tiny_folder"#;
    let status = Command::new("unshare")
        .args(["-m", "sh", "-c", mount, "sh"])
        .arg(&folder)
        .arg(std::env::current_exe().unwrap())
        .env(FOLDER, &folder)
        .output();
    std::fs::remove_dir(&folder).unwrap();
    match status {
        Ok(output) if output.status.success() => {
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "nothing ran");
        }
        Ok(output) if output.status.code() == Some(77) || !rustix::process::geteuid().is_root() => {
            eprintln!("SKIPPED: a tmpfs can only be mounted by root; writing to a full disk was not tested");
        }
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stdout)),
        Err(error) => eprintln!("SKIPPED: unshare: {error}; writing to a full disk was not tested"),
    }
}

#[test]
#[ignore = "runs inside a_full_file_system_leaves_a_clean_file"]
fn in_a_tiny_folder() {
    let folder = std::env::var(FOLDER).expect("the folder to fill");
    let interfaces = [Interface::new("eth0", LinkType::ETHERNET, StampSource::User)];
    let mut block = Block::new(0, 100);
    while block.push(&Desc::new(Nanos(1), 0, 1001), &[7; 1001]) {}
    for format in [Format::Pcap, Format::Pcapng] {
        let path = format!("{folder}/file");
        let mut writer = Writer::new(Output::open(&path).unwrap(), format);
        let error = (0..10).find_map(|_| writer.accept(block.view(0, &interfaces)).err()).expect("300 KiB are full");
        assert!(error.to_string().contains("make room there or write elsewhere"), "{error}");
        let mut ledger = Ledger::new();
        writer.counters(&mut ledger);
        assert_eq!(ledger.imbalances(), []);
        let content = common::read_bytes(&std::fs::read(&path).unwrap());
        assert!(content.error.is_none(), "{:?}", content.error);
        assert_eq!(content.frames.len() as u64, ledger.total(Count::Written));
        assert!(content.frames.len() > 200 && ledger.total(Count::WriteFailed) > 0);
        std::fs::remove_file(&path).unwrap();
    }
}
