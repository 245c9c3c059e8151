//! The sending side: `sendmmsg`, bypassing the queueing discipline.

use crate::sys::packet_socket::{PacketSocket, SEND_BATCH};
use linerate_burst::{Burst, Count, Ledger, Stage};
use linerate_port::{PortError, Sent, TxQueue};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes of an Ethernet header; the kernel sends no shorter frame.
const MIN_FRAME: usize = 14;

pub(super) struct PacketTx {
    subject: String,
    socket: PacketSocket,
    counts: SendCounts,
}

#[derive(Default)]
struct SendCounts {
    received: u64,
    sent: Sent,
    too_long: u64,
    too_short: u64,
    refused: u64,
    full: u64,
}

/// Outcome of the first frame of a burst that the kernel did not take.
enum Refusal {
    Full,
    Dropped,
}

impl PacketTx {
    /// Creates a queue over a bound socket.
    pub(super) fn new(subject: String, socket: PacketSocket) -> Self {
        PacketTx { subject, socket, counts: SendCounts::default() }
    }

    /// Handles an error about one frame.
    fn refuse(&mut self, error: &io::Error) -> Result<Refusal, PortError> {
        match error.raw_os_error() {
            // Without a carrier every frame is dropped with the error of a full queue.
            Some(libc::ENOBUFS) if !self.socket.interface_runs() => {
                return Err(PortError::Down { port: self.subject.clone() });
            }
            Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => {
                self.counts.full += 1;
                return Ok(Refusal::Full);
            }
            Some(libc::EMSGSIZE) => self.counts.too_long += 1,
            Some(libc::EINVAL | libc::EFAULT | libc::EIO) => self.counts.refused += 1,
            Some(libc::ENETDOWN) => return Err(PortError::Down { port: self.subject.clone() }),
            Some(libc::ENXIO | libc::ENODEV) => return Err(PortError::removed(&self.subject)),
            _ => return Err(PortError::broken(&self.subject, format!("sending failed: {error}"))),
        }
        Ok(Refusal::Dropped)
    }

    fn send_some(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
        let short = |frame: &[u8]| frame.len() < MIN_FRAME;
        let whole = burst.iter().take(SEND_BATCH).take_while(|(_, frame)| !short(frame)).count();
        if whole == 0 {
            self.counts.too_short += 1;
            return Ok(1);
        }
        match self.socket.send(burst.slice(0..whole)) {
            Ok(sent) => {
                self.counts.sent.add(burst.slice(0..sent));
                Ok(sent)
            }
            Err(error) => match self.refuse(&error)? {
                Refusal::Full => Ok(0),
                Refusal::Dropped => Ok(1),
            },
        }
    }
}

impl TxQueue for PacketTx {
    fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
        let mut done = 0;
        while done < burst.len() {
            match self.send_some(burst.slice(done..burst.len())) {
                Ok(0) => break,
                Ok(frames) => done += frames,
                // Frames before the error are sent; the error will recur.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        self.counts.received += done as u64;
        Ok(done)
    }

    fn sent(&self) -> Sent {
        self.counts.sent
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd().as_fd())
    }

    fn counters(&self, ledger: &mut Ledger) {
        let counts = &self.counts;
        let account = ledger.account(Stage::Send, &self.subject);
        account.add(Count::SendReceived, counts.received).add(Count::Sent, counts.sent.frames);
        account.add(Count::TooLong, counts.too_long).add(Count::TooShort, counts.too_short);
        account.add(Count::SendRefused, counts.refused).add(Count::SendFull, counts.full);
    }
}
