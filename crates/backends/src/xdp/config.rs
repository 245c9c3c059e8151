//! Options of a port, checked before anything is opened.

use crate::drivers::rounds_buffers;
use crate::sys::area::Layout;
use crate::sys::bpf::Mode;
use linerate_port::{InterfaceInfo, PortError, RxOptions, Spec};
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Options of the backend, for receiving and for sending.
pub(super) const RX_OPTIONS: &[&str] = &["netns", "ring", "mode", "copy", "busy-poll", "pass"];
pub(super) const TX_OPTIONS: &[&str] = &["netns", "ring", "mode", "copy", "busy-poll"];

/// Memory for unread frames, of all queues of a port; an area has half as much again at most, for the first rings.
const RING_BYTES: u64 = 128 << 20;
/// Maximum and minimum ring size. Every frame takes the least recently used chunk, so a ring larger than the
/// processor's caches is slower (measured: 4.0 M frames/s with 16,384, 3.0 with 65,536).
const RING_FRAMES: (u64, u64) = (1 << 14, 1 << 12);
/// Ring size for lossless capture: 20 ms at 3.3 M frames/s.
const LOSSLESS_FRAMES: u64 = 1 << 16;
/// Frames of a queue's segment of an area, and bytes per frame; with a minimum size.
const AREA_FRAMES: u64 = 1 << 15;
const BYTES_PER_FRAME: u64 = 512;
const LEAST_AREA: u64 = 1 << 20;
/// Covers a poll of the card's queue, 64 frames, on a processor that is preempted.
const LAG: Duration = Duration::from_millis(1);
/// Link headers of a frame of MTU length: Ethernet and two VLAN tags.
const LINK_OVERHEAD: u32 = 14 + 8;
/// Bytes that the kernel leaves free before each frame (`XDP_PACKET_HEADROOM`).
const HEADROOM: u32 = 256;
/// Bytes of the largest chunk: a page.
const LARGEST_CHUNK: u32 = 4096;
/// Largest MTU whose frames fit one chunk.
pub(super) const LARGEST_MTU: u32 = LARGEST_CHUNK - HEADROOM - LINK_OVERHEAD;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyMode {
    /// Zero copy if the driver supports it, else copied.
    Auto,
    /// Zero copy only.
    Zero,
    /// Copied by the kernel.
    Copy,
}

/// Path of frames into our memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RxPath {
    /// The XDP program writes them, packed.
    Area,
    /// AF_XDP.
    Socket,
    /// None: the program counts them.
    Tally,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct XdpConfig {
    /// Mode of the program; `None` for the best one.
    pub mode: Option<Mode>,
    /// Path of frames into our memory; `None` for the best one.
    pub intake: Option<RxPath>,
    /// Copy mode of AF_XDP.
    pub copying: CopyMode,
    /// Ring size, if set by the user.
    ring: Option<u64>,
    /// True if losses must be avoided.
    lossless: bool,
    /// Frames that a system call may take from the card's queue, with busy polling.
    pub busy_poll: Option<u32>,
    /// Maximum time from a frame's timestamp until it is visible.
    pub lag: Duration,
    /// Maximum bytes of a frame, 0 for all.
    pub snap: u32,
    /// Choice of the user whether the host receives the frames too.
    pub pass: Option<bool>,
    /// True if the host receives the frames too.
    pub passes: bool,
    /// True if only counts are needed.
    tally: bool,
}

impl XdpConfig {
    /// Parses the options of a port.
    pub(super) fn read(spec: &Spec, options: &RxOptions) -> Result<Self, PortError> {
        let refuse = |reason: String| Err(PortError::wrong(spec.to_string(), reason));
        let (mode, intake) = match spec.option("mode") {
            None | Some("auto") => (None, None),
            Some("ring") => (Some(Mode::Native), Some(RxPath::Area)),
            Some("af_xdp") => (None, Some(RxPath::Socket)),
            Some("native") => (Some(Mode::Native), Some(RxPath::Socket)),
            Some("generic") => (Some(Mode::Generic), Some(RxPath::Socket)),
            Some(other) => {
                return refuse(format!("mode={other}: expected auto, ring, af_xdp, native or generic"));
            }
        };
        let copying = match spec.option("copy") {
            None | Some("auto") => CopyMode::Auto,
            Some("zero") => CopyMode::Zero,
            Some("copy") => CopyMode::Copy,
            Some(other) => return refuse(format!("copy={other}: expected auto, zero or copy")),
        };
        if (mode, copying) == (Some(Mode::Generic), CopyMode::Zero) {
            return refuse("copy=zero does not work with mode=generic, which runs after the driver".into());
        }
        // Both are options of AF_XDP.
        let needs_socket = copying != CopyMode::Auto || spec.option("busy-poll").is_some();
        let intake = match intake {
            Some(RxPath::Area) if needs_socket => {
                return refuse("copy= and busy-poll= are options of AF_XDP; omit them with mode=ring".into());
            }
            None if needs_socket => Some(RxPath::Socket),
            intake => intake,
        };
        let pass = match spec.option("pass") {
            None => None,
            Some("yes") if options.take => {
                return refuse("pass=yes shares frames with the host, --take takes them away; use one of them".into());
            }
            Some("yes") if intake == Some(RxPath::Socket) => {
                return refuse(
                    "pass=yes does not work with AF_XDP, which takes frames away; use mode=ring, or omit mode=".into(),
                );
            }
            Some("yes") if !options.shared => {
                return refuse(
                    "frames that are answered or forwarded cannot be shared with the host; omit pass=yes".into(),
                );
            }
            Some("yes") => Some(true),
            Some("no") => Some(false),
            Some(other) => return refuse(format!("pass={other}: expected yes or no")),
        };
        let ring = spec
            .option("ring")
            .map(|_| spec.number_in("ring", 0, 64..=1 << 19, "64 to 524288 (frames)"))
            .transpose()?;
        let busy_poll = spec
            .option("busy-poll")
            .map(|_| spec.number_in("busy-poll", 0, 1..=1024, "1 to 1024 (frames)"))
            .transpose()?;
        Ok(XdpConfig {
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

    /// Returns the options for a port that only sends: copied unless set otherwise, because with zero copy a driver may
    /// take the receiving half of the queue away from the host too.
    pub(super) fn for_sending(&self) -> Self {
        let copying = if self.copying == CopyMode::Auto { CopyMode::Copy } else { self.copying };
        XdpConfig { copying, ..self.or_socket() }
    }

    /// Returns the options for an interface that the host uses, with frames shared if possible.
    pub(super) fn passing(&self) -> Self {
        XdpConfig { passes: self.pass != Some(false) && self.intake != Some(RxPath::Socket), ..*self }
    }

    /// Returns whether only counts are needed, and the program may count.
    pub(super) fn tallies(&self) -> bool {
        self.tally && self.intake.is_none()
    }

    /// Returns the options with whole frames.
    pub(super) fn whole(&self) -> Self {
        XdpConfig { snap: 0, ..*self }
    }

    /// Returns the options with AF_XDP, unless set otherwise, or the program must count or share frames with the host.
    pub(super) fn or_socket(&self) -> Self {
        if self.passes || self.tallies() {
            return *self;
        }
        XdpConfig { intake: self.intake.or(Some(RxPath::Socket)), ..*self }
    }

    /// Returns the layout of the memory that the program writes into: for a number of frames of chunk length if the
    /// user sets it (or for lossless capture), else for many short ones.
    pub(super) fn area(&self, queues: u32, chunk: u32) -> Layout {
        let asked = self.ring.or(self.lossless.then_some(LOSSLESS_FRAMES));
        let frames = asked.unwrap_or(AREA_FRAMES).next_power_of_two();
        let share = prev_power_of_two(RING_BYTES / u64::from(queues));
        let each = asked.map_or(BYTES_PER_FRAME, |_| chunk.into());
        let bytes = (frames * each).min(share).max(LEAST_AREA);
        Layout { queues, frames: frames as u32, bytes: bytes as u32 }
    }

    /// Returns the entries of a queue's receive ring.
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

/// Returns the queues that a port names: all by default.
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

/// Returns the bytes of a chunk: enough for a frame of MTU length, if such a chunk exists.
pub(super) fn chunk_bytes(found: &InterfaceInfo) -> u32 {
    if longest_frame(found) + HEADROOM <= 2048 && !rounds_buffers(found) { 2048 } else { LARGEST_CHUNK }
}

/// Returns the longest frame of the interface, unless the kernel has merged several.
pub(super) fn longest_frame(found: &InterfaceInfo) -> u32 {
    found.mtu.saturating_add(LINK_OVERHEAD)
}

/// Returns whether frames of MTU length need several chunks.
pub(super) fn needs_several_chunks(found: &InterfaceInfo) -> bool {
    longest_frame(found) + HEADROOM > LARGEST_CHUNK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_copy_is_rejected_in_generic_mode() {
        let read = |text: &str| XdpConfig::read(&Spec::parse(text).unwrap(), &RxOptions::default());
        let refused = read("xdp:eth0?mode=generic&copy=zero").unwrap_err().to_string();
        assert!(refused.contains("copy=zero") && refused.contains("mode=generic"), "{refused}");
        assert!(read("xdp:eth0?mode=native&copy=zero").is_ok() && read("xdp:eth0?mode=generic&copy=copy").is_ok());
    }
}
