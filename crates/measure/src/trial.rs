//! One trial: what was to be offered, and what came of it.

/// A trial to run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ask {
    /// Frames a second, in each direction.
    pub load: f64,
    /// For so many seconds.
    pub duration: f64,
}

/// A trial that has run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// The load that was asked for.
    pub load: f64,
    /// The duration that was asked for, in seconds: it decides whether the trial is a full one.
    pub duration: f64,
    /// The duration that counts in sums.
    pub effective: f64,
    /// The part of the frames that were to be sent which did not come, over all directions together: 0 to 1.
    pub loss: f64,
    /// The tester was at fault: it sent too little or too late, or lost packets itself.
    pub is_limited: bool,
}

impl Trial {
    /// A trial that went as it was asked for.
    pub fn new(ask: Ask, loss: f64) -> Self {
        let Ask { load, duration } = ask;
        Trial { load, duration, effective: duration, loss, is_limited: false }
    }

    /// Frames a second that came through.
    pub fn forwarded(&self) -> f64 {
        self.load * (1.0 - self.loss)
    }
}

/// The part of `expected` frames that is lost where so many distinct ones came.
pub fn loss_ratio(expected: u64, received: u64) -> f64 {
    if expected == 0 { 0.0 } else { expected.saturating_sub(received) as f64 / expected as f64 }
}
