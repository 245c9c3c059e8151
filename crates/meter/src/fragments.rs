//! The ports of fragments, which only the first one of a packet has.
//!
//! A first fragment is remembered by addresses and identification, and later ones get its ports. Later ones that come before it are held, a
//! limited number for a limited time; if it does not come they count for a flow without ports.

use crate::facts::Packet;
use std::collections::{HashMap, VecDeque};

/// Packets of which fragments are remembered or held, and fragments held of each.
const PACKETS: usize = 4096;
const HELD: usize = 64;
/// How long, in nanoseconds of packet time: what RFC 8200 section 4.5 gives a packet to be put together, halved.
const PATIENCE: u64 = 30_000_000_000;

/// What all fragments of a packet share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    source: u128,
    destination: u128,
    scope: u64,
    identification: u32,
    /// Of IPv4; fragments of IPv6 may name different ones.
    protocol: u8,
    version: u8,
}

enum State {
    /// The first fragment was seen: the ports, and the protocol.
    Known([u16; 2], u8),
    /// It was not, and these wait.
    Waiting(Vec<Packet>),
}

/// What is known of packets in fragments.
#[derive(Default)]
pub(crate) struct Fragments {
    packets: HashMap<Key, (u64, State)>,
    /// In the order in which they came, with the time.
    order: VecDeque<(u64, Key)>,
    /// Packets of which fragments are held.
    waiting: usize,
}

impl Fragments {
    /// Takes a fragment, and says whether it is held. What can be accounted now is appended to `ready`, as whole as it
    /// will get.
    pub fn take(&mut self, packet: Packet, ready: &mut Vec<Packet>) -> bool {
        let Some(key) = key_of(&packet) else {
            ready.push(packet);
            return false;
        };
        let is_first = packet.fragment.is_some_and(|fragment| fragment.is_first);
        // By its own time, and not by when it is looked for what has expired: that depends on other packets.
        if self.packets.get(&key).is_some_and(|(time, _)| packet.facts.time.abs_diff(*time) > PATIENCE) {
            while self.packets.contains_key(&key) {
                self.forget_first(ready);
            }
        }
        match self.packets.get_mut(&key).map(|(_, state)| state) {
            Some(State::Known(ports, protocol)) if !is_first => ready.push(with(packet, *ports, *protocol)),
            Some(State::Waiting(held)) if !is_first => {
                if held.len() < HELD {
                    held.push(packet);
                    return true;
                }
                ready.push(packet);
            }
            Some(state) => {
                let (ports, protocol) = ([packet.source.1, packet.destination.1], packet.protocol);
                let before = std::mem::replace(state, State::Known(ports, protocol));
                ready.push(packet);
                if let State::Waiting(held) = before {
                    self.waiting -= 1;
                    ready.extend(held.into_iter().map(|held| with(held, ports, protocol)));
                }
            }
            None => {
                self.make_room(ready);
                let time = packet.facts.time;
                self.order.push_back((time, key));
                self.waiting += usize::from(!is_first);
                let state = if is_first {
                    ready.push(packet);
                    State::Known([packet.source.1, packet.destination.1], packet.protocol)
                } else {
                    State::Waiting(vec![packet])
                };
                self.packets.insert(key, (time, state));
                return !is_first;
            }
        }
        false
    }

    /// Gives up packets that began long before `now`, either way: what was held is appended to `ready`.
    pub fn expire(&mut self, now: u64, ready: &mut Vec<Packet>) {
        while self.order.front().is_some_and(|(time, _)| now.abs_diff(*time) > PATIENCE) {
            self.forget_first(ready);
        }
    }

    /// No fragment that is held is older than this: the flow that it may belong to is not over for want of packets since.
    pub fn held_since(&self) -> u64 {
        self.order.front().filter(|_| self.waiting > 0).map_or(u64::MAX, |(time, _)| *time)
    }

    /// Gives up all.
    pub fn finish(&mut self, ready: &mut Vec<Packet>) {
        while !self.order.is_empty() {
            self.forget_first(ready);
        }
    }

    fn make_room(&mut self, ready: &mut Vec<Packet>) {
        if self.order.len() >= PACKETS {
            self.forget_first(ready);
        }
    }

    fn forget_first(&mut self, ready: &mut Vec<Packet>) {
        let forgotten = self.order.pop_front().and_then(|(_, key)| self.packets.remove(&key));
        if let Some((_, State::Waiting(held))) = forgotten {
            self.waiting -= 1;
            ready.extend(held);
        }
    }
}

/// Later fragments without ports are orphans.
pub(crate) fn is_orphan(packet: &Packet) -> bool {
    packet.fragment.is_some_and(|fragment| !fragment.is_first)
}

fn key_of(packet: &Packet) -> Option<Key> {
    let fragment = packet.fragment?;
    Some(Key {
        source: packet.source.0,
        destination: packet.destination.0,
        scope: packet.wide.scope,
        identification: fragment.identification,
        protocol: if packet.wide.version == 4 { packet.protocol } else { 0 },
        version: packet.wide.version,
    })
}

/// A later fragment with what its first one says.
fn with(mut packet: Packet, ports: [u16; 2], protocol: u8) -> Packet {
    (packet.source.1, packet.destination.1) = (ports[0], ports[1]);
    packet.protocol = protocol;
    packet.fragment = None;
    packet
}
