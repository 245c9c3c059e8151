//! Creator of a lab, and whether that process is still running.

use std::fs;

use serde::{Deserialize, Serialize};

/// Identity of a process: its id may be reused, but not with the same start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Process {
    /// Process id.
    pid: u32,
    /// Start time in clock ticks since boot: field 22 of `/proc/PID/stat` (proc(5)).
    start: u64,
}

impl Process {
    /// Returns the calling process. A start time that cannot be read is 0, which no running process has.
    pub(crate) fn this() -> Self {
        let pid = std::process::id();
        Self { pid, start: start_of(pid).unwrap_or(0) }
    }

    /// Returns whether it is still running. A zombie is not.
    pub(crate) fn is_alive(&self) -> bool {
        start_of(self.pid) == Some(self.start)
    }
}

/// Returns the start time of a running process.
fn start_of(pid: u32) -> Option<u64> {
    parse_start(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name (field 2) may contain spaces and parentheses, so fields are counted from the last ')'.
fn parse_start(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let status = fields.next()?;
    if matches!(status, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn process_is_alive_until_killed() {
        assert!(Process::this().is_alive());
        let mut child = Command::new("sleep").arg("100").stdout(Stdio::null()).spawn().unwrap();
        let process = Process { pid: child.id(), start: start_of(child.id()).unwrap() };
        assert!(process.is_alive());
        assert!(!Process { start: process.start + 1, ..process }.is_alive(), "another process with the same id");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.is_alive());
    }

    #[test]
    fn names_with_brackets_do_not_shift_the_fields() {
        let line = |status: &str| format!("7 (a) R) {status} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21");
        assert_eq!(parse_start(&line("S")), Some(4242));
        assert_eq!(parse_start(&line("Z")), None);
        assert_eq!(parse_start("7 (a"), None);
        assert_eq!(parse_start(""), None);
    }
}
