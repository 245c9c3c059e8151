//! Frames made from a plan, for ports that do not make them themselves.

use linerate_burst::block::RECORD_HEADER;
use linerate_burst::{Block, Desc, Nanos};
use linerate_generate::UdpTemplate;
use linerate_port::PortError;
use linerate_port::live::{Checksum, Field, Gap, Plan, Template, Value};
use linerate_wire::{registry, udp};

/// Frames made at a time where nothing waits for its turn.
const MADE: usize = 64;
/// Sequence number and time, eight bytes each.
const STAMPS: usize = 16;

/// What changes in a template from one frame to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// How many source ports to use in turn, from that of the template on; 0 as 1.
    pub source_ports: u16,
    /// Each frame has its number and the time it was made at the beginning of its payload: eight bytes each, in network
    /// byte order, the time in UTC nanoseconds.
    pub stamped: bool,
}

impl Changes {
    /// The plan for a template that changes so.
    ///
    /// # Errors
    /// A payload too short for the stamps.
    pub fn plan(self, template: &UdpTemplate, count: Option<u64>, gap: Gap) -> Result<Plan, PortError> {
        let (frame, at) = (template.frame().to_vec(), template.datagram());
        let payload = at + udp::LEN;
        let mut fields = Vec::new();
        if self.source_ports > 1 {
            let start = u64::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
            let value = Value::Stepped { start, step: 1, count: self.source_ports.into() };
            fields.push(Field { offset: at, width: 2, value });
        }
        if self.stamped {
            if frame.len() < payload + STAMPS {
                let least = payload + STAMPS + linerate_generate::rate::FCS as usize;
                let reason = format!("number and time do not fit: --size {least} or more");
                return Err(PortError::broken("template", reason));
            }
            fields.push(Field { offset: payload, width: 8, value: Value::Sequence { start: 0 } });
            fields.push(Field { offset: payload + 8, width: 8, value: Value::Time });
        }
        // Over the addresses, which lie in front of the datagram whatever the family, and the datagram; of the pseudo
        // header that leaves protocol and length (RFC 768).
        let addresses = if at == linerate_wire::ethernet::LEN + linerate_wire::ipv4::LEN { 8 } else { 32 };
        let checksum = Checksum {
            offset: at + 6,
            parts: vec![(at - addresses, frame.len())],
            plus: u16::from(registry::UDP) + (frame.len() - at) as u16,
            no_zero: true,
        };
        let checksums = if fields.is_empty() { Vec::new() } else { vec![checksum] };
        Ok(Plan { templates: vec![Template { frame, fields, checksums, gap }], count })
    }
}

/// The frames of a plan, one after the other.
pub struct Made {
    plan: Plan,
    /// Frames sent so far.
    number: u64,
    /// Frames made and not sent.
    block: Block,
    /// How many of them to make at a time.
    at_a_time: usize,
}

impl Made {
    /// The frames of a plan that [`Plan::check`] accepts. Where their time matters, each is made when it is due.
    pub fn new(plan: Plan, paced: bool) -> Self {
        let longest = plan.templates.iter().map(|template| template.frame.len()).max().unwrap_or_default();
        let at_a_time = if paced { 1 } else { MADE };
        Made { plan, number: 0, block: Block::new(at_a_time * (longest + RECORD_HEADER), at_a_time), at_a_time }
    }

    /// The next frames, made at `now`; empty at the end.
    pub fn offer(&mut self, now: Nanos) -> &Block {
        self.block.clear();
        let end = self.plan.count.unwrap_or(u64::MAX).min(self.number.saturating_add(self.at_a_time as u64));
        for number in self.number..end {
            let frame = self.plan.frame(number, now.0);
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
            let mut made = Made::new(changes.plan(&template, Some(100), Gap::ZERO).unwrap(), false);
            let mut seen = 0;
            loop {
                let block = made.offer(Nanos(1_000 + seen));
                let frames = block.burst().len();
                for (index, (_, frame)) in block.burst().iter().enumerate() {
                    let number = seen + index as u64;
                    let at = template.datagram();
                    let word = |at: usize| u64::from_be_bytes(frame[at..at + 8].try_into().unwrap());
                    assert_eq!((word(at + 8), word(at + 16)), (number, 1_000 + seen));
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
        let error = Changes { source_ports: 0, stamped: true }.plan(&template, None, Gap::ZERO).unwrap_err();
        assert!(error.to_string().contains("--size 82 or more"), "{error}");
    }
}
