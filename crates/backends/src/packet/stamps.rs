//! `?stamp=hardware`: the card says when a frame came.

use crate::clocks::CardClock;
use crate::nic::NicMonitor;
use crate::sys::ethtool::{Ethtool, STAMP_ALL, STAMPS_HARDWARE, STAMPS_RAW};
use linerate_burst::Ledger;
use linerate_burst::text::quoted;
use linerate_port::Monitor;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The card stamps frames as long as this is there.
#[derive(Debug)]
pub(super) struct Stamping {
    /// Its clock.
    pub clock: Arc<CardClock>,
    /// What there is to say of it.
    pub notes: Vec<String>,
    /// The number of its clock.
    pub number: u32,
    _back: Option<Back>,
}

/// What the card stamped before; it is told so again when this goes, if this process may still do so then, and nobody has told it
/// otherwise since.
#[derive(Debug)]
struct Back {
    socket: OwnedFd,
    interface: String,
    was: [u32; 3],
    set: [u32; 3],
}

impl Stamping {
    /// Has the card stamp all frames; call it inside the interface's network namespace, which is called `netns`.
    pub(super) fn start(interface: &str, netns: Option<&str>) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let ask = Ethtool::new(socket.as_fd(), interface)?;
        let number = able(ask.stamps().ok())?;
        let was = ask.stamping().map_err(|error| {
            // Others may live by its stamps, as ptp4l does.
            unable(&format!("how it stamps now cannot be read, nor put back then ({error})"))
        })?;
        let clock = CardClock::open(number)?;
        let relation = clock.relation();
        let mut notes = vec![format!(
            "frames have the time of the card: its clock ptp{number} is {} ns ahead of the host's, and put onto that",
            relation.ahead()
        )];
        let mut back = None;
        if was[2] != STAMP_ALL {
            let now = ask.set_stamping([0, was[1], STAMP_ALL]).map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("the card cannot be told to stamp all frames ({error}); leave ?stamp=hardware out"),
                )
            })?;
            if now[2] != STAMP_ALL {
                let _ = ask.set_stamping(was);
                return Err(unable("the card stamps some kinds of frames alone"));
            }
            let within = netns.map_or_else(String::new, |netns| format!("ip netns exec {} ", quoted(netns)));
            notes.push(format!(
                "the card stamps all frames from now on; if it still does afterwards: {within}hwstamp_ctl -i {} -t {} -r {}",
                quoted(interface),
                was[1],
                was[2]
            ));
            back = Some(Back { socket, interface: interface.to_owned(), was, set: now });
        }
        Ok(Stamping { clock: Arc::new(clock), notes, number, _back: back })
    }
}

impl Drop for Back {
    fn drop(&mut self) {
        // A run that has given up its rights cannot; the note has said by which command it is done.
        if let Ok(ask) = Ethtool::new(self.socket.as_fd(), &self.interface)
            && ask.stamping().is_ok_and(|now| now == self.set)
        {
            let _ = ask.set_stamping(self.was);
        }
    }
}

/// The number of the clock of a card that can stamp received frames, by what its driver says.
pub(crate) fn able(said: Option<(u32, Option<u32>, u32)>) -> io::Result<u32> {
    let (kinds, clock, filters) = said.ok_or_else(|| unable("its driver does not say how it stamps frames"))?;
    let needed = STAMPS_HARDWARE | STAMPS_RAW;
    if kinds & needed != needed {
        return Err(unable("its driver takes no stamps in hardware"));
    }
    if filters >> STAMP_ALL & 1 == 0 {
        return Err(unable("the card stamps some kinds of frames alone"));
    }
    clock.ok_or_else(|| unable("the card has no clock that can be read"))
}

fn unable(reason: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!("?stamp=hardware: {reason}; leave it out for the kernel's stamps"),
    )
}

/// The counters of an interface, with how the clocks differ.
pub(super) struct ClockMonitor {
    nic: NicMonitor,
    port: String,
    stamping: Stamping,
}

impl ClockMonitor {
    /// Counts on as the monitor does.
    pub(super) fn new(nic: NicMonitor, port: String, stamping: Stamping) -> Self {
        ClockMonitor { nic, port, stamping }
    }
}

impl Monitor for ClockMonitor {
    fn counters(&self, ledger: &mut Ledger) {
        self.nic.counters(ledger);
        let relation = self.stamping.clock.relation();
        let sides = [
            (relation.ahead(), "card_clock_ahead_ns", "card_clock_behind_ns"),
            (relation.drift(), "card_clock_slow_ppb", "card_clock_fast_ppb"),
        ];
        for (value, above, below) in sides {
            ledger.add_detail(&self.port, if value < 0 { below } else { above }, value.unsigned_abs());
        }
        if relation.steps() > 0 {
            ledger.add_detail(&self.port, "clocks_set", relation.steps());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_stamp_says_why() {
        let said = |said| able(said).unwrap_err().to_string();
        assert!(said(None).contains("does not say"));
        // What a veth says: software alone, and no clock.
        assert!(said(Some((0x1a, None, 0))).contains("no stamps in hardware"));
        assert!(said(Some((0x5f, Some(0), 0b1001))).contains("some kinds of frames"));
        assert!(said(Some((0x5f, None, 0b11))).contains("no clock"));
        assert_eq!(able(Some((0x5f, Some(3), 0b11))).unwrap(), 3);
    }
}
