//! Segments of one connection in blocks of memory, as a port would leave them there.

use anyhow::{Context, ensure};
use linerate_burst::Nanos;
use linerate_burst::pool::OwnedBytes;
use linerate_headers::build::Frame;
use linerate_headers::options::Options;
use linerate_headers::tcp::Flags;
use linerate_headers::{Link, MacAddr, ethernet, ipv4, registry, tcp};
use linerate_transport::pattern::Pattern;
use linerate_transport::stream_memory::Place;
use linerate_transport::tcp::{Arrival, Checksum, Config, Endpoint, Local, ReceiveOutcome};
use std::net::Ipv4Addr;
use std::ops::Range;

const FROM: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const TO: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PORT: u16 = 5001;
const ISN: u32 = 0xfff0_0000;
/// Ethernet, IPv4, and TCP with timestamps.
const HEADERS: usize = 14 + 20 + 32;
/// Offset of the sequence number.
const SEQUENCE: Range<usize> = 38..42;
/// Bytes of a ring before each packet.
const RECORD: usize = 32;
const SYN_OPTIONS: [u8; 20] = [2, 4, 31, 64, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 1, 3, 3, 11];
const STAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0];
/// Any time: no time passes for connections.
const NOW: Nanos = Nanos(1_700_000_000_000_000_000);
/// Segments per burst, after which acknowledgements are made, and segments that are prefetched.
const BURST: usize = 64;
const AHEAD: usize = 8;

/// A connection, and how its segments lie in blocks.
pub(super) struct Connection {
    endpoint: Endpoint,
    /// The number that the peer acknowledges.
    peer: u32,
    /// Payload of a segment.
    pub segment: usize,
    /// From one frame to the next.
    step: usize,
    /// In which order they lie.
    order: Vec<usize>,
    /// Offset of the next segment in the stream.
    next: u64,
}

impl Connection {
    /// Opens a connection with segments of this length in blocks of this length; `is_scattered`: a buffer per segment, of a power of two
    /// bytes, in any order.
    pub(super) fn open(
        place: &mut impl Place,
        segment: usize,
        block: usize,
        is_scattered: bool,
    ) -> anyhow::Result<Connection> {
        let mut endpoint = Endpoint::new(Config {
            listen: vec![Local { ip: TO.into(), ports: PORT..=PORT }],
            mtu: (segment + 52) as u32,
            secret: [1, 2],
            ..Config::default()
        })?;
        let mut receive = |frame: &[u8]| {
            let arrival =
                Arrival { headers: frame, rest: 0, link: Link::Ethernet, checksum: Checksum::Trusted, now: NOW };
            endpoint.receive(&arrival, place)
        };
        receive(&frame(Flags::SYN, ISN, 0, &SYN_OPTIONS, 0)?);
        let answers = endpoint.frames();
        ensure!(!answers.is_empty(), "the endpoint does not answer");
        let answer = answers.frame(0)[SEQUENCE].first_chunk::<4>().context("an answer without a number")?;
        let peer = u32::from_be_bytes(*answer).wrapping_add(1);
        endpoint.clear(0);
        let mut connection = Connection { endpoint, peer, segment, step: 0, order: Vec::new(), next: 0 };
        connection.receive(&frame(Flags::ACK, ISN.wrapping_add(1), peer, &STAMPS, 0)?, place);
        connection.endpoint.clear(0);
        let whole = HEADERS + segment;
        connection.step = if is_scattered { whole.next_power_of_two() } else { (RECORD + whole).next_multiple_of(16) };
        let count = block / connection.step;
        ensure!(count > 0, "no segment of {segment} bytes in a block of {block}");
        connection.order = (0..count).collect();
        if is_scattered {
            // Far from each other, as buffers of a pool are after a while.
            let far = (count / 2..count).find(|step| gcd(*step, count) == 1).unwrap_or(1);
            connection.order.iter_mut().for_each(|at| *at = *at * far % count);
        }
        Ok(connection)
    }

    /// Writes frames into a block, for the first time.
    pub(super) fn fill(&self, block: &mut OwnedBytes) -> anyhow::Result<()> {
        let whole = frame(Flags::ACK, 0, self.peer, &STAMPS, self.segment)?;
        for at in &self.order {
            let start = at * self.step + self.step - whole.len();
            block.bytes_mut()[start..start + whole.len()].copy_from_slice(&whole);
        }
        Ok(())
    }

    /// Numbers `count` segments of a block as the next of the stream, and fills their payload if a pattern is given.
    pub(super) fn number(&self, block: &mut OwnedBytes, count: usize, pattern: Option<&Pattern>) {
        let whole = HEADERS + self.segment;
        let memory = block.bytes_mut();
        let mut offset = self.next;
        for at in self.order.iter().take(count) {
            let start = at * self.step + self.step - whole;
            let frame = &mut memory[start..start + whole];
            let number = ISN.wrapping_add(1).wrapping_add(offset as u32);
            frame[SEQUENCE].copy_from_slice(&number.to_be_bytes());
            pattern.into_iter().for_each(|pattern| pattern.fill(offset, &mut frame[HEADERS..]));
            offset += self.segment as u64;
        }
    }

    /// Receives `count` segments of a block, and acknowledges them.
    pub(super) fn take(&mut self, block: &[u8], count: usize, place: &mut impl Place) -> anyhow::Result<()> {
        let whole = HEADERS + self.segment;
        let count = count.min(self.order.len());
        let start = |at: usize| at * self.step + self.step - whole;
        let starts: Vec<usize> = self.order[..count].iter().map(|at| start(*at)).collect();
        for burst in starts.chunks(BURST) {
            for (index, start) in burst.iter().enumerate() {
                if let Some(ahead) = burst.get(index + AHEAD) {
                    // Headers lie over two lines.
                    linerate_burst::prefetch(&block[*ahead]);
                    linerate_burst::prefetch(&block[*ahead + HEADERS - 1]);
                }
                let outcome = self.receive(&block[*start..*start + whole], place);
                ensure!(outcome == ReceiveOutcome::Taken, "a segment was not taken: {outcome:?}");
            }
            self.settle(place);
        }
        self.next += (count * self.segment) as u64;
        Ok(())
    }

    /// Acknowledges; windows open after frames were returned.
    pub(super) fn settle(&mut self, place: &mut impl Place) {
        self.endpoint.burst_end(false, NOW, place);
        self.endpoint.clear(0);
    }

    /// Returns the number of segments of a block.
    pub(super) fn in_block(&self) -> usize {
        self.order.len()
    }

    /// Returns the bytes of a block that this number of segments uses.
    pub(super) fn used(&self, count: usize) -> usize {
        count.min(self.order.len()) * self.step
    }

    fn receive(&mut self, frame: &[u8], place: &mut impl Place) -> ReceiveOutcome {
        let arrival = Arrival { headers: frame, rest: 0, link: Link::Ethernet, checksum: Checksum::Trusted, now: NOW };
        self.endpoint.receive(&arrival, place)
    }
}

fn gcd(one: usize, other: usize) -> usize {
    if other == 0 { one } else { gcd(other, one % other) }
}

fn frame(flags: Flags, sequence: u32, acknowledgement: u32, options: &[u8], payload: usize) -> anyhow::Result<Vec<u8>> {
    let (destination, source) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
    let link = ethernet::Header { destination, source, ether_type: ethernet::IPV4 };
    let network = ipv4::Header { source: FROM, destination: TO, ..ipv4::Header::new(registry::TCP) };
    let transport = tcp::Header {
        source_port: 40_000,
        destination_port: PORT,
        sequence,
        acknowledgement,
        flags,
        window: 512,
        urgent: 0,
        options: Options::new(options).unwrap_or_default(),
    };
    Ok(Frame::new(&[&link, &network, &transport], &vec![0; payload]).to_vec()?)
}
