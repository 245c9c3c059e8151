//! What is built is dissected into just the headers that it was built from.

mod samples;

use linerate_wire::build::{Frame, Header, Patch, Problem, Unbuilt};
use linerate_wire::*;
use proptest::prelude::*;
use samples::{Sample, can_carry, payload, samples};

/// Puts headers behind each other, each chosen by a number among those that its predecessor can carry.
fn stack<'a>(samples: &'a [Sample], choices: &[prop::sample::Index]) -> (Link, Vec<&'a dyn Header>) {
    let first: Vec<_> = samples.iter().filter_map(|(header, link)| Some((header.as_ref(), (*link)?))).collect();
    let (first, link) = first[choices[0].index(first.len())];
    let mut stack: Vec<&dyn Header> = vec![first];
    for choice in &choices[1..] {
        let last = *stack.last().expect("a first one");
        let able: Vec<_> =
            samples.iter().map(|(header, _)| header.as_ref()).filter(|next| can_carry(last, *next)).collect();
        if able.is_empty() {
            break;
        }
        stack.push(able[choice.index(able.len())]);
    }
    (link, stack)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_built_is_dissected_into_the_same_headers(
        choices in prop::collection::vec(any::<prop::sample::Index>(), 1..MAX_LAYERS),
        padding in 0usize..4,
    ) {
        let samples = samples();
        let (link, headers) = stack(&samples, &choices);
        let payload = payload(headers.last().expect("a last one").protocol());
        let frame = Frame::new(&headers, payload);
        let mut bytes = match frame.to_vec() {
            Ok(bytes) => bytes,
            // Checksums that need addresses, behind LLC that is too long, in tunnels without IP in front.
            Err(error) => panic!("{error}: {:?}", names(&headers)),
        };
        prop_assert_eq!(frame.length(), Ok(bytes.len()));
        bytes.resize(bytes.len() + padding, 0);
        let mut layers = Layers::new();
        dissect(link, &bytes, &mut layers);
        let lengths = (0..=headers.len()).map(|index| Frame::new(&headers[index..], payload).length().unwrap());
        let starts: Vec<usize> = lengths.map(|rest| frame.length().unwrap() - rest).collect();
        let mut expected: Vec<_> = headers
            .iter()
            .zip(starts.windows(2))
            .map(|(header, ends)| (header.protocol(), ends[0] as u32, (ends[1] - ends[0]) as u16))
            .collect();
        // Teredo is known by the packet behind it.
        expected.pop_if(|(protocol, ..)| *protocol == Protocol::Teredo);
        let found: Vec<_> = layers.as_slice().iter().map(|layer| (layer.protocol, layer.offset, layer.length)).collect();
        prop_assert_eq!(found, expected, "{}", layers.stop());
    }
}

fn names(headers: &[&dyn Header]) -> Vec<&'static str> {
    headers.iter().map(|header| header.protocol().name()).collect()
}
