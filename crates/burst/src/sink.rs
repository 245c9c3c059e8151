//! What takes bursts.

use crate::Nanos;
use crate::block::View;
use crate::ledger::Ledger;
use std::fmt;

/// Why a sink could not take frames.
#[derive(Debug)]
pub struct SinkError {
    /// What the sink writes to, as the user named it.
    pub target: String,
    /// What failed.
    pub reason: std::io::Error,
    /// What to do about it; empty where nothing better is known than the reason.
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

/// Takes blocks of frames, in order.
///
/// A sink accounts for every frame it is handed: it is delivered or dropped with a reason, also when
/// `accept` fails.
pub trait Sink: Send {
    /// Takes the frames of one block.
    fn accept(&mut self, view: View<'_>) -> Result<(), SinkError>;

    /// Makes what was taken visible to whoever reads the other end; called when the input pauses.
    fn flush(&mut self) -> Result<(), SinkError>;

    /// Ends what was written so far, as [`finish`](Sink::finish) does, and goes on in a new output of that name. `run` is the
    /// ledger up to here. Says what became of both, for people; `None` where nothing can be opened anew.
    ///
    /// # Errors
    /// There is no new one: what is open goes on.
    fn reopen(&mut self, run: &Ledger) -> Result<Option<String>, SinkError> {
        let _ = run;
        Ok(None)
    }

    /// Whether it is to be told how the run goes, by [`look`](Sink::look).
    fn follows(&self) -> bool {
        false
    }

    /// Some ten times a second: the ledger up to here, and a time that no frame still to come is older than, but late ones.
    ///
    /// # Errors
    /// Those of writing.
    fn look(&mut self, run: &Ledger, complete: Nanos) -> Result<(), SinkError> {
        let _ = (run, complete);
        Ok(())
    }

    /// What people should know of it, once it has finished.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Ends the output; nothing is accepted afterwards. The ledger of the whole run goes in, for sinks
    /// that record it.
    fn finish(&mut self, run: &Ledger) -> Result<(), SinkError>;

    /// Ends the output of a run that failed before there was a frame for it: a file that was there before stays as it was.
    ///
    /// # Errors
    /// Those of [`finish`](Sink::finish).
    fn finish_unused(&mut self, run: &Ledger) -> Result<(), SinkError> {
        self.finish(run)
    }

    /// Adds this sink's counters.
    fn counters(&self, ledger: &mut Ledger);
}
