//! Privileges and system calls that a run at interfaces keeps.

use linerate_tests::support::program::{Running, linerate, run, spawn};
use linerate_tests::support::wire::{ROOMY, Wire};
use linerate_tests::support::{Scratch, has_tools, may_make_labs, tool, wait_until};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

/// Asserts that every thread has a seccomp filter, no capabilities, and this user id.
fn assert_unprivileged(what: &str, running: &Running, uid: u32) {
    wait_until(&format!("{what} has a seccomp filter"), || running.proc_status("Seccomp").as_deref() == Some("2"));
    for thread in fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap().flatten() {
        let Ok(status) = fs::read_to_string(thread.path().join("status")) else { continue };
        let line = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(str::trim).unwrap_or_default().to_owned()
        };
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(u64::from_str_radix(&line(set), 16), Ok(0), "{what}: {set} of {status}");
        }
        assert_eq!((line("NoNewPrivs").as_str(), line("Seccomp").as_str()), ("1", "2"), "{what}: {status}");
        assert_eq!(line("Uid"), format!("{uid}\t{uid}\t{uid}\t{uid}"), "{what}");
    }
}

/// The user that root changes to at interfaces.
fn unprivileged() -> (String, u32) {
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let find = |name: &str| {
        let fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == name)?;
        Some((name.to_owned(), fields[2].parse().unwrap()))
    };
    find("linerate").or(find("nobody")).unwrap_or(("nobody".into(), 65_534))
}

#[test]
fn every_verb_at_an_interface_drops_privileges() {
    if !may_make_labs() || !has_tools(&["ethtool"]) {
        return;
    }
    let (wire, scratch) = (Wire::new(), Scratch::new());
    let (receiving, sending) = (wire.port("b", "eth0", ROOMY), wire.port("a", "eth0", ""));
    let [out, ring] = ["out", "ring"].map(|name| scratch.file(name));
    let (folder, xdp) = (format!("{out}.d/"), receiving.replace("packet:", "xdp:").replace(ROOMY, ""));
    let live = sending.replace("packet:", "xdp-live:");
    let (name, unprivileged) = unprivileged();
    for host in ["a", "b"] {
        wire.ip(host, &["link", "set", "eth0", "mtu", "1500"]);
        // With GRO a veth accepts packets sent by xdp-live.
        tool("ip", &["netns", "exec", &wire.namespace(host), "ethtool", "-K", "eth0", "gro", "on"]);
    }
    let frames = ["--udp", "--rate", "1000pps"];
    for (words, is_sending) in [
        (&["capture", &receiving, "-w", &out, "--share", &ring][..], false),
        (&["capture", &xdp, "--copy-threads", "2", "--take", "--duration", "60"], false),
        (&["count", &receiving, "--protocols"], false),
        (&["check", &receiving], false),
        (&["flows", &receiving, "--write", &folder, "--workers", "2"], false),
        (&["flows", &receiving, "--write", &format!("{out}.jsonl")], false),
        (&["bridge", &receiving, &sending], false),
        (&[&["generate", "--to", &sending, "--check", &receiving], &frames[..]].concat(), true),
        (&[&["generate", "--to", &sending.replace("packet:", "xdp:")], &frames[..]].concat(), true),
        (&[&["generate", "--to", &live], &frames[..]].concat(), true),
    ] {
        for (user, uid) in [(&[][..], unprivileged), (&["-Z", "root"], 0)] {
            let what = format!("{words:?} {user:?}");
            let _ = fs::remove_file(&out);
            let _ = fs::remove_file(format!("{out}.jsonl"));
            let _ = fs::remove_dir_all(&folder);
            let mut command = linerate(&[words, user].concat());
            let running = spawn(command.stdout(Stdio::null()));
            assert_unprivileged(&what, &running, uid);
            if !is_sending && words[0] != "bridge" {
                wire.send(&["--udp", "-c", "10", "--rate", "max"]);
            }
            std::thread::sleep(std::time::Duration::from_millis(300));
            assert_unprivileged(&what, &running, uid);
            let ended = running.interrupt().good();
            assert_eq!(
                ended.errors.contains(&format!("dropped privileges to {name}")),
                uid != 0,
                "{what}: {}",
                ended.errors
            );
            assert!(!ended.errors.contains("not confined"), "{what}: {}", ended.errors);
        }
    }
}

#[test]
fn root_at_an_interface_writes_as_an_unprivileged_user() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch) = (Wire::new(), Scratch::new());
    let (name, uid) = unprivileged();
    let roots = scratch.file("roots");
    fs::create_dir(&roots).unwrap();
    let output = format!("{roots}/out.pcap");
    let port = wire.port("b", "eth0", ROOMY);
    for words in [&["capture", &port, "-w", &output][..], &["flows", &port, "--write", &format!("{output}.jsonl")]] {
        run(words).with_status(1).says(&format!("denied for user {name}; use -Z root to stay root"));
        assert_eq!(fs::read_dir(&roots).unwrap().count(), 0);
    }
    let mine = scratch.file("out.pcap");
    for (path, arguments, owner) in [(&mine, &[][..], uid), (&output, &["-Z", "root"], 0)] {
        let capture = wire.capture(path, arguments);
        wait_until("the file exists", || fs::metadata(path).is_ok_and(|data| data.len() > 0));
        wire.send(&["--udp", "-c", "10", "--rate", "max"]);
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(capture.interrupt().good().json()["frames"], 10);
        let data = fs::metadata(path).unwrap();
        assert_eq!((data.uid(), data.mode() & 0o777), (owner, 0o600));
    }
}
