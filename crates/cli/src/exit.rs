//! Exit statuses.

use linerate_port::PortError;
use std::process::ExitCode;

/// Exit status of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done.
    Done,
    /// 1: failed; what was done before the failure is complete.
    Failed,
    /// 2: wrong usage; nothing was done.
    Usage,
    /// 3: packets were lost with `--lossless`.
    Lost,
    /// Exit status of a command run for the user.
    OfCommand(u8),
}

impl Exit {
    /// Returns the status for an error: usage or failed.
    pub fn of(error: &anyhow::Error) -> Exit {
        let is_usage = error
            .chain()
            .any(|cause| cause.is::<UsageError>() || matches!(cause.downcast_ref(), Some(PortError::Wrong { .. })));
        if is_usage { Exit::Usage } else { Exit::Failed }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Lost => 3,
            Exit::OfCommand(status) => status,
        })
    }
}

/// A usage error, found before anything was done.
#[derive(Debug)]
pub struct UsageError(String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Returns the text of an error and its causes, each once: many errors include their cause.
pub fn error_text(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| match cause.to_string() {
        first if text.is_empty() => first,
        repeated if text.contains(&repeated) => text,
        cause => format!("{text}: {cause}"),
    })
}

/// Removes ` (os error 2)`, which the standard library adds.
pub fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| match part.split_once(')') {
        Some((number, rest)) if number.parse::<i32>().is_ok() => text + rest,
        _ => text + " (os error " + part,
    })
}

/// Returns an error that ends the program with [`Exit::Usage`].
pub fn usage(text: impl std::fmt::Display) -> anyhow::Error {
    anyhow::Error::new(UsageError(text.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use linerate_burst::SinkError;
    use std::io::{Error, ErrorKind};

    #[test]
    fn a_cause_is_printed_once() {
        let reason = Error::from(ErrorKind::NotADirectory);
        let sink = SinkError { target: "f".into(), reason, advice: "name a folder".into() };
        assert_eq!(error_text(&sink.into()), "f: not a directory; name a folder");
        let chain = Err::<(), _>(Error::from(ErrorKind::NotFound)).context("b").context("a").unwrap_err();
        assert_eq!(error_text(&chain), "a: b: entity not found");
    }

    #[test]
    fn numbers_of_system_errors_are_removed() {
        let error = std::io::Error::from_raw_os_error(2);
        assert_eq!(
            without_numbers(&format!("a: {error}; b: {error}.")),
            "a: No such file or directory; b: No such file or directory."
        );
        assert_eq!(without_numbers("x (os error y) (os error "), "x (os error y) (os error ");
    }
}
