//! Frames that carry their sender and number, and the check that each arrived once, complete and in order.

use crate::conformance::wire::Got;
use linerate_burst::Nanos;
use std::collections::HashMap;

/// Destination of all test frames: an unused address that separates them from frames of the kernel.
const DESTINATION: [u8; 6] = [0x02, 0x4c, 0x52, 0, 0, 1];
/// EtherType for local experiments (IEEE 802).
const EXPERIMENT: u16 = 0x88b5;

/// TPIDs of 802.1Q and 802.1ad tags.
pub(super) const CUSTOMER: u16 = 0x8100;
pub(super) const SERVICE: u16 = 0x88a8;

/// Frame to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub time: Nanos,
    pub bytes: Vec<u8>,
}

/// Returns a frame of `length` bytes (14 or more). Its source address has sender and number, so that the shortest frame
/// has them; the payload is derived from both and the offset.
pub(super) fn frame(sender: u8, number: u32, length: usize) -> Frame {
    tagged(sender, number, length, &[])
}

/// Returns a frame with VLAN tags (TPID, TCI), outermost first; `length` includes them.
pub(super) fn tagged(sender: u8, number: u32, length: usize, tags: &[(u16, u16)]) -> Frame {
    let mut bytes = DESTINATION.to_vec();
    bytes.extend([0x02, sender]);
    bytes.extend(number.to_be_bytes());
    for (tpid, tci) in tags {
        bytes.extend(tpid.to_be_bytes());
        bytes.extend(tci.to_be_bytes());
    }
    bytes.extend(EXPERIMENT.to_be_bytes());
    assert!(bytes.len() <= length, "{length} bytes are too few for the headers");
    let seed = number.wrapping_mul(0x9e37_79b9) ^ u32::from(sender) << 24;
    bytes.extend((bytes.len()..length).map(|at| (seed.wrapping_add(at as u32 * 0x0101) >> 7) as u8 ^ at as u8));
    // Timestamps of several senders interleave, one microsecond apart, and are unique.
    let time = Nanos::from_parts(1_700_000_000, 0).0 + u64::from(number) * 1000 + u64::from(sender);
    Frame { time: Nanos(time), bytes }
}

/// Returns `count` frames of one sender, of these lengths in turn.
pub(super) fn frames(sender: u8, count: u32, lengths: &[usize]) -> Vec<Frame> {
    (0..count).map(|number| frame(sender, number, lengths[number as usize % lengths.len()])).collect()
}

/// Returns sender and number of a test frame; `None` for other frames.
pub(super) fn origin(frame: &[u8]) -> Option<(u8, u32)> {
    let (destination, source) = frame.get(..12)?.split_at(6);
    let number = source[2..].try_into().ok().map(u32::from_be_bytes)?;
    (destination == DESTINATION && source[0] == 0x02).then_some((source[1], number))
}

/// Checks that each frame sent arrived once, with its bytes and lengths and in order per sender, and no other frame.
pub(super) fn assert_all_arrived(name: &str, sent: &[Vec<Frame>], got: &[Got]) {
    let mut missing: HashMap<(u8, u32), &Frame> =
        sent.iter().flatten().map(|frame| (origin(&frame.bytes).expect("a test frame"), frame)).collect();
    let mut last: HashMap<u8, u32> = HashMap::new();
    for (index, received) in got.iter().enumerate() {
        let Some((sender, number)) = origin(&received.bytes) else {
            panic!("{name}: an unknown frame arrived: {:02x?}", &received.bytes[..received.bytes.len().min(64)]);
        };
        let frame = missing.remove(&(sender, number));
        let frame = frame.unwrap_or_else(|| panic!("{name}: frame {number} of sender {sender} arrived twice"));
        let length = frame.bytes.len();
        assert!(received.bytes == frame.bytes, "{name}: frame {number} of {length} bytes arrived with other bytes");
        let lengths = (received.desc.captured as usize, received.desc.wire as usize);
        assert_eq!(lengths, (length, length), "{name}: captured and wire length of frame {number}");
        if let Some(before) = last.insert(sender, number) {
            assert!(before < number, "{name}: {index}: frame {number} of sender {sender} arrived after {before}");
        }
    }
    let first = missing.keys().min();
    assert!(missing.is_empty(), "{name}: {} frames did not arrive, the first is {first:?}", missing.len());
}
