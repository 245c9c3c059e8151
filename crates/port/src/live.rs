//! Plans: frames described by templates and what changes in them, for ports that make frames themselves.
//!
//! Pure: a plan is checked and told what its frames are ([`Plan::frame`]), slowly and plainly. A port that runs
//! plans turns them into something fast; what it sends has to equal this.

mod checked;

pub use checked::{BadPlan, Checked};

/// What to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Frames, sent in turn.
    pub templates: Vec<Template>,
    /// How many frames to send in all; `None` without end.
    pub count: Option<u64>,
}

/// One frame, and what changes in it from one time it is sent to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    /// The frame without FCS, as it is where nothing changes it.
    pub frame: Vec<u8>,
    /// What changes; two fields must not overlap.
    pub fields: Vec<Field>,
    /// What is computed when the rest of the frame is there, in this order: an inner checksum before an outer one
    /// that covers it.
    pub checksums: Vec<Checksum>,
    /// From this frame to the next.
    pub gap: Gap,
}

/// A number in a frame, in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Where its first byte lies.
    pub offset: usize,
    /// 1, 2, 4 or 8 bytes; of a larger value the lower ones.
    pub width: usize,
    /// What is in it.
    pub value: Value,
}

/// What is in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// This.
    Fixed(u64),
    /// `start`, then `step` more each time this template is sent, and `start` again after `count` times (0: never).
    Stepped {
        /// The first value.
        start: u64,
        /// From one to the next; may be negative.
        step: i64,
        /// How many values there are.
        count: u64,
    },
    /// `start`, then one more for each frame that the port sends, whatever its template.
    Sequence {
        /// Of the first frame.
        start: u64,
    },
    /// When the frame was made: UTC nanoseconds since 1970 (as `CLOCK_REALTIME`).
    Time,
}

/// An Internet checksum (RFC 1071) over parts of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// Where its two bytes lie; they count as 0.
    pub offset: usize,
    /// First byte and end of each part that it covers. A part of odd length is padded with a zero byte.
    pub parts: Vec<(usize, usize)>,
    /// A sum to add: what it covers that is not in the frame.
    pub plus: u16,
    /// Written as 0xffff where it is 0, as UDP has it (RFC 768).
    pub no_zero: bool,
}

/// A span of time in nanoseconds and 2^-32 of them, so that rates are exact over days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gap {
    /// Whole nanoseconds.
    pub nanos: u64,
    /// 2^-32 nanoseconds.
    pub fraction: u32,
}

impl Gap {
    /// None: as fast as the port can.
    pub const ZERO: Gap = Gap { nanos: 0, fraction: 0 };

    /// Of so many nanoseconds, 0 where that is no number.
    pub fn from_nanos(nanos: f64) -> Self {
        let whole = nanos.max(0.0).floor();
        Gap { nanos: whole as u64, fraction: ((nanos - whole).max(0.0) * 4_294_967_296.0) as u32 }
    }
}

impl Plan {
    /// The bytes of frame `number` (from 0), made at `time` (UTC nanoseconds).
    ///
    /// # Panics
    /// If the plan is not one that [`Plan::check`] accepts.
    pub fn frame(&self, number: u64, time: u64) -> Vec<u8> {
        let templates = self.templates.len() as u64;
        let template = &self.templates[(number % templates) as usize];
        let mut frame = template.frame.clone();
        for field in &template.fields {
            let value = field.value.at(number, number / templates, time).to_be_bytes();
            frame[field.offset..field.offset + field.width].copy_from_slice(&value[8 - field.width..]);
        }
        for checksum in &template.checksums {
            frame[checksum.offset..checksum.offset + 2].fill(0);
            let mut sum = u64::from(checksum.plus);
            for (first, end) in &checksum.parts {
                for pair in frame[*first..*end].chunks(2) {
                    sum += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
                }
            }
            while sum > 0xffff {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            let sum = if checksum.no_zero && sum == 0xffff { 0xffff } else { !sum as u16 };
            frame[checksum.offset..checksum.offset + 2].copy_from_slice(&sum.to_be_bytes());
        }
        frame
    }

    /// Whether frames are due at times of their own; else they leave as fast as the port can.
    pub fn is_paced(&self) -> bool {
        self.templates.iter().any(|template| template.gap > Gap::ZERO)
    }
}

impl Value {
    /// The value in frame `number` of the port, which is frame `turn` of its template.
    fn at(self, number: u64, turn: u64, time: u64) -> u64 {
        match self {
            Value::Fixed(value) => value,
            Value::Stepped { start, step, count } => {
                let turn = if count == 0 { turn } else { turn % count };
                start.wrapping_add((step as u64).wrapping_mul(turn))
            }
            Value::Sequence { start } => start.wrapping_add(number),
            Value::Time => time,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_follow_from_the_plan() {
        let mut frame = vec![0; 24];
        frame[20] = 7;
        let stepped = Value::Stepped { start: 250, step: 3, count: 3 };
        let template = Template {
            frame,
            fields: vec![
                Field { offset: 14, width: 1, value: stepped },
                Field { offset: 16, width: 4, value: Value::Sequence { start: 1 } },
            ],
            checksums: vec![Checksum { offset: 22, parts: vec![(14, 24)], plus: 1, no_zero: false }],
            gap: Gap::ZERO,
        };
        let plan = Plan { templates: vec![template], count: None };
        assert!(plan.check().is_ok());
        let bytes: Vec<u8> = (0..4).map(|number| plan.frame(number, 0)[14]).collect();
        assert_eq!(bytes, [250, 253, 0, 250]);
        let third = plan.frame(2, 0);
        assert_eq!(third[16..20], [0, 0, 0, 3]);
        // 3 + 0x0700 + 1.
        assert_eq!(third[22..], (!0x0704u16).to_be_bytes());
    }

    #[test]
    fn gaps_are_kept_to_a_fraction_of_a_nanosecond() {
        assert_eq!(Gap::from_nanos(1e9 / 3.0).nanos, 333_333_333);
        assert_eq!(Gap::from_nanos(0.5), Gap { nanos: 0, fraction: 1 << 31 });
        for nothing in [0.0, -1.0, f64::NAN] {
            assert_eq!(Gap::from_nanos(nothing), Gap::ZERO);
        }
    }
}
