//! IPFIX files (RFC 5655): a sequence of messages, each template before its first record.
//!
//! A file does not contain the time of writing: the export time of a message is the latest packet time so far.

use super::{Encoder, Settings};
use crate::ipfix::{Message, Packer, Profile, Version};
use linerate_burst::Nanos;
use linerate_meter::Flow;
use std::io::{self, Write};

/// Maximum message size in bytes in a file.
const MOST: usize = 32_000;

struct File {
    out: Box<dyn Write + Send>,
    packer: Packer,
    /// Number of data records so far.
    sequence: u32,
    /// True after the types of elements were written.
    has_begun: bool,
    latest: Nanos,
    /// Empty between calls; keeps its allocation.
    messages: Vec<Message>,
    bytes: Vec<u8>,
}

pub(super) fn start(out: Box<dyn Write + Send>, settings: &Settings) -> io::Result<Box<dyn Encoder>> {
    let packer = Packer::new(Profile { version: Version::Ipfix, most: MOST, ..settings.profile.of_file() });
    Ok(Box::new(File {
        out,
        packer,
        sequence: 0,
        has_begun: false,
        latest: Nanos(0),
        messages: Vec::new(),
        bytes: Vec::new(),
    }))
}

impl Encoder for File {
    fn write(&mut self, flows: &[&Flow]) -> io::Result<()> {
        let latest = flows.iter().map(|flow| flow.last()).max().unwrap_or_default();
        self.latest = self.latest.max(latest);
        self.packer.pack(flows, self.latest, &mut self.messages);
        self.bytes.clear();
        if !std::mem::replace(&mut self.has_begun, true) {
            let mut sequence = 0;
            for mut message in self.packer.types(self.latest) {
                message.number(Version::Ipfix, sequence);
                sequence += message.records;
                self.bytes.extend_from_slice(&message.bytes);
            }
        }
        for mut message in self.messages.drain(..) {
            message.number(Version::Ipfix, self.sequence);
            self.sequence = self.sequence.wrapping_add(message.records);
            self.bytes.extend_from_slice(&message.bytes);
        }
        self.out.write_all(&self.bytes)?;
        self.out.flush()
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.out.flush()
    }
}
