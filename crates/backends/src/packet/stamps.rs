//! `?stamp=hardware`: timestamps taken by the card.

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

/// Makes the card stamp frames while this lives.
#[derive(Debug)]
pub(super) struct Stamping {
    /// Clock of the card.
    pub clock: Arc<CardClock>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Number of its clock.
    pub number: u32,
    _restore: Option<Restore>,
}

/// Restores the card's previous setting on drop, if this process still may, and the setting was not changed since.
#[derive(Debug)]
struct Restore {
    socket: OwnedFd,
    interface: String,
    was: [u32; 3],
    set: [u32; 3],
}

impl Stamping {
    /// Makes the card stamp all frames; call it inside the interface's network namespace, which is called `netns`.
    pub(super) fn start(interface: &str, netns: Option<&str>) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let ask = Ethtool::new(socket.as_fd(), interface)?;
        let number = able(ask.stamps().ok())?;
        let was = ask.stamping().map_err(|error| {
            // Other programs may depend on its stamps, such as ptp4l.
            unable(&format!("cannot read the present setting, to restore it later ({error})"))
        })?;
        let clock = CardClock::open(number)?;
        let relation = clock.relation();
        let mut notes = vec![format!(
            "timestamps are the card's, converted to host time: its clock ptp{number} is {} ns ahead",
            relation.ahead()
        )];
        let mut restore = None;
        if was[2] != STAMP_ALL {
            let now = ask.set_stamping([0, was[1], STAMP_ALL]).map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("cannot make the card stamp all frames ({error}); omit ?stamp=hardware"),
                )
            })?;
            if now[2] != STAMP_ALL {
                let _ = ask.set_stamping(was);
                return Err(unable("the card stamps only some kinds of frames"));
            }
            let within = netns.map_or_else(String::new, |netns| format!("ip netns exec {} ", quoted(netns)));
            notes.push(format!(
                "the card now stamps all frames; if it still does after the run: {within}hwstamp_ctl -i {} -t {} -r {}",
                quoted(interface),
                was[1],
                was[2]
            ));
            restore = Some(Restore { socket, interface: interface.to_owned(), was, set: now });
        }
        Ok(Stamping { clock: Arc::new(clock), notes, number, _restore: restore })
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        // Fails after privileges were dropped; the note has the command for it.
        if let Ok(ask) = Ethtool::new(self.socket.as_fd(), &self.interface)
            && ask.stamping().is_ok_and(|now| now == self.set)
        {
            let _ = ask.set_stamping(self.was);
        }
    }
}

/// Returns the number of the clock of a card that can stamp received frames, as reported by its driver.
pub(crate) fn able(said: Option<(u32, Option<u32>, u32)>) -> io::Result<u32> {
    let (kinds, clock, filters) = said.ok_or_else(|| unable("its driver does not report its timestamping"))?;
    let needed = STAMPS_HARDWARE | STAMPS_RAW;
    if kinds & needed != needed {
        return Err(unable("its driver does not support hardware timestamps"));
    }
    if filters >> STAMP_ALL & 1 == 0 {
        return Err(unable("the card stamps only some kinds of frames"));
    }
    clock.ok_or_else(|| unable("the card has no readable clock"))
}

fn unable(reason: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!("?stamp=hardware: {reason}; omit it to use the kernel's timestamps"),
    )
}

/// The counters of an interface, and the difference between the clocks.
pub(super) struct ClockMonitor {
    nic: NicMonitor,
    port: String,
    stamping: Stamping,
}

impl ClockMonitor {
    /// Wraps a monitor.
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
    fn cards_without_timestamps_are_rejected() {
        let said = |said| able(said).unwrap_err().to_string();
        assert!(said(None).contains("does not report"));
        // A veth: software only, without a clock.
        assert!(said(Some((0x1a, None, 0))).contains("hardware timestamps"));
        assert!(said(Some((0x5f, Some(0), 0b1001))).contains("some kinds of frames"));
        assert!(said(Some((0x5f, None, 0b11))).contains("no readable clock"));
        assert_eq!(able(Some((0x5f, Some(3), 0b11))).unwrap(), 3);
    }
}
