//! What the user asked for, checked before anything is opened.

use crate::sys::area::Layout;
use crate::sys::bpf::Mode;
use linerate_port::{Found, PortError, RxOptions, Spec};
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The options of the backend, for receiving and for sending.
pub(super) const RX_OPTIONS: &[&str] = &["netns", "ring", "mode", "copy", "busy-poll", "pass"];
pub(super) const TX_OPTIONS: &[&str] = &["netns", "ring", "mode", "copy", "busy-poll"];

/// Memory for frames that wait to be read, over all queues of a port.
const RING_BYTES: u64 = 128 << 20;
/// Most and least frames that a queue's ring holds. Every frame takes the chunk that has not been used for longest, so
/// a ring beyond the processor's caches is slower (measured: 4.0 M frames/s with 16,384, 3.0 with 65,536).
const RING_FRAMES: (u64, u64) = (1 << 14, 1 << 12);
/// Frames that it holds where nothing is to be lost: 20 ms at 3.3 M frames/s.
const LOSSLESS_FRAMES: u64 = 1 << 16;
/// Frames that a queue's segment of an area holds, and bytes for each; no fewer bytes than this.
const AREA_FRAMES: u64 = 1 << 15;
const BYTES_PER_FRAME: u64 = 512;
const LEAST_AREA: u64 = 1 << 20;
/// Covers a poll of the card's queue, 64 frames, and a processor that is taken away in the midst of it.
const LAG: Duration = Duration::from_millis(1);
/// Link headers that a frame of MTU length may have in front: Ethernet and two VLAN tags.
const LINK_OVERHEAD: u32 = 14 + 8;
/// Bytes that the kernel leaves free in front of each frame (`XDP_PACKET_HEADROOM`).
const HEADROOM: u32 = 256;

/// How frames get into our memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copying {
    /// Zero copy where the driver can, else copied.
    Auto,
    /// Zero copy or nothing.
    Zero,
    /// Copied by the kernel.
    Copy,
}

/// Who puts frames into our memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    /// The XDP program itself, one behind the other.
    Area,
    /// AF_XDP.
    Socket,
    /// Nobody: the program counts them.
    Tally,
}

/// What the user asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Where the program runs; `None` for the best there is.
    pub mode: Option<Mode>,
    /// Who puts frames into our memory; `None` for the best there is.
    pub intake: Option<Via>,
    /// How frames get into our memory.
    pub copying: Copying,
    /// Frames that a queue's ring holds, where the user says so.
    ring: Option<u64>,
    /// Nothing is to be lost.
    lossless: bool,
    /// Frames that a call may take from the card's queue, where calls drive it.
    pub busy_poll: Option<u32>,
    /// How long after its stamp a frame may show up.
    pub lag: Duration,
    /// Most bytes of a frame that are wanted, 0 for all.
    pub snap: u32,
    /// Whether the host is to get the frames too, where the user says.
    pub pass: Option<bool>,
    /// The host gets the frames too.
    pub passes: bool,
    /// Counts are all that is wanted.
    tally: bool,
}

impl Wanted {
    /// Reads the options of a port.
    pub(super) fn read(spec: &Spec, options: &RxOptions) -> Result<Self, PortError> {
        let refuse = |reason: String| Err(PortError::wrong(spec.to_string(), reason));
        let (mode, intake) = match spec.option("mode") {
            None | Some("auto") => (None, None),
            Some("ring") => (Some(Mode::Native), Some(Via::Area)),
            Some("af_xdp") => (None, Some(Via::Socket)),
            Some("native") => (Some(Mode::Native), Some(Via::Socket)),
            Some("generic") => (Some(Mode::Generic), Some(Via::Socket)),
            Some(other) => {
                return refuse(format!("mode={other}: it is auto, ring, af_xdp, native or generic"));
            }
        };
        let copying = match spec.option("copy") {
            None | Some("auto") => Copying::Auto,
            Some("zero") => Copying::Zero,
            Some("copy") => Copying::Copy,
            Some(other) => return refuse(format!("copy={other}: it is auto, zero or copy")),
        };
        if (mode, copying) == (Some(Mode::Generic), Copying::Zero) {
            return refuse("copy=zero has the card write into our memory, which mode=generic is too late for".into());
        }
        // Both are matters of AF_XDP.
        let needs_socket = copying != Copying::Auto || spec.option("busy-poll").is_some();
        let intake = match intake {
            Some(Via::Area) if needs_socket => {
                return refuse("mode=ring needs no AF_XDP, so copy= and busy-poll= mean nothing with it".into());
            }
            None if needs_socket => Some(Via::Socket),
            intake => intake,
        };
        let pass = match spec.option("pass") {
            None => None,
            Some("yes") if options.take => {
                return refuse("pass=yes leaves the frames to the host too, --take takes them away".into());
            }
            Some("yes") if intake == Some(Via::Socket) => {
                return refuse("AF_XDP takes frames away: pass=yes is to be had with mode=ring, or none".into());
            }
            Some("yes") if !options.shared => {
                return refuse(
                    "frames that are answered or sent on are not for the host too: leave out pass=yes".into(),
                );
            }
            Some("yes") => Some(true),
            Some("no") => Some(false),
            Some(other) => return refuse(format!("pass={other}: it is yes or no")),
        };
        let ring = spec
            .option("ring")
            .map(|_| spec.number_in("ring", 0, 64..=1 << 19, "64 to 524288 (frames)"))
            .transpose()?;
        let busy_poll = spec
            .option("busy-poll")
            .map(|_| spec.number_in("busy-poll", 0, 1..=1024, "1 to 1024 (frames)"))
            .transpose()?;
        Ok(Wanted {
            mode,
            intake,
            copying,
            ring,
            lossless: options.lossless,
            busy_poll: busy_poll.map(|frames| frames as u32),
            lag: options.lag.unwrap_or(LAG),
            snap: options.snap,
            pass,
            passes: pass == Some(true),
            tally: options.tally && intake.is_none() && mode.is_none(),
        })
    }

    /// The same for a port that only sends: copied, unless something else was asked for, because a driver that does not
    /// copy may take the receiving half of the queue away from the host as well.
    pub(super) fn for_sending(&self) -> Self {
        let copying = if self.copying == Copying::Auto { Copying::Copy } else { self.copying };
        Wanted { copying, ..self.or_socket() }
    }

    /// The same for an interface that the host uses, if that is to have the frames too.
    pub(super) fn passing(&self) -> Self {
        Wanted { passes: self.pass != Some(false) && self.intake != Some(Via::Socket), ..*self }
    }

    /// Whether counts are all that is wanted, and the program may count.
    pub(super) fn tallies(&self) -> bool {
        self.tally && self.intake.is_none()
    }

    /// The same with whole frames.
    pub(super) fn whole(&self) -> Self {
        Wanted { snap: 0, ..*self }
    }

    /// The same by AF_XDP, unless something else was asked for, or the program is to count or to leave frames to the host too.
    pub(super) fn or_socket(&self) -> Self {
        if self.passes || self.tallies() {
            return *self;
        }
        Wanted { intake: self.intake.or(Some(Via::Socket)), ..*self }
    }

    /// How the memory is divided that the program writes frames into: as many frames of a chunk's length as the user asks for (or
    /// for nothing to be lost), else many short ones.
    pub(super) fn area(&self, queues: u32, chunk: u32) -> Layout {
        let asked = self.ring.or(self.lossless.then_some(LOSSLESS_FRAMES));
        let frames = asked.unwrap_or(AREA_FRAMES).next_power_of_two();
        let share = prev_power_of_two(RING_BYTES / u64::from(queues));
        let each = asked.map_or(BYTES_PER_FRAME, |_| chunk.into());
        let bytes = (frames * each).min(share).max(LEAST_AREA);
        Layout { queues, frames: frames as u32, bytes: bytes as u32 }
    }

    /// Entries of a queue's receive ring.
    pub(super) fn ring_frames(&self, queues: usize, chunk: u32) -> u32 {
        let (most, least) = RING_FRAMES;
        let frames = match self.ring {
            Some(frames) => frames.next_power_of_two(),
            None if self.lossless => LOSSLESS_FRAMES,
            None => {
                let share = RING_BYTES / u64::from(chunk) / queues.max(1) as u64;
                share.clamp(least, most).next_power_of_two().min(most)
            }
        };
        frames as u32
    }
}

fn prev_power_of_two(number: u64) -> u64 {
    1 << number.max(1).ilog2()
}

/// The queues of an interface that a port names: all where it names none.
pub(super) fn queues(spec: &Spec, count: u32) -> io::Result<RangeInclusive<u32>> {
    match spec.queues {
        None => Ok(0..=count.max(1) - 1),
        Some((first, last)) if last < count.max(1) => Ok(first..=last),
        Some(_) => {
            let reason = match count {
                0 | 1 => "the interface has one queue, @0".to_owned(),
                count => format!("the interface has {count} queues, @0-{}", count - 1),
            };
            Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
        }
    }
}

/// Bytes of a chunk: as much as a frame of MTU length needs, if there is such a chunk.
pub(super) fn chunk_bytes(found: &Found) -> u32 {
    if longest_frame(found) + HEADROOM <= 2048 { 2048 } else { 4096 }
}

/// The longest frame that the interface brings, unless the kernel has put several together.
pub(super) fn longest_frame(found: &Found) -> u32 {
    found.mtu.saturating_add(LINK_OVERHEAD)
}

/// Whether frames of MTU length need several chunks.
pub(super) fn needs_several_chunks(found: &Found) -> bool {
    longest_frame(found) + HEADROOM > 4096
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_copy_is_not_to_be_had_behind_the_driver() {
        let read = |text: &str| Wanted::read(&Spec::parse(text).unwrap(), &RxOptions::default());
        let refused = read("xdp:eth0?mode=generic&copy=zero").unwrap_err().to_string();
        assert!(refused.contains("copy=zero") && refused.contains("mode=generic"), "{refused}");
        assert!(read("xdp:eth0?mode=native&copy=zero").is_ok() && read("xdp:eth0?mode=generic&copy=copy").is_ok());
    }
}
