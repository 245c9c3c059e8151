//! Errors, with their remedies.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// A plan that cannot be read or built.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The TOML text is not a plan; the message has the line, the field and valid values.
    #[error("{0}")]
    Toml(String),
    /// A link given as text is invalid.
    #[error(
        "link {text:?}: {problem}; expected HOST:INTERFACE[=ADDRESS/PREFIX[+...]],HOST:INTERFACE[=...][,queues=N][,mtu=N][,offloads=on|off]"
    )]
    Link {
        /// Text as given.
        text: String,
        /// Description of the problem.
        problem: String,
    },
    /// A value is out of range, or contradicts another.
    #[error("{place}: {problem}")]
    Value {
        /// Field, as in `links[2].ends[0].interface`.
        place: String,
        /// Description of the problem, with valid values.
        problem: String,
    },
}

/// A lab that could not be created, found or removed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// The plan is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Only root can create namespaces.
    #[error("labs need root, for network namespaces; run with sudo")]
    NotRoot,
    /// A required program of the system is not installed.
    #[error("{program}: not installed; on Debian and Ubuntu run `apt-get install {package}`")]
    ProgramMissing {
        /// Program name.
        program: &'static str,
        /// Debian package that contains it.
        package: &'static str,
    },
    /// `ip` or `ethtool` failed.
    #[error("{doing}: `{command}` failed: {message}")]
    Command {
        /// Attempted action, with the lab or namespace.
        doing: String,
        /// Command line.
        command: String,
        /// Its standard error.
        message: String,
    },
    /// A namespace of that name exists that this lab did not create.
    #[error("namespace {namespace} exists and {holder}; use another lab name, or remove it with {remedy}")]
    ForeignNamespace {
        /// Its name.
        namespace: String,
        /// Owner, as a clause.
        holder: String,
        /// Command that removes it.
        remedy: String,
    },
    /// A lab of that name exists, with another plan.
    #[error("lab {name} exists with another plan; run `linerate lab down --name {name}` first")]
    DifferentPlan {
        /// Lab name.
        name: String,
    },
    /// The lab does not exist.
    #[error("{name:?}: no such lab; `linerate lab list` lists all labs")]
    NoSuchLab {
        /// Requested name.
        name: String,
    },
    /// The lab has no host of that name.
    #[error("lab {lab}: no such host {host:?}; expected one of {hosts}")]
    NoSuchHost {
        /// Lab name.
        lab: String,
        /// Requested name.
        host: String,
        /// Existing hosts.
        hosts: String,
    },
    /// A namespace could not be entered.
    #[error("cannot enter the namespace {namespace:?}: {source}")]
    Enter {
        /// Its name.
        namespace: String,
        /// Cause.
        source: io::Error,
    },
    /// An interface did not come up in time.
    #[error("{namespace}: {interfaces} did not come up within {seconds} s")]
    NotUp {
        /// Namespace.
        namespace: String,
        /// Interfaces that are not up.
        interfaces: String,
        /// Timeout in seconds.
        seconds: u64,
    },
    /// A file or directory could not be used.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// Attempted action.
        doing: &'static str,
        /// Path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A state file or its directory was not written by this program.
    #[error("{}: {problem}", path.display())]
    State {
        /// Path.
        path: PathBuf,
        /// Description of the problem, with remedy.
        problem: String,
    },
    /// Another process has held the lock for too long.
    #[error("locked by another process for {seconds} s (lock file {}); wait, or stop that process", path.display())]
    Busy {
        /// Lock file.
        path: PathBuf,
        /// Timeout in seconds.
        seconds: u64,
    },
}

impl LabError {
    /// Returns a function for `map_err` after a file operation.
    pub(crate) fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> LabError {
        let path = path.into();
        move |source| LabError::File { doing, path, source }
    }
}
