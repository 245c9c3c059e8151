//! One trial: its offered load, and its result.

/// A trial to run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialRequest {
    /// Frames per second, in each direction.
    pub load: f64,
    /// Duration in seconds.
    pub duration: f64,
}

/// Result of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Requested load.
    pub load: f64,
    /// Requested duration in seconds: it decides if the trial is a full one.
    pub duration: f64,
    /// Duration that counts in sums.
    pub effective: f64,
    /// Loss ratio relative to the frames to be sent, over all directions: 0 to 1.
    pub loss: f64,
    /// True if the tester was at fault: it sent too little or too late, or lost packets itself.
    pub is_limited: bool,
}

impl Trial {
    /// Returns the result of a trial that ran as requested.
    pub fn new(ask: TrialRequest, loss: f64) -> Self {
        let TrialRequest { load, duration } = ask;
        Trial { load, duration, effective: duration, loss, is_limited: false }
    }

    /// Returns the frames per second that were forwarded.
    pub fn forwarded(&self) -> f64 {
        self.load * (1.0 - self.loss)
    }
}

/// Returns the loss ratio if `received` distinct frames of `expected` arrived.
pub fn loss_ratio(expected: u64, received: u64) -> f64 {
    if expected == 0 { 0.0 } else { expected.saturating_sub(received) as f64 / expected as f64 }
}
