//! What tests of the program need: the program, captures, tools, a place for files.

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

/// Says on the terminal that a test, or a part of it, was left out.
///
/// # Panics
/// As root in a continuous integration, where everything has to be there.
pub fn skip(reason: &str) {
    let must_run = std::env::var("CI").is_ok_and(|ci| ci == "true") && is_root();
    assert!(!must_run, "nothing may be skipped here, and this was: {reason}");
    say_skipped(reason);
}

/// What only a quiet machine can judge: waits of milliseconds, no loss at full speed. There (`make quiet`) it fails if it does
/// not hold; elsewhere it says so, and returns what it was told.
///
/// # Panics
/// As said.
pub fn judge(holds: bool, what: &str) -> bool {
    assert!(holds || std::env::var_os("LINERATE_QUIET").is_none(), "{what}");
    if !holds {
        say(format_args!("NOT JUDGED ({what}): run make quiet on a machine that does nothing else"));
    }
    holds
}

/// Whether this process may make network namespaces; says so if not.
pub fn may_make_labs() -> bool {
    let may = is_root();
    if !may {
        skip("network namespaces need root");
    }
    may
}

/// Whether this process is root's.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A file of the corpus of real captures; without the corpus says that the test is left out.
pub fn corpus(name: &str) -> Option<PathBuf> {
    let found =
        std::env::var_os("LINERATE_CORPUS").map(|root| Path::new(&root).join(name)).filter(|path| path.exists());
    if found.is_none() {
        say_skipped(&format!("{name}: LINERATE_CORPUS leads to no such capture"));
    }
    found
}

/// Every file in a folder and those in it, in the order of their paths.
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

/// Runs another program to its end and returns what it printed.
///
/// # Panics
/// If it cannot be run, or fails.
pub fn tool(name: &str, arguments: &[&str]) -> String {
    let output = Command::new(name).args(arguments).output().unwrap_or_else(|error| panic!("{name}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {arguments:?}: {} {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether these programs are installed; says so if not.
///
/// # Panics
/// As [`lack`] does.
pub fn has_tools(names: &[&str]) -> bool {
    let missing = names.iter().find(|name| !is_in_path(name));
    if let Some(name) = missing {
        lack(&format!("{name} is not installed"));
    }
    missing.is_none()
}

/// Reports a test as skipped because a program is missing that `scripts/setup peers` installs.
///
/// # Panics
/// Where all have to be there: `make test-peers` sets `LINERATE_PEERS`.
pub fn lack(what: &str) {
    assert!(std::env::var_os("LINERATE_PEERS").is_none(), "{what}: scripts/setup peers installs it");
    say_skipped(&format!("{what}: make test-peers installs it"));
}

/// The same for one that tests can do without everywhere.
pub fn happens_to_have(name: &str) -> bool {
    let has = is_in_path(name);
    if !has {
        say_skipped(&format!("{name} is not installed, and need not be"));
    }
    has
}

fn is_in_path(name: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).exists()))
}

/// Waits until something is so.
///
/// # Panics
/// If it is not within 20 seconds.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A directory that goes with this value.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// An empty directory that any user may write to: whoever captures as root goes on as a user without rights.
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

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }

    /// The names of all files in it, in alphabetic order.
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

/// The test harness swallows what `eprintln!` prints, but not this.
fn say_skipped(reason: &str) {
    say(format_args!("SKIPPED: {reason}"));
}

fn say(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{what}");
}
