//! Any bytes are IPFIX and NetFlow v9 messages that no collector fails on; its flows are encoded in every format, and
//! exported messages of them have the same counts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_burst::Nanos;
use linerate_export::encode;
use linerate_export::ipfix::{Collector, ENTERPRISE, Limits, Packer, Profile, Session, Version};
use linerate_meter::Flow;
use std::sync::LazyLock;

/// Template, so that input bytes soon become records.
static TEMPLATES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut bytes = vec![0, 2, 0, 52, 1, 0, 0, 11];
    for (element, length) in
        [(8, 4), (12, 4), (7, 2), (11, 2), (4, 1), (1, 8), (2, 8), (152, 8), (153, 8), (136, 1), (32, 2)]
    {
        bytes.extend([u16::to_be_bytes(element), u16::to_be_bytes(length)].concat());
    }
    bytes
});

fuzz_target!(|bytes: &[u8]| {
    let Some((bytes, &[choice])) = bytes.split_last_chunk::<1>() else { return };
    let mut collector = Collector::new(Limits { fields: 200, of_host: 150, of_session: 100 }, ENTERPRISE);
    let mut flows: Vec<Flow> = Vec::new();
    let mut sets = match choice & 1 {
        0 => Vec::new(),
        _ => TEMPLATES.clone(),
    };
    sets.extend_from_slice(bytes);
    let length = (sets.len() + 16) as u16;
    let wrapped = [&[0, 10], &length.to_be_bytes()[..], &[0x65, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], &sets].concat();
    let session = match choice & 2 {
        0 => Session::Datagrams(([10, 0, 0, choice >> 6], 1).into()),
        _ => Session::File(u64::from(choice >> 6)),
    };
    for message in [bytes, &wrapped] {
        collector.take(session, message, &mut |flow| flows.push(flow.clone()));
    }
    let found = collector.found();
    assert_eq!((found.records, found.messages), (flows.len() as u64, 2));
    assert!(found.malformed <= 4);
    for form in ["jsonl", "csv", "zeek", "zeek-tsv", "ipfix"] {
        encode(form, &flows, Box::new(std::io::sink())).unwrap();
    }
    export_and_collect(&flows, choice);
});

/// Checks that exported flows have the same counts.
fn export_and_collect(flows: &[Flow], choice: u8) {
    let profile = Profile {
        version: if choice & 4 != 0 { Version::V9 } else { Version::Ipfix },
        biflow: choice & 12 == 8,
        full: choice & 20 == 16,
        ..Profile::default()
    };
    let (mut packer, mut messages) = (Packer::new(profile), Vec::new());
    packer.pack(&flows.iter().collect::<Vec<_>>(), Nanos(1_700_000_000_000_000_000), &mut messages);
    let mut collector = Collector::new(Limits::default(), ENTERPRISE);
    let mut sums = [0_u64; 2];
    for message in &messages {
        assert!(message.bytes.len() <= profile.most);
        collector.take(Session::File(1), &message.bytes, &mut |flow| add(&mut sums, flow));
    }
    let found = collector.found();
    assert_eq!((found.malformed, found.unknown), (0, 0));
    let mut expected = [0; 2];
    flows.iter().for_each(|flow| add(&mut expected, flow));
    assert_eq!(sums, expected);
}

fn add(sums: &mut [u64; 2], flow: &Flow) {
    for side in &flow.sides {
        sums[0] = sums[0].wrapping_add(side.packets);
        // A direction without packets is not exported.
        sums[1] = sums[1].wrapping_add(if side.packets > 0 { side.packet_bytes } else { 0 });
    }
}
