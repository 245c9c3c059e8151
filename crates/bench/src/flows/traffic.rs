//! Segments of many connections in random order, with correct sequence numbers.

use crate::traffic::START;
use linerate_burst::random::next as random;
use linerate_burst::{Block, Desc, Nanos};
use linerate_headers::build::Frame;
use linerate_headers::{MacAddr, ethernet, ipv4, registry, tcp};

/// Addresses and ports of flows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pattern {
    /// Random addresses and ports.
    Random,
    /// As many sources as destinations, the same ports.
    Mesh,
    /// Both addresses count up together.
    LockStep,
    /// Clients of one network with many ports each, and a few servers.
    Clients,
    /// One bucket of any hash that folds words by XOR.
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

/// Packets of many flows.
pub(super) struct Traffic {
    pattern: Pattern,
    /// The next sequence number of each side of each flow.
    sequences: Vec<[u32; 2]>,
    state: u64,
    time: Nanos,
    opened: usize,
    /// Flows that were replaced by new ones, in sequence.
    replaced: usize,
    /// New flows that are due.
    due: f64,
    /// Nanoseconds between packets.
    gap: u64,
    frame: Vec<u8>,
}

/// The headers of each segment.
const HEADERS: usize = ethernet::LEN + ipv4::LEN + tcp::LEN;
/// The frame check sequence, which is not captured.
const FCS: usize = 4;
/// Nanoseconds between packets: 25 M packets/s.
const GAP: u64 = 40;

impl Traffic {
    /// Packets of `size` bytes with FCS.
    pub(super) fn new(pattern: Pattern, flows: usize, size: usize) -> Self {
        let (destination, source) = (MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 1]));
        let link = ethernet::Header { destination, source, ether_type: ethernet::IPV4 };
        let (network, transport) =
            (ipv4::Header::new(registry::TCP), tcp::Header { window: 512, ..Default::default() });
        let payload = vec![0; (size - FCS).saturating_sub(HEADERS)];
        let frame = Frame::new(&[&link, &network, &transport], &payload).to_vec().expect("headers that fit");
        Traffic {
            pattern,
            sequences: vec![[1; 2]; flows],
            state: 1,
            time: Nanos(START),
            opened: 0,
            replaced: 0,
            due: 0.0,
            gap: GAP,
            frame,
        }
    }

    /// Makes the first segments of the next flows.
    pub(super) fn open(&mut self, block: &mut Block, frames: usize) {
        for _ in 0..frames {
            self.put(block, self.opened, 0, tcp::Flags::SYN);
            self.opened += 1;
        }
    }

    /// Makes segments of random flows, in random directions.
    pub(super) fn continue_any(&mut self, block: &mut Block, frames: usize) {
        (0..frames).for_each(|_| self.any(block));
    }

    fn any(&mut self, block: &mut Block) {
        let any = random(&mut self.state);
        let flow = ((u128::from(any) * self.sequences.len() as u128) >> 64) as usize;
        self.put(block, flow, any as usize & 1, tcp::Flags::ACK);
    }

    /// Makes packets `gap` seconds apart, among which `new` flows per second close, each replaced by a new one.
    pub(super) fn replace(&mut self, block: &mut Block, frames: usize, gap: f64, new: usize) {
        self.gap = (gap * 1e9) as u64;
        let mut left = frames;
        while left > 0 {
            self.due += gap * new as f64;
            if self.due >= 1.0 && left >= 2 {
                self.due += gap * new as f64 - 1.0;
                let flow = self.replaced % self.sequences.len();
                self.put(block, flow, 0, tcp::Flags::RST);
                self.replaced += 1;
                self.sequences[flow] = [1; 2];
                self.put(block, flow, 0, tcp::Flags::SYN);
                left -= 2;
            } else {
                self.any(block);
                left -= 1;
            }
        }
    }

    /// Returns the number of flows that were replaced.
    pub(super) fn replaced(&self) -> usize {
        self.replaced
    }

    /// Returns the time of the last packet.
    pub(super) fn now(&self) -> Nanos {
        self.time
    }

    fn put(&mut self, block: &mut Block, flow: usize, side: usize, flags: tcp::Flags) {
        let flows = self.sequences.len();
        // A flow that replaced another one has a number of its own.
        let generation = self.replaced / flows + usize::from(flow < self.replaced % flows);
        let ends = self.pattern.ends(flow + generation * flows, flows);
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
        self.time = Nanos(self.time.0 + self.gap);
        assert!(block.push(&Desc::new(self.time, 0, self.frame.len() as u32), &self.frame), "room for the packet");
    }
}
