//! The table of interfaces in the arena: entries are written once, then counted.

use crate::layout::{INTERFACES, InterfaceEntry, interface};
use crate::mapping::Mapping;
use linerate_burst::{Interface, LinkType, StampSource};
use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;

/// Stamp sources, indexed by their number in the table.
const STAMPS: [StampSource; 5] =
    [StampSource::Hardware, StampSource::Kernel, StampSource::Xdp, StampSource::User, StampSource::File];

/// Writes an entry that is not counted yet. Text that is too long is truncated at a character.
pub(crate) fn write(mapping: &Mapping, index: u32, of: &Interface) {
    assert!(index < INTERFACES);
    let base = interface(index);
    let word = |at, value| mapping.word(base + at).store(value, Relaxed);
    let stamp = STAMPS.iter().position(|stamp| *stamp == of.stamp).unwrap_or_default();
    word(offset_of!(InterfaceEntry, link), u32::from(of.link.0));
    word(offset_of!(InterfaceEntry, stamp), stamp as u32);
    word(offset_of!(InterfaceEntry, snap), of.snap);
    let text = |at, length_at, text: &str, room| {
        let text = &text[..text.floor_char_boundary(room)];
        mapping.store_bytes(base + at, text.as_bytes());
        word(length_at, text.len() as u32);
    };
    text(offset_of!(InterfaceEntry, name), offset_of!(InterfaceEntry, name_bytes), &of.name, NAME);
    let (at, length_at) = (offset_of!(InterfaceEntry, description), offset_of!(InterfaceEntry, description_bytes));
    text(at, length_at, &of.description, DESCRIPTION);
}

/// Reads an entry, whatever it holds; its texts are safe to show.
pub(crate) fn read(mapping: &Mapping, index: u32) -> Interface {
    assert!(index < INTERFACES);
    let base = interface(index);
    let word = |at| mapping.load_word(base + at, Relaxed);
    let text = |at, length_at, room: usize| {
        let mut bytes = vec![0; room.min(word(length_at) as usize)];
        mapping.load_bytes(base + at, &mut bytes);
        crate::handshake::text(&bytes, bytes.len() as u32)
    };
    let (at, length_at) = (offset_of!(InterfaceEntry, description), offset_of!(InterfaceEntry, description_bytes));
    Interface {
        name: text(offset_of!(InterfaceEntry, name), offset_of!(InterfaceEntry, name_bytes), NAME),
        description: text(at, length_at, DESCRIPTION),
        link: LinkType(word(offset_of!(InterfaceEntry, link)) as u16),
        snap: word(offset_of!(InterfaceEntry, snap)),
        // An unknown number comes from a later version: report the source as unknown.
        stamp: STAMPS.get(word(offset_of!(InterfaceEntry, stamp)) as usize).copied().unwrap_or(StampSource::File),
        origin: None,
    }
}

const NAME: usize = offset_of!(InterfaceEntry, description) - offset_of!(InterfaceEntry, name);
const DESCRIPTION: usize = size_of::<InterfaceEntry>() - offset_of!(InterfaceEntry, description);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Shape;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::AsFd;

    #[test]
    fn names_of_a_foreign_writer_are_escaped() {
        let memory = memfd_create("interfaces", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&memory, Shape::SLOTS as u64).unwrap();
        let mapping = Mapping::new(memory.as_fd(), Shape::SLOTS, true).unwrap();
        let named = Interface {
            description: "\u{202e}card\nof\x07 mine".into(),
            ..Interface::new("eth\x1b[2J0\u{85}", LinkType::ETHERNET, StampSource::Kernel)
        };
        write(&mapping, 3, &named);
        let read = read(&mapping, 3);
        assert_eq!((read.name.as_str(), read.description.as_str()), ("eth?[2J0?", "?card?of? mine"));
    }
}
