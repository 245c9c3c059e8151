//! Runs `ip` (iproute2) and `ethtool`.

use std::env;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde::Deserialize;

use crate::error::LabError;
use crate::state::Store;

/// Runs `ip` with arguments that change something.
///
/// The child's standard output is the lock of `store`: if this process is killed, the lock is held until the child has
/// ended too, so that no other process cleans up while it is still working.
pub(crate) fn ip(store: &Store, doing: &str, arguments: &[&str]) -> Result<(), LabError> {
    run(store, doing, &find_ip()?, arguments)
}

/// Runs `ethtool` like [`ip`].
pub(crate) fn ethtool(store: &Store, doing: &str, arguments: &[&str]) -> Result<(), LabError> {
    run(store, doing, &find("ethtool", "ethtool")?, arguments)
}

/// Runs `commands`, one per line, in one `ip -batch`; stops at the first failure.
pub(crate) fn ip_batch(store: &Store, doing: &str, commands: &[String]) -> Result<(), LabError> {
    if commands.is_empty() {
        return Ok(());
    }
    let ip = find_ip()?;
    let run = || -> io::Result<Output> {
        let mut child = Command::new(ip)
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(store.lock_handle()?)
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            // A batch that ended early closes the pipe; its standard error has the reason.
            let _ = input.write_all((commands.join("\n") + "\n").as_bytes());
        }
        child.wait_with_output()
    };
    let output = run().map_err(|e| failure(doing, "ip -batch -".into(), e.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let message = failure_text(&output);
    let line = message.rsplit_once("Command failed -:").and_then(|(_, line)| line.trim().parse::<usize>().ok());
    let command = line.and_then(|line| commands.get(line.checked_sub(1)?)).map_or("-batch -", String::as_str);
    let reason = message.split("\nCommand failed -:").next().unwrap_or_default();
    Err(failure(doing, format!("ip {command}"), reason.to_owned()))
}

/// An interface in the output of `ip -json address show`.
#[derive(Debug, Deserialize)]
pub(crate) struct InterfaceStatus {
    /// Interface name.
    #[serde(default)]
    pub(crate) ifname: String,
    /// Contains `UP` if it was set up.
    #[serde(default)]
    pub(crate) flags: Vec<String>,
    /// `UP` once frames can pass (RFC 2863 section 3.1.14).
    #[serde(default)]
    pub(crate) operstate: String,
    /// Addresses.
    #[serde(default)]
    pub(crate) addr_info: Vec<InterfaceAddress>,
}

/// An address in the output of `ip -json address show`.
#[derive(Debug, Deserialize)]
pub(crate) struct InterfaceAddress {
    /// Address.
    #[serde(default)]
    pub(crate) local: String,
    /// Prefix length in bits.
    #[serde(default)]
    pub(crate) prefixlen: u8,
}

/// Returns the interfaces of a namespace.
pub(crate) fn show(namespace: &str) -> Result<Vec<InterfaceStatus>, LabError> {
    let arguments = ["-n", namespace, "-json", "address", "show"];
    let doing = format!("reading the interfaces of {namespace}");
    let failed = |message: String| failure(&doing, format!("ip {}", arguments.join(" ")), message);
    let output = Command::new(find_ip()?).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|e| failed(e.to_string()))?;
    if !output.status.success() {
        return Err(failed(failure_text(&output)));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| failed(format!("invalid JSON output: {e}")))
}

pub(crate) fn find_ip() -> Result<PathBuf, LabError> {
    find("ip", "iproute2")
}

/// Finds a program in PATH, and in system directories that PATH of an ordinary user may lack.
fn find(program: &'static str, package: &'static str) -> Result<PathBuf, LabError> {
    let path = env::var_os("PATH").unwrap_or_default();
    find_in(program, &path).ok_or(LabError::ProgramMissing { program, package })
}

fn find_in(program: &str, path: &OsStr) -> Option<PathBuf> {
    let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    env::split_paths(path).chain(system).map(|directory| directory.join(program)).find(|file| file.is_file())
}

fn run(store: &Store, doing: &str, program: &Path, arguments: &[&str]) -> Result<(), LabError> {
    let failed = |message| {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        failure(doing, format!("{name} {}", arguments.join(" ")), message)
    };
    let lock = store.lock_handle().map_err(|e| failed(e.to_string()))?;
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).stdout(lock).output();
    let output = output.map_err(|e| failed(e.to_string()))?;
    if output.status.success() { Ok(()) } else { Err(failed(failure_text(&output))) }
}

fn failure(doing: &str, command: String, message: String) -> LabError {
    LabError::Command { doing: doing.to_owned(), command, message }
}

/// Returns the standard error of a failed program, or its exit status.
fn failure_text(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    if text.trim().is_empty() { output.status.to_string() } else { text.trim().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_programs_are_found() {
        assert_eq!(find_in("sh", OsStr::new("/nowhere:/bin")), Some(PathBuf::from("/bin/sh")));
        assert!(find_in("sh", OsStr::new("")).is_some(), "the system's own directories are searched too");
        assert_eq!(find_in("linerate-no-such-program", OsStr::new("/bin")), None);
        let error = find("linerate-no-such-program", "the-package").unwrap_err().to_string();
        assert!(error.contains("apt-get install the-package"), "{error}");
    }
}
