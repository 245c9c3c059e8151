//! Files of IPFIX (RFC 5655): messages one after another, each template in front of the first record that it is of.
//!
//! A file says nothing of when it was written: the time of a message is that of the latest packet in it and before.

use super::{Encoder, Settings};
use crate::ipfix::{Message, Packer, Profile, Version};
use linerate_burst::Nanos;
use linerate_meter::Flow;
use std::io::{self, Write};

/// The most bytes of a message in a file.
const MOST: usize = 32_000;

struct File {
    out: Box<dyn Write + Send>,
    packer: Packer,
    /// Data records so far.
    sequence: u32,
    /// Whether it is told what elements are.
    has_begun: bool,
    latest: Nanos,
    /// Empty between calls; their memory is kept.
    messages: Vec<Message>,
    bytes: Vec<u8>,
}

pub(super) fn start(out: Box<dyn Write + Send>, settings: &Settings) -> io::Result<Box<dyn Encoder>> {
    let packer = Packer::new(Profile { version: Version::Ipfix, most: MOST, ..settings.profile });
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
