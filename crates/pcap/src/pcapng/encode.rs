//! Encodes blocks in native byte order.

use super::block::{self, HEAD, ORDER_MAGIC, SECTION_HEADER, TRAILER};
use super::option::{COMMENT, NATIVE, copy, has, push, push_end, push_text};
use super::packet::{ENHANCED_FRAME, flags_option};
use super::section::{IF_DESCRIPTION, IF_NAME, IF_TSRESOL};
use super::statistics;
use crate::origin::{Origin, Statistics};
use linerate_burst::{Desc, Flags, Interface, Nanos, StampSource};

const SHB_HARDWARE: u16 = 2;
const SHB_OS: u16 = 3;
const SHB_USERAPPL: u16 = 4;
const IF_OS: u16 = 12;

/// Ticks are nanoseconds.
const RESOLUTION: u8 = 9;

/// Appends blocks to a reused buffer.
pub(crate) struct Encoder {
    bytes: Vec<u8>,
    os: String,
}

impl Encoder {
    pub(crate) fn new() -> Self {
        Encoder { bytes: Vec::new(), os: system() }
    }

    /// Returns the blocks appended since the last [`clear`](Encoder::clear).
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Appends the header of the only section; its length is left open, as for a pipe. `kept` are the options of the
    /// section that the frames come from, if there is exactly one; else the header describes this system. `encoded`
    /// are comments as encoded options, `comments` are further ones.
    pub(crate) fn section_header(&mut self, kept: Option<&[u8]>, encoded: &[u8], comments: &[String]) {
        let start = self.begin(SECTION_HEADER);
        self.bytes.extend(ORDER_MAGIC.to_ne_bytes());
        self.bytes.extend(1u16.to_ne_bytes());
        self.bytes.extend(0u16.to_ne_bytes());
        self.bytes.extend((-1i64).to_ne_bytes());
        match kept {
            Some(kept) => self.bytes.extend_from_slice(kept),
            None => {
                push_text(&mut self.bytes, SHB_HARDWARE, &processor());
                push_text(&mut self.bytes, SHB_OS, &self.os);
            }
        }
        if !kept.is_some_and(|kept| has(kept, SHB_USERAPPL)) {
            push_text(&mut self.bytes, SHB_USERAPPL, concat!("linerate ", env!("CARGO_PKG_VERSION")));
        }
        self.bytes.extend_from_slice(encoded);
        for comment in comments {
            push_text(&mut self.bytes, COMMENT, comment);
        }
        push_end(&mut self.bytes);
        self.end(start);
    }

    /// Appends the comments among encoded options to others.
    pub(crate) fn comments(&self, options: &[u8], to: &mut Vec<u8>) {
        copy(options, NATIVE, &[], to);
    }

    /// Appends an interface with a snap length: the metadata of its origin, else what is known here. `comments` are
    /// further ones, encoded.
    pub(crate) fn interface(&mut self, interface: &Interface, snap: u32, origin: Option<&Origin>, comments: &[u8]) {
        let start = self.begin(block::INTERFACE);
        self.bytes.extend(interface.link.0.to_ne_bytes());
        self.bytes.extend(0u16.to_ne_bytes());
        self.bytes.extend(snap.to_ne_bytes());
        match origin {
            Some(origin) => self.bytes.extend_from_slice(&origin.options),
            None => {
                push_text(&mut self.bytes, IF_NAME, &interface.name);
                push_text(&mut self.bytes, IF_DESCRIPTION, &interface.description);
            }
        }
        // After the metadata of the origin, where a reader of this file finds them: a copy is then identical.
        self.bytes.extend_from_slice(comments);
        push(&mut self.bytes, IF_TSRESOL, &[RESOLUTION]);
        if interface.stamp != StampSource::File {
            push_text(&mut self.bytes, IF_OS, &self.os);
            push_text(&mut self.bytes, COMMENT, &format!("time stamps: {}", interface.stamp.name()));
        }
        push_end(&mut self.bytes);
        self.end(start);
    }

    /// Appends a frame of interface `id` with its FCS; `fcs` is the FCS length if it differs from that of the
    /// interface, `note` are encoded options of the frame.
    #[inline]
    pub(crate) fn frame(&mut self, id: u32, desc: &Desc, frame: &[u8], fcs: u32, note: &[u8]) {
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
            desc.wire.saturating_add(desc.fcs()),
        ];
        for (bytes, word) in head.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(frame);
        self.bytes.extend_from_slice(&[0; 3][..padded - frame.len()]);
        let said = Flags::LATE | Flags::OUTGOING | Flags::INCOMING | Flags::DAMAGED;
        if desc.flags.0 & said.0 != 0 || fcs != 0 || !note.is_empty() {
            self.frame_options(desc.flags, fcs, note);
            self.end(start);
        } else {
            self.bytes.extend_from_slice(&words[1].to_ne_bytes());
        }
    }

    #[cold]
    fn frame_options(&mut self, flags: Flags, fcs: u32, note: &[u8]) {
        if let Some((code, word)) = flags_option(flags, fcs, note) {
            push(&mut self.bytes, code, &word.to_ne_bytes());
        }
        if flags.contains(Flags::LATE) {
            push_text(&mut self.bytes, COMMENT, "late");
        }
        self.bytes.extend_from_slice(note);
        push_end(&mut self.bytes);
    }

    /// Appends the statistics of interface `id` at `time`, with one more comment unless it is empty.
    pub(crate) fn statistics(&mut self, id: u32, time: Nanos, statistics: &Statistics, comment: &str) {
        let start = self.begin(block::STATISTICS);
        self.bytes.extend(id.to_ne_bytes());
        self.bytes.extend(statistics::words(time));
        statistics::encode(statistics, &mut self.bytes);
        push_text(&mut self.bytes, COMMENT, comment);
        push_end(&mut self.bytes);
        self.end(start);
    }

    /// Appends an encoded block.
    pub(crate) fn whole(&mut self, block: &[u8]) {
        self.bytes.extend_from_slice(block);
    }

    /// Starts a block; [`end`](Encoder::end) fills in its length.
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

/// Returns name and release of the operating system, if available.
fn system() -> String {
    let word = |name: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    format!("{} {}", word("ostype").trim(), word("osrelease").trim()).trim().to_owned()
}

/// Returns the processor model, if available.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find(|line| line.starts_with("model name"));
    model.and_then(|line| line.split_once(':')).map_or_else(String::new, |(_, model)| model.trim().to_owned())
}
