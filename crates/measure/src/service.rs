//! Whether a service keeps what was agreed: the steps of ITU-T Y.1564, of one service.

/// What was agreed; rates in bits a second of the information rate (layer 2, with FCS).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    /// Committed rate.
    pub committed: f64,
    /// Rate above it that may be forwarded.
    pub excess: f64,
    /// The part of frames that may be lost.
    pub loss_ratio: f64,
    /// The greatest delay, in seconds.
    pub delay: f64,
    /// The greatest variation of it.
    pub variation: f64,
    /// How much more than the rates a policer may let through, as a part of them: its buckets are not empty.
    pub margin: f64,
}

/// A step of the configuration test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// So many percent of the committed rate: everything agreed has to hold.
    Committed(u32),
    /// The committed and the excess rate.
    Excess,
    /// More than both: the rest has to be dropped.
    Policing,
}

/// What is offered in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Which it is.
    pub kind: Kind,
    /// Bits a second.
    pub rate: f64,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Bits a second that came.
    pub rate: f64,
    /// The part of frames that was lost.
    pub loss_ratio: f64,
    /// The greatest delay, in seconds.
    pub delay: f64,
    /// Its variation.
    pub variation: f64,
}

impl Service {
    /// The steps of the configuration test, one after the other.
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

    /// Whether a step passes.
    pub fn passes(&self, kind: Kind, seen: &Seen) -> bool {
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

    /// A policer that lets so many bits a second through.
    fn policed(step: &Step, limit: f64) -> Seen {
        let rate = step.rate.min(limit);
        Seen { rate, loss_ratio: 1.0 - rate / step.rate, delay: 0.001, variation: 0.0001 }
    }

    #[test]
    fn a_policer_is_judged_by_its_limit() {
        let verdicts = |limit: f64| -> Vec<bool> {
            SERVICE.steps().iter().map(|step| SERVICE.passes(step.kind, &policed(step, limit))).collect()
        };
        assert_eq!(verdicts(15e6), [true; 6]);
        assert_eq!(verdicts(9.8e6), [true, true, true, false, false, false], "less than committed");
        assert_eq!(verdicts(1e9), [true, true, true, true, true, false], "nobody polices");
        assert_eq!(SERVICE.steps()[5].rate, 16.25e6);
        assert_eq!(Service { excess: 0.0, ..SERVICE }.steps()[4].rate, 12.5e6);
        let slow = Seen { delay: 0.02, ..policed(&SERVICE.steps()[0], 15e6) };
        assert!(!SERVICE.passes(Kind::Committed(25), &slow));
    }
}
