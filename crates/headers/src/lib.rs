//! Headers as views and values, checksums, and the layered dissection of a frame.
//!
//! A *view* borrows bytes: `View::parse` checks every length once, then its getters cannot fail. A *value* is a plain
//! struct that is read from a view and *emitted* into bytes; fields that depend on other bytes (header lengths, total
//! lengths, checksums) are not in it but computed when it is emitted. [`dissect`](dissect()) walks a frame from the
//! outermost header inwards, allocates nothing, and returns the position of each header and the reason why it stopped.
//! [`build`] makes a frame of values and a payload.
//!
//! In the order of a frame:
//!
//! - [`link`]: first headers of a frame: [`ethernet`] with [`llc`] (802.3) and [`vlan`], [`null`], [`sll`],
//!   [`sll2`], [`ppp`], [`chdlc`];
//! - [`mpls`], [`pseudowire`], [`pppoe`];
//! - [`arp`], [`ipv4`], [`ipv6`], [`ipv6_extension`], [`ipv6_fragment`], [`mobility`], [`hip`], [`shim6`], [`ah`];
//! - [`tcp`], [`tcp_option`], [`udp`], [`udp_lite`], [`sctp`], [`icmp`], [`icmpv6`], [`ndp`], [`igmp`], [`esp`];
//! - tunnels: [`gre`], [`erspan`], [`vxlan`], [`geneve`], [`gtp_u`], [`teredo`], and IP in IP;
//! - [`options`]: the kind, length, data lists of IPv4 and TCP; [`checksum`]: RFC 1071 and RFC 1624; [`crc32c`];
//! - [`registry`]: one row per protocol; [`number`]: the numbers that select the next protocol;
//! - [`dissect`](mod@dissect): the walk, its results in [`layers`];
//! - [`flow`]: the symmetric flow hash of a frame;
//! - [`build`]: frames from headers, with all dependent fields computed; [`coverage`]: bytes covered by each checksum;
//! - [`named`]: headers and fields by the names that users write;
//! - [`error`]: errors of parsing and emitting.
//!
//! # Length of a payload
//! Frames are captured without FCS, may be truncated by a snap length and padded to Ethernet's minimum size. So a
//! payload ends at the end given by its header's length field, or at the end of the bytes if that is earlier; `is_cut`
//! then returns true. Padding after the length is never payload. A length of 0 in IPv4, IPv6 and UDP, as with
//! segmentation offload and jumbograms (RFC 2675), means all bytes present.
//!
//! ```
//! use linerate_headers::{Layers, Link, Protocol, Stop, dissect};
//!
//! let mut frame = [0u8; 60];
//! frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]); // Ethernet type IPv4; version 4, 20 bytes of header
//! frame[16..18].copy_from_slice(&[0, 28]); // total length
//! frame[23] = 17; // UDP
//! frame[38..40].copy_from_slice(&[0, 8]); // UDP length
//! let mut layers = Layers::new();
//! dissect(Link::Ethernet, &frame, &mut layers);
//! let protocols: Vec<_> = layers.as_slice().iter().map(|layer| layer.protocol).collect();
//! assert_eq!(protocols, [Protocol::Ethernet, Protocol::Ipv4, Protocol::Udp]);
//! assert_eq!((layers.l3(), layers.l4(), layers.stop()), (14, 34, Stop::End));
//! ```
//!
//! # Dissection
//!
//! One row of [`registry`] per protocol: the numbers that select it, and a function that returns the length of a header
//! and the number that it selects. Numbers are looked up in a hash table that is made from the rows at compile time. A
//! UDP port is only a hint: the bytes after it must be a plausible header (version, flags, reserved bits), else they
//! are payload. Protocols with nothing to verify, such as ESP or MPLS in UDP, are not guessed.
//!
//! Most frames are Ethernet, tags, IP and TCP or UDP. They have a fast path (`common`), which a property test compares
//! with the general walk, and which does not slow down with the number of protocols: UDP ports are compared with all
//! known ones at once.
//!
//! A frame has at most 16 layers (the deepest of 100,000 real frames has 10). Deeper ones end with a reason, as
//! everything that cannot be walked does. A label stack, or a chain of GTP extension headers, is one layer of at most
//! 65,535 bytes. A header is read at most twice, so hostile frames take no longer than long ones. `l3` and `l4` of a
//! desc are for the outermost IP packet; [`Layers`] also has the innermost.
//!
//! # The flow hash
//!
//! It sorts the endpoints, then multiplies ([`flow`]): hashes that add or xor them send flows with consecutive
//! addresses to one shard of sixteen. It has no secret, so that shards agree between programs and machines.
#![forbid(unsafe_code)]

pub mod ah;
pub mod arp;
pub mod build;
pub mod chdlc;
pub mod checksum;
mod common;
pub mod coverage;
pub mod crc32c;
pub mod dissect;
pub mod error;
pub mod erspan;
pub mod esp;
pub mod ethernet;
pub mod flow;
pub mod geneve;
pub mod gre;
pub mod gtp_u;
pub mod hip;
pub mod icmp;
pub mod icmpv6;
pub mod igmp;
pub mod ipv4;
pub mod ipv6;
pub mod ipv6_extension;
pub mod ipv6_fragment;
pub mod layers;
pub mod link;
pub mod llc;
mod lookup;
pub mod mac;
pub mod mobility;
pub mod mpls;
pub mod named;
pub mod ndp;
pub mod null;
pub mod number;
pub mod options;
pub mod ppp;
pub mod pppoe;
pub mod pseudowire;
pub mod registry;
pub mod sctp;
pub mod shim6;
pub mod sll;
pub mod sll2;
pub mod tcp;
pub mod tcp_option;
pub mod teredo;
pub mod udp;
pub mod udp_lite;
pub mod vlan;
pub mod vxlan;

pub use checksum::{Pseudo, Sum};
pub use coverage::{Coverage, HeaderSpan};
pub use crc32c::Crc32c;
pub use dissect::dissect;
pub use error::{EmitError, Flaw, Malformed};
pub use layers::{Layer, Layers, MAX_LAYERS, Stop};
pub use link::Link;
pub use mac::MacAddr;
pub use number::Number;
pub use registry::{Protocol, Role};
