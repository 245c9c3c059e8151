//! Records and blocks of a capture file, as far as it is valid.

/// Header, record or block.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub at: usize,
    pub length: usize,
    /// Offsets of 32-bit length fields.
    pub lengths: Vec<usize>,
    /// Offsets of 32-bit time fields.
    pub times: Vec<usize>,
}

/// File split into pieces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pieces {
    /// Consecutive pieces from the start of the file.
    pub all: Vec<Piece>,
    /// True if the last section is big-endian.
    pub big: bool,
}

const SECTION: u32 = 0x0a0d_0d0a;

impl Pieces {
    pub(crate) fn of(file: &[u8]) -> Pieces {
        match file.first_chunk() {
            Some([0x0a, 0x0d, 0x0d, 0x0a]) => blocks(file),
            Some([0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1]) => records(file, false),
            Some([0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d]) => records(file, true),
            _ => Pieces::default(),
        }
    }

    /// Reads a 32-bit word of the file.
    pub(crate) fn word(&self, file: &[u8], at: usize) -> Option<u32> {
        word(file, at, self.big)
    }

    pub(crate) fn put(&self, file: &mut [u8], at: usize, value: u32) {
        let bytes = if self.big { value.to_be_bytes() } else { value.to_le_bytes() };
        if let Some(place) = file.get_mut(at..at + 4) {
            place.copy_from_slice(&bytes);
        }
    }
}

fn word(file: &[u8], at: usize, big: bool) -> Option<u32> {
    let bytes = *file.get(at..)?.first_chunk()?;
    Some(if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
}

fn records(file: &[u8], big: bool) -> Pieces {
    let mut all = vec![Piece { at: 0, length: 24.min(file.len()), lengths: vec![16, 20], times: vec![8] }];
    let mut at = 24;
    while let Some(length) = word(file, at + 8, big).map(|length| length as usize + 16) {
        if length > file.len() - at {
            break;
        }
        all.push(Piece { at, length, lengths: vec![8, 12], times: vec![0, 4] });
        at += length;
    }
    Pieces { all, big }
}

fn blocks(file: &[u8]) -> Pieces {
    let mut pieces = Pieces::default();
    let mut at = 0;
    while let Some(kind) = word(file, at, pieces.big) {
        if kind == SECTION {
            pieces.big = file.get(at + 8..at + 12) == Some(&[0x1a, 0x2b, 0x3c, 0x4d]);
        }
        let Some(length) = word(file, at + 4, pieces.big).map(|length| length as usize) else { break };
        if length < 12 || length > file.len() - at {
            break;
        }
        let (inside, times): (&[usize], &[usize]) = match kind {
            SECTION => (&[16, 20], &[]),
            1 => (&[12], &[]),
            2 | 6 => (&[20, 24], &[12, 16]),
            3 => (&[8], &[]),
            5 => (&[], &[12, 16]),
            _ => (&[], &[]),
        };
        let lengths = [&[4, length - 4], inside].concat();
        pieces.all.push(Piece { at, length, lengths, times: times.to_vec() });
        at += length;
    }
    pieces
}
