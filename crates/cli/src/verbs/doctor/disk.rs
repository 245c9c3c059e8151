//! The folder that captures are to be written to: room, and what it lies on.

use super::finding::{Check, Finding, Machine};
use rustix::fs::statvfs;
use std::os::linux::fs::MetadataExt;

pub(super) const CHECKS: &[Check] = &[Check::machine("folder", room), Check::machine("disk", disk)];

/// A second of 10 Gb/s, in bytes.
const SECOND: u64 = 1_250_000_000;
/// Room for less than this many seconds of 10 Gb/s is little.
const LITTLE: u64 = 60;
/// File systems in memory, and such as lie on another machine or go through another process.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];
const FAR: [&str; 9] = ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "fuse", "fuse.sshfs"];

fn room(machine: &Machine) -> Option<Finding> {
    let folder = machine.folder.as_ref()?;
    let state = statvfs(folder).ok()?;
    let free = state.f_bavail.saturating_mul(state.f_frsize);
    let seconds = free / SECOND;
    let now = format!("{} GB are free in {}", free / 1_000_000_000, folder.display());
    let why = format!("10 Gb/s of frames fill that in {seconds} s");
    Some(if free == 0 {
        Finding::bad(now, "nothing can be written")
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
    // Fields: number, parent, device, root, place, options, ..., then behind a dash: type, source.
    let kind = mounts.lines().rev().find_map(|line| {
        let (before, behind) = line.split_once(" - ")?;
        (before.split(' ').nth(2)? == number).then(|| behind.split(' ').next().unwrap_or_default().to_owned())
    });
    let kind = kind.unwrap_or_default();
    if IN_MEMORY.contains(&kind.as_str()) {
        return Some(Finding::note(
            format!("it lies in memory ({kind})"),
            "it is fast, small, and gone with the machine",
        ));
    }
    if FAR.contains(&kind.as_str()) {
        return Some(Finding::warn(
            kind,
            "whoever stands behind it decides how fast it is: try it with the run itself",
        ));
    }
    // A part of a disk has its queue in the folder above.
    let queue = |what: &str| {
        let at = |up: &str| machine.tree.text(&format!("sys/dev/block/{number}/{up}queue/{what}"));
        at("").or_else(|| at("../"))
    };
    let scheduler = queue("scheduler").unwrap_or_default();
    let scheduler = scheduler.split('[').nth(1).and_then(|rest| rest.split(']').next()).unwrap_or("none").to_owned();
    Some(match queue("rotational").as_deref() {
        Some("1") => Finding::warn(
            format!("{kind} on a disk that turns, or says so (scheduler {scheduler})"),
            "one such disk writes some 150 MB/s in a row, which is 1.2 Gb/s of frames",
        ),
        Some(_) => Finding::ok(
            format!("{kind} on a disk without turning parts (scheduler {scheduler})"),
            "linerate-bench says how fast this machine writes files",
        ),
        None => Finding::note(
            format!(
                "{} on {number}, of which the kernel says nothing",
                if kind.is_empty() { "a folder" } else { &kind }
            ),
            "how fast it is shows with the run itself",
        ),
    })
}
