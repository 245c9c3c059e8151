//! Header formats of sequenced datagrams.

/// A number in a datagram header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Offset of its first byte.
    pub offset: usize,
    /// Width in bytes: 1 to 8.
    pub width: usize,
    /// True if the lowest byte comes first.
    pub little_endian: bool,
    /// Low bits of the number that do not belong to the field.
    pub shift: u32,
    /// Width of the field in bits, above these.
    pub bits: u32,
}

impl Field {
    /// Returns a field of whole bytes, big-endian.
    pub const fn big(offset: usize, width: usize) -> Field {
        Field { offset, width, little_endian: false, shift: 0, bits: 8 * width as u32 }
    }

    /// Returns a field of whole bytes, little-endian.
    pub const fn little(offset: usize, width: usize) -> Field {
        Field { little_endian: true, ..Field::big(offset, width) }
    }

    fn read(&self, bytes: &[u8]) -> Option<u64> {
        let field = bytes.get(self.offset..self.offset.checked_add(self.width.clamp(1, 8))?)?;
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        let whole = if self.little_endian { field.iter().rev().fold(0, add) } else { field.iter().fold(0, add) };
        Some(whole.checked_shr(self.shift).unwrap_or(0) & mask(self.bits))
    }
}

/// Unit of a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Datagrams, each with this number of bytes of data.
    Packets(usize),
    /// Bytes of data.
    Bytes,
}

/// Header format of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Sequence number at a fixed offset.
    Fixed {
        /// Sequence number.
        sequence: Field,
        /// Its unit.
        unit: Unit,
        /// Number of the batch within which it counts, and bytes per batch.
        batch: Option<(Field, u64)>,
        /// Offset of the data.
        data: usize,
    },
    /// SPEAD, 64-48 or 64-40. A position is a heap and an offset in it; heaps have a fixed size and a fixed step of
    /// their numbers.
    Spead {
        /// Bytes per heap.
        heap: u64,
        /// Difference between consecutive heap numbers.
        step: u64,
    },
    /// Data packets of VITA 49 with a fixed number of data bytes. Their count has four bits, so a loss of more than
    /// seven in a row shifts all that follows by a multiple of 16 packets. Where that matters, use a timestamp as a
    /// fixed field.
    Vita49 {
        /// Bytes of data per packet.
        data: usize,
    },
}

/// Reasons why a datagram has no position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPosition {
    /// Contradictory, too short, or of an invalid length.
    Malformed,
    /// Without data, as its type may be.
    NoData,
}

/// Position of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramPosition<'a> {
    /// Stream of the sender.
    pub stream: u32,
    number: u64,
    /// Width of the number in bits.
    bits: u32,
    /// Unit of the number in bytes.
    unit: u64,
    /// Offset within the unit, in bytes.
    offset: u64,
    /// Data.
    pub data: &'a [u8],
}

impl DatagramPosition<'_> {
    /// Returns the position nearest to `near`, since the number wraps around.
    pub fn position(&self, near: u64) -> u64 {
        let (near, mask) = (near / self.unit, mask(self.bits));
        let ahead = self.number.wrapping_sub(near) & mask;
        let number = match ahead > mask / 2 {
            true => near.checked_sub(mask - ahead + 1).unwrap_or(near.saturating_add(ahead)),
            false => near.saturating_add(ahead),
        };
        number.saturating_mul(self.unit).saturating_add(self.offset)
    }

    /// Returns the position as the first one of a stream.
    pub fn first(&self) -> u64 {
        self.number.saturating_mul(self.unit).saturating_add(self.offset)
    }
}

impl Form {
    /// Finds the position of a datagram by its payload.
    ///
    /// # Errors
    /// If it has no position.
    pub fn find<'a>(&self, payload: &'a [u8]) -> Result<DatagramPosition<'a>, NoPosition> {
        match *self {
            Form::Fixed { sequence, unit, batch, data } => fixed(payload, &sequence, unit, batch, data),
            Form::Spead { heap, step } => spead(payload, heap.max(1), step.max(1)),
            Form::Vita49 { data } => vita49(payload, data),
        }
        .filter(|belongs| belongs.first().checked_add(belongs.data.len() as u64).is_some())
    }
}

trait Filter<T>: Sized {
    fn filter(self, keep: impl FnOnce(&T) -> bool) -> Self;
}

impl<T> Filter<T> for Result<T, NoPosition> {
    fn filter(self, keep: impl FnOnce(&T) -> bool) -> Self {
        self.and_then(|value| if keep(&value) { Ok(value) } else { Err(NoPosition::Malformed) })
    }
}

fn fixed<'a>(
    payload: &'a [u8],
    sequence: &Field,
    unit: Unit,
    batch: Option<(Field, u64)>,
    data: usize,
) -> Result<DatagramPosition<'a>, NoPosition> {
    let number = sequence.read(payload).ok_or(NoPosition::Malformed)?;
    let data = payload.get(data..).ok_or(NoPosition::Malformed)?;
    let (unit, is_sound) = match unit {
        Unit::Packets(bytes) => (bytes.max(1) as u64, data.len() == bytes),
        Unit::Bytes => (1, true),
    };
    if !is_sound {
        return Err(NoPosition::Malformed);
    }
    let Some((field, bytes)) = batch else {
        return some_data(DatagramPosition { stream: 0, number, bits: sequence.bits, unit, offset: 0, data });
    };
    let batch = field.read(payload).ok_or(NoPosition::Malformed)?;
    // Data that reaches into the next batch would be stored before the data that belongs there.
    let is_inside = |offset: &u64| offset.checked_add(data.len() as u64).is_some_and(|end| end <= bytes);
    let offset = number.checked_mul(unit).filter(is_inside).ok_or(NoPosition::Malformed)?;
    some_data(DatagramPosition { stream: 0, number: batch, bits: field.bits, unit: bytes.max(1), offset, data })
}

/// SPEAD item identifiers.
const HEAP: u64 = 1;
const HEAP_OFFSET: u64 = 3;
const LENGTH: u64 = 4;

fn spead(payload: &[u8], heap: u64, step: u64) -> Result<DatagramPosition<'_>, NoPosition> {
    let (head, _) = payload.split_first_chunk::<8>().ok_or(NoPosition::Malformed)?;
    // Magic, version 4, then the widths of identifiers and addresses in bytes.
    let bits = match head[..4] {
        [0x53, 4, 2, 6] => 48,
        [0x53, 4, 3, 5] => 40,
        _ => return Err(NoPosition::Malformed),
    };
    let items = usize::from(u16::from_be_bytes([head[6], head[7]]));
    let pointers = payload.get(8..8 + 8 * items).ok_or(NoPosition::Malformed)?;
    let (mut count, mut offset, mut length) = (None, None, None);
    for pointer in pointers.as_chunks::<8>().0 {
        let pointer = u64::from_be_bytes(*pointer);
        let (is_immediate, value) = (pointer >> 63 == 1, pointer & mask(bits));
        match pointer >> bits & mask(63 - bits) {
            HEAP if is_immediate => count = Some(value),
            HEAP_OFFSET if is_immediate => offset = Some(value),
            LENGTH if is_immediate => length = Some(value),
            _ => {}
        }
    }
    let data = &payload[8 + 8 * items..];
    let length = length.map_or(Ok(data.len()), usize::try_from).map_err(|_| NoPosition::Malformed)?;
    let data = data.get(..length).ok_or(NoPosition::Malformed)?;
    let (count, offset) = (count.ok_or(NoPosition::Malformed)?, offset.unwrap_or(0));
    if offset.checked_add(length as u64).is_none_or(|end| end > heap) || count % step != 0 {
        return Err(NoPosition::Malformed);
    }
    // A number with a step does not wrap at a multiple of it: treat it as unbounded.
    some_data(DatagramPosition { stream: 0, number: count / step, bits: 64, unit: heap, offset, data })
}

fn vita49(payload: &[u8], size: usize) -> Result<DatagramPosition<'_>, NoPosition> {
    let (head, _) = payload.split_first_chunk::<4>().ok_or(NoPosition::Malformed)?;
    let head = u32::from_be_bytes(*head);
    let kind = head >> 28;
    // Signal and extension data, without and with a stream identifier; the other types are context.
    if kind > 3 {
        return Err(NoPosition::NoData);
    }
    let has = |mask: u32, bytes: usize| if head & mask != 0 { bytes } else { 0 };
    let with_stream = kind & 1 == 1;
    let begin = 4 + usize::from(with_stream) * 4 + has(1 << 27, 8) + has(3 << 22, 4) + has(3 << 20, 8);
    let end = ((head & 0xffff) as usize * 4).checked_sub(has(1 << 26, 4)).ok_or(NoPosition::Malformed)?;
    let data = payload.get(begin..end).filter(|data| data.len() == size).ok_or(NoPosition::Malformed)?;
    let stream = match payload.get(4..8) {
        Some(id) if with_stream => u32::from_be_bytes([id[0], id[1], id[2], id[3]]),
        _ => 0,
    };
    let number = u64::from(head >> 16 & 15);
    some_data(DatagramPosition { stream, number, bits: 4, unit: size.max(1) as u64, offset: 0, data })
}

fn some_data(belongs: DatagramPosition<'_>) -> Result<DatagramPosition<'_>, NoPosition> {
    if belongs.data.is_empty() { Err(NoPosition::NoData) } else { Ok(belongs) }
}

fn mask(bits: u32) -> u64 {
    1_u64.checked_shl(bits).map_or(u64::MAX, |bit| bit - 1)
}
