//! Runs of a program with limits on memory and time.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use rustix::time::Timespec;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Address space limit in KiB.
pub(crate) const MEMORY_KIB: u64 = 1 << 20;
/// Time limit in seconds.
pub(crate) const SECONDS: u64 = 20;

/// Result of a run.
pub(crate) struct Ended {
    /// Exit status; `None` if a signal ended the program.
    pub status: Option<i32>,
    signal: Option<i32>,
    in_time: bool,
    errors: String,
}

impl Ended {
    /// Runs a program with its standard error redirected to a file.
    pub(crate) fn of(program: &Path, arguments: &[String], said: &str) -> Ended {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\"")]).arg(program).args(arguments);
        command.env_remove("SUDO_UID").env_remove("SUDO_GID").env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(said).unwrap());
        let mut child = command.spawn().expect("a shell");
        let pid = Pid::from_child(&child);
        let handle = pidfd_open(pid, PidfdFlags::empty()).expect("Linux 5.3 or later");
        let most = Timespec { tv_sec: SECONDS as i64, tv_nsec: 0 };
        let in_time = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&most)).unwrap() > 0;
        if !in_time {
            let _ = kill_process(pid, Signal::KILL);
        }
        let status = child.wait().unwrap();
        let errors = String::from_utf8_lossy(&fs::read(said).unwrap()).into_owned();
        Ended { status: status.code(), signal: status.signal(), in_time, errors }
    }

    /// Returns the fault of a run, if any.
    pub(crate) fn wrong(&self) -> Option<String> {
        let errors = self.errors.trim();
        let last: Vec<&str> = errors.lines().rev().take(4).collect();
        let last = last.into_iter().rev().collect::<Vec<_>>().join("\n  | ");
        let what = match (self.status, self.signal) {
            _ if !self.in_time => format!("timed out after {SECONDS} s"),
            (None, signal) => format!("killed by signal {}", signal.unwrap_or_default()),
            _ if errors.contains("panicked") => "panicked".to_owned(),
            (Some(0), _) if errors.contains("NOT BALANCED") => "packet accounting does not balance".to_owned(),
            (Some(0..=2), _) if !errors.is_empty() || self.status == Some(0) => return None,
            (Some(status), _) => format!("status {status}"),
        };
        Some(format!("{what}\n  | {last}"))
    }
}
