//! Bounds-checked reading of bytes.

/// Returns `N` bytes at offset `at`.
#[inline]
pub(crate) fn part<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    count();
    bytes.get(at..)?.first_chunk().copied()
}

#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    part(bytes, at).map(u16::from_be_bytes)
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    part(bytes, at).map(u32::from_be_bytes)
}

/// Takes `length` bytes off the front.
pub(crate) fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    count();
    let (front, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(front)
}

/// Counts parsing steps, which tests compare with the length of the frame.
#[inline(always)]
fn count() {
    #[cfg(test)]
    tests::STEPS.set(tests::STEPS.get() + 1);
}

#[cfg(test)]
mod tests {
    use crate::{Frame, Options, Printer};
    use proptest::prelude::*;
    use std::cell::Cell;

    thread_local!(pub static STEPS: Cell<usize> = const { Cell::new(0) });

    /// Maximum steps per byte, and for an empty frame.
    const PER_BYTE: usize = 12;
    const LEAST: usize = 64;

    /// Returns the parsing steps for a datagram between two ports.
    fn steps(port: u16, message: &[u8]) -> usize {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let words = [port, port, (8 + message.len()) as u16, 0];
        packet.extend(words.into_iter().flat_map(u16::to_be_bytes));
        packet.extend(message);
        let length = (packet.len() as u16).to_be_bytes();
        packet[2..4].copy_from_slice(&length);
        STEPS.set(0);
        let frame = Frame { time: 0, interface: "", link: 101, bytes: &packet, wire: packet.len() as u32 };
        Printer::new(Options::default()).line(&frame, &mut Vec::new());
        STEPS.get()
    }

    #[test]
    fn shared_pointer_chains_cost_no_more_than_their_bytes() {
        for (pointers, kind, answers) in [(126, 5, 600u16), (127, 5, 600), (126, 2, 80), (7000, 5, 100)] {
            let mut bytes = vec![0x12, 0x34, 0x81, 0x80, 0, 0];
            bytes.extend((answers + 1).to_be_bytes());
            bytes.extend([0, 0, 0, 0, 0, 0, 16, 0, 1, 0, 0, 0, 60]);
            bytes.extend((1 + pointers as u16 * 2).to_be_bytes());
            let data = bytes.len();
            bytes.push(0);
            let place = |at: usize| (0xc000 | if at == 0 { data } else { data + 2 * at - 1 }) as u16;
            (0..pointers).for_each(|at| bytes.extend(place(at).to_be_bytes()));
            let last = place(pointers).to_be_bytes();
            (0..answers).for_each(|_| bytes.extend([&[0, 0, kind, 0, 1, 0, 0, 0, 60, 0, 2][..], &last].concat()));
            let steps = steps(53, &bytes);
            assert!(steps <= LEAST + PER_BYTE * bytes.len(), "{steps} steps for {} bytes", bytes.len());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn work_is_bounded_by_bytes(
            port in prop::sample::select(vec![53u16, 5353, 67, 123, 500, 4500, 443]),
            head in prop::sample::select(vec![
                &[][..], &[1, 2, 0x81, 0x80, 0, 1, 0xff, 0xff, 0, 0, 0, 0], &[1, 2, 1, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0], &[1, 1, 6, 0],
            ]),
            bytes in prop::collection::vec(prop_oneof![3 => 0u8..4, 1 => any::<u8>(), 2 => Just(0xc0)], 0..3000),
        ) {
            let steps = steps(port, &[head, &bytes].concat());
            prop_assert!(steps <= LEAST + PER_BYTE * (head.len() + bytes.len()), "{} for {}", steps, bytes.len());
        }
    }
}
