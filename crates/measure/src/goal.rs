//! Goals of a search.

/// A rate to search for, and the required confidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Name for users.
    pub name: &'static str,
    /// A trial with a greater loss ratio is bad.
    pub loss_ratio: f64,
    /// Maximum share of time of bad trials at a lower bound: below 1.
    pub exceed_ratio: f64,
    /// Maximum distance of the bounds, relative to the upper one.
    pub width: f64,
    /// Duration of the first trials, in seconds.
    pub initial_duration: f64,
    /// Duration of full trials, in seconds.
    pub final_duration: f64,
    /// Sum of durations after which a load is decided.
    pub duration_sum: f64,
}

/// Error in goals or limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GoalError(pub String);

/// Names of all goals.
pub const NAMES: [&str; 5] = ["rfc2544", "rfc2544-short", "tst009", "ndr", "pdr"];

impl Goal {
    /// Returns a goal by its name; see [`NAMES`].
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "rfc2544" => Goal::rfc2544(),
            "rfc2544-short" => Goal::rfc2544_short(),
            "tst009" => Goal::tst009(),
            "ndr" => Goal::ndr(),
            "pdr" => Goal::pdr(),
            _ => return None,
        })
    }

    /// Returns the goal of throughput according to RFC 2544, section 26.1, each trial with the final duration (section
    /// 24).
    pub fn rfc2544() -> Self {
        Goal { name: "rfc2544", initial_duration: 60.0, ..Goal::rfc2544_short() }
    }

    /// Returns the same goal, approached by shorter trials, as section 24 allows; the result is based on trials of 60
    /// s.
    pub fn rfc2544_short() -> Self {
        Goal {
            name: "rfc2544-short",
            loss_ratio: 0.0,
            exceed_ratio: 0.0,
            width: 0.005,
            initial_duration: 1.0,
            final_duration: 60.0,
            duration_sum: 60.0,
        }
    }

    /// Returns a goal for which a load passes if one of two trials of 60 s has no loss: as in the binary search with
    /// loss verification of ETSI GS NFV-TST 009.
    pub fn tst009() -> Self {
        Goal { name: "tst009", exceed_ratio: 0.5, duration_sum: 120.0, ..Goal::rfc2544_short() }
    }

    /// Returns the non-drop rate as in FD.io CSIT: 21 trials of 1 s, of which half may be bad.
    pub fn ndr() -> Self {
        Goal {
            name: "ndr",
            loss_ratio: 0.0,
            exceed_ratio: 0.5,
            width: 0.005,
            initial_duration: 1.0,
            final_duration: 1.0,
            duration_sum: 21.0,
        }
    }

    /// Returns the partial drop rate, with a loss of 0.5 %.
    pub fn pdr() -> Self {
        Goal { name: "pdr", loss_ratio: 0.005, ..Goal::ndr() }
    }

    /// Returns the first error, if any.
    pub fn check(&self) -> Result<(), GoalError> {
        let Goal { name, loss_ratio, exceed_ratio, width, initial_duration, final_duration, duration_sum } = self;
        let wrong = |what: String| Err(GoalError(format!("goal {name}: {what}")));
        for (what, ratio) in [("loss ratio", loss_ratio), ("exceed ratio", exceed_ratio)] {
            if !(0.0..1.0).contains(ratio) {
                return wrong(format!("invalid {what} {ratio}; expected 0 to 1"));
            }
        }
        if !(1e-6..1.0).contains(width) {
            return wrong(format!("invalid width {width}; expected 0.000001 to 1"));
        }
        for (what, span) in [("initial duration", initial_duration), ("final duration", final_duration)] {
            if !(span.is_finite() && *span >= 1e-3) {
                return wrong(format!("{what} {span} s is too short; at least 0.001 s"));
            }
        }
        if !duration_sum.is_finite() || duration_sum < final_duration {
            return wrong(format!(
                "duration sum {duration_sum} s is shorter than the final duration, {final_duration} s"
            ));
        }
        // Keeps the number of trials bounded.
        if duration_sum / final_duration.min(*initial_duration) > 1e6 {
            return wrong(format!("duration sum {duration_sum} s needs more than a million trials"));
        }
        Ok(())
    }
}
