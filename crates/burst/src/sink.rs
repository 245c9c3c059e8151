//! Sinks: the receivers of blocks.

use crate::Nanos;
use crate::block::View;
use crate::ledger::Ledger;
use std::fmt;

/// The failure of a sink to write frames.
#[derive(Debug)]
pub struct SinkError {
    /// The output, as the user named it.
    pub target: String,
    /// The cause.
    pub reason: std::io::Error,
    /// The remedy; empty if none is known.
    pub advice: String,
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.target, self.reason)?;
        if !self.advice.is_empty() {
            write!(f, "; {}", self.advice)?;
        }
        Ok(())
    }
}

impl std::error::Error for SinkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}

/// A receiver of blocks of frames, in order.
///
/// A sink accounts for every frame that it is handed: as delivered, or as dropped with a reason, even if `accept`
/// fails.
pub trait Sink: Send {
    /// Takes the frames of one block.
    ///
    /// # Errors
    /// Those of writing.
    fn accept(&mut self, view: View<'_>) -> Result<(), SinkError>;

    /// Makes the frames so far visible to the reader of the output; called when the input pauses.
    ///
    /// # Errors
    /// Those of writing.
    fn flush(&mut self) -> Result<(), SinkError>;

    /// Finishes the output, as [`finish`](Sink::finish) does, and continues in a new output of the same name. `run` is
    /// the ledger so far. Returns a message about both for users; `None` if the sink cannot reopen.
    ///
    /// # Errors
    /// If the new output cannot be opened; the current one continues.
    fn reopen(&mut self, run: &Ledger) -> Result<Option<String>, SinkError> {
        let _ = run;
        Ok(None)
    }

    /// Returns whether the sink wants progress calls of [`look`](Sink::look).
    fn follows(&self) -> bool {
        false
    }

    /// Reports progress, about ten times per second: the ledger so far, and the horizon (no later frame is older,
    /// except late ones).
    ///
    /// # Errors
    /// Those of writing.
    fn look(&mut self, run: &Ledger, complete: Nanos) -> Result<(), SinkError> {
        let _ = (run, complete);
        Ok(())
    }

    /// Returns messages for users, once it has finished.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Finishes the output; nothing is accepted afterwards. Sinks that record the ledger of the whole run get it here.
    ///
    /// # Errors
    /// Those of writing.
    fn finish(&mut self, run: &Ledger) -> Result<(), SinkError>;

    /// Finishes the output of a run that failed before its first frame: a file that existed before stays unchanged.
    ///
    /// # Errors
    /// Those of [`finish`](Sink::finish).
    fn finish_unused(&mut self, run: &Ledger) -> Result<(), SinkError> {
        self.finish(run)
    }

    /// Adds this sink's counters to `ledger`.
    fn counters(&self, ledger: &mut Ledger);
}
