//! What a search looks for.

/// A rate that is looked for, and how sure one wants to be of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// As users know it.
    pub name: &'static str,
    /// A trial that loses more than this part of its frames is a bad one.
    pub loss_ratio: f64,
    /// So much of the time may be of bad trials at a lower bound: below 1.
    pub exceed_ratio: f64,
    /// How far the upper bound may lie above the lower one, as a part of the upper one.
    pub width: f64,
    /// How long the first trials take, in seconds; the search begins with such.
    pub initial_duration: f64,
    /// How long those take that count in full.
    pub final_duration: f64,
    /// The sum of durations after which a load is decided.
    pub duration_sum: f64,
}

/// What is wrong with goals or limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Wrong(pub String);

/// The names of goals, for whoever lists them.
pub const NAMES: [&str; 5] = ["rfc2544", "rfc2544-short", "tst009", "ndr", "pdr"];

impl Goal {
    /// One by its name; see [`NAMES`].
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

    /// Throughput of RFC 2544, section 26.1, each trial as long as the final one has to be (section 24).
    pub fn rfc2544() -> Self {
        Goal { name: "rfc2544", initial_duration: 60.0, ..Goal::rfc2544_short() }
    }

    /// The same, approached by shorter trials, as section 24 allows; what is reported rests on trials of 60 s.
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

    /// A load holds if one of two trials of 60 s loses nothing: what the binary search with loss verification of ETSI GS NFV-TST 009
    /// tells apart.
    pub fn tst009() -> Self {
        Goal { name: "tst009", exceed_ratio: 0.5, duration_sum: 120.0, ..Goal::rfc2544_short() }
    }

    /// The rate without loss as FD.io CSIT has it: 21 trials of 1 s, of which half may be bad.
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

    /// The rate with a loss of 0.5 %.
    pub fn pdr() -> Self {
        Goal { name: "pdr", loss_ratio: 0.005, ..Goal::ndr() }
    }

    /// Says what is wrong first.
    pub fn check(&self) -> Result<(), Wrong> {
        let Goal { name, loss_ratio, exceed_ratio, width, initial_duration, final_duration, duration_sum } = self;
        let wrong = |what: String| Err(Wrong(format!("goal {name}: {what}")));
        for (what, ratio) in [("loss ratio", loss_ratio), ("exceed ratio", exceed_ratio)] {
            if !(0.0..1.0).contains(ratio) {
                return wrong(format!("{what} {ratio} is not between 0 and 1"));
            }
        }
        if !(1e-6..1.0).contains(width) {
            return wrong(format!("width {width} is not between 0.000001 and 1"));
        }
        for (what, span) in [("initial duration", initial_duration), ("final duration", final_duration)] {
            if !(span.is_finite() && *span >= 1e-3) {
                return wrong(format!("{what} {span} s is shorter than a millisecond"));
            }
        }
        if !duration_sum.is_finite() || duration_sum < final_duration {
            return wrong(format!("duration sum {duration_sum} s is shorter than a final trial, {final_duration} s"));
        }
        // Counts of trials stay countable.
        if duration_sum / final_duration.min(*initial_duration) > 1e6 {
            return wrong(format!("{duration_sum} s are more than a million trials"));
        }
        Ok(())
    }
}
