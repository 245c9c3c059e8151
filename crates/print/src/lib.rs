//! Frames as text, one line each, in the format of tcpdump: to read or to grep.
//!
//! Headers are found by [`linerate_headers::dissect()`]; each protocol has a module here that formats them, and `walk`
//! visits them in order. Payload after the last header is decoded if ports or first bytes identify it: DNS, DHCP, NTP,
//! TLS hellos, the first line of HTTP, the long header of QUIC, ISAKMP. Names are never resolved.
//!
//! # Bounds
//! All bytes are untrusted. A line has at most [`MAX_LINE`] bytes, and ends in `[...]` if it was truncated; it is
//! printable ASCII: text from the wire is escaped (`\x1b`). A DNS name follows at most 127 pointers, each to an earlier
//! offset. The packet quoted by an ICMP error is decoded, but none that this one quotes. TCP sequence numbers are
//! relative for the last 131,072 connections, in 8 MiB that are allocated with the first one; evicted connections start
//! again with absolute numbers.
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
mod bursts;
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

pub use self::bursts::BurstPrinter;
pub use self::bytes::Bytes;
pub use self::text::MAX_LINE;
pub use self::time::{Time, date};

use self::connections::Connections;
use self::text::Text;
use self::time::PreviousTimes;
use self::walk::LinePrinter;
use linerate_headers::{Layers, Link, dissect};

/// Output options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Prints the link header.
    pub link: bool,
    /// Prints more of each header: TTL, identification, checksums, the packet quoted by an error.
    pub verbose: bool,
    /// Does not verify checksums, which `verbose` prints otherwise.
    pub unverified: bool,
    /// Prints less: no TCP sequence numbers, windows and options, and no UDP payload.
    pub brief: bool,
    /// Prints absolute TCP sequence numbers.
    pub absolute: bool,
    /// Prints nine digits of the second instead of six.
    pub nanos: bool,
    /// Timestamp format.
    pub time: Time,
    /// Dump of bytes in separate lines.
    pub bytes: Bytes,
}

impl Options {
    /// Returns whether checksums are verified.
    pub(crate) fn verifies(self) -> bool {
        self.verbose && !self.unverified
    }
}

/// Frame to print.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Timestamp: nanoseconds since 1970, UTC.
    pub time: u64,
    /// Interface name; empty to omit it.
    pub interface: &'a str,
    /// Link type: a number of the tcpdump.org link-layer header type registry.
    pub link: u16,
    /// Captured bytes.
    pub bytes: &'a [u8],
    /// Length on the wire.
    pub wire: u32,
}

/// Prints frames; keeps TCP connections and timestamps.
#[derive(Debug)]
pub struct Printer {
    options: Options,
    layers: Layers,
    before: PreviousTimes,
    connections: Connections,
}

impl Printer {
    /// Creates a printer without connections.
    pub fn new(options: Options) -> Self {
        let connections = Connections::new(options.absolute || options.brief);
        Printer { options, layers: Layers::new(), before: PreviousTimes::default(), connections }
    }

    /// Appends the line of a frame, and the lines of its dump, to `out`.
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
                LinePrinter::new(text, frame.bytes, wire, options, layers, connections).run();
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
