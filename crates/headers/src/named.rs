//! Headers and their fields by the names that users write: to create a header, to find a field in one, to print it.
//!
//! A [`Kind`] is a header as users know it: `ip`, `udp`, `qinq`. Some headers have two, such as `llc` and `snap`. It
//! lists the options of the header's form, creates one with usual values, and lists its fields. Fields are then set in
//! the bytes of a frame, so that any of them can vary from frame to frame; checksums are updated by [`crate::coverage`].
//!
//! To add a protocol, give it a row in the file of its group; to add a field, a row in the table of its kind.
//!
//! ```
//! use linerate_headers::build::Frame;
//! use linerate_headers::named::{PartValues, Kind};
//! let kind = Kind::named("vlan").unwrap();
//! let header = (kind.make)(PartValues(&[]))?;
//! let mut bytes = Frame::new(&[header.as_ref()], &[]).to_vec()?;
//! let priority = kind.field("prio", &bytes).unwrap();
//! assert!(priority.set(&mut bytes, 5));
//! assert_eq!((bytes[0], priority.get(&bytes)), (0xa0, Some(5)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod extension;
mod format;
mod link;
mod network;
mod transport;
mod tunnel;

pub use format::Format;

use crate::build::Header;
use crate::{EmitError, Protocol};

/// A header as users know it.
pub struct Kind {
    /// Its name, followed by aliases.
    pub names: &'static [&'static str],
    /// Its protocol.
    pub protocol: Protocol,
    /// Name of the header that usually precedes it, with the parts that this must have in parentheses; empty for a
    /// first header.
    pub below: &'static str,
    /// Options of its form.
    pub parts: &'static [Part],
    /// Its fields, in the order of the header. Of several with one name the first that is present is used.
    pub fields: &'static [Field],
    /// Returns whether these bytes of a header of its protocol are of this kind.
    pub fits: fn(&[u8]) -> bool,
    /// Creates one, with usual values in all fields.
    pub make: for<'a> fn(PartValues<'_, 'a>) -> Result<Box<dyn Header + 'a>, EmitError>,
}

/// An option of a header's form.
#[derive(Clone, Copy)]
pub struct Part {
    /// Its name; a field may have the same name.
    pub name: &'static str,
    /// Its type.
    pub form: Form,
}

/// Type of an option.
#[derive(Clone, Copy)]
pub enum Form {
    /// Presence of an optional part; present if its field is given.
    Present,
    /// Presence of a part that is also within the bytes of another part.
    Within,
    /// A number on which the form depends.
    Number,
    /// Bytes of any length; the function finds them in a header.
    Bytes(fn(&[u8]) -> Option<&[u8]>),
}

/// Options given: names of parts with their values, from which headers borrow.
#[derive(Clone, Copy, Debug)]
pub struct PartValues<'s, 'a>(pub &'s [(&'s str, Value<'a>)]);

/// The value of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// The part is present.
    Present,
    /// A number.
    Number(u128),
    /// Bytes.
    Bytes(&'a [u8]),
}

/// A field of a header.
#[derive(Clone, Copy)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its bits: 1 to 128.
    pub bits: u32,
    /// Its text format.
    pub format: Format,
    /// True if it has bits that no earlier field has.
    pub own: bool,
    /// Its first bit, relative to `base`.
    at: usize,
    /// Returns the offset in bytes of the part of the header that contains it; `None` if that is absent.
    base: fn(&[u8]) -> Option<usize>,
}

impl Kind {
    /// Returns all kinds.
    pub fn all() -> impl Iterator<Item = &'static Kind> {
        [link::KINDS, network::KINDS, extension::KINDS, transport::KINDS, tunnel::KINDS].into_iter().flatten()
    }

    /// Returns the kind of this name.
    pub fn named(name: &str) -> Option<&'static Kind> {
        Kind::all().find(|kind| kind.names.contains(&name))
    }

    /// Returns the kind of a header that was found in a frame.
    pub fn of(protocol: Protocol, header: &[u8]) -> Option<&'static Kind> {
        Kind::all().find(|kind| kind.protocol == protocol && (kind.fits)(header))
    }

    /// Returns the name that users see.
    pub fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }

    /// Returns the field of this name, if this header has it.
    pub fn field(&self, name: &str, header: &[u8]) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name && field.start(header).is_some())
    }

    /// Returns the part of this name.
    pub fn part(&self, name: &str) -> Option<&'static Part> {
        self.parts.iter().find(|part| part.name == name)
    }
}

impl<'a> PartValues<'_, 'a> {
    /// Returns whether a part was given.
    pub fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// Returns the number given for a part.
    pub fn number(&self, name: &str) -> Option<u128> {
        match self.value(name)? {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Returns the bytes given for a part.
    pub fn bytes(&self, name: &str) -> Option<&'a [u8]> {
        match self.value(name)? {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn value(&self, name: &str) -> Option<Value<'a>> {
        self.0.iter().find(|(given, _)| *given == name).map(|(_, value)| *value)
    }
}

impl Field {
    /// Returns its first bit relative to the header; `None` if the header does not have it, or ends before it.
    pub fn start(&self, header: &[u8]) -> Option<usize> {
        let start = (self.base)(header)? * 8 + self.at;
        (start + self.bits as usize <= header.len() * 8).then_some(start)
    }

    /// Returns its value.
    pub fn get(&self, header: &[u8]) -> Option<u128> {
        let start = self.start(header)?;
        let bits = start..start + self.bits as usize;
        Some(bits.fold(0, |value, bit| value << 1 | u128::from(header[bit / 8] >> (7 - bit % 8) & 1)))
    }

    /// Writes the lower bits of a value; `false` if the header does not have this field.
    pub fn set(&self, header: &mut [u8], value: u128) -> bool {
        let Some(start) = self.start(header) else { return false };
        for index in 0..self.bits as usize {
            let (bit, one) = (start + index, 1 << (7 - (start + index) % 8));
            match value >> (self.bits as usize - 1 - index) & 1 {
                0 => header[bit / 8] &= !one,
                _ => header[bit / 8] |= one,
            }
        }
        true
    }

    /// Returns the largest value.
    pub fn most(&self) -> u128 {
        u128::MAX >> (128 - self.bits)
    }
}

/// A field at a bit that is the same in all headers.
const fn field(name: &'static str, at: usize, bits: u32, format: Format) -> Field {
    Field { name, bits, format, own: true, at, base: |_| Some(0) }
}

/// A field that is optional, or at a variable position.
const fn found(name: &'static str, base: fn(&[u8]) -> Option<usize>, at: usize, bits: u32, format: Format) -> Field {
    Field { name, bits, format, own: true, at, base }
}

/// An alias of bits of other fields.
const fn also(field: Field) -> Field {
    Field { own: false, ..field }
}

const fn part(name: &'static str, form: Form) -> Part {
    Part { name, form }
}

fn always(_header: &[u8]) -> bool {
    true
}

/// Returns the bytes after the first `from`.
fn behind(header: &[u8], from: usize) -> Option<&[u8]> {
    header.get(from..).filter(|bytes| !bytes.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::ROWS;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_used_once_and_every_protocol_has_one() {
        let names: Vec<&str> = Kind::all().flat_map(|kind| kind.names).copied().collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        for row in ROWS {
            assert!(Kind::all().any(|kind| kind.protocol == row.protocol), "{}", row.protocol.name());
        }
        for kind in Kind::all() {
            let below = kind.below.split('(').next().unwrap_or_default();
            assert!(below.is_empty() || Kind::named(below).is_some(), "{}", kind.name());
        }
    }

    #[test]
    fn fields_round_trip() {
        for kind in Kind::all() {
            let mut header = [0xa5; 128];
            for field in kind.fields {
                let Some(start) = field.start(&header) else { continue };
                let before = header;
                for value in [0, field.most(), field.most() / 3] {
                    assert!(field.set(&mut header, value));
                    let end = start + field.bits as usize;
                    let other = (0..header.len() * 8).filter(|bit| !(start..end).contains(bit));
                    let changed = other.filter(|bit| (header[bit / 8] ^ before[bit / 8]) >> (7 - bit % 8) & 1 != 0);
                    assert_eq!(changed.count(), 0, "{} {}", kind.name(), field.name);
                    if field.start(&header) == Some(start) {
                        assert_eq!(field.get(&header), Some(value), "{} {}", kind.name(), field.name);
                    }
                }
                header = before;
            }
        }
    }

    proptest! {
        /// Headers truncated anywhere, or empty.
        #[test]
        fn fields_lie_within_headers_of_any_length(header in prop::collection::vec(any::<u8>(), 0..80), value: u128) {
            for kind in Kind::all() {
                (kind.fits)(&header);
                for field in kind.fields {
                    let (start, mut changed) = (field.start(&header), header.clone());
                    prop_assert!(start.is_none_or(|start| start + field.bits as usize <= header.len() * 8));
                    prop_assert_eq!(field.get(&header).is_some(), start.is_some());
                    prop_assert_eq!(field.set(&mut changed, value), start.is_some());
                }
                for part in kind.parts {
                    if let Form::Bytes(find) = part.form {
                        prop_assert!(find(&header).is_none_or(|found| found.len() <= header.len()));
                    }
                }
            }
        }
    }

    #[test]
    fn own_fields_of_a_kind_do_not_overlap() {
        for kind in Kind::all() {
            let Ok(header) = (kind.make)(PartValues(&[])) else { panic!("{} has no usual form", kind.name()) };
            let bytes = crate::build::Frame::new(&[header.as_ref()], &[]).length().unwrap_or(0);
            let mut bytes = vec![0; bytes];
            // Checksums that cover addresses are an error without them, but the header is written.
            let _ = crate::build::Frame::new(&[header.as_ref()], &[]).write(&mut bytes);
            assert!((kind.fits)(&bytes), "{} is not of its own kind", kind.name());
            let mut taken = BTreeSet::new();
            let is_there = |field: &&Field| kind.field(field.name, &bytes).is_some_and(|it| std::ptr::eq(it, *field));
            for field in kind.fields.iter().filter(|field| field.own).filter(is_there) {
                for bit in field.start(&bytes).into_iter().flat_map(|start| start..start + field.bits as usize) {
                    assert!(taken.insert(bit), "{} {} overlaps", kind.name(), field.name);
                }
            }
        }
    }
}
