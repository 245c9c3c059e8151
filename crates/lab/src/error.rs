//! What can go wrong, and what to do about it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// A plan that cannot be read or made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The TOML text does not say a plan; the message names the line, the field and what is legal.
    #[error("{0}")]
    Toml(String),
    /// A link given as text is not one.
    #[error(
        "link {text:?}: {problem}; a link is HOST:INTERFACE[=ADDRESS/PREFIX[+...]],HOST:INTERFACE[=...][,queues=N][,mtu=N][,offloads=on|off]"
    )]
    Link {
        /// The text as given.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A value is outside its limits, or contradicts another.
    #[error("{place}: {problem}")]
    Value {
        /// The field, as in `links[2].ends[0].interface`.
        place: String,
        /// What is wrong, and what is legal.
        problem: String,
    },
}

/// A lab that could not be made, found or taken down.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LabError {
    /// The plan itself is wrong.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Namespaces can only be made by root.
    #[error("labs are made of network namespaces, which need root: run it with sudo")]
    NotRoot,
    /// A program of the system is needed and is not installed.
    #[error("{program} is not installed: on Debian and Ubuntu, `apt-get install {package}`")]
    ProgramMissing {
        /// The program's name.
        program: &'static str,
        /// The Debian package that holds it.
        package: &'static str,
    },
    /// `ip` or `ethtool` failed.
    #[error("{doing}: `{command}` failed: {message}")]
    Command {
        /// What was being done, and to which lab or namespace.
        doing: String,
        /// The command.
        command: String,
        /// What it said on standard error.
        message: String,
    },
    /// A namespace of that name exists and this lab did not make it.
    #[error("the namespace {namespace} exists and {holder}: choose another lab name, or remove it with {remedy}")]
    ForeignNamespace {
        /// Its name.
        namespace: String,
        /// Who has it.
        holder: String,
        /// The command that removes it.
        remedy: String,
    },
    /// A lab of that name is up, with another plan.
    #[error("lab {name} exists with another plan: run `linerate lab down {name}` first")]
    DifferentPlan {
        /// The lab.
        name: String,
    },
    /// No lab has that name.
    #[error("there is no lab {name:?}: `linerate lab list` shows those there are")]
    NoSuchLab {
        /// The name that was asked for.
        name: String,
    },
    /// The lab has no host of that name.
    #[error("lab {lab} has no host {host:?}; its hosts are {hosts}")]
    NoSuchHost {
        /// The lab.
        lab: String,
        /// The name that was asked for.
        host: String,
        /// The hosts there are.
        hosts: String,
    },
    /// A namespace could not be entered.
    #[error("cannot enter the namespace {namespace:?}: {source}")]
    Enter {
        /// Its name.
        namespace: String,
        /// The system's reason.
        source: io::Error,
    },
    /// An interface did not come up in time.
    #[error("{namespace}: {interfaces} did not come up within {seconds} s")]
    NotUp {
        /// The namespace.
        namespace: String,
        /// The interfaces that are not up.
        interfaces: String,
        /// How long was waited.
        seconds: u64,
    },
    /// A file or directory could not be used.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A state file or its directory is not what this program wrote.
    #[error("{}: {problem}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// Another process is making or removing labs and does not finish.
    #[error("another process has been making or removing labs for {seconds} s (it holds {}): wait, or end it", path.display())]
    Busy {
        /// The lock file.
        path: PathBuf,
        /// How long was waited.
        seconds: u64,
    },
}

impl LabError {
    /// For `map_err` after a file operation.
    pub(crate) fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> LabError {
        let path = path.into();
        move |source| LabError::File { doing, path, source }
    }
}
