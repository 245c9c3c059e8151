//! The directory for captures: free space and storage.

use super::finding::{Check, Finding, Machine};
use rustix::fs::statvfs;
use std::os::linux::fs::MetadataExt;

pub(super) const CHECKS: &[Check] = &[Check::machine("folder", room), Check::machine("disk", disk)];

/// One second of 10 Gb/s, in bytes.
const SECOND: u64 = 1_250_000_000;
/// Seconds of 10 Gb/s that should fit.
const LITTLE: u64 = 60;
/// File systems in memory.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];
/// File systems on another host, or behind another process.
const FAR: [&str; 9] = ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "fuse", "fuse.sshfs"];

fn room(machine: &Machine) -> Option<Finding> {
    let folder = machine.folder.as_ref()?;
    let state = statvfs(folder).ok()?;
    let free = state.f_bavail.saturating_mul(state.f_frsize);
    let seconds = free / SECOND;
    let now = format!("{} GB free in {}", free / 1_000_000_000, folder.display());
    let why = format!("10 Gb/s of traffic fill it in {seconds} s");
    Some(if free == 0 {
        Finding::bad(now, "the file system is full")
    } else if seconds < LITTLE {
        Finding::warn(now, why)
    } else {
        Finding::ok(now, why)
    })
}

fn disk(machine: &Machine) -> Option<Finding> {
    let device = std::fs::metadata(machine.folder.as_ref()?).ok()?.st_dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let number = format!("{major}:{minor}");
    let mounts = machine.tree.text("proc/self/mountinfo").unwrap_or_default();
    // Fields: number, parent, device, root, mount point, options, ..., then after a dash: type, source.
    let kind = mounts.lines().rev().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        (before.split(' ').nth(2)? == number).then(|| after.split(' ').next().unwrap_or_default().to_owned())
    });
    let kind = kind.unwrap_or_default();
    if IN_MEMORY.contains(&kind.as_str()) {
        return Some(Finding::note(format!("in memory ({kind})"), "fast, but small, and lost at reboot"));
    }
    if FAR.contains(&kind.as_str()) {
        return Some(Finding::warn(
            kind,
            "network or user-space file system: its write speed is unknown; test it with a capture",
        ));
    }
    // The queue of a partition is in the parent folder.
    let queue = |what: &str| {
        let at = |up: &str| machine.tree.text(&format!("sys/dev/block/{number}/{up}queue/{what}"));
        at("").or_else(|| at("../"))
    };
    let scheduler = queue("scheduler").unwrap_or_default();
    let scheduler = scheduler.split('[').nth(1).and_then(|rest| rest.split(']').next()).unwrap_or("none").to_owned();
    Some(match queue("rotational").as_deref() {
        Some("1") => Finding::warn(
            format!("{kind} on a rotational disk (scheduler {scheduler})"),
            "such a disk writes about 150 MB/s sequentially, or 1.2 Gb/s of traffic",
        ),
        Some(_) => Finding::ok(
            format!("{kind} on a non-rotational disk (scheduler {scheduler})"),
            "linerate-bench measures its write speed",
        ),
        None => Finding::note(
            format!(
                "{} on device {number}, of unknown kind",
                if kind.is_empty() { "unknown file system" } else { &kind }
            ),
            "its write speed is unknown; test it with a capture",
        ),
    })
}
