//! Positions of the given fields in a frame, and their values.

use super::selectors::{VaryingField, selectors};
use super::stack::{HeaderSpec, Setting, Stack};
use super::value::{Set, Values, values};
use crate::stream::{Change, Map, Selector, put};
use crate::text_error::TextError;
use linerate_headers::coverage::HeaderSpan;
use linerate_headers::named::Format;

/// Bit range of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bits {
    /// First bit, from the start of the frame.
    pub start: usize,
    /// Number of bits: 1 to 128.
    pub count: u32,
}

/// Given values and their positions in a frame.
#[derive(Default)]
pub(super) struct FieldPositions<'a> {
    /// Constant values, in the order of writing.
    pub constants: Vec<(Bits, u128)>,
    /// Selectors of the others.
    pub selectors: Vec<Selector>,
    varying: Vec<(&'a str, Bits, usize, Map)>,
}

/// Fields that determine the range of a checksum: they must be the same in all frames.
const FORM: [(&str, &str); 7] = [
    ("udplite", "coverage"),
    ("routing", "type"),
    ("routing", "segleft"),
    ("gre", "flags"),
    ("pptp", "flags"),
    ("shim6", "payload"),
    ("shim6_control", "payload"),
];

impl<'a> FieldPositions<'a> {
    /// Finds the fields of a packet in a frame of it.
    pub(super) fn find(
        text: &'a str,
        stack: &Stack<'a>,
        placed: &[HeaderSpan],
        frame: &[u8],
        seed: u64,
    ) -> Result<Self, TextError> {
        let mut found = Vec::new();
        for (index, (layered, at)) in stack.headers.iter().zip(placed).enumerate() {
            let header = frame.get(at.offset..at.offset + at.length).unwrap_or_default();
            for setting in &layered.settings {
                let (bits, format) = field(text, layered, setting, at.offset, header)?;
                let pattern = layered.pattern.map(|pattern| (index, pattern));
                let read = setting_of(text, setting, bits, format)?;
                let fixed = FORM.contains(&(layered.kind.name(), setting.name));
                if fixed && !matches!(read.1.set, Set::One(_)) {
                    return Err(TextError::at(
                        text,
                        setting.value,
                        "expected a single number, because checksums depend on it",
                    ));
                }
                found.push((setting.name, read, pattern));
            }
        }
        let payload = placed.last().filter(|_| !stack.whole).map_or(0, |last| last.offset + last.length);
        for setting in &stack.settings {
            let (bits, format) = bytes(text, setting.name, payload)?;
            found.push((setting.name, setting_of(text, setting, bits, format)?, None));
        }
        if let Some((name, ..)) = found.iter().find(|(_, (bits, _), _)| bits.end() > frame.len() * 8) {
            return Err(TextError::at(text, name, "beyond the end of the frame"));
        }
        FieldPositions::of(text, found, seed)
    }

    fn of(text: &str, found: Vec<FieldPlacement<'a>>, seed: u64) -> Result<Self, TextError> {
        let (mut constants, mut names, mut varying) = (Vec::new(), Vec::new(), Vec::new());
        for (name, (bits, values), pattern) in found {
            if let Set::One(value) = values.set {
                constants.push((bits, value));
            } else {
                names.push((name, bits));
                varying.push(VaryingField { values, pattern });
            }
        }
        let (selectors, maps) = selectors(&varying, seed)
            .map_err(|(index, what)| TextError::at(text, names.get(index).map_or(text, |(name, _)| name), what))?;
        let named = names.into_iter().zip(maps);
        let varying = named.map(|((name, bits), (selector, map))| (name, bits, selector, map)).collect();
        Ok(FieldPositions { constants, selectors, varying })
    }

    /// Returns the changes of a frame.
    pub(super) fn changes(&self, frame: &[u8]) -> Result<Vec<Change>, String> {
        let change = |(name, bits, selector, map): &(&str, Bits, usize, Map)| {
            let (offset, width, mask) = bits.bytes().ok_or(format!("{name} spans more than 16 bytes"))?;
            if offset + width > frame.len() {
                return Err(format!("{name} is beyond the end of frames of {} bytes", frame.len() + 4));
            }
            Ok(Change { offset, width, mask, selector: *selector, map: map.clone() })
        };
        self.varying.iter().map(change).collect()
    }

    /// Returns whether no fields are given.
    pub(super) fn is_empty(&self) -> bool {
        self.constants.is_empty() && self.varying.is_empty()
    }

    /// Returns whether a given field is in these bytes.
    pub(super) fn touches(&self, offset: usize, length: usize) -> bool {
        let given = self.constants.iter().map(|(bits, _)| bits).chain(self.varying.iter().map(|(_, bits, ..)| bits));
        given.into_iter().any(|bits| bits.start < (offset + length) * 8 && offset * 8 < bits.end())
    }

    /// Returns a field that changes bits of another one, or these bytes.
    pub(super) fn overlap(&self, taken: &[(usize, usize)]) -> Option<&'a str> {
        let meets = |bits: &Bits, start: usize, end: usize| bits.start < end && start < bits.end();
        self.varying.iter().enumerate().find_map(|(index, (name, bits, ..))| {
            let others = self.varying[..index].iter().any(|(_, other, ..)| meets(bits, other.start, other.end()));
            let bytes = taken.iter().any(|(offset, length)| meets(bits, offset * 8, (offset + length) * 8));
            (others || bytes).then_some(*name)
        })
    }
}

/// Field name, its position and values, and the pattern of its layer.
type FieldPlacement<'a> = (&'a str, (Bits, Values), Option<(usize, super::selectors::Pattern)>);

impl Bits {
    fn end(&self) -> usize {
        self.start + self.count as usize
    }

    /// Returns the first byte, the number of bytes it spans (1 to 16), and a mask of its bits.
    fn bytes(&self) -> Option<(usize, usize, u128)> {
        let (offset, width) = (self.start / 8, self.end().div_ceil(8) - self.start / 8);
        let mask = u128::MAX >> (128 - self.count);
        (width <= 16).then(|| (offset, width, mask << (width * 8 - (self.end() - offset * 8))))
    }

    /// Writes the lower bits of a value.
    pub(super) fn write(&self, value: u128, frame: &mut [u8]) {
        let place = self.bytes().and_then(|(offset, width, mask)| Some((frame.get_mut(offset..offset + width)?, mask)));
        if let Some((place, mask)) = place {
            put(place, mask, value);
        }
    }
}

fn field(
    text: &str,
    layered: &HeaderSpec<'_>,
    setting: &Setting<'_>,
    offset: usize,
    header: &[u8],
) -> Result<(Bits, Format), TextError> {
    if setting.name.starts_with('+') {
        return bytes(text, setting.name, offset);
    }
    let (name, mask) = setting.name.split_once('&').map_or((setting.name, None), |(name, mask)| (name, Some(mask)));
    let field = layered.kind.field(name.trim(), header).ok_or_else(|| layered.unknown(text, setting.name))?;
    let whole = Bits { start: offset * 8 + field.start(header).unwrap_or(0), count: field.bits };
    let Some(mask) = mask else { return Ok((whole, field.format)) };
    let wrong = || {
        TextError::at(text, setting.name, "invalid mask; expected one run of bits of the field, such as src&0.0.255.0")
    };
    let mask = field.format.parse(mask.trim()).filter(|mask| *mask != 0 && *mask <= field.most()).ok_or_else(wrong)?;
    let (low, count) = (mask.trailing_zeros(), mask.count_ones());
    if mask >> low != u128::MAX >> (128 - count) {
        return Err(wrong());
    }
    let start = whole.start + (field.bits - low - count) as usize;
    Ok((Bits { start, count }, Format::Number))
}

/// Parses a position `+offset:bits`, from the start of a layer.
fn bytes(text: &str, name: &str, layer: usize) -> Result<(Bits, Format), TextError> {
    let parts = name.trim_start_matches('+').split_once(':').unwrap_or((name.trim_start_matches('+'), "8"));
    let offset = parts.0.trim().parse().ok().filter(|offset: &usize| *offset <= super::LONGEST);
    let count = parts.1.trim().parse().ok().filter(|count| (1..=128).contains(count));
    let wrong =
        || TextError::at(text, name, "expected +OFFSET:BITS, such as +4:16 for the two bytes after the first four");
    let (offset, count) = offset.zip(count).ok_or_else(wrong)?;
    Ok((Bits { start: (layer + offset) * 8, count }, Format::Hex))
}

fn setting_of(text: &str, setting: &Setting<'_>, bits: Bits, format: Format) -> Result<(Bits, Values), TextError> {
    Ok((bits, values(text, setting.value, format, bits.count)?))
}
