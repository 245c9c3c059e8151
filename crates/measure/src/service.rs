//! Service activation test of ITU-T Y.1564 for one service.

/// Service acceptance criteria; rates in bits per second of the information rate (layer 2, with FCS).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    /// Committed information rate.
    pub committed: f64,
    /// Excess information rate that may be forwarded.
    pub excess: f64,
    /// Maximum frame loss ratio.
    pub loss_ratio: f64,
    /// Maximum delay, in seconds.
    pub delay: f64,
    /// Maximum delay variation, in seconds.
    pub variation: f64,
    /// Tolerance above the rates that a policer may forward, relative to them: its token buckets are not empty.
    pub margin: f64,
}

/// Type of a step of the configuration test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Percentage of the committed rate: all criteria must be met.
    Committed(u32),
    /// The committed and the excess rate.
    Excess,
    /// Above both: the excess must be dropped.
    Policing,
}

/// Offered load of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Its type.
    pub kind: Kind,
    /// Rate in bits per second.
    pub rate: f64,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepResult {
    /// Received bits per second.
    pub rate: f64,
    /// Frame loss ratio.
    pub loss_ratio: f64,
    /// Maximum delay, in seconds.
    pub delay: f64,
    /// Delay variation, in seconds.
    pub variation: f64,
}

impl Service {
    /// Returns the steps of the configuration test, in order.
    pub fn steps(&self) -> Vec<Step> {
        let Service { committed, excess, .. } = *self;
        let share =
            |percent: u32| Step { kind: Kind::Committed(percent), rate: committed * f64::from(percent) / 100.0 };
        let mut steps: Vec<Step> = [25, 50, 75, 100].map(share).to_vec();
        if excess > 0.0 {
            steps.push(Step { kind: Kind::Excess, rate: committed + excess });
        }
        let policing = if excess < 0.2 * committed { 1.25 * committed + excess } else { committed + 1.25 * excess };
        steps.push(Step { kind: Kind::Policing, rate: policing });
        steps
    }

    /// Returns whether a step passes.
    pub fn passes(&self, kind: Kind, seen: &StepResult) -> bool {
        let least = self.committed * (1.0 - self.loss_ratio);
        let most = (self.committed + self.excess) * (1.0 + self.margin);
        match kind {
            Kind::Committed(_) => {
                seen.loss_ratio <= self.loss_ratio && seen.delay <= self.delay && seen.variation <= self.variation
            }
            Kind::Excess | Kind::Policing => (least..=most).contains(&seen.rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: Service =
        Service { committed: 10e6, excess: 5e6, loss_ratio: 1e-3, delay: 0.01, variation: 0.002, margin: 0.01 };

    /// A policer that forwards up to `limit` bits per second.
    fn policed(step: &Step, limit: f64) -> StepResult {
        let rate = step.rate.min(limit);
        StepResult { rate, loss_ratio: 1.0 - rate / step.rate, delay: 0.001, variation: 0.0001 }
    }

    #[test]
    fn policer_is_compared_with_its_limit() {
        let verdicts = |limit: f64| -> Vec<bool> {
            SERVICE.steps().iter().map(|step| SERVICE.passes(step.kind, &policed(step, limit))).collect()
        };
        assert_eq!(verdicts(15e6), [true; 6]);
        assert_eq!(verdicts(9.8e6), [true, true, true, false, false, false], "less than committed");
        assert_eq!(verdicts(1e9), [true, true, true, true, true, false], "no policer");
        assert_eq!(SERVICE.steps()[5].rate, 16.25e6);
        assert_eq!(Service { excess: 0.0, ..SERVICE }.steps()[4].rate, 12.5e6);
        let slow = StepResult { delay: 0.02, ..policed(&SERVICE.steps()[0], 15e6) };
        assert!(!SERVICE.passes(Kind::Committed(25), &slow));
    }
}
