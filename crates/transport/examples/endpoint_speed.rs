//! Segments per second that the endpoint processes on one core, from memory, with a place that does nothing.
//!
//! `cargo run --release -p linerate-receive --example endpoint_speed`
//!
//! Segments of one connection are contiguous in memory, 64 per burst. In the lossy case one of a hundred arrives 50
//! segments later, like a retransmission, and one of a hundred three places late. Each figure is the median of the
//! rounds, with the slowest and the fastest.

use linerate_burst::block::RECORD_HEADER;
use linerate_burst::{Account, Block, Count, Desc, Ledger, Nanos, Stage, TAIL};
use linerate_headers::tcp::Flags;
use linerate_headers::{Link, MacAddr, Pseudo, ethernet, ipv4, registry, tcp};
use linerate_transport::stream_memory::{Ending, Ends, Payload, Place, StreamId};
use linerate_transport::tcp::{Arrival, Checksum, Config, Endpoint, Local};
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Instant;

const PAYLOAD: usize = 1460;
const BURST: usize = 64;
/// Prefetch distance in frames, as in the receive loop.
const AHEAD: usize = 8;
const FROM: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const TO: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const ISN: u32 = 0xfff0_0000;

/// Accepts everything and stores nothing.
struct Nowhere(u64);

impl Place for Nowhere {
    fn begin(&mut self, _: StreamId, _: &Ends, _: Nanos) -> bool {
        true
    }
    fn room(&self, _: StreamId) -> u64 {
        u64::MAX >> 1
    }
    fn place(&mut self, _: StreamId, offset: u64, payload: Payload<'_>, _: Nanos) {
        self.0 = self.0.wrapping_add(offset ^ payload.len() as u64);
    }
    fn advance(&mut self, _: StreamId, edge: u64, _: Nanos) {
        self.0 ^= edge;
    }
    fn end(&mut self, _: StreamId, _: Ending, _: Nanos) {}
}

fn frame(flags: Flags, seq: u32, ack: u32, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 14 + 20 + 20 + options.len() + payload.len()];
    let link = ethernet::Header {
        destination: MacAddr([2, 0, 0, 0, 0, 1]),
        source: MacAddr([2, 0, 0, 0, 0, 2]),
        ether_type: ethernet::IPV4,
    };
    let network = ipv4::Header { source: FROM, destination: TO, ..ipv4::Header::new(registry::TCP) };
    let options = linerate_headers::options::Options::new(options).unwrap_or_default();
    let head = tcp::Header {
        source_port: 40000,
        destination_port: 5001,
        sequence: seq,
        acknowledgement: ack,
        flags,
        window: 512,
        urgent: 0,
        options,
    };
    let length = frame.len();
    let built = link
        .emit(&mut frame)
        .and_then(|_| network.emit(length - 34, &mut frame[14..]))
        .and_then(|_| head.emit(&mut frame[34..]))
        .and_then(|at| {
            frame[34 + at..].copy_from_slice(payload);
            tcp::fill_checksum(&mut frame[34..], &Pseudo::V4 { source: FROM, destination: TO })
        });
    built.expect("a frame that fits");
    frame
}

/// Returns the order in which segments arrive.
fn order(count: usize, is_lossy: bool) -> Vec<usize> {
    let place = |at: usize| match at % 100 {
        7 if is_lossy => 2 * at + 101,
        53 if is_lossy => 2 * at + 7,
        _ => 2 * at,
    };
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|at| place(*at));
    order
}

fn round(order: &[usize], checksum: Checksum) -> f64 {
    let config =
        Config { listen: vec![Local { ip: TO.into(), ports: 5001..=5001 }], secret: [1, 2], ..Config::default() };
    let mut endpoint = Endpoint::new(config).expect("a valid configuration");
    let mut place = Nowhere(0);
    let now = Nanos(1_700_000_000_000_000_000);
    let offer = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 1, 3, 3, 7];
    let receive = |endpoint: &mut Endpoint, place: &mut Nowhere, frame: &[u8], checksum| {
        let arrival = Arrival { headers: frame, rest: 0, link: Link::Ethernet, checksum, now };
        black_box(endpoint.receive(&arrival, place));
    };
    receive(&mut endpoint, &mut place, &frame(Flags::SYN, ISN, 0, &offer, &[]), Checksum::Verify);
    let answer = endpoint.frames().frame(0);
    let peer = u32::from_be_bytes([answer[38], answer[39], answer[40], answer[41]]).wrapping_add(1);
    endpoint.clear(0);
    let stamps = [1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0];
    receive(&mut endpoint, &mut place, &frame(Flags::ACK, ISN.wrapping_add(1), peer, &stamps, &[]), Checksum::Verify);

    let payload = [0x5a; PAYLOAD];
    let frames: Vec<Vec<u8>> = (0..order.len())
        .map(|at| frame(Flags::ACK, ISN.wrapping_add(1 + (at * PAYLOAD) as u32), peer, &stamps, &payload))
        .collect();
    let mut block = Block::new(order.len() * (frames[0].len() + RECORD_HEADER) + TAIL, order.len());
    for at in order {
        assert!(block.push(&Desc::new(now, 0, 0), &frames[*at]));
    }
    drop(frames);
    let start = Instant::now();
    for first in (0..order.len()).step_by(BURST) {
        let burst = block.burst().slice(first..order.len().min(first + BURST));
        for index in 0..burst.len() {
            burst.prefetch((index + AHEAD).min(burst.len() - 1));
            receive(&mut endpoint, &mut place, burst.frame(index), checksum);
        }
        endpoint.burst_end(false, now, &mut place);
        black_box(endpoint.frames().len());
        endpoint.clear(0);
    }
    let rate = order.len() as f64 / start.elapsed().as_secs_f64() / 1e6;
    black_box(place.0);
    let mut ledger = Ledger::new();
    let account: &mut Account = ledger.account(Stage::Tcp, "");
    endpoint.counters(account);
    assert_eq!(account.get(Count::TcpBytes), (order.len() * PAYLOAD) as u64, "{account:?}");
    assert_eq!(account.unaccounted(), 0);
    rate
}

fn measure(name: &str, order: &[usize], checksum: Checksum, rounds: usize) {
    let mut rates: Vec<f64> = (0..rounds).map(|_| round(order, checksum)).collect();
    rates.sort_by(f64::total_cmp);
    let (median, slowest, fastest) = (rates[rounds / 2], rates[0], rates[rounds - 1]);
    println!("{name}: {median:.1} M segments/s (min {slowest:.1}, max {fastest:.1})");
}

/// Runs all cases, with this many segments per round.
pub(crate) fn run(segments: usize, rounds: usize) {
    for (how, is_lossy) in [("in order", false), ("1 % lost, 1 % reordered", true)] {
        let order = order(segments, is_lossy);
        measure(&format!("{how}, checksums trusted"), &order, Checksum::Trusted, rounds);
        measure(&format!("{how}, checksums verified"), &order, Checksum::Verify, rounds);
    }
}

#[allow(dead_code)]
fn main() {
    run(30_000, 31);
}
