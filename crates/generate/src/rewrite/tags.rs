//! The outermost VLAN tag: insertion, removal, change.

use super::rule::Tag;
use linerate_headers::vlan;

/// Offset of the type field in an Ethernet header.
const TYPE: usize = 12;
/// Minimum length of an Ethernet frame, without FCS (IEEE 802.3, clause 3.2.8).
const LEAST: usize = 60;

/// Changes the tag of an Ethernet frame. A frame that would become too short for Ethernet is padded with zeros.
pub(super) fn edit(frame: &mut Vec<u8>, tag: Tag) {
    if let Tag::Push(id, priority) = tag {
        if frame.len() >= TYPE + 2 {
            let [high, low] = (u16::from(priority) << 13 | id).to_be_bytes();
            let [first, second] = vlan::CUSTOMER.to_be_bytes();
            frame.splice(TYPE..TYPE, [first, second, high, low]);
        }
        return;
    }
    let Some(&[a, b, c, d]) = frame.get(TYPE..).and_then(|bytes| bytes.first_chunk()) else { return };
    let is_tagged = [vlan::CUSTOMER, vlan::SERVICE, vlan::OLD_SERVICE].contains(&u16::from_be_bytes([a, b]));
    if !is_tagged || frame.len() < TYPE + vlan::LEN + 2 {
        return;
    }
    let control = u16::from_be_bytes([c, d]);
    let (old, rest) = (control & vlan::MAX_ID, control & !vlan::MAX_ID);
    let control = match tag {
        Tag::Pop => {
            let least = if frame.len() < LEAST { 0 } else { LEAST };
            frame.drain(TYPE..TYPE + vlan::LEN);
            let padded = frame.len().max(least);
            frame.resize(padded, 0);
            return;
        }
        Tag::Id(id) => rest | id,
        Tag::Swap(from, to) if from == old => rest | to,
        Tag::Priority(priority) => control & 0x1fff | u16::from(priority) << 13,
        Tag::Swap(..) | Tag::Push(..) => control,
    };
    frame[TYPE + 2..TYPE + vlan::LEN].copy_from_slice(&control.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(bytes: &[u8], length: usize, tag: Tag) -> Vec<u8> {
        let mut frame = [&[9; TYPE][..], bytes].concat();
        frame.resize(length, 7);
        edit(&mut frame, tag);
        frame.split_off(TYPE)
    }

    #[test]
    fn tags_are_inserted_and_removed() {
        let pushed = edited(&[8, 0, 1], 15, Tag::Push(0x123, 5));
        assert_eq!(pushed, [0x81, 0, 0xa1, 0x23, 8, 0, 1]);
        assert_eq!(edited(&pushed, 19, Tag::Pop), [8, 0, 1]);
        for service in [[0x88, 0xa8], [0x91, 0]] {
            assert_eq!(edited(&[&service[..], &[0, 1, 8, 0]].concat(), 18, Tag::Pop), [8, 0]);
        }
        let long = edited(&[0x81, 0, 0, 1, 8, 0], 62, Tag::Pop);
        assert_eq!((long.len() + TYPE, &long[long.len() - 3..]), (60, &[7, 0, 0][..]), "no frame becomes too short");
        assert_eq!(edited(&[0x81, 0, 0, 1, 8, 0], 70, Tag::Pop).len() + TYPE, 66);
    }

    #[test]
    fn existing_tags_are_changed() {
        let tagged = [0x81, 0, 0xb0, 0x64, 8, 0];
        for (tag, control) in [
            (Tag::Id(7), [0xb0, 7]),
            (Tag::Swap(100, 0xfff), [0xbf, 0xff]),
            (Tag::Swap(101, 7), [0xb0, 0x64]),
            (Tag::Priority(0), [0x10, 0x64]),
        ] {
            assert_eq!(edited(&tagged, 18, tag)[2..4], control, "{tag:?}");
            assert_eq!(edited(&[8, 0, 0xb0, 0x64], 16, tag), [8, 0, 0xb0, 0x64], "{tag:?}");
        }
        for tag in [Tag::Pop, Tag::Id(7), Tag::Priority(1)] {
            assert_eq!(edited(&tagged[..5], 17, tag), tagged[..5], "a truncated tag stays");
        }
    }
}
