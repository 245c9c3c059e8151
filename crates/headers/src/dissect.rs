//! The walk through a frame, from the outermost header inwards.
//!
//! Its time is proportional to the number of headers, for any bytes: each header is read at most twice, look-ahead is
//! bounded, and there are at most [`MAX_LAYERS`](crate::MAX_LAYERS) headers. A label stack, a list of source routes and
//! a chain of GTP extension headers are each (part of) one header, of at most 65,535 bytes.

use crate::layers::{Layer, Layers, Stop};
use crate::registry::Next;
use crate::{Flaw, Link, Malformed, common, lookup};

/// Finds the headers in the first 4 GiB of a frame, and replaces the contents of `layers` by them.
///
/// ```
/// use linerate_headers::{Layers, Link, Number, Protocol, Stop, dissect};
///
/// let mut layers = Layers::new();
/// dissect(Link::Ethernet, &[0xff; 60], &mut layers);
/// assert_eq!(layers.as_slice()[0].protocol, Protocol::Ethernet);
/// assert_eq!(layers.stop(), Stop::Unknown(Number::EtherType(0xffff)));
/// dissect(Link::RawIp, &[0x45; 10], &mut layers);
/// assert_eq!(layers.stop(), Stop::Truncated(Protocol::Ipv4));
/// ```
#[inline]
pub fn dissect(link: Link, frame: &[u8], layers: &mut Layers) {
    let frame = frame.get(..u32::MAX as usize).unwrap_or(frame);
    if link == Link::Ethernet && common::dissect(frame, layers).is_some() {
        return;
    }
    walk(link, frame, layers);
}

/// Dissects any frame, header by header.
pub(crate) fn walk(link: Link, frame: &[u8], layers: &mut Layers) {
    let mut next = link.first(frame);
    let (mut start, mut end) = (0, frame.len());
    let mut count = 0;
    layers.stop = loop {
        let (protocol, guessed) = match next {
            Next::Protocol(protocol) => (protocol, false),
            Next::Guess(protocol) => (protocol, true),
            Next::Number(number) => match lookup::protocol(number) {
                Some(protocol) => (protocol, false),
                None => break Stop::Unknown(number),
            },
            Next::End => break Stop::End,
            Next::Fragment => break Stop::Fragment,
        };
        let Some(layer) = layers.layers.get_mut(count) else { break Stop::TooDeep };
        let step = match (protocol.row().step)(frame.get(start..end).unwrap_or_default()) {
            Ok(step) if step.header > u16::MAX.into() => break Stop::Malformed(protocol, Flaw::TooLong),
            Ok(step) => step,
            Err(_) if guessed => break Stop::End,
            Err(Malformed { flaw: Flaw::Short, .. }) if end == frame.len() => break Stop::Truncated(protocol),
            Err(Malformed { flaw, .. }) => break Stop::Malformed(protocol, flaw),
        };
        *layer = Layer::new(start, step.header, protocol);
        count += 1;
        start += step.header;
        end = start + step.payload;
        next = step.next;
    };
    layers.count = count;
    layers.payload_end = end as u32;
    layers.note_offsets();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::tests::likely_frame;
    use crate::error::STEPS;
    use proptest::prelude::*;

    /// Headers and list entries per byte, and those of an empty frame.
    const PER_BYTE: usize = 2;
    const LEAST: usize = 64;

    fn check(link: Link, frame: &[u8]) {
        STEPS.set(0);
        dissect(link, frame, &mut Layers::new());
        assert!(STEPS.get() <= LEAST + PER_BYTE * frame.len(), "{} steps for {} bytes", STEPS.get(), frame.len());
    }

    #[test]
    fn lists_within_headers_are_walked_once() {
        let behind = |head: &[u8], entry: &[u8]| [head, &entry.repeat(60_000 / entry.len())].concat();
        let ip = |protocol| [&[0x45, 0, 0xff, 0xff, 0, 0, 0, 0, 64, protocol, 0, 0][..], &[10; 8]].concat();
        let udp = [ip(17), [2152u16, 2152, 0xffeb, 0].into_iter().flat_map(u16::to_be_bytes).collect()].concat();
        check(
            Link::RawIp,
            &behind(&[udp, vec![0x34, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 1]].concat(), &[1, 0, 0, 1]),
        );
        check(Link::RawIp, &behind(&[ip(47), vec![0x40, 0, 8, 0, 0, 0, 0, 0]].concat(), &[0, 2, 0, 0]));
        check(Link::RawIp, &behind(&ip(137), &[0, 1, 0, 1]));
        let ip6 = |next| [&[0x60, 0, 0, 0, 0xea, 0x60, next, 64][..], &[1; 32]].concat();
        check(Link::RawIp, &behind(&ip6(43), &[43, 0, 4, 1, 0, 0, 0, 0]));
        check(Link::RawIp, &behind(&[ip6(43), vec![17, 255, 4, 200, 200, 0, 0, 0]].concat(), &[7]));
        check(Link::RawIp, &behind(&ip6(60), &[60, 0, 1, 4, 0, 0, 0, 0]));
        check(Link::Ethernet, &behind(&[0; 12], &[0x81, 0, 0, 1]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn work_is_bounded_by_bytes(frame in prop_oneof![likely_frame(), prop::collection::vec(any::<u8>(), 0..400)]) {
            Link::ALL.into_iter().for_each(|link| check(link, &frame));
        }
    }
}
