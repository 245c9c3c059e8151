//! Writing blocks, in native byte order.

use super::block::{self, HEAD, ORDER_MAGIC, SECTION_HEADER, TRAILER};
use super::option::{COMMENT, push, push_end, push_text};
use super::packet::{ENHANCED_FRAME, flags_option};
use linerate_burst::{Desc, Flags, Interface, Nanos, StampSource};

const SHB_HARDWARE: u16 = 2;
const SHB_OS: u16 = 3;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TSRESOL: u16 = 9;
const IF_OS: u16 = 12;
const ISB_STARTTIME: u16 = 2;
const ISB_ENDTIME: u16 = 3;
const ISB_IFRECV: u16 = 4;
const ISB_IFDROP: u16 = 5;
const ISB_FILTERACCEPT: u16 = 6;
const ISB_OSDROP: u16 = 7;
const ISB_USRDELIV: u16 = 8;

/// Ticks are nanoseconds.
const RESOLUTION: u8 = 9;

/// What an interface statistics block can say; `None` is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statistics {
    pub received: Option<u64>,
    pub dropped_by_interface: Option<u64>,
    pub accepted: Option<u64>,
    pub dropped_by_system: Option<u64>,
    pub delivered: Option<u64>,
}

/// Appends blocks to memory that is used again and again.
pub(crate) struct Encoder {
    bytes: Vec<u8>,
    os: String,
}

impl Encoder {
    pub fn new() -> Self {
        Encoder { bytes: Vec::new(), os: system() }
    }

    /// The blocks appended since the last [`clear`](Encoder::clear).
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The header of the one section; its length is left open, as for a pipe.
    pub fn section_header(&mut self) {
        let start = self.begin(SECTION_HEADER);
        self.bytes.extend(ORDER_MAGIC.to_ne_bytes());
        self.bytes.extend(1u16.to_ne_bytes());
        self.bytes.extend(0u16.to_ne_bytes());
        self.bytes.extend((-1i64).to_ne_bytes());
        push_text(&mut self.bytes, SHB_HARDWARE, &processor());
        push_text(&mut self.bytes, SHB_OS, &self.os);
        push_text(&mut self.bytes, SHB_USERAPPL, concat!("linerate ", env!("CARGO_PKG_VERSION")));
        push_end(&mut self.bytes);
        self.end(start);
    }

    pub fn interface(&mut self, interface: &Interface) {
        let start = self.begin(block::INTERFACE);
        self.bytes.extend(interface.link.0.to_ne_bytes());
        self.bytes.extend(0u16.to_ne_bytes());
        self.bytes.extend(interface.snap.to_ne_bytes());
        push_text(&mut self.bytes, IF_NAME, &interface.name);
        push_text(&mut self.bytes, IF_DESCRIPTION, &interface.description);
        push(&mut self.bytes, IF_TSRESOL, &[RESOLUTION]);
        if interface.stamp != StampSource::File {
            push_text(&mut self.bytes, IF_OS, &self.os);
            push_text(&mut self.bytes, COMMENT, &format!("time stamps: {}", interface.stamp.name()));
        }
        push_end(&mut self.bytes);
        self.end(start);
    }

    /// One frame of interface `id`.
    #[inline]
    pub fn frame(&mut self, id: u32, desc: &Desc, frame: &[u8]) {
        let start = self.bytes.len();
        let padded = frame.len().next_multiple_of(4);
        let mut head = [0; ENHANCED_FRAME];
        let words = [
            block::ENHANCED_PACKET,
            (ENHANCED_FRAME + padded + TRAILER) as u32,
            id,
            (desc.time.0 >> 32) as u32,
            desc.time.0 as u32,
            frame.len() as u32,
            desc.wire,
        ];
        for (bytes, word) in head.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(frame);
        self.bytes.extend_from_slice(&[0; 3][..padded - frame.len()]);
        if desc.flags.0 & (Flags::LATE | Flags::OUTGOING | Flags::DAMAGED).0 != 0 {
            self.frame_options(desc.flags);
            self.end(start);
        } else {
            self.bytes.extend_from_slice(&words[1].to_ne_bytes());
        }
    }

    #[cold]
    fn frame_options(&mut self, flags: Flags) {
        if let Some((code, word)) = flags_option(flags) {
            push(&mut self.bytes, code, &word.to_ne_bytes());
        }
        if flags.contains(Flags::LATE) {
            push_text(&mut self.bytes, COMMENT, "late");
        }
        push_end(&mut self.bytes);
    }

    /// The statistics of interface `id`, of which frames from `first` to `last` were written.
    pub fn statistics(&mut self, id: u32, first: Nanos, last: Nanos, statistics: &Statistics, comment: &str) {
        let words = |time: Nanos| [((time.0 >> 32) as u32).to_ne_bytes(), (time.0 as u32).to_ne_bytes()].concat();
        let start = self.begin(block::STATISTICS);
        self.bytes.extend(id.to_ne_bytes());
        self.bytes.extend(words(last));
        push(&mut self.bytes, ISB_STARTTIME, &words(first));
        push(&mut self.bytes, ISB_ENDTIME, &words(last));
        let counts = [
            (ISB_IFRECV, statistics.received),
            (ISB_IFDROP, statistics.dropped_by_interface),
            (ISB_FILTERACCEPT, statistics.accepted),
            (ISB_OSDROP, statistics.dropped_by_system),
            (ISB_USRDELIV, statistics.delivered),
        ];
        for (code, count) in counts {
            if let Some(count) = count {
                push(&mut self.bytes, code, &count.to_ne_bytes());
            }
        }
        push_text(&mut self.bytes, COMMENT, comment);
        push_end(&mut self.bytes);
        self.end(start);
    }

    /// Begins a block; [`end`](Encoder::end) puts its length in.
    fn begin(&mut self, kind: u32) -> usize {
        let start = self.bytes.len();
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend([0; HEAD - 4]);
        start
    }

    fn end(&mut self, start: usize) {
        let length = ((self.bytes.len() + TRAILER - start) as u32).to_ne_bytes();
        self.bytes[start + 4..start + HEAD].copy_from_slice(&length);
        self.bytes.extend(length);
    }
}

/// Name and release of the running system, as far as it tells.
fn system() -> String {
    let word = |name: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    format!("{} {}", word("ostype").trim(), word("osrelease").trim()).trim().to_owned()
}

/// The model of the processor, as far as the system tells.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find(|line| line.starts_with("model name"));
    model.and_then(|line| line.split_once(':')).map_or_else(String::new, |(_, model)| model.trim().to_owned())
}
