//! Full and slow disks.

use super::{count_by_wireshark, frames_of, many, recorded};
use linerate_tests::support::program::{program, run, start};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, is_root, may_make_labs, records, skip};
use std::process::Command;

/// Records to a tmpfs that is smaller than the recording.
#[test]
fn full_disk_follows_the_on_full_policy() {
    if !is_root() {
        return skip("a tmpfs can only be mounted by root");
    }
    let (scratch, sent) = (Scratch::new(), many(6000));
    let input = scratch.file("in.pcap");
    records::write(&input, &sent);
    for (on_full, status) in [("stop", 1), ("drop-oldest", 0), ("continue", 0)] {
        let (folder, copy) = (scratch.file(&format!("tiny-{on_full}")), scratch.file(&format!("copy-{on_full}")));
        [&folder, &copy].iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        let script = "mount -t tmpfs -o size=1m,mode=777 none $1 || exit 77; \
                      $2 capture -r $3 -w $1/x-%s.pcapng -C 200KiB --on-full $4 --json --user root; \
                      status=$?; cp $1/* $5; exit $status";
        let output = Command::new("unshare")
            .args(["-m", "sh", "-c", script, "sh", &folder])
            .arg(program())
            .args([&input, on_full, &copy])
            .output()
            .unwrap();
        let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(status), "{on_full}: {text}{errors}");
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let paths = recorded(&copy);
        let got = frames_of(&scratch, &paths);
        assert_eq!(json["balanced"], true, "{json}");
        assert!(paths.iter().all(|path| path.extension().unwrap() == "pcapng"), "{paths:?}");
        let (lost, events) = (json["lost"].as_u64().unwrap(), json["events"].to_string());
        match on_full {
            "drop-oldest" => {
                assert_eq!(lost, 0, "{json}");
                records::assert_same_frames(on_full, &got, &sent[6000 - got.len()..]);
                assert!(!events.contains("0 deleted") && got.len() > 1000, "{events}");
            }
            _ => {
                assert!(lost > 0 && got.len() > 1000, "{json}");
                records::assert_same_frames(on_full, &got, &sent[..got.len()]);
                assert_eq!(on_full == "continue", events.contains("writing failed"), "{events}");
            }
        }
        // A truncated file lacks only its statistics block.
        assert!(count_by_wireshark(&paths).is_none_or(|count| count == got.len()));
    }
}

/// On a disk with free bytes but no free inodes the oldest files are deleted.
#[test]
fn oldest_files_are_deleted_to_free_inodes() {
    if !is_root() {
        return skip("a tmpfs can only be mounted by root");
    }
    let (scratch, sent) = (Scratch::new(), many(2000));
    let (input, folder, copy) = (scratch.file("in.pcap"), scratch.file("tiny"), scratch.file("copy"));
    records::write(&input, &sent);
    [&folder, &copy].iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    let script = "mount -t tmpfs -o size=20m,nr_inodes=5,mode=777 none $1 || exit 77; \
                  $2 capture -r $3 -w $1/x-%s.pcapng -C 100KiB --on-full drop-oldest --index --json --user root; \
                  status=$?; cp $1/* $4; exit $status";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh", &folder])
        .arg(program())
        .args([&input, &copy])
        .output()
        .unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{text}{errors}");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(json["balanced"] == true && json["lost"] == 0, "{json}");
    let paths: Vec<_> = recorded(&copy).into_iter().filter(|path| path.extension().unwrap() == "pcapng").collect();
    let got = frames_of(&scratch, &paths);
    records::assert_same_frames("the last", &got, &sent[2000 - got.len()..]);
    assert_eq!(paths.len(), 2, "{paths:?}");
}

/// A file system without direct writes is rejected before the first frame.
#[test]
fn direct_writes_are_checked_before_the_run() {
    if !is_root() {
        return skip("a file system without direct writes can only be mounted by root");
    }
    let scratch = Scratch::new();
    let (folder, input) = (scratch.file("ram"), scratch.file("in.pcap"));
    std::fs::create_dir(&folder).unwrap();
    records::write(&input, &[]);
    let script = "mount -t ramfs none $1 || exit 77; $2 capture -r $3 -w $1/ --direct --user root; status=$?; ls $1; exit $status";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh", &folder])
        .arg(program())
        .arg(&input)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && errors.contains("omit --direct"), "{:?} {errors}", output.status);
    assert!(output.stdout.is_empty());
}

/// Losses that a slow output causes are reported as such.
#[test]
fn slow_output_is_reported() {
    if !may_make_labs() {
        return;
    }
    let (scratch, wire) = (Scratch::new(), Wire::of(&["a:eth0,b:eth0"]));
    let pipe = scratch.file("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let gate = scratch.file("gate");
    let script = "exec < $0; until [ -e $1 ]; do sleep 0.1; done; cat > /dev/null";
    let reader = Command::new("sh").args(["-c", script, &pipe, &gate]).spawn();
    let port = wire.port("b", "eth0", "&ring=1MiB");
    let running = start(&["capture", &port, "-w", &pipe, "--json", "--user", "root", "udp"]);
    let to = wire.port("a", "eth0", "");
    // Twice the capacity of the capture's blocks, at a rate without loss while blocks are free.
    let words =
        ["generate", "--to", &to, "--udp", "-c", "90000", "--rate", "20kpps", "--size", "1500", "-q", "--user", "root"];
    run(&words).good();
    std::fs::write(gate, "").unwrap();
    let json = running.interrupt().good().json();
    reader.unwrap().wait().unwrap();
    assert!(json["lost"].as_u64().unwrap() > 0 && json["balanced"] == true, "{json}");
    assert!(json["events"].to_string().contains("the capture waited"), "{json}");
}
