//! For any segments, in any order, with any acknowledgements, streams are output in order and each byte once, memory
//! stays within its limits, and all of it is released.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_burst::{Desc, Nanos};
use linerate_headers::Link;
use linerate_transport::follow::{Config, Follow, Output, Overlap, StreamInfo, StreamSummary};
use linerate_transport::stream_memory::StreamId;
use std::collections::HashMap;
use std::ops::Range;

/// Output that checks streams.
#[derive(Default)]
struct CheckedOutput {
    edges: HashMap<StreamId, u64>,
}

impl Output for CheckedOutput {
    fn begin(&mut self, about: &StreamInfo, _: Nanos) {
        assert!(self.edges.insert(about.stream, 0).is_none());
    }

    fn bytes(&mut self, stream: StreamId, offset: u64, bytes: &[u8], now: Nanos) -> bool {
        self.gap(stream, offset..offset + bytes.len() as u64, now);
        true
    }

    fn gap(&mut self, stream: StreamId, gap: Range<u64>, _: Nanos) {
        let edge = self.edges.get_mut(&stream).expect("an open stream");
        assert!(*edge == gap.start && gap.start < gap.end);
        *edge = gap.end;
    }

    fn end(&mut self, summary: &StreamSummary) {
        let edge = self.edges.remove(&summary.about.stream).expect("an open stream");
        assert_eq!(edge, summary.tally.bytes + summary.tally.missing);
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&choice, input)) = input.split_first() else { return };
    let overlap = Overlap::NAMES[usize::from(choice) % Overlap::NAMES.len()].1;
    let (memory, stream_memory) = (4096, 2048);
    let config =
        Config { overlap, memory, stream_memory, connections: 2, checksums: choice & 64 != 0, ..Config::default() };
    let (mut follow, mut out) = (Follow::new(config), CheckedOutput::default());
    let mut time = 1_700_000_000_000_000_000u64;
    for part in input.chunks(12) {
        let at = |place: usize| part.get(place).copied().unwrap_or_default();
        time = time.wrapping_add(u64::from(at(0)) * 30_000_000);
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        if at(1) & 1 != 0 {
            (packet[15], packet[19]) = (2, 1);
        }
        packet.extend([0, at(1) >> 6, 0, 0]);
        packet.extend([at(2), at(3), at(4), at(5)]);
        packet.extend([at(6), at(7), at(8), at(9)]);
        packet.extend([0x50, at(10) & 0x3f, 0xff, 0xff, 0, 0, 0, 0]);
        packet.resize(packet.len() + usize::from(at(11)), at(5));
        let length = packet.len() as u16;
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        let captured = if at(1) & 2 != 0 { packet.len() - packet.len() / 4 } else { packet.len() };
        let desc = Desc { wire: packet.len() as u32, ..Desc::new(Nanos(time), 0, captured as u32) };
        follow.take(Link::RawIp, &desc, &packet[..captured], &mut out);
        assert!(follow.held() <= memory + 1024);
    }
    follow.finish(&mut out);
    assert!(out.edges.is_empty());
    assert_eq!(follow.held(), 0);
});
