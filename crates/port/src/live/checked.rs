//! Plans that can be run.

use super::{Checksum, Field, Plan, Template, Value};

/// An Ethernet header; the kernel sends nothing shorter.
const LEAST: usize = 14;
/// Checksums of one frame: those of a tunnel in a tunnel.
const MOST_CHECKSUMS: usize = 4;

/// A plan that was checked: templates there, fields and checksums inside their frames and apart from each other.
#[derive(Clone, Copy, Debug)]
pub struct Checked<'a>(&'a Plan);

/// A plan that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPlan {
    /// There is no template.
    #[error("a plan needs a template")]
    Empty,
    /// A template that is wrong.
    #[error("template {template}: {reason}")]
    Template {
        /// Which, from 0.
        template: usize,
        /// What is wrong with it.
        reason: String,
    },
}

impl<'a> Checked<'a> {
    /// The plan.
    pub fn plan(self) -> &'a Plan {
        self.0
    }

    /// The length of the longest frame.
    pub fn longest(self) -> usize {
        self.0.templates.iter().map(|template| template.frame.len()).max().unwrap_or(0)
    }
}

impl Plan {
    /// The plan as one that can be run, or why it cannot.
    pub fn check(&self) -> Result<Checked<'_>, BadPlan> {
        if self.templates.is_empty() {
            return Err(BadPlan::Empty);
        }
        for (index, template) in self.templates.iter().enumerate() {
            check(template).map_err(|reason| BadPlan::Template { template: index, reason })?;
        }
        Ok(Checked(self))
    }
}

fn check(template: &Template) -> Result<(), String> {
    let length = template.frame.len();
    if length < LEAST {
        return Err(format!("{length} bytes are no frame: it begins with an Ethernet header of {LEAST}"));
    }
    let mut taken = Vec::new();
    for field in &template.fields {
        check_field(field)?;
        take(&mut taken, length, field.offset, field.width, "field")?;
    }
    if template.checksums.len() > MOST_CHECKSUMS {
        return Err(format!("{} checksums, of which at most {MOST_CHECKSUMS} are possible", template.checksums.len()));
    }
    for (index, checksum) in template.checksums.iter().enumerate() {
        take(&mut taken, length, checksum.offset, 2, "checksum")?;
        if let Some((first, end)) = checksum.parts.iter().find(|(first, end)| first > end || *end > length) {
            return Err(format!("a checksum over bytes {first} to {end} of a frame of {length}"));
        }
        check_parts(checksum, &taken)?;
        let covers = |at: usize| checksum.parts.iter().any(|(first, end)| (*first..*end).contains(&at));
        let later = &template.checksums[index + 1..];
        if let Some(inner) = later.iter().find(|other| covers(other.offset) || covers(other.offset + 1)) {
            return Err(format!("the checksum at {} covers that at {}: put it behind", checksum.offset, inner.offset));
        }
    }
    Ok(())
}

/// A part of a checksum holds a number wholly or not at all.
fn check_parts(checksum: &Checksum, taken: &[(usize, usize)]) -> Result<(), String> {
    for (first, end) in &checksum.parts {
        let cuts = |edge: usize| taken.iter().find(|(at, last)| *at < edge && edge < *last);
        if let Some((at, _)) = cuts(*first).or(cuts(*end)) {
            return Err(format!("the checksum at {} covers a part of the number at {at}", checksum.offset));
        }
    }
    Ok(())
}

fn check_field(field: &Field) -> Result<(), String> {
    if ![1, 2, 4, 8].contains(&field.width) {
        return Err(format!("a field of {} bytes: it has 1, 2, 4 or 8", field.width));
    }
    match field.value {
        // Else two of its values could not be told apart by what they are modulo 2^64.
        Value::Stepped { step, count, .. } if step.unsigned_abs().checked_mul(count).is_none() => {
            Err(format!("{count} steps of {step} are more than 64 bits hold"))
        }
        _ => Ok(()),
    }
}

/// Notes bytes as written, which nothing else may write.
fn take(taken: &mut Vec<(usize, usize)>, length: usize, at: usize, width: usize, what: &str) -> Result<(), String> {
    let end = at.checked_add(width).filter(|end| *end <= length);
    let end = end.ok_or_else(|| format!("a {what} at {at} reaches beyond its frame of {length} bytes"))?;
    if taken.iter().any(|(first, last)| at < *last && *first < end) {
        return Err(format!("a {what} at {at} overlaps another field or checksum"));
    }
    taken.push((at, end));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::Gap;

    fn plan(fields: Vec<Field>, checksums: Vec<Checksum>) -> Plan {
        Plan { templates: vec![Template { frame: vec![0; 60], fields, checksums, gap: Gap::ZERO }], count: None }
    }

    fn field(offset: usize, width: usize) -> Field {
        Field { offset, width, value: Value::Time }
    }

    fn checksum(offset: usize, parts: &[(usize, usize)]) -> Checksum {
        Checksum { offset, parts: parts.to_vec(), plus: 0, no_zero: false }
    }

    #[test]
    fn what_cannot_be_run_is_refused_with_a_reason() {
        let short = Plan { templates: vec![Template { frame: vec![0; 13], ..Template::default() }], count: None };
        let steps = Field { offset: 20, width: 8, value: Value::Stepped { start: 0, step: i64::MIN, count: 2 } };
        for (plan, part) in [
            (Plan::default(), "needs a template"),
            (short, "13 bytes are no frame"),
            (plan(vec![field(14, 3)], vec![]), "1, 2, 4 or 8"),
            (plan(vec![field(53, 8)], vec![]), "beyond its frame"),
            (plan(vec![field(usize::MAX, 8)], vec![]), "beyond its frame"),
            (plan(vec![field(20, 4), field(23, 1)], vec![]), "overlaps"),
            (plan(vec![field(20, 4)], vec![checksum(23, &[])]), "overlaps"),
            (plan(vec![steps], vec![]), "64 bits"),
            (plan(vec![], vec![checksum(20, &[(14, 61)])]), "over bytes 14 to 61"),
            (plan(vec![], vec![checksum(20, &[(30, 40)]), checksum(39, &[])]), "put it behind"),
            (plan(vec![field(20, 4)], vec![checksum(30, &[(22, 28)])]), "a part of the number at 20"),
            (plan(vec![], (0..5).map(|at| checksum(20 + 2 * at, &[])).collect()), "at most 4"),
        ] {
            let reason = plan.check().unwrap_err().to_string();
            assert!(reason.contains(part), "{reason}");
        }
        assert!(
            plan(vec![field(20, 4), field(24, 1)], vec![checksum(30, &[]), checksum(40, &[(30, 32)])]).check().is_ok()
        );
    }
}
