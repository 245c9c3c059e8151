//! Errors of rings: names, sizes, rights, trust.

use crate::share::fixtures::{Feed, cat_into, frames, into_file, lossless, python_cat, read_ring, ring_name};
use linerate_tests::support::program::{launch, program, run, spawn, start};
use linerate_tests::support::{Scratch, has_tools, may_change_user, records, wait_until};
use std::process::{Command, Stdio};

/// User and group id of an unprivileged user.
const UNPRIVILEGED: &str = "65534";

#[test]
fn name_without_a_ring_suggests_a_command() {
    for name in ["absent-ring", "/nowhere/ring.sock"] {
        for verb in ["capture", "count"] {
            let ended = run(&[verb, &format!("shm:{name}")]).with_status(1);
            ended.says("no such ring").says(&format!("start one with `linerate capture PORT --share {name}`"));
        }
    }
    run(&["capture", "shm:/nowhere/$(x)"]).with_status(1).says("PORT --share '/nowhere/$(x)'`");
}

#[test]
fn name_is_in_use_while_its_writer_lives() {
    let scratch = Scratch::new();
    let file = scratch.file("in.pcap");
    records::write(&file, &frames(0..10));
    for name in [ring_name(), scratch.file("ring.sock")] {
        let feed = Feed::start(&name, 0, &[]);
        let taken = run(&["capture", "-r", &file, "--share", &name]).with_status(1);
        taken.says(&format!("{name}: already shared by pid {}", feed.running.pid()));
        feed.end().good();
        run(&["capture", "-q", "-r", &file, "--share", &name]).good();
    }
    // An existing file that is not a socket is kept.
    run(&["capture", "-r", &file, "--share", &file]).with_status(2).says("not a socket");
    assert_eq!(records::read(&file), frames(0..10));
    let refused = run(&["capture", "-r", &file, "--share", "/nowhere/ring.sock"]).with_status(1);
    assert_eq!(refused.errors.matches("no such directory; create it first").count(), 1, "{}", refused.errors);
    refused.says("/nowhere/ring.sock");
}

/// Readers may block the writer only with --lossless-readers; the error names the option.
#[test]
fn lossless_readers_have_to_be_allowed() {
    let (scratch, name) = (Scratch::new(), ring_name());
    let file = scratch.file("in.pcap");
    records::write(&file, &frames(0..10));
    let writer = start(&["capture", "-r", &file, "--share", &name, "--share-wait", "1"]);
    let error = "lossless readers are not allowed; start the writer with --lossless-readers (port: lossless=yes), or read with mode=lossy";
    run(&["count", &lossless(&name)]).with_status(1).says(error);
    run(&["count", &format!("shm:{name}"), "--lossless"]).with_status(1).says(error);
    cat_into(&scratch.file("c.pcap"), &["-l", &name]).end().with_status(1).says(error);
    run(&["count", &format!("shm:{name}?mode=lossy")]).good();
    writer.end().good();
    let sender = launch(&["replay", "--to", &format!("shm:{name}?wait=1"), "-r", &file]);
    wait_until("the ring exists", || std::fs::read_to_string("/proc/net/unix").unwrap().contains(&name));
    run(&["count", &lossless(&name)]).with_status(1).says(error);
    run(&["count", &format!("shm:{name}")]).good();
    sender.end().good();
}

#[test]
fn invalid_ring_sizes_are_errors() {
    let scratch = Scratch::new();
    let file = scratch.file("in.pcap");
    records::write(&file, &frames(0..10));
    for (options, part) in [
        (&["--share-memory", "many"][..], "--share-memory many: invalid size"),
        (&["--share-block", "1MiBs"], "--share-block 1MiBs: invalid size"),
        (&["--share-memory", "1MiB"], "blocks"),
        (&["--share-block", "700KiB"], "power of two"),
        (&["--share-block", "256KiB"], "power of two"),
        (&["--share-block", "128MiB", "--share-memory", "1GiB"], "power of two"),
        (&["--share-block", "0"], "power of two"),
        (&["--share-memory", "70000MiB", "--share-block", "512KiB"], "blocks"),
        (&["--share-memory", "16000GiB", "--share-block", "64MiB"], "blocks"),
        (&["--share-memory", "4000GiB", "--share-block", "64MiB"], "memory"),
        (&["--share-timeout=-1"], "--share-timeout"),
        (&["--share-group", "no-such-group"], "no-such-group"),
        (&["--share-node", "4000"], "4000"),
    ] {
        let name = ring_name();
        let ended = run(&[&["capture", "-r", &file, "--share", &name], options].concat());
        let is_wrong = ["invalid size", "blocks", "power of two"].iter().any(|text| part.contains(text));
        let may_be = if is_wrong { 2..=2 } else { 1..=2 };
        assert!(may_be.contains(&ended.status), "{options:?}: {} {}", ended.status, ended.errors);
        ended.says(part);
    }
    run(&["capture", "-r", &file, "--share-memory", "8MiB"]).with_status(2).says("--share");
    run(&["capture", "-r", &file, "--share", ""]).with_status(2).says("1 to 90 bytes");
    run(&["capture", "-r", &file, "--share", &"x".repeat(91)]).with_status(2).says("1 to 90 bytes");
}

/// A command of an unprivileged user, with a copy of the program that this user can read.
fn as_unprivileged(copy: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", UNPRIVILEGED, "--regid", UNPRIVILEGED, "--clear-groups", copy]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

#[test]
fn unprivileged_users_need_share_group() {
    if !may_change_user() {
        return;
    }
    if !has_tools(&["setpriv", "python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let copy = scratch.file("linerate");
    std::fs::copy(program(), &copy).unwrap();
    for name in [ring_name(), scratch.file("ring.sock")] {
        let port = format!("shm:{name}");
        let feed = Feed::start(&name, 0, &[]);
        let refused = spawn(&mut as_unprivileged(&copy, &["count", &port])).end().with_status(1);
        if !name.contains('/') {
            refused.says("permission denied for user 65534; only the owner and root may attach");
        } else {
            refused.says("denied");
        }
        feed.end().good();

        let mut feed = Feed::start(&name, 1, &["--share-group", UNPRIVILEGED]);
        let allowed = spawn(&mut as_unprivileged(&copy, &["count", &lossless(&name), "--json"]));
        feed.send(1000);
        feed.end().good();
        let last = allowed.end().good().output;
        let last: serde_json::Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
        assert_eq!(last["frames"].as_u64(), Some(1000));
    }
}

/// Root attaches to a ring of an unprivileged user only with `trust=yes`.
#[test]
fn ring_of_another_user_has_to_be_trusted() {
    if !may_change_user() {
        return;
    }
    if !has_tools(&["setpriv"]) {
        return;
    }
    let (scratch, name) = (Scratch::new(), ring_name());
    let [copy, file, output] = ["linerate", "in.pcap", "out.pcap"].map(|file| scratch.file(file));
    std::fs::copy(program(), &copy).unwrap();
    records::write(&file, &frames(0..1000));
    let writer = spawn(&mut as_unprivileged(
        &copy,
        &["capture", "-r", &file, "--share", &name, "--share-wait", "3", "--lossless-readers"],
    ));
    let ring = format!("shm:{name}");
    wait_until("the ring is shared", || !run(&["count", &ring]).errors.contains("no such ring"));
    run(&["count", &ring]).with_status(1).says("shared by user 65534, who is neither root nor you");
    cat_into(&output, &[&name]).end().with_status(1).says("neither root nor this user shares it");
    let (by_python, python) = (scratch.file("python.pcap"), || python_cat(false).expect("python3"));
    into_file(python(), &by_python, &[&name]).end().with_status(1).says("neither root nor this user shares it");
    let python = into_file(python(), &by_python, &["-t", "-l", "-w", &name]);
    let cat = cat_into(&output, &["-t", "-l", "-w", &name]);
    let ours = scratch.file("ours.pcap");
    read_ring(&format!("shm:{name}?mode=lossless&trust=yes"), &ours, &[]).end().good();
    cat.end().good();
    python.end().good();
    writer.end().good();
    for copy in [&output, &by_python] {
        assert!(std::fs::read(&ours).unwrap() == std::fs::read(copy).unwrap(), "{copy}");
    }
    assert_eq!(records::read(&ours), frames(0..1000));
}
