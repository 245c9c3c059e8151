//! Segments of many connections, in no order, whose sequence numbers go on as they should.

use linerate_burst::random::next as random;
use linerate_burst::{Block, Desc, Nanos};
use linerate_wire::{MacAddr, ethernet, ipv4, registry, tcp};

/// How the addresses and ports of flows differ.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pattern {
    /// Any addresses and ports.
    Random,
    /// So many sources by so many destinations, the same ports.
    Mesh,
    /// Both addresses count up together.
    LockStep,
    /// Clients of one network, many ports each, and a few servers.
    Clients,
    /// Chosen to meet in one bucket of any hash that folds words by XOR.
    Chosen,
}

impl Pattern {
    pub(super) fn name(self) -> &'static str {
        match self {
            Pattern::Random => "random",
            Pattern::Mesh => "mesh",
            Pattern::LockStep => "lock-step",
            Pattern::Clients => "clients",
            Pattern::Chosen => "chosen",
        }
    }

    /// Addresses and ports of a flow.
    fn ends(self, flow: usize, flows: usize) -> [(u32, u16); 2] {
        let number = flow as u32;
        let (left, right) = (0x0a00_0000, 0xac10_0000);
        match self {
            Pattern::Random => {
                let mut state = u64::from(number);
                let (one, other) = (random(&mut state), random(&mut state));
                [(one as u32, (one >> 32) as u16), (other as u32, (other >> 32) as u16)]
            }
            Pattern::Mesh => {
                let side = flows.isqrt().max(1) as u32;
                [(left + number / side, 5000), (right + number % side, 80)]
            }
            Pattern::LockStep => [(left + number, 5000), (right + number, 80)],
            Pattern::Clients => {
                [(left + number % 254, 1024 + (number / 254 % 60_000) as u16), (right + number % 61, 443)]
            }
            Pattern::Chosen => [(left + number, 5000), ((left + number) ^ 0x5a00_0000, 5000)],
        }
    }
}

/// Frames of so many flows.
pub(super) struct Traffic {
    pattern: Pattern,
    /// The next sequence number of each side of each flow.
    sequences: Vec<[u32; 2]>,
    state: u64,
    time: Nanos,
    begun: usize,
    frame: Vec<u8>,
}

/// When a run of frames begins: any day.
const START: Nanos = Nanos(1_700_000_000_000_000_000);
/// The headers of each segment.
const HEADERS: usize = ethernet::LEN + ipv4::LEN + tcp::LEN;
/// The frame check sequence, which is not captured.
const FCS: usize = 4;
/// Nanoseconds between frames: 25 M frames/s.
const GAP: u64 = 40;

impl Traffic {
    /// Of `size` bytes with FCS.
    pub(super) fn new(pattern: Pattern, flows: usize, size: usize) -> Self {
        let mut frame = vec![0; (size - FCS).max(HEADERS)];
        let payload = frame.len() - HEADERS;
        let (link, packet) = frame.split_at_mut(ethernet::LEN);
        let macs = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
        let header = ethernet::Header { source: macs.0, destination: macs.1, ether_type: ethernet::IPV4 };
        header.emit(link).expect("there is room for the header");
        let ip = ipv4::Header::new(registry::TCP);
        ip.emit(tcp::LEN + payload, packet).expect("there is room for the header");
        let header = tcp::Header { window: 512, ..tcp::Header::default() };
        header.emit(&mut packet[ipv4::LEN..ipv4::LEN + tcp::LEN]).expect("there is room for the header");
        Traffic { pattern, sequences: vec![[1; 2]; flows], state: 1, time: START, begun: 0, frame }
    }

    /// The first segments of the next flows.
    pub(super) fn begin(&mut self, block: &mut Block, frames: usize) {
        for _ in 0..frames {
            self.put(block, self.begun, 0, tcp::Flags::SYN);
            self.begun += 1;
        }
    }

    /// Segments of any flows, either way.
    pub(super) fn go_on(&mut self, block: &mut Block, frames: usize) {
        for _ in 0..frames {
            let any = random(&mut self.state);
            let flow = ((u128::from(any) * self.sequences.len() as u128) >> 64) as usize;
            self.put(block, flow, any as usize & 1, tcp::Flags::ACK);
        }
    }

    fn put(&mut self, block: &mut Block, flow: usize, side: usize, flags: tcp::Flags) {
        let ends = self.pattern.ends(flow, self.sequences.len());
        let (from, to) = (ends[side], ends[1 - side]);
        let sequences = &mut self.sequences[flow];
        let (sequence, acknowledgement) = (sequences[side], sequences[1 - side]);
        let syn = u32::from(flags.0 & tcp::Flags::SYN.0 != 0);
        sequences[side] = sequence.wrapping_add((self.frame.len() - HEADERS) as u32 + syn);
        let packet = &mut self.frame[ethernet::LEN..];
        packet[12..16].copy_from_slice(&from.0.to_be_bytes());
        packet[16..20].copy_from_slice(&to.0.to_be_bytes());
        packet[20..22].copy_from_slice(&from.1.to_be_bytes());
        packet[22..24].copy_from_slice(&to.1.to_be_bytes());
        packet[24..28].copy_from_slice(&sequence.to_be_bytes());
        packet[28..32].copy_from_slice(&acknowledgement.to_be_bytes());
        packet[33] = flags.0 as u8;
        self.time = Nanos(self.time.0 + GAP);
        assert!(
            block.push(&Desc::new(self.time, 0, self.frame.len() as u32), &self.frame),
            "the block was made for so many"
        );
    }
}
