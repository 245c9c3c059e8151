//! Runs linerate as its users do.

use super::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Max time for a program that ends by itself.
const PATIENCE: Duration = Duration::from_secs(240);

/// Returns the path of linerate, built from these sources with overflow checks; `LINERATE_PROGRAM` overrides it.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(other) = std::env::var_os("LINERATE_PROGRAM") {
            return other.into();
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            // With a test, features are those of `cargo test --workspace`, and nothing is built twice.
            .args(["build", "--locked", "--quiet", "--workspace", "--bins", "--test", "house"])
            .current_dir(root)
            .status()
            .expect("cargo");
        assert!(built.success(), "linerate cannot be built");
        root.join("target/debug/linerate")
    })
}

/// Returns a command of linerate with these arguments, without the environment of sudo.
pub fn linerate<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = match is_sighup_ignored() {
        false => Command::new(program()),
        // Tests started with nohup ignore SIGHUP, but linerate should not.
        true => {
            let mut env = Command::new("env");
            env.arg("--default-signal=HUP").arg(program());
            env
        }
    };
    command.args(arguments).stdin(Stdio::null());
    for name in ["SUDO_UID", "SUDO_GID", "DOAS_USER", "PKEXEC_UID"] {
        command.env_remove(name);
    }
    command
}

/// Returns a command of linerate-bench with these arguments.
pub fn bench<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(program().with_file_name("linerate-bench"));
    command.args(arguments).env("LINERATE_PROGRAM", program()).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// Returns true if SIGHUP is ignored: the first bit of `SigIgn` in proc(5).
fn is_sighup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).is_some_and(|bits| bits & 1 != 0)
}

/// Runs linerate to its end.
pub fn run(arguments: &[&str]) -> Ended {
    Ended::of(linerate(arguments).output().expect("the program"))
}

/// Starts linerate, and waits until its ports and files are open.
pub fn start(arguments: &[&str]) -> Running {
    let running = launch(arguments);
    running.wait_until_open();
    running
}

/// Starts linerate.
pub fn launch(arguments: &[&str]) -> Running {
    spawn(linerate(arguments).stdout(Stdio::piped()))
}

/// Starts a prepared command; its standard error is read at its end.
pub fn spawn(command: &mut Command) -> Running {
    Running(Some(command.stderr(Stdio::piped()).spawn().expect("the program")))
}

/// Running program, killed on drop.
#[derive(Debug)]
pub struct Running(Option<Child>);

/// Result of a program.
#[derive(Debug)]
pub struct Ended {
    /// Exit status; -1 if a signal ended it.
    pub status: i32,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub errors: String,
}

impl Running {
    /// Returns its process ID.
    pub fn pid(&self) -> u32 {
        self.0.as_ref().expect("a running program").id()
    }

    /// Takes its standard input, if that is a pipe.
    pub fn take_input(&mut self) -> Option<ChildStdin> {
        self.0.as_mut()?.stdin.take()
    }

    /// Takes its standard output, if that is a pipe.
    pub fn take_output(&mut self) -> Option<ChildStdout> {
        self.0.as_mut()?.stdout.take()
    }

    /// Collects its standard error from now on, line by line; `Ended::errors` is then empty.
    pub fn collect_errors(&mut self) -> Arc<Mutex<String>> {
        let lines = Arc::new(Mutex::new(String::new()));
        let (errors, sink) = (self.0.as_mut().and_then(|child| child.stderr.take()), Arc::clone(&lines));
        std::thread::spawn(move || {
            for line in errors.into_iter().flat_map(|errors| BufReader::new(errors).lines()) {
                *sink.lock().expect("lines") += &(line.unwrap_or_default() + "\n");
            }
        });
        lines
    }

    /// Waits until its ports and files are open: then it has dropped its privileges, and handles signals.
    pub fn wait_until_open(&self) {
        const SIGTERM: u64 = 1 << 14;
        wait_until("the program has opened everything", || {
            let caught = self.proc_status("SigCgt").and_then(|mask| u64::from_str_radix(&mask, 16).ok());
            let is_open = caught.is_some_and(|mask| mask & SIGTERM != 0)
                && self.proc_status("NoNewPrivs").as_deref() == Some("1");
            is_open || self.proc_status("State").is_none_or(|state| state.starts_with('Z'))
        });
    }

    /// Returns a value of `/proc/PID/status`.
    pub fn proc_status(&self, name: &str) -> Option<String> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().to_owned())
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid() as i32).expect("a number above 0");
        kill_process(pid, signal).expect("a running program");
    }

    /// Waits for its end; sends SIGTERM after a time limit, so that no test waits forever.
    pub fn end(mut self) -> Ended {
        let child = self.0.take().expect("a running program");
        let (pid, (ended, has_ended)) = (child.id(), mpsc::channel::<()>());
        let patience = std::thread::spawn(move || {
            let is_late = has_ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
            if is_late {
                let _ = kill_process(Pid::from_raw(pid as i32).expect("a number above 0"), Signal::TERM);
            }
            is_late
        });
        let output = child.wait_with_output().expect("the end of the program");
        drop(ended);
        let ended = Ended::of(output);
        let is_late = patience.join().expect("a thread that waits");
        assert!(!is_late, "the program did not end by itself in {PATIENCE:?}: {}\n{}", ended.output, ended.errors);
        ended
    }

    /// Sends SIGINT, as Ctrl-C does, and waits for its end.
    pub fn interrupt(self) -> Ended {
        self.signal(Signal::INT);
        self.end()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Ended {
    /// Creates the result from the output of a process.
    pub fn of(output: Output) -> Self {
        Ended {
            status: output.status.code().unwrap_or(-1),
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Returns itself if the program succeeded.
    ///
    /// # Panics
    /// If the program failed.
    pub fn good(self) -> Self {
        self.with_status(0)
    }

    /// Returns itself if the exit status is this one.
    ///
    /// # Panics
    /// If the exit status is another.
    pub fn with_status(self, status: i32) -> Self {
        assert_eq!(self.status, status, "{}\n{}", self.output, self.errors);
        self
    }

    /// Returns the last JSON document on standard output; on a slow machine, progress documents may come before it.
    ///
    /// # Panics
    /// If standard output has no JSON document, or other text.
    pub fn json(&self) -> Value {
        let documents = serde_json::Deserializer::from_str(&self.output).into_iter();
        let last = documents.last().unwrap_or_else(|| panic!("no JSON document: {}", self.errors));
        last.unwrap_or_else(|error| panic!("{error}: {}\n{}", self.output, self.errors))
    }

    /// Checks that standard output contains this text.
    ///
    /// # Panics
    /// If it has not.
    pub fn shows(self, text: &str) -> Self {
        assert!(self.output.contains(text), "{text:?} is not in the output: {}\n{}", self.output, self.errors);
        self
    }

    /// Checks that standard error contains this text.
    ///
    /// # Panics
    /// If it has not.
    pub fn says(self, text: &str) -> Self {
        assert!(self.errors.contains(text), "{text:?} is not in the errors: {}", self.errors);
        self
    }
}
