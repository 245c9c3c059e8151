//! The format of stream bytes on a device: unchanged, or converted to numbers for computation.

/// Conversion of stream bytes. Numbers are IEEE 754 binary32, little-endian, one for each sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// Unchanged.
    #[default]
    Raw,
    /// Signed one-byte samples, converted to numbers.
    Int8,
    /// Signed two-byte samples, little-endian, converted to numbers.
    Int16,
    /// Signed two-byte samples, big-endian (network byte order), converted to numbers.
    Int16Big,
}

impl Form {
    /// All forms.
    pub const ALL: [Form; 4] = [Form::Raw, Form::Int8, Form::Int16, Form::Int16Big];

    /// Returns the name in options.
    pub fn name(self) -> &'static str {
        match self {
            Form::Raw => "no",
            Form::Int8 => "int8",
            Form::Int16 => "int16",
            Form::Int16Big => "int16-be",
        }
    }

    /// Returns the form of this name.
    pub fn named(name: &str) -> Option<Form> {
        Form::ALL.into_iter().find(|form| form.name() == name)
    }

    /// Returns the bytes per sample.
    pub fn sample(self) -> usize {
        if matches!(self, Form::Int16 | Form::Int16Big) { 2 } else { 1 }
    }

    /// Returns the bytes on the device for `len` bytes of a stream. An incomplete sample counts as one, with its other
    /// byte zero.
    pub fn bytes(self, len: usize) -> usize {
        if self == Form::Raw { len } else { len.div_ceil(self.sample()) * 4 }
    }

    /// Returns the part of a number that a byte at this stream offset contributes. Numbers are sums of these: a sample
    /// may arrive in two pieces.
    pub fn part(self, offset: u64, byte: u8) -> f32 {
        match (self, offset % 2) {
            (Form::Int8, _) => f32::from(byte as i8),
            (Form::Int16, 0) | (Form::Int16Big, 1) => f32::from(byte),
            _ => f32::from(byte as i8) * 256.0,
        }
    }

    /// Converts a whole frame, from its first byte on.
    pub fn convert(self, bytes: &[u8]) -> Vec<u8> {
        let one = |sample: &[u8]| match (self, sample) {
            (Form::Int16, [low, high]) => f32::from(i16::from_le_bytes([*low, *high])),
            (Form::Int16, [low]) => f32::from(*low),
            (Form::Int16Big, [high, low]) => f32::from(i16::from_be_bytes([*high, *low])),
            (Form::Int16Big, [high]) => f32::from(i16::from_be_bytes([*high, 0])),
            _ => f32::from(sample[0] as i8),
        };
        match self {
            Form::Raw => bytes.to_vec(),
            _ => bytes.chunks(self.sample()).flat_map(|sample| one(sample).to_le_bytes()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_sums_of_their_bytes_parts() {
        let bytes: Vec<u8> =
            (0..=255).flat_map(|high| [0, 1, 127, 128, 255].map(|low| [low, high])).flatten().collect();
        for form in [Form::Int8, Form::Int16, Form::Int16Big] {
            let mut sums = vec![0.0_f32; form.bytes(bytes.len()) / 4];
            for (at, byte) in bytes.iter().enumerate() {
                sums[at / form.sample()] += form.part(at as u64, *byte);
            }
            let wanted: Vec<u8> = sums.into_iter().flat_map(f32::to_le_bytes).collect();
            assert_eq!(form.convert(&bytes), wanted, "{form:?}");
        }
        assert_eq!(Form::Int16.convert(&[0xfe, 0xff, 3]), [(-2.0_f32).to_le_bytes(), 3.0_f32.to_le_bytes()].concat());
        assert_eq!(
            Form::Int16Big.convert(&[0xff, 0xfe, 3]),
            [(-2.0_f32).to_le_bytes(), 768.0_f32.to_le_bytes()].concat()
        );
    }

    #[test]
    fn names_round_trip() {
        Form::ALL.into_iter().for_each(|form| assert_eq!(Form::named(form.name()), Some(form)));
    }
}
