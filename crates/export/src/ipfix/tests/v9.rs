//! NetFlow v9 and its 32-bit clock.

use super::super::{Packer, Profile, Version};
use super::{NOW, collected};
use linerate_burst::Nanos;
use linerate_meter::Flow;

/// A collector that reads only the clock gets the right time or none.
#[test]
fn netflow_v9_omits_times_that_its_clock_cannot_express() {
    const DAY: u64 = 86_400_000_000_000;
    let profile = Profile { version: Version::V9, ..Profile::default() };
    for (first, last, is_told) in [
        (NOW.0 - DAY / 2, NOW.0, true),
        (NOW.0, NOW.0 + 1_000_000, true),
        (NOW.0 - 2 * DAY, NOW.0, false),
        (NOW.0 - 60 * DAY, NOW.0, false),
        (NOW.0 - 400 * DAY, NOW.0 - 400 * DAY, false),
        (NOW.0, NOW.0 + 30 * DAY, false),
        (NOW.0 + 400 * DAY, NOW.0 + 400 * DAY, false),
        (1_000_000_000, 2_000_000_000, false),
    ] {
        let mut one = crate::tests::flow();
        one.sides.iter_mut().for_each(|side| (side.first, side.last) = (Nanos(first), Nanos(last)));
        let (mut packer, mut messages) = (Packer::new(profile), Vec::new());
        packer.pack(&[&one], NOW, &mut messages);
        assert_eq!(packer.absolute, u64::from(!is_told), "{first} {last}");
        let fields = messages[0].bytes[28..].chunks_exact(4).map(|field| u16::from_be_bytes([field[0], field[1]]));
        let fields: Vec<u16> = fields.collect();
        assert_eq!([21, 22].map(|element| fields.contains(&element)), [is_told; 2], "{fields:?}");
        let millis = |time: u64| Nanos(time / 1_000_000 * 1_000_000);
        let is_right = |flow: &Flow| (flow.first(), flow.last()) == (millis(first), millis(last));
        assert!(collected(&messages).0.iter().all(is_right), "{first} {last}");
        // Replaces 152 and 153 by elements that are not read.
        for (place, _) in fields.iter().enumerate().filter(|(_, element)| matches!(element, 152 | 153)) {
            messages[0].bytes[28 + 4 * place] = 0x7f;
        }
        assert!(!is_told || collected(&messages).0.iter().all(is_right), "{first} {last} by the clock");
    }
}
