//! No descriptor and no mapping leaks when readers attach and detach. The test counts them in a separate process.

use crate::raw::{self, RawWriter};
use crate::support::{Ring, drain, unique};
use linerate_share::AttachOptions;
use std::fs;
use std::os::fd::AsFd;
use std::process::Command;

/// Descriptors and mappings of shared memory.
fn counts() -> (usize, usize) {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    (fs::read_dir("/proc/self/fd").unwrap().count(), maps.lines().filter(|line| line.contains("memfd:")).count())
}

#[test]
fn nothing_leaks() {
    const ISOLATED: &str = "LINERATE_SHARE_ISOLATED";
    if std::env::var_os(ISOLATED).is_none() {
        let mut isolated = Command::new(std::env::current_exe().unwrap());
        let output = isolated.args(["--exact", "leaks::nothing_leaks"]).env(ISOLATED, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        return assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
    let before = counts();
    let mut ring = Ring::new(4);
    let with_ring = counts();
    for round in 0..100 {
        let silent = raw::connected(&ring.name);
        let half = raw::connected(&ring.name);
        raw::send_message(&half, b"half a hello", &[]);
        let full = raw::connected(&ring.name);
        raw::send_message(&full, &raw::hello(1, false, 0), &[silent.as_fd(), half.as_fd(), full.as_fd()]);
        let gone = raw::connected(&ring.name);
        raw::send_message(&gone, &raw::hello(1, true, 0), &[]);
        drop(gone);
        drop(ring.acceptor.step(ring.now));
        let mut reader = ring.lossy(0);
        let not_admitted = AttachOptions::default().begin(&ring.name).unwrap();
        drop(ring.acceptor.step(ring.now));
        drop(not_admitted.finish().unwrap());
        ring.write(round);
        drain(&mut reader);
        if round % 2 == 0 {
            ring.writer.evict(0, "a test");
        }
        drop((reader, silent, half, full));
        ring.now.0 += 2_000_000_000;
        ring.let_in();
        ring.tick();
        ring.writer.take_departures();
    }
    assert_eq!((counts(), ring.writer.readers().len()), (with_ring, 0));
    for round in 0..100 {
        let name = unique();
        let mut writer = RawWriter::new(&name);
        let attaching = AttachOptions::default().begin(&name).unwrap();
        writer.accept();
        let (arena, control) = (writer.arena_fd.as_fd(), writer.control_fd.as_fd());
        let fds = [&[][..], &[arena, arena, control, control], &[arena, arena], &[control], &[arena, control]];
        raw::send_message(writer.socket.as_ref().unwrap(), &writer.answer(), fds[round % fds.len()]);
        assert_eq!(attaching.finish().is_ok(), round % fds.len() == 4);
    }
    drop(ring);
    assert_eq!(counts(), before);
}
