//! The sending side: one system call per frame.

use super::device::{Device, Queue};
use crate::virtio;
use linerate_burst::{Burst, Count, Ledger, Stage};
use linerate_port::{PortError, Sent, TxQueue};
use rustix::io::{Errno, writev};
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// No work for the kernel: checksums are complete.
const HEADER: [u8; virtio::LEN] = [0; virtio::LEN];
const ETHERNET: usize = 14;
/// EtherTypes of tags and of IP.
const TAGS: [u16; 2] = [0x8100, 0x88a8];
const IP: [u16; 2] = [0x0800, 0x86dd];

pub(super) struct TunTx {
    subject: String,
    device: Arc<Device>,
    queue: Queue,
    /// True if Ethernet headers are stripped before sending.
    strips: bool,
    received: u64,
    sent: Sent,
    refused: u64,
    full: u64,
}

/// Outcome of a frame.
enum SendOutcome {
    /// Number of bytes sent.
    Sent(usize),
    Refused,
    Waits,
}

impl TunTx {
    pub(super) fn new(subject: String, device: Arc<Device>, queue: Queue, strips: bool) -> Self {
        TunTx { subject, device, queue, strips, received: 0, sent: Sent::default(), refused: 0, full: 0 }
    }

    fn send_one(&self, frame: &[u8]) -> Result<SendOutcome, PortError> {
        let Some(packet) = (if self.strips { packet(frame) } else { Some(frame) }) else {
            return Ok(SendOutcome::Refused);
        };
        let port = || self.subject.clone();
        match writev(&*self.queue.fd, &[IoSlice::new(&HEADER), IoSlice::new(packet)]) {
            Ok(_) => Ok(SendOutcome::Sent(packet.len())),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => Ok(SendOutcome::Waits),
            Err(Errno::INVAL | Errno::MSGSIZE | Errno::FAULT) => Ok(SendOutcome::Refused),
            Err(_) if self.device.is_up().is_none() => Err(PortError::removed(port())),
            Err(Errno::IO) => Err(PortError::Down { port: port() }),
            Err(error) => Err(PortError::broken(port(), format!("sending failed: {error}"))),
        }
    }
}

impl TxQueue for TunTx {
    fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
        let mut done = 0;
        for (_, frame) in burst.iter() {
            match self.send_one(frame) {
                Ok(SendOutcome::Sent(bytes)) => {
                    self.sent.frames += 1;
                    self.sent.bytes += bytes as u64;
                }
                Ok(SendOutcome::Refused) => self.refused += 1,
                Ok(SendOutcome::Waits) => {
                    self.full += 1;
                    break;
                }
                // Frames before the error are sent; the error will recur.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            done += 1;
        }
        self.received += done as u64;
        Ok(done)
    }

    fn sent(&self) -> Sent {
        self.sent
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.fd.as_fd())
    }

    fn counters(&self, ledger: &mut Ledger) {
        let account = ledger.account(Stage::Send, &self.subject);
        account.add(Count::SendReceived, self.received).add(Count::Sent, self.sent.frames);
        account.add(Count::SendRefused, self.refused).add(Count::SendFull, self.full);
    }
}

/// Returns the IP packet of an Ethernet frame without padding; `None` for other frames.
fn packet(frame: &[u8]) -> Option<&[u8]> {
    let mut at = ETHERNET;
    let kind = |at: usize| Some(u16::from_be_bytes(frame.get(at - 2..at)?.try_into().ok()?));
    while TAGS.contains(&kind(at)?) {
        at += 4;
    }
    let packet = frame.get(at..).filter(|_| kind(at).is_some_and(|kind| IP.contains(&kind)))?;
    let half = |at: usize| Some(usize::from(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?)));
    let len = if packet.first()? >> 4 == 6 { half(4)? + 40 } else { half(2)? };
    Some(&packet[..len.min(packet.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_located_in_frames() {
        let mut ip = vec![0x45, 0, 0, 24, 0, 0, 0, 0, 64, 17];
        ip.resize(24, 7);
        let frame = |kinds: &[u8], payload: &[u8]| [&[2; 12], kinds, payload, &[0; 22]].concat();
        assert_eq!(packet(&frame(&[8, 0], &ip)), Some(&ip[..]));
        assert_eq!(packet(&frame(&[0x81, 0, 0, 5, 8, 0], &ip)), Some(&ip[..]));
        let six = [&[0x60, 0, 0, 0, 0, 3][..], &[1; 37]].concat();
        assert_eq!(packet(&frame(&[0x86, 0xdd], &six)), Some(&six[..]));
        assert_eq!(packet(&frame(&[8, 6], &ip)), None, "ARP");
        for len in 0..40 {
            let whole = frame(&[0x81, 0, 0, 5, 8, 0], &ip);
            assert!(packet(&whole[..len]).is_none_or(|packet| packet.len() <= len));
        }
    }
}
