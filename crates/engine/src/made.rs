//! Frames made one by one, for ports that do not make them themselves.

use linerate_burst::block::RECORD_HEADER;
use linerate_burst::{Block, Desc, Nanos};
use linerate_generate::stream::{
    Change, Checksum, ChecksumKind, Map, Mark, Next, Order, Pick, Selector, Shape, Stream, StreamSet, Variant,
};
use linerate_generate::trailer::{self, Key};
use linerate_generate::{Rate, UdpTemplate};
use linerate_port::PortError;
use linerate_wire::{registry, udp};

/// Frames made at a time where nothing waits for its turn.
const MADE: usize = 64;

/// What changes in a template from one frame to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// How many source ports to use in turn, from that of the template on; 0 as 1.
    pub source_ports: u16,
    /// Each frame has a [trailer] at the end of its payload: its number and the time it was made.
    pub stamped: bool,
}

impl Changes {
    /// The only stream of a set: a template that changes so.
    ///
    /// # Errors
    /// A payload too short for the trailer.
    pub fn streams(self, template: &UdpTemplate, count: Option<u64>, rate: Rate) -> Result<StreamSet, PortError> {
        let (frame, at) = (template.frame().to_vec(), template.datagram());
        let payload = at + udp::LEN;
        let mut changes = Vec::new();
        if self.source_ports > 1 {
            let start = u128::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
            changes.push(Change { offset: at, width: 2, mask: 0xffff, selector: 0, map: Map::counting(start) });
        }
        if self.stamped && frame.len() < payload + trailer::LEN {
            let least = payload + trailer::LEN + linerate_generate::rate::FCS as usize;
            let reason = format!("number and time do not fit: --size {least} or more");
            return Err(PortError::broken("template", reason));
        }
        // Over the addresses, which lie in front of the datagram whatever the family, and the datagram; of the pseudo
        // header that leaves protocol and length (RFC 768).
        let addresses = if at == linerate_wire::ethernet::LEN + linerate_wire::ipv4::LEN { 8 } else { 32 };
        let plus = u16::from(registry::UDP) + (frame.len() - at) as u16;
        let checksum = Checksum {
            offset: at + 6,
            kind: ChecksumKind::Internet { plus, no_zero: true },
            parts: vec![(at - addresses, frame.len())],
        };
        let trailer = self.stamped.then(|| frame.len() - trailer::LEN);
        let variant = Variant { frame, changes, fills: Vec::new(), checksums: vec![checksum], trailer };
        let stream = Stream {
            name: "udp".into(),
            id: 0,
            variants: vec![variant],
            size: Selector::ONE,
            selectors: vec![Selector { count: self.source_ports.max(1).into(), pick: Pick::InTurn { every: 1 } }],
            rate,
            shape: Shape::Even,
            count,
            next: Next::Stop,
            mark: if self.stamped { Mark::Trailer } else { Mark::None },
        };
        Ok(StreamSet { streams: vec![stream], order: Order::Sequential, rate: None, key: Key::default() })
    }
}

/// The frames of a stream, one after the other.
pub struct Made {
    stream: Stream,
    key: Key,
    /// Frames sent so far.
    number: u64,
    /// Frames made and not sent.
    block: Block,
    /// How many of them to make at a time.
    at_a_time: usize,
}

impl Made {
    /// The frames of a stream. Where their time matters, each is made when it is due.
    pub fn new(stream: Stream, key: Key) -> Self {
        let longest = stream.variants.iter().map(|variant| variant.frame.len()).max().unwrap_or_default();
        let at_a_time = if stream.rate == Rate::Top { MADE } else { 1 };
        let block = Block::new(at_a_time * (longest + RECORD_HEADER), at_a_time);
        Made { stream, key, number: 0, block, at_a_time }
    }

    /// The next frames, made at `now`; empty at the end.
    pub fn offer(&mut self, now: Nanos) -> &Block {
        self.block.clear();
        let end = self.stream.count.unwrap_or(u64::MAX).min(self.number.saturating_add(self.at_a_time as u64));
        for number in self.number..end {
            let frame = self.stream.frame(number, now.0, &self.key);
            let pushed = self.block.push(&Desc::new(now, 0, frame.len() as u32), &frame);
            debug_assert!(pushed, "the block was made for so many");
        }
        &self.block
    }

    /// The first of them were sent.
    pub fn consume(&mut self, frames: usize) {
        self.number += frames as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_wire::{Layers, Link, MacAddr, Pseudo, dissect};

    #[test]
    fn stamped_frames_have_right_numbers_times_ports_and_checksums() {
        for (source, destination) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
            let macs = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
            let ips = (source.parse().unwrap(), destination.parse().unwrap());
            let template = UdpTemplate::new(macs, ips, (65_534, 9), 120).unwrap();
            let changes = Changes { source_ports: 3, stamped: true };
            let mut set = changes.streams(&template, Some(100), Rate::Top).unwrap();
            let mut made = Made::new(set.streams.remove(0), set.key);
            let mut seen = 0;
            loop {
                let block = made.offer(Nanos(1_000 + seen));
                let frames = block.burst().len();
                for (index, (_, frame)) in block.burst().iter().enumerate() {
                    let number = seen + index as u64;
                    let at = template.datagram();
                    let word = |back: usize| u64::from_be_bytes(*frame[frame.len() - back..].first_chunk().unwrap());
                    assert_eq!((word(16), word(8) >> 24), (number, 1_000 + seen));
                    let port = u16::from_be_bytes([frame[at], frame[at + 1]]);
                    assert_eq!(port, 65_534u16.wrapping_add((number % 3) as u16));
                    let pseudo = match ips {
                        (std::net::IpAddr::V4(source), std::net::IpAddr::V4(destination)) => {
                            Pseudo::V4 { source, destination }
                        }
                        (std::net::IpAddr::V6(source), std::net::IpAddr::V6(destination)) => {
                            Pseudo::V6 { source, destination }
                        }
                        _ => unreachable!(),
                    };
                    let mut again = frame[at..].to_vec();
                    udp::fill_checksum(&mut again, &pseudo).unwrap();
                    assert_eq!(again, frame[at..], "frame {number}");
                    dissect(Link::Ethernet, frame, &mut Layers::new());
                }
                seen += frames as u64;
                made.consume(frames);
                if frames == 0 {
                    break;
                }
            }
            assert_eq!(seen, 100);
        }
    }

    #[test]
    fn a_payload_too_short_for_stamps_is_refused() {
        let macs = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
        let ips = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let template = UdpTemplate::new(macs, ips, (1, 9), 66).unwrap();
        let error = Changes { source_ports: 0, stamped: true }.streams(&template, None, Rate::Top).unwrap_err();
        assert!(error.to_string().contains("--size 82 or more"), "{error}");
    }
}
