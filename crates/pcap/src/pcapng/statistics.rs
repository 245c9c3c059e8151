//! The interface statistics block: totals of received and dropped frames.

use super::block::Order;
use super::option::{options, push};
use super::time::Clock;
use crate::origin::Statistics;
use linerate_burst::Nanos;

const START_TIME: u16 = 2;
const END_TIME: u16 = 3;
const RECEIVED: u16 = 4;
const DROPPED_BY_INTERFACE: u16 = 5;
const ACCEPTED: u16 = 6;
const DROPPED_BY_SYSTEM: u16 = 7;
const DELIVERED: u16 = 8;

/// Parses the numbers among the options of a block, with times in ticks of `clock`; ignores comments.
pub(super) fn parse(bytes: &[u8], order: Order, clock: Clock) -> Statistics {
    let mut found = Statistics::default();
    for (code, value) in options(bytes, order) {
        let Ok(value) = <[u8; 8]>::try_from(value) else { continue };
        let count = Some(order.u64(value));
        match code {
            START_TIME => found.first = time(value, order, clock),
            END_TIME => found.last = time(value, order, clock),
            RECEIVED => found.received = count,
            DROPPED_BY_INTERFACE => found.dropped_by_interface = count,
            ACCEPTED => found.accepted = count,
            DROPPED_BY_SYSTEM => found.dropped_by_system = count,
            DELIVERED => found.delivered = count,
            _ => {}
        }
    }
    found
}

/// Appends the options of a block with nanosecond ticks, without an end mark.
pub(super) fn encode(statistics: &Statistics, to: &mut Vec<u8>) {
    for (code, time) in [(START_TIME, statistics.first), (END_TIME, statistics.last)] {
        if let Some(time) = time {
            push(to, code, &words(time));
        }
    }
    let counts = [
        (RECEIVED, statistics.received),
        (DROPPED_BY_INTERFACE, statistics.dropped_by_interface),
        (ACCEPTED, statistics.accepted),
        (DROPPED_BY_SYSTEM, statistics.dropped_by_system),
        (DELIVERED, statistics.delivered),
    ];
    for (code, count) in counts {
        if let Some(count) = count {
            push(to, code, &count.to_ne_bytes());
        }
    }
    to.extend_from_slice(&statistics.comments);
}

/// Encodes a time as everywhere in the format: the upper word first, in any byte order.
pub(super) fn words(time: Nanos) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&((time.0 >> 32) as u32).to_ne_bytes());
    bytes[4..].copy_from_slice(&(time.0 as u32).to_ne_bytes());
    bytes
}

fn time(value: [u8; 8], order: Order, clock: Clock) -> Option<Nanos> {
    let [high, low] = order.words::<2>(&value)?;
    Some(clock.time(u64::from(high) << 32 | u64::from(low)))
}
