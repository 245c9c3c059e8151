//! Helpers of tests: the program, captures, tools, temporary folders.

pub mod daq;
pub mod dpdk;
pub mod filters;
pub mod flows;
pub mod frames;
pub mod pages;
pub mod pcapng;
pub mod program;
pub mod records;
pub mod schema;
pub mod terminal;
pub mod wire;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Reports on the terminal that a test, or a part of it, was skipped.
///
/// # Panics
/// As root in continuous integration, where no test may be skipped.
pub fn skip(reason: &str) {
    let must_run = std::env::var("CI").is_ok_and(|ci| ci == "true") && is_root();
    assert!(!must_run, "no test may be skipped in CI: {reason}");
    print_skipped(reason);
}

/// Checks a condition that needs a quiet machine: waits of milliseconds, no loss at full speed. There (`make quiet`) it
/// panics if the condition is false; elsewhere it reports it, and returns the condition.
///
/// # Panics
/// If the condition is false and `LINERATE_QUIET` is set.
pub fn judge(holds: bool, what: &str) -> bool {
    assert!(holds || std::env::var_os("LINERATE_QUIET").is_none(), "{what}");
    if !holds {
        print(format_args!("NOT JUDGED ({what}): run make quiet on a machine that does nothing else"));
    }
    holds
}

/// Returns true if this process may create network namespaces; reports a skip if not.
pub fn may_make_labs() -> bool {
    let allowed = is_root();
    if !allowed {
        skip("network namespaces need root");
    }
    allowed
}

/// Returns true if this process may become another user or give up capabilities; reports a skip if not.
pub fn may_change_user() -> bool {
    let allowed = is_root();
    if !allowed {
        skip("becoming another user needs root");
    }
    allowed
}

/// Returns true if this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns a file of the corpus of real captures; reports a skip without it.
pub fn corpus(name: &str) -> Option<PathBuf> {
    let found =
        std::env::var_os("LINERATE_CORPUS").map(|root| Path::new(&root).join(name)).filter(|path| path.exists());
    if found.is_none() {
        print_skipped(&format!("{name}: LINERATE_CORPUS leads to no such capture"));
    }
    found
}

/// Returns every file below a folder, sorted by path.
///
/// # Panics
/// If a folder cannot be listed.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder can be listed") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

/// Runs another program to its end, and returns its output.
///
/// # Panics
/// If it cannot be run, or fails.
pub fn tool(name: &str, arguments: &[&str]) -> String {
    let output = Command::new(name).args(arguments).output().unwrap_or_else(|error| panic!("{name}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {arguments:?}: {} {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Programs that `scripts/setup peers` installs, and `scripts/setup test` does not.
const PEERS: [&str; 19] = [
    "capinfos",
    "dnsmasq",
    "dpdk-testpmd",
    "dpkg-deb",
    "drill",
    "editcap",
    "fish",
    "iperf3",
    "man",
    "mergecap",
    "nfcapd",
    "nfpcapd",
    "openssl",
    "pkg-config",
    "strace",
    "systemd-analyze",
    "tcpflow",
    "tshark",
    "zsh",
];

/// Returns true if these programs are installed, and are no peers or this is `make test-peers`; reports a skip if not.
///
/// # Panics
/// If one is missing in `make test-peers`.
pub fn has_tools(names: &[&str]) -> bool {
    let peers = names.iter().filter(|name| PEERS.contains(name)).all(|name| has_peer(is_in_path(name), name));
    let missing = names.iter().find(|name| !is_in_path(name)).filter(|_| peers);
    if let Some(name) = missing {
        assert!(!has_peers(), "{name} is not installed: scripts/setup peers installs it");
        print_skipped(&format!("{name} is not installed"));
    }
    peers && missing.is_none()
}

/// Returns true if a peer, which `scripts/setup peers` installs, is there and this is `make test-peers`; reports a skip
/// if not. `make test` thus does the same work whatever else is installed.
///
/// # Panics
/// If it is missing in `make test-peers`.
pub fn has_peer(is_there: bool, name: &str) -> bool {
    assert!(is_there || !has_peers(), "{name} is missing: scripts/setup peers installs it");
    if !has_peers() {
        print_skipped(&format!("make test-peers compares with {name}"));
    }
    has_peers()
}

/// Returns true in `make test-peers`.
pub fn has_peers() -> bool {
    std::env::var_os("LINERATE_PEERS").is_some()
}

/// Returns true if this optional program is installed; reports a skip if not.
pub fn has_optional_tool(name: &str) -> bool {
    let has = is_in_path(name);
    if !has {
        print_skipped(&format!("{name} is not installed, and need not be"));
    }
    has
}

fn is_in_path(name: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).exists()))
}

/// Waits until a condition is true.
///
/// # Panics
/// If it is not true within 60 seconds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "timeout waiting until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Temporary directory, removed on drop.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates an empty directory that any user may write to, since captures started as root drop privileges.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("linerate-tests-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("a directory for files");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("a directory of this process");
        Scratch(path)
    }

    /// Returns the path of a file in it.
    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }

    /// Returns the names of all files in it, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("a directory").flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Prints to standard error directly: the test harness captures `eprintln!`, but not this.
fn print_skipped(reason: &str) {
    print(format_args!("SKIPPED: {reason}"));
}

fn print(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{what}");
}
