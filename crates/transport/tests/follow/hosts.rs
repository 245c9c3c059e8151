//! Two hosts that send segments, an observer, and the streams it outputs.

use linerate_burst::{Desc, Nanos};
use linerate_headers::{Link, Pseudo, ipv4, registry, tcp};
use linerate_transport::follow::{Config, Follow, FollowOutcome, Output, StreamInfo, StreamSummary};
use linerate_transport::stream_memory::StreamId;
use std::collections::BTreeMap;
use std::ops::Range;

pub(super) const SYN: u16 = 2;
pub(super) const FIN: u16 = 1;
pub(super) const RST: u16 = 4;
pub(super) const ACK: u16 = 16;

/// A segment, from client to server unless it is an answer.
#[derive(Clone, Debug, Default)]
pub(super) struct TestSegment {
    pub is_answer: bool,
    pub port: u16,
    pub seq: u32,
    pub ack: Option<u32>,
    pub flags: u16,
    pub data: Vec<u8>,
    /// Bytes at the end of the frame that are not captured.
    pub cut: usize,
    pub has_wrong_checksum: bool,
}

pub(super) fn sent(seq: u32, flags: u16, data: &[u8]) -> TestSegment {
    TestSegment { port: 1000, seq, flags, data: data.to_vec(), ..TestSegment::default() }
}

pub(super) fn answer(seq: u32, ack: u32, flags: u16, data: &[u8]) -> TestSegment {
    TestSegment { is_answer: true, ack: Some(ack), ..sent(seq, flags | ACK, data) }
}

impl TestSegment {
    /// Encodes it as an IPv4 packet.
    pub(super) fn packet(&self) -> Vec<u8> {
        let (client, server) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let (source, destination) = if self.is_answer { (server, client) } else { (client, server) };
        let (source_port, destination_port) = if self.is_answer { (80, self.port) } else { (self.port, 80) };
        let flags = self.flags | if self.ack.is_some() { ACK } else { 0 };
        let header = tcp::Header {
            source_port,
            destination_port,
            sequence: self.seq,
            acknowledgement: self.ack.unwrap_or(0),
            flags: tcp::Flags(flags),
            window: 0xffff,
            ..tcp::Header::default()
        };
        let mut segment = vec![0; tcp::LEN + self.data.len()];
        header.emit(&mut segment).unwrap();
        segment[tcp::LEN..].copy_from_slice(&self.data);
        tcp::fill_checksum(&mut segment, &Pseudo::V4 { source, destination }).unwrap();
        if self.has_wrong_checksum {
            segment[16] ^= 0x55;
        }
        let mut packet = vec![0; ipv4::LEN];
        let ip = ipv4::Header { source, destination, ..ipv4::Header::new(registry::TCP) };
        ip.emit(segment.len(), &mut packet).unwrap();
        packet.extend(segment);
        packet
    }
}

/// A stream as output.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    pub bytes: Vec<(u64, Vec<u8>)>,
    pub gaps: Vec<Range<u64>>,
    /// Bytes output so far.
    pub edge: u64,
    pub summary: Option<StreamSummary>,
}

impl Stream {
    /// Returns all bytes, with zeros for missing ones.
    pub(super) fn whole(&self) -> Vec<u8> {
        let mut all = vec![0; self.edge as usize];
        for (at, bytes) in &self.bytes {
            all[*at as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        all
    }

    pub(super) fn summary(&self) -> &StreamSummary {
        self.summary.as_ref().expect("it is over")
    }
}

/// Collects streams, and checks that they arrive in order.
#[derive(Default)]
pub(super) struct StreamCollector {
    pub streams: BTreeMap<StreamId, (StreamInfo, Stream)>,
}

impl StreamCollector {
    fn stream(&mut self, stream: StreamId) -> &mut Stream {
        let stream = &mut self.streams.get_mut(&stream).expect("it has begun").1;
        assert!(stream.summary.is_none(), "it is over");
        stream
    }
}

impl Output for StreamCollector {
    fn begin(&mut self, about: &StreamInfo, _: Nanos) {
        assert!(self.streams.insert(about.stream, (*about, Stream::default())).is_none());
    }

    fn bytes(&mut self, stream: StreamId, offset: u64, bytes: &[u8], _: Nanos) -> bool {
        let stream = self.stream(stream);
        assert_eq!(stream.edge, offset, "in order");
        assert!(!bytes.is_empty());
        stream.edge += bytes.len() as u64;
        stream.bytes.push((offset, bytes.to_vec()));
        true
    }

    fn gap(&mut self, stream: StreamId, gap: Range<u64>, _: Nanos) {
        let stream = self.stream(stream);
        assert_eq!(stream.edge, gap.start, "in order");
        assert!(!gap.is_empty());
        stream.edge = gap.end;
        stream.gaps.push(gap);
    }

    fn end(&mut self, summary: &StreamSummary) {
        let stream = self.stream(summary.about.stream);
        let bytes: u64 = stream.bytes.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        assert_eq!((summary.tally.bytes, summary.tally.gaps), (bytes, stream.gaps.len() as u64));
        if summary.tally.unlisted == 0 {
            assert_eq!(summary.gaps, stream.gaps);
        }
        stream.summary = Some(summary.clone());
    }
}

/// An observer.
pub(super) struct Watcher {
    pub follow: Follow,
    pub out: StreamCollector,
    /// In milliseconds.
    pub time: u64,
}

impl Watcher {
    pub(super) fn new(config: Config) -> Self {
        Watcher { follow: Follow::new(config), out: StreamCollector::default(), time: 1_000_000 }
    }

    /// Observes a segment, one millisecond later.
    pub(super) fn observe(&mut self, sent: &TestSegment) -> FollowOutcome {
        let packet = sent.packet();
        let captured = &packet[..packet.len() - sent.cut];
        self.observe_frame(captured, packet.len())
    }

    pub(super) fn observe_frame(&mut self, captured: &[u8], wire: usize) -> FollowOutcome {
        self.time += 1;
        let time = Nanos(self.time * 1_000_000);
        let desc = Desc { wire: wire as u32, ..Desc::new(time, 0, captured.len() as u32) };
        self.follow.take(Link::RawIp, &desc, captured, &mut self.out)
    }

    /// Finishes; returns all streams, in the order in which they started.
    pub(super) fn done(mut self) -> Vec<Stream> {
        self.follow.finish(&mut self.out);
        let streams: Vec<Stream> = self.out.streams.into_values().map(|(_, stream)| stream).collect();
        let bytes: u64 = streams.iter().map(|stream| stream.summary().tally.bytes).sum();
        assert_eq!(self.follow.counts().tally.bytes, bytes);
        assert_eq!(self.follow.held(), 0, "all memory is given back");
        streams
    }
}

/// Returns the streams of these segments.
pub(super) fn followed(config: Config, segments: &[TestSegment]) -> Vec<Stream> {
    let mut watcher = Watcher::new(config);
    for sent in segments {
        watcher.observe(sent);
    }
    watcher.done()
}
