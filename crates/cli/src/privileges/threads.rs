//! Detects threads with more privileges than the run: libraries start some before privileges are dropped.

use rustix::process::geteuid;
use rustix::thread::CapabilitySet;
use std::fs::{read_dir, read_to_string};

/// Returns a note about threads of this process that run as another user or have capabilities beyond `kept`.
pub(super) fn beyond(kept: CapabilitySet) -> Option<String> {
    let tasks = match read_dir("/proc/self/task") {
        Ok(tasks) => tasks,
        Err(error) => return Some(format!("threads that kept privileges: unknown (/proc/self/task: {error})")),
    };
    let texts = tasks.flatten().filter_map(|task| read_to_string(task.path().join("status")).ok());
    let found: Vec<String> = texts.filter_map(|status| excess(&status, geteuid().as_raw(), kept)).collect();
    (!found.is_empty()).then(|| format!("threads that kept privileges: {}", found.join(", ")))
}

/// Describes a thread by its status (proc(5)), if it has privileges beyond those of the run.
fn excess(status: &str, uid: u32, kept: CapabilitySet) -> Option<String> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or("");
    let effective = field("Uid").split_whitespace().nth(1).and_then(|number| number.parse::<u32>().ok());
    let capabilities = u64::from_str_radix(field("CapPrm").trim(), 16).unwrap_or(u64::MAX);
    if effective == Some(uid) && capabilities & !kept.bits() == 0 {
        return None;
    }
    let user = effective.map_or_else(|| "unknown".to_owned(), |number| number.to_string());
    Some(format!("{} (user {user}, capabilities {capabilities:x})", field("Name").trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_with_more_rights_is_named() {
        let status = |uid: u32, capabilities: &str| {
            format!("Name:\teal-intr\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapInh:\t0\nCapPrm:\t{capabilities}\n")
        };
        let none = CapabilitySet::empty();
        assert_eq!(excess(&status(65_534, "0000000000000000"), 65_534, none), None);
        assert_eq!(excess(&status(65_534, "0000000000002000"), 65_534, CapabilitySet::NET_RAW), None);
        for (uid, capabilities, text) in [
            (0, "0000000000000000", "eal-intr (user 0, capabilities 0)"),
            (65_534, "0000000000002000", "eal-intr (user 65534, capabilities 2000)"),
            (0, "000001ffffffffff", "eal-intr (user 0, capabilities 1ffffffffff)"),
        ] {
            assert_eq!(excess(&status(uid, capabilities), 65_534, none).as_deref(), Some(text));
        }
        // An unreadable status counts as privileged.
        assert!(excess("", 65_534, none).is_some());
    }

    /// Threads started before, as those of DPDK, keep the privileges of the process.
    #[test]
    fn earlier_threads_are_found() {
        if !geteuid().is_root() {
            return;
        }
        let (ready, wait) = std::sync::mpsc::channel::<()>();
        let (start, started) = std::sync::mpsc::channel();
        let name = std::thread::Builder::new().name("keeps-rights".into());
        let other = name.spawn(move || start.send(()).map(|()| wait.recv())).unwrap();
        // A thread names itself.
        started.recv().unwrap();
        let found = std::thread::spawn(|| {
            let nobody = super::super::Identity::choose(Some("65534"), true).unwrap();
            nobody.become_user(CapabilitySet::empty()).unwrap();
            beyond(CapabilitySet::empty())
        });
        let found = found.join().unwrap().unwrap();
        drop(ready);
        let _ = other.join().unwrap();
        assert!(found.contains("keeps-rights (user 0"), "{found}");
    }
}
