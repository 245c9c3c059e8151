//! Ports of fragments, which only the first fragment of a packet carries.
//!
//! A first fragment is remembered by addresses and identification, and later ones are assigned its ports. Later
//! fragments that arrive before it are held, a limited number for a limited time; if it does not arrive they count for
//! a flow without ports.

use crate::facts::Packet;
use crate::record::HELD as WAS_HELD;
use crate::time::FAR;
use std::collections::{HashMap, VecDeque};

/// Limits: packets with fragments remembered or held, fragments held of each, and of all together.
const PACKETS: usize = 4096;
const OF_EACH: usize = 64;
const HELD: usize = 4096;
/// Timeout in nanoseconds of packet time: half the reassembly timeout of RFC 8200 section 4.5.
const PATIENCE: u64 = 30_000_000_000;
/// No fragment.
const NONE: u32 = u32::MAX;

/// Maximum memory: a hash table has room for up to 16 of 7, and half as much more while it grows; a list that is
/// returned doubles.
pub(crate) const BYTES: usize = PACKETS * 4 * (size_of::<(Key, Entry)>() + 1)
    + PACKETS * 2 * size_of::<(u64, u64, Key)>()
    + HELD * (size_of::<FragmentSlot>() + 2 * size_of::<Packet>());

/// Key common to all fragments of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    source: u128,
    destination: u128,
    scope: u64,
    identification: u32,
    /// For IPv4; fragments of IPv6 may name different protocols.
    protocol: u8,
    version: u8,
}

/// State of a packet.
struct Entry {
    /// Time of the fragment that arrived first.
    time: u64,
    /// Distinguishes it from an earlier packet that was removed before its turn.
    number: u64,
    state: State,
}

enum State {
    /// The first fragment was seen: the ports, and the protocol.
    Known([u16; 2], u8),
    /// The first fragment was not seen, and these are held: the first and the last of them, and their number.
    Waiting { first: u32, last: u32, count: u32 },
}

/// Slot of a fragment, and the next slot of its packet.
struct FragmentSlot {
    packet: Packet,
    next: u32,
}

/// State of fragmented packets.
pub(crate) struct Fragments {
    packets: HashMap<Key, Entry>,
    /// In order of arrival, with the time and number; a packet that was removed before its turn is still here.
    order: VecDeque<(u64, u64, Key)>,
    held: Vec<FragmentSlot>,
    /// The first slot that is free and was used before.
    free: u32,
    /// Fragments held, and packets started so far.
    waiting: usize,
    begun: u64,
    /// Later fragments released without ports for lack of room.
    pub no_room: u64,
}

impl Default for Fragments {
    fn default() -> Self {
        Fragments {
            packets: HashMap::new(),
            order: VecDeque::new(),
            held: Vec::new(),
            free: NONE,
            waiting: 0,
            begun: 0,
            no_room: 0,
        }
    }
}

impl Fragments {
    /// Takes a fragment, and returns whether it is held. Packets that can be accounted now are appended to `ready`, as
    /// complete as they will be.
    pub(crate) fn take(&mut self, packet: Packet, ready: &mut Vec<Packet>) -> bool {
        let Some(key) = key_of(&packet) else {
            ready.push(packet);
            return false;
        };
        let is_first = packet.fragment.is_some_and(|fragment| fragment.is_first);
        // Decided by its own time, not by the time of the next expiry, which depends on other packets.
        if self.packets.get(&key).is_some_and(|entry| packet.facts.time.abs_diff(entry.time) > PATIENCE) {
            // Together with those that arrived before it, since all must be counted in order.
            self.expire(packet.facts.time, ready);
            self.forget(&key, ready);
        }
        match self.packets.get(&key).map(|entry| &entry.state) {
            Some(State::Known(ports, protocol)) if !is_first => ready.push(with(packet, *ports, *protocol)),
            Some(State::Waiting { last, count, .. }) if !is_first => {
                let before = (*last, *count);
                return self.hold_more(key, before, packet, ready);
            }
            Some(_) => {
                let (ports, protocol) = ([packet.source.1, packet.destination.1], packet.protocol);
                ready.push(packet);
                let before = self.packets.get_mut(&key);
                let before = before.map(|entry| std::mem::replace(&mut entry.state, State::Known(ports, protocol)));
                let freed = ready.len();
                self.release(before, ready);
                ready[freed..].iter_mut().for_each(|held| *held = with(*held, ports, protocol));
            }
            None => return self.begin(key, packet, ready),
        }
        false
    }

    /// Expires packets that began long before `now`: held fragments are appended to `ready`.
    pub(crate) fn expire(&mut self, now: u64, ready: &mut Vec<Packet>) {
        // They arrived in order of time, unless the first one has a wrong time, which delays no others.
        if self.order.front().is_some_and(|(time, ..)| time.saturating_sub(now) > PATIENCE) {
            self.expire_matching(|time| now.saturating_sub(time) > PATIENCE, ready);
        }
        while self.order.front().is_some_and(|(time, number, key)| {
            let is_there = self.packets.get(key).is_some_and(|entry| entry.number == *number);
            !is_there || now.saturating_sub(*time) > PATIENCE
        }) {
            self.evict_first(ready);
        }
    }

    /// Handles a jump of packet time to `now`: expires packets of another time. Those that arrived after the jump stay.
    pub(crate) fn jump(&mut self, now: u64, ready: &mut Vec<Packet>) {
        self.expire_matching(|time| time.abs_diff(now) > FAR / 2, ready);
    }

    /// Expires packets whose start matches `is_over`.
    fn expire_matching(&mut self, is_over: impl Fn(u64) -> bool, ready: &mut Vec<Packet>) {
        for _ in 0..self.order.len() {
            match self.order.front() {
                Some((time, ..)) if is_over(*time) => self.evict_first(ready),
                _ => self.order.rotate_left(1),
            }
        }
    }

    /// Returns a time that no held fragment is older than, at most `now`: a flow that one may belong to is not idle
    /// since then.
    pub(crate) fn held_since(&self, now: u64) -> u64 {
        let Some((first, ..)) = self.order.front().filter(|_| self.waiting > 0) else { return u64::MAX };
        // They arrived in order of time, unless the first one has a wrong time.
        if *first <= now { *first } else { self.order.iter().map(|(time, ..)| *time).min().unwrap_or(*first) }
    }

    /// Expires all packets.
    pub(crate) fn finish(&mut self, ready: &mut Vec<Packet>) {
        while !self.order.is_empty() {
            self.evict_first(ready);
        }
    }

    /// Takes the fragment of a packet that arrived first; true if it is held.
    fn begin(&mut self, key: Key, packet: Packet, ready: &mut Vec<Packet>) -> bool {
        if self.order.len() >= PACKETS {
            let before = ready.len();
            self.evict_first(ready);
            self.no_room += (ready.len() - before) as u64;
        }
        let time = packet.facts.time;
        let state = if packet.fragment.is_some_and(|fragment| fragment.is_first) {
            ready.push(packet);
            State::Known([packet.source.1, packet.destination.1], packet.protocol)
        } else {
            let Some(place) = self.place(packet) else {
                self.no_room += 1;
                ready.push(packet);
                return false;
            };
            State::Waiting { first: place, last: place, count: 1 }
        };
        let is_held = matches!(state, State::Waiting { .. });
        self.begun += 1;
        self.order.push_back((time, self.begun, key));
        self.packets.insert(key, Entry { time, number: self.begun, state });
        is_held
    }

    /// Holds one more fragment after slot `before`, where `count` are held; false if the buffer is full.
    fn hold_more(&mut self, key: Key, (before, count): (u32, u32), packet: Packet, ready: &mut Vec<Packet>) -> bool {
        let place = if (count as usize) < OF_EACH { self.place(packet) } else { None };
        let Some(place) = place else {
            self.no_room += 1;
            ready.push(packet);
            return false;
        };
        self.held[before as usize].next = place;
        if let Some(Entry { state: State::Waiting { last, count, .. }, .. }) = self.packets.get_mut(&key) {
            (*last, *count) = (place, *count + 1);
        }
        true
    }

    /// Returns a slot for a fragment, if there is room.
    fn place(&mut self, packet: Packet) -> Option<u32> {
        let held = FragmentSlot { packet, next: NONE };
        if self.free != NONE {
            let place = self.free;
            self.free = std::mem::replace(&mut self.held[place as usize], held).next;
            self.waiting += 1;
            return Some(place);
        }
        if self.held.len() == HELD {
            return None;
        }
        if self.held.is_empty() {
            self.held.reserve_exact(HELD);
        }
        self.held.push(held);
        self.waiting += 1;
        Some(self.held.len() as u32 - 1)
    }

    /// Appends held fragments to `ready` in order of arrival.
    fn release(&mut self, state: Option<State>, ready: &mut Vec<Packet>) {
        let Some(State::Waiting { first, last, count }) = state else { return };
        let mut place = first;
        for _ in 0..count {
            let held = &self.held[place as usize];
            ready.push(held.packet);
            if let Some(packet) = ready.last_mut() {
                packet.facts.quality |= WAS_HELD;
            }
            place = held.next;
        }
        self.held[last as usize].next = self.free;
        self.free = first;
        self.waiting -= count as usize;
    }

    fn forget(&mut self, key: &Key, ready: &mut Vec<Packet>) {
        let forgotten = self.packets.remove(key);
        self.release(forgotten.map(|entry| entry.state), ready);
    }

    fn evict_first(&mut self, ready: &mut Vec<Packet>) {
        let Some((_, number, key)) = self.order.pop_front() else { return };
        if self.packets.get(&key).is_some_and(|entry| entry.number == number) {
            self.forget(&key, ready);
        }
    }
}

/// Returns whether it is a later fragment without ports.
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

/// Returns a later fragment with ports and protocol of its first one.
fn with(mut packet: Packet, ports: [u16; 2], protocol: u8) -> Packet {
    (packet.source.1, packet.destination.1) = (ports[0], ports[1]);
    packet.protocol = protocol;
    packet.fragment = None;
    packet
}
