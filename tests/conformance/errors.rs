//! Error messages of ports that cannot be opened or read: object, cause, remedy.

use crate::conformance::backends::{Folder, Harness, MemWire, Veth, receive, transmit, unique};
use crate::conformance::frames::frames;
use crate::conformance::wire::send_all;
use linerate_backends::{open_rx, open_tx};
use linerate_engine::clock::now;
use linerate_port::{PortError, RxOptions, Spec, TxOptions};
use linerate_tests::support::{is_root, skip};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use std::fs;
use std::thread;

/// Opens an invalid port, and checks that its error contains all of these parts.
pub(super) fn assert_refused(text: &str, send: bool, parts: &[&str]) {
    let opened = Spec::parse(text).and_then(|spec| {
        if send {
            open_tx(&spec, &TxOptions::default()).map(drop)
        } else {
            open_rx(&spec, &RxOptions::default()).map(drop)
        }
    });
    let error = opened.expect_err(text);
    assert!(matches!(error, PortError::Broken { .. } | PortError::Wrong { .. }), "{text}: {error:?}");
    assert_contains(text, &error.to_string(), parts);
}

fn assert_contains(subject: &str, message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{subject}: {message:?} does not contain {part:?}");
    }
}

#[test]
fn unknown_and_invalid_options_are_reported() {
    for (text, parts) in [
        ("packet:lo?speed=1", &["packet:lo", "speed", "netns, ring"][..]),
        ("packet:lo?direction=up", &["direction=up", "in, out or inout"]),
        ("packet:lo?ring=much", &["ring=much", "expected a number"]),
        ("packet:lo?lanes=", &["lanes=", "expected a number"]),
        ("packet:lo@0-1", &["@0-1", "?lanes=N"]),
        ("mem:x?speed=1", &["mem:x", "speed", "stamp, blocks"]),
        ("mem:x?blocks=few", &["blocks=few", "expected a number"]),
        ("mem:x@0-64", &["mem:x@0-64", "at most 64 queues"]),
        ("mem:x@b", &["mem:x@b", "@N or @FIRST-LAST"]),
        ("pcap:x?snap=1", &["pcap:x", "snap", "none"]),
        ("mem:", &["mem:", "empty target"]),
    ] {
        assert_refused(text, false, parts);
    }
    assert_refused("mem:x?stamp=later", true, &["stamp=later", "keep or now"]);
    assert_refused("packet:lo?ring=1MiB", true, &["ring", "netns"]);
    assert_refused("packet:lo@0", true, &["packet:lo@0", "omit the @"]);
}

#[test]
fn missing_files_are_reported() {
    let folder = Folder::new();
    assert_refused(&folder.port("missing.pcap"), false, &["missing.pcap", "No such file"]);
    assert_refused(&folder.port("missing/new.pcap"), true, &["missing/new.pcap", "No such file"]);
    assert_refused(&folder.port(""), true, &["irectory"]);
}

/// Reads a file to its end: number of frames, and the error after them.
fn read(port: &str) -> (usize, Option<PortError>) {
    let mut rx = receive(port, &RxOptions::default());
    let queue = &mut rx.queues[0];
    let (mut frames, mut failure) = (0, None);
    for _ in 0..1000 {
        match queue.fill(now()) {
            Ok(head) if head.burst.is_empty() && head.horizon == linerate_burst::Horizon::Ended => {
                let mut ledger = linerate_burst::Ledger::new();
                queue.counters(&mut ledger);
                assert_eq!(ledger.imbalances(), []);
                assert_eq!(ledger.total(linerate_burst::Count::Delivered), frames as u64);
                return (frames, failure);
            }
            Ok(head) => {
                assert!(failure.is_none(), "frames after an error");
                let shown = head.burst.len();
                queue.consume(shown);
                frames += shown;
            }
            Err(error) => assert!(failure.replace(error).is_none(), "an error is returned once"),
        }
    }
    panic!("{port} does not end");
}

#[test]
fn files_that_are_not_captures_are_reported() {
    let folder = Folder::new();
    for (name, bytes, parts) in [
        ("text", &b"text in place of captured frames"[..], &["text", "not a pcap or pcapng file"][..]),
        ("empty", b"", &["empty", "not a pcap or pcapng file", "it is empty"]),
        ("three", b"abc", &["three", "not a pcap or pcapng file", "3 bytes"]),
        ("packed.xz", b"\xfd7zXZ\0\0\x04\xe6\xd6\xb4\x46", &["packed.xz", "xz -dc"]),
        ("packed.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\0", &["packed.gz", "gzip data", "unexpected end"]),
    ] {
        fs::write(folder.path(name), bytes).unwrap();
        let (frames, failure) = read(&folder.port(name));
        assert_eq!(frames, 0, "{name}");
        let failure = failure.unwrap_or_else(|| panic!("{name} was read without an error"));
        assert!(matches!(failure, PortError::Broken { .. }), "{failure:?}");
        assert_contains(name, &failure.to_string(), parts);
    }
}

#[test]
fn truncated_file_returns_its_frames_and_then_the_error() {
    let folder = Folder::new();
    for format in ["pcap", "pcapng"] {
        let (port, path) = (folder.port(&format!("whole.{format}")), folder.path(&format!("whole.{format}")));
        send_all(transmit(&port, 0).queues[0].as_mut(), &frames(0, 1500, &[60, 333]));
        assert!(matches!(read(&port), (1500, None)), "{format}");
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let (frames, failure) = read(&port);
        assert!((600..900).contains(&frames), "{format}: {frames} frames from half a file");
        let parts = ["cut off", &format!("whole.{format}"), &format!("{frames} packets before it")];
        assert_contains(format, &failure.expect("an error for a truncated file").to_string(), &parts);
    }
}

#[test]
fn name_in_use_is_reported() {
    let wire = MemWire::new("");
    let first = receive(wire.name(), &RxOptions::default());
    assert_refused(wire.name(), false, &["already open for receiving"]);
    drop(first);
    receive(wire.name(), &RxOptions::default());
}

#[test]
fn missing_interfaces_and_namespaces_are_reported() {
    let Some(veth) = Veth::up(1, Some(1)) else { return };
    let namespace = veth.lab().host("right").unwrap();
    let missing = format!("missing-{}", unique());
    for send in [false, true] {
        let text = format!("packet:absent0?netns={namespace}");
        assert_refused(&text, send, &["absent0", "no such interface", "linerate ports"]);
        let text = format!("packet:ehto0?netns={namespace}");
        assert_refused(&text, send, &["ehto0", "no such interface", "did you mean eth0?"]);
        assert_refused("packet:any", send, &["no such interface", "name each interface, as in eth0,eth1"]);
        let text = format!("packet:eth0?netns={missing}");
        assert_refused(&text, send, &["no network namespace", &missing]);
        assert_refused("packet:eth0?netns=../x", send, &["../x", "invalid namespace name"]);
        assert_refused("packet:absent0", send, &["absent0", "no such interface", "packet:absent0?netns=NAMESPACE"]);
    }
}

/// A thread without capabilities gets the error of a non-root user. Opens `lo` and sends no packet.
#[test]
fn missing_capture_privileges_are_reported() {
    let nothing = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    let refused = thread::spawn(move || {
        set_capabilities(None, nothing).unwrap();
        for send in [false, true] {
            assert_refused("packet:lo", send, &["packet:lo", "CAP_NET_RAW", "sudo", "setcap", "group linerate"]);
        }
    });
    refused.join().unwrap();
}

/// The kernel's own error is about its verifier or one system call; this one lists the missing capabilities.
#[test]
fn missing_xdp_live_capabilities_are_reported() {
    if !is_root() {
        return skip("capabilities to give up need root");
    }
    let sets = |held| CapabilitySets { effective: held, permitted: held, inheritable: CapabilitySet::empty() };
    let base = CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN | CapabilitySet::BPF;
    for (held, missing) in [
        (CapabilitySet::empty(), "needs CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, CAP_SYS_ADMIN; run as root"),
        (base, "needs CAP_PERFMON, CAP_SYS_ADMIN; run as root"),
        (base | CapabilitySet::PERFMON, "needs CAP_SYS_ADMIN; run as root"),
    ] {
        let refused = thread::spawn(move || {
            set_capabilities(None, sets(held)).unwrap();
            assert_refused("xdp-live:lo", true, &["xdp-live:lo", missing]);
        });
        refused.join().unwrap();
    }
}
