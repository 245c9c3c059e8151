//! Frames as text, one line each, in the order and the words of tcpdump: for whoever reads it with their eyes, or with grep.
//!
//! Headers are those that [`linerate_wire::dissect()`] finds; each protocol has a file here that says them, and `walk` goes from one to
//! the next. What is behind the last header is looked at where its ports or its first bytes say what it is: DNS, DHCP, NTP,
//! TLS hellos, the first line of HTTP, the long header of QUIC, ISAKMP. A name is never looked up.
//!
//! # Bounds
//! All bytes are hostile. A line has at most [`MAX_LINE`] bytes and ends in `[...]` if it had more; it is visible ASCII: whatever text
//! comes from the wire is escaped (`\x1b`). A name of DNS follows at most 127 pointers, each further to the front. One packet that an ICMP error quotes is looked into, none that this quotes. Numbers of TCP are relative to those of
//! the last 131,072 connections, in 8 MiB that are taken with the first one; who is forgotten begins anew, with absolute numbers.
//!
//! ```
//! use linerate_print::{Frame, Options, Printer};
//!
//! let bytes = [
//!     0x45, 0, 0, 33, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x10, 0x92, 0, 9, 0, 13, 0, 0, 1, 2, 3, 4, 5,
//! ];
//! let frame = Frame { time: 1_500_000_000, interface: "", link: 101, bytes: &bytes, wire: 33 };
//! let mut out = Vec::new();
//! Printer::new(Options::default()).line(&frame, &mut out);
//! assert_eq!(out, b"00:00:01.500000 IP 10.0.0.1.4242 > 10.0.0.2.9: UDP, length 5\n");
//! ```
#![forbid(unsafe_code)]

mod arp;
mod bytes;
mod connections;
mod dhcp;
mod dns;
mod http;
mod icmp;
mod icmpv6;
mod igmp;
mod ip;
mod link;
mod llc;
mod names;
mod ntp;
mod quic;
mod read;
mod routing;
mod sctp;
mod tcp;
mod text;
mod time;
mod tls;
mod tunnel;
mod udp;
mod walk;

pub use self::bytes::Bytes;
pub use self::text::MAX_LINE;
pub use self::time::{Time, date};

use self::connections::Connections;
use self::text::Text;
use self::time::Before;
use self::walk::Walk;
use linerate_wire::{Layers, Link, dissect};

/// What is said of each frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The header of the link too.
    pub link: bool,
    /// More of each header: time to live, identification, checksums, the packet that an error quotes.
    pub verbose: bool,
    /// Less: no numbers, windows and options of TCP, nothing of what UDP carries.
    pub brief: bool,
    /// Numbers of TCP as they are, not relative to the first ones of their connection.
    pub absolute: bool,
    /// Nine digits of the second instead of six.
    pub nanos: bool,
    /// How the time is written.
    pub time: Time,
    /// Which of its bytes follow in lines of their own.
    pub bytes: Bytes,
}

/// A frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// When it was seen: nanoseconds since 1970, UTC.
    pub time: u64,
    /// Where; empty where that need not be said.
    pub interface: &'a str,
    /// What it begins with: a number of the tcpdump.org link-layer header type registry.
    pub link: u16,
    /// Its bytes, as far as they were captured.
    pub bytes: &'a [u8],
    /// Bytes that it had on the wire.
    pub wire: u32,
}

/// Writes frame after frame.
#[derive(Debug)]
pub struct Printer {
    options: Options,
    layers: Layers,
    before: Before,
    connections: Connections,
}

impl Printer {
    /// That has seen no frame yet.
    pub fn new(options: Options) -> Self {
        let connections = Connections::new(options.absolute || options.brief);
        Printer { options, layers: Layers::new(), before: Before::default(), connections }
    }

    /// Puts the line of the next frame, and those of its bytes, behind `out`.
    pub fn line(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        let Printer { options, layers, before, connections } = self;
        let mut text = Text::new(out);
        before.write(options.time, frame.time, if options.nanos { 9 } else { 6 }, &mut text);
        if !frame.interface.is_empty() {
            text.wire(frame.interface.as_bytes(), 64);
            text.str(" ");
        }
        let link = Link::from_linktype(frame.link);
        match link {
            Some(link) => {
                dissect(link, frame.bytes, layers);
                let wire = (frame.wire as usize).max(frame.bytes.len());
                Walk::new(text, frame.bytes, wire, options, layers, connections).run();
            }
            None => {
                text.str("link type ");
                text.dec(frame.link);
                text.str(", length ");
                text.dec(frame.wire);
                text.end();
            }
        }
        if options.bytes.is_wanted() {
            let start = if options.bytes.link { 0 } else { link.map_or(0, |_| link::end(layers)) };
            options.bytes.write(frame.bytes.get(start..).unwrap_or_default(), out);
        }
    }
}
