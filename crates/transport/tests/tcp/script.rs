//! Interprets any bytes as a script of what a peer and attackers send to an endpoint: invalid data is never accepted.

use super::peer::*;
use linerate_burst::Count;
use linerate_headers::Link;
use linerate_headers::tcp::Flags;
use linerate_transport::tcp::{AckPolicy, Checksum, Config};
use std::time::Duration;

/// Returns the byte of the peer's stream at an offset.
fn byte(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Runs a script; panics on any violation.
pub(super) fn run(bytes: &[u8]) {
    let mut bytes = bytes.iter().copied();
    let mut next = || bytes.next();
    let setting = next().unwrap_or(0);
    let acks = [AckPolicy::Adaptive, AckPolicy::Burst, AckPolicy::Segments(2), AckPolicy::Bytes(3000)];
    let config = Config {
        acks: acks[usize::from(setting & 3)],
        max_gaps: if setting & 4 != 0 { 2 } else { 64 },
        backlog: if setting & 8 != 0 { 1 } else { 64 },
        window: if setting & 16 != 0 { 5000 } else { 1 << 20 },
        idle: Some(Duration::from_secs(60)),
        ..config()
    };
    let mut rig = Rig::new(config);
    rig.memory.room = if setting & 32 != 0 { 10_000 } else { 1 << 30 };
    let isn = if setting & 64 != 0 { 0xffff_ff00 } else { 7 };
    let conn = rig.connect(isn, setting & 128 != 0);
    // Rough position of the peer's segments.
    let mut at = 0u64;
    while let (Some(what), Some(one), Some(other)) = (next(), next(), next()) {
        let near = at.saturating_add(u64::from(one) * 16).saturating_sub(2000);
        match what >> 4 {
            0..=5 => {
                let offset = if what & 8 != 0 { near } else { at };
                let size = u64::from(other) * if what & 4 != 0 { 200 } else { 8 };
                let payload: Vec<u8> = (offset..offset + size).map(byte).collect();
                let push = if what & 1 != 0 { Flags::PSH } else { Flags(0) };
                rig.receive(&conn.seg(Flags::ACK | push, offset, &payload).frame());
                at = if what & 8 == 0 { offset + size } else { at };
            }
            // Off-path attackers who know the addresses, but not our numbers.
            6 => {
                let mut blind = conn.seg(Flags(u16::from(one) & 0x3b), near, &[0xbd; 40]);
                blind.ack = blind.ack.wrapping_add(1 + u32::from(other));
                rig.receive(&blind.frame());
            }
            7 => {
                rig.receive(&conn.seg(Flags::RST, at + 1 + u64::from(other), &[]).frame());
            }
            // Corruption.
            8 | 9 => {
                let mut frame = conn.data(at, &[0xbd; 30]).frame();
                let place = (usize::from(one) * 3 + usize::from(what & 3)) % (frame.len() - 14) + 14;
                frame[place] = frame[place].wrapping_add(other | 1);
                rig.receive_as(&frame, Link::Ethernet, Checksum::Verify);
            }
            // Other connections, from a few ports.
            10 => {
                let mut first = Seg::new(Flags(u16::from(one) & 0x3f), u32::from(other), 5, &[0xbd; 9]);
                first.from.1 = 7 + u16::from(what & 7);
                rig.receive(&first.frame());
            }
            11 | 12 => rig.endpoint.burst_end(what & 1 != 0, rig.now, &mut rig.memory),
            13 => {
                let waiting = rig.endpoint.frames().len();
                rig.endpoint.clear(usize::from(one).min(waiting));
            }
            14 => {
                rig.now = rig.now.after(Duration::from_micros(u64::from(one) * u64::from(other) * 100));
                rig.endpoint.tick(rig.now, &mut rig.memory);
            }
            _ => {
                let first = rig.memory.streams.values_mut().next().unwrap();
                first.room += u64::from(other);
            }
        }
        for (_, frame) in rig.endpoint.frames().iter() {
            read(frame);
        }
    }
    let stream = rig.memory.streams.values().next().unwrap();
    for (offset, got) in stream.bytes.iter().enumerate().filter(|(offset, _)| stream.is_there[*offset]) {
        assert_eq!(*got, byte(offset as u64), "byte {offset}");
    }
    while !rig.endpoint.stop(rig.now, &mut rig.memory) {
        rig.endpoint.clear(0);
    }
    assert!(rig.memory.streams.values().all(|stream| stream.ending.is_some()));
    rig.count(Count::TcpReceived);
}

#[cfg(test)]
mod tests {
    use super::super::model::Chance;

    #[test]
    fn any_script_ends_without_errors() {
        for seed in 0..3000 {
            let mut chance = Chance(seed);
            let bytes: Vec<u8> = (0..chance.below(600)).map(|_| chance.next() as u8).collect();
            super::run(&bytes);
        }
    }
}
